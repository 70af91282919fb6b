"""A call of a user's function: its module, its arguments as text, the devices they are placed on.

Invariant: every command that takes FILE:FUNCTION and --args reads them here. `bufdb.blame.script`
loads this file in environments without bufdb, so it is Python 3.9 and imports nothing of bufdb.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import inspect
import io
import math
import os
import re
import shlex
import sys
import tokenize
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

ARGV = "BUFDB_ARGV"
"""Variable of the environment: what a file finds in sys.argv after its name, as in a shell."""


class WrongCallError(ValueError):
    """There is no such file or function, or the function takes other arguments."""

    is_worded = True
    exit_code = 2
    """That of a usage error, see `bufdb.capture.worker`."""


# -- The function ----------------------------------------------------------------------------------


def split(spec: str) -> tuple[str, str]:
    """Return the file or module, and the function, of FILE:FUNCTION; '' for a missing file.

    FUNCTION may be a call that makes one, such as make_step(Config()).
    """
    head, parenthesis, rest = spec.partition("(")
    place, _, name = head.rpartition(":")
    return place, name + parenthesis + rest


def short_name(spec: str) -> str:
    """Return the name of the function, or of what makes it."""
    return split(spec)[1].partition("(")[0]


def module(place: str) -> ModuleType:
    """Import and return the module of a file or of a dotted name.

    A file whose folder has `__init__.py` is imported by its dotted name, so that its relative
    imports work.

    Its sys.argv is its name with the words of `ARGV`, since it may parse them when it is imported.

    Raises:
        WrongCallError: there is no such file or module, another module has that name, or it ends
            Python, as argparse does.
    """
    sys.argv = [place, *shlex.split(os.environ.get(ARGV, ""))]
    try:
        return _module(place)
    except SystemExit as error:
        raise WrongCallError(
            f"{place} ends Python when it is imported (code {error.code}); --argv WORDS gives it "
            f"the words that it parses, or ask about a command: -- python {place}"
        ) from error


def _module(place: str) -> ModuleType:
    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` does
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise  # a module that this one imports
            raise WrongCallError(f"no module {place!r}; a file's name ends in .py") from error
    path = Path(place)
    if not path.is_file():
        raise WrongCallError(f"no file {place}")
    # For packages of a project whose root it is; last, since it may have a types.py.
    sys.path.append(os.getcwd())  # noqa: PTH109
    dotted = _dotted(path.absolute())
    return _of_file(path) if dotted is None else _of_package(path, *dotted)


def _dotted(path: Path) -> tuple[Path, str] | None:
    """Return the folder that contains a file's outermost package, and the file's dotted name.

    None if the file is in no package, or Python cannot import it by name.
    """
    folder, names = path.parent, [path.stem]
    while (folder / "__init__.py").is_file() and folder.name:
        names.insert(0, folder.name)
        folder = folder.parent
    if folder == path.parent or any("." in name for name in names):
        return None
    return folder, ".".join(names).removesuffix(".__init__")


def _of_package(path: Path, root: Path, name: str) -> ModuleType:
    """Import the module of a file by its dotted name.

    Raises:
        WrongCallError: the name is that of another file.
    """
    sys.path.insert(0, str(root))
    # For imports of neighbors without a dot; last, since the package may have a types.py.
    sys.path.append(str(path.parent.absolute()))
    loaded = importlib.import_module(name)
    file = loaded.__file__
    if file is None or not path.samefile(file):
        raise WrongCallError(
            f"{path} is {name} by the __init__.py of its folder, but Python finds {name} in {file}"
        )
    return loaded


def _of_file(path: Path) -> ModuleType:
    """Import a file that is in no package, next to its neighbors.

    Raises:
        WrongCallError: it has relative imports, for which it must be named as a module.
    """
    sys.path.insert(0, str(path.parent.absolute()))
    # A file may have the name of a module that is in use, such as token.py.
    name = path.stem if path.stem not in sys.modules else f"{path.stem}_of_bufdb"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None  # because the name ends in .py
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[name] = loaded
    try:
        spec.loader.exec_module(loaded)
    except ImportError as error:
        if "relative import with no known parent" not in str(error):
            raise
        parts = path.with_suffix("").parts
        is_inside = len(parts) > 1 and {"..", "/"}.isdisjoint(parts)
        dotted = ".".join(parts if is_inside else path.absolute().with_suffix("").parts[-2:])
        raise WrongCallError(
            f"{path} has relative imports, and its folder has no __init__.py: name it as a module, "
            f"{dotted}:FUNCTION, in the folder that contains its package"
        ) from error
    return loaded


def function(where: ModuleType, place: str, name: str) -> Any:
    """Return what a module has under a name, such as step or Trainer.step.

    Or what a call returns there, such as make_step(Config()).

    Raises:
        WrongCallError: it has no such name, or the call is not Python.
    """
    if "(" in name:
        try:
            return eval(compile(name, name, "eval"), dict(vars(where)))
        except SyntaxError as error:
            raise WrongCallError(f"{name!r} is not Python: {error.msg}") from error
        except NameError as error:
            raise WrongCallError(f"{place} cannot evaluate {name!r}: {error}") from error
    owner: Any = where
    for part in name.split("."):
        if not hasattr(owner, part):
            known = [item for item in vars(owner) if not item.startswith("_")]
            close = difflib.get_close_matches(part, known, 1)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise WrongCallError(f"{place} has no {name!r}{hint}")
        owner = getattr(owner, part)
    return owner


# -- Its arguments ---------------------------------------------------------------------------------

_FLOATS = (
    *("float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz"),
    *("float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn"),
)
DTYPES = {
    **{f"f{size}": f"float{size}" for size in (64, 32, 16)},
    "bf16": "bfloat16",
    **{f"s{size}": f"int{size}" for size in (64, 32, 16, 8, 4, 2)},
    **{f"i{size}": f"int{size}" for size in (64, 32, 16, 8, 4, 2)},
    **{f"u{size}": f"uint{size}" for size in (64, 32, 16, 8, 4, 2)},
    **{f"c{size}": f"complex{size}" for size in (64, 128)},
    "pred": "bool",
    **{name.replace("float", "f").replace("_", ""): name for name in _FLOATS},
    **{name.replace("float", "f"): name for name in _FLOATS},
}
"""NumPy's names of element types by XLA's, and by those of jaxprs."""
_NAMES = {**DTYPES, **{name: name for name in DTYPES.values()}}
_KEYS = {"fry": "threefry2x32", "rbg": "rbg", "urbg": "unsafe_rbg"}
"""Implementations of random keys by the name that a jaxpr has in key<fry>[]."""
_TYPES = (
    "f64 f32 f16 bf16 f8_e4m3fn f8_e5m2 …, i64 … i8 (or s64, int64), u64 … u8, bool (or pred), "
    "c128 c64, key<fry>"
)
_CALL = "_"
_LAYOUT = re.compile(r"\]\s*\{")
_SPACE = (tokenize.NL, tokenize.NEWLINE, tokenize.COMMENT)


class Shapes:
    """`f32[8, 128]` in the text of --args: an array of a shape, without values."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __getitem__(self, shape: Any) -> Any:
        """Return the array; `f32[()]` is a scalar."""
        sizes = shape if isinstance(shape, tuple) else (shape,)
        jax: Any = importlib.import_module("jax")
        dtype: Any = self.dtype
        if dtype in _KEYS.values():
            dtype = jax.eval_shape(lambda: jax.random.key(0, impl=self.dtype)).dtype
        return jax.ShapeDtypeStruct(sizes, dtype)


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    is_one: bool = False
    """Whether the text was one expression: a tuple then is all arguments, if the function fits."""

    def of(self, function: Callable[..., Any], name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments in the form that a function accepts.

        Args:
            function: plain or jitted; without a known signature the arguments are not changed.
            name: its name, for the message.

        Raises:
            WrongCallError: it takes different arguments.
        """
        named = dict(self.kwargs or {})
        forms = [self.args]
        if self.is_one and type(self.args[0]) is tuple:
            forms.insert(0, self.args[0])
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return forms[0], named
        for args in forms:
            try:
                signature.bind(*args, **named)
            except TypeError as error:
                reason = str(error)
            else:
                return args, named
        shown = "none" if not forms[0] and not named else f"{_counted(forms[0], named)}: {reason}"
        raise WrongCallError(f"{name} takes {_names(signature)}; --args gives {shown}")


def _names(signature: inspect.Signature) -> str:
    """Return a signature such as (params, batch, *, train=False); long defaults are '...'."""
    parts = [
        item.replace(annotation=item.empty, default=_Short(item.default))
        if item.default is not item.empty
        else item.replace(annotation=item.empty)
        for item in signature.parameters.values()
    ]
    return str(inspect.Signature(parts)) if parts else "no arguments"


@dataclass(frozen=True, repr=False)
class _Short:
    """A default value in a message."""

    value: Any

    def __repr__(self) -> str:
        text = repr(self.value)
        return text if len(text) <= 20 and "\n" not in text else "..."


def _counted(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    parts = [str(len(args))] if args else []
    return ", ".join([*parts, *(f"{name}=" for name in kwargs)])


def arguments(text: str, names: Mapping[str, Any]) -> Arguments:
    """Return the value of --args: comma-separated expressions, or everything a call takes.

    Args:
        text: such as `f32[8], state()`, `f32[]` (a scalar), `*args(16)` or `x=f32[8], **options`.
        names: the names that it may use besides the types of shapes.

    Raises:
        WrongCallError: it is not valid Python, or uses an unknown name.
    """
    if not text.strip():
        return Arguments()
    try:
        tree = _parsed(text.strip())
    except SyntaxError as error:
        hint = "; write a shape without its layout, as f32[8,4]" if _LAYOUT.search(text) else ""
        raise WrongCallError(f"--args {_quote(text)} is not Python: {error.msg}{hint}") from error
    shapes = {_marked(name): Shapes(dtype) for name, dtype in {**_NAMES, **_KEYS}.items()}
    space = {**names, **shapes, _CALL: lambda *args, **kwargs: (args, kwargs)}
    try:
        args, kwargs = eval(compile(tree, "--args", "eval"), space)
    except (NameError, TypeError) as error:
        reason = _unknown_name(text, error)
        if reason is None:
            raise
        raise WrongCallError(f"--args {_quote(text)}: {reason}") from error
    call = tree.body
    assert isinstance(call, ast.Call)
    is_one = len(call.args) == 1 and not kwargs and not isinstance(call.args[0], ast.Starred)
    # `x,` is a tuple whose one element is the argument.
    return Arguments(args, kwargs, is_one and not text.strip().endswith(","))


def _unknown_name(text: str, error: Exception) -> str | None:
    """Return what is wrong with a name in --args; None for an error of the user's own code."""
    match = re.search(r"^name '(\w+)'|^type '(\w+)' is not subscriptable", str(error))
    name = "" if match is None else match[1] or match[2]
    if name and re.search(rf"\b{name}\s*(\[|<\w+>\s*\[)", text):
        return f"{error}; element types are {_TYPES}"
    if not isinstance(error, NameError):
        return None
    if name in _NAMES:
        return f"{name} needs a shape, such as {name}[8,128] or {name}[]"
    return str(error)


def _parsed(text: str) -> ast.Expression:
    """Parse a call with the text between its parentheses.

    The name before a shape is one that no name of the user's is equal to.

    Raises:
        SyntaxError: the text does not form such a call.
    """
    tree = ast.parse(_as_python(f"{_CALL}(\n{text}\n)"), mode="eval")
    call = tree.body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise SyntaxError("unmatched ')'")  # as in `1) + (2`
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            if node.value.id in _NAMES:
                node.value.id = _marked(node.value.id)
            elif node.value.id.startswith(_KEY):
                node.value.id = _marked(node.value.id[len(_KEY) :])
    return tree


_KEY = "key_of_"


def _marked(name: str) -> str:
    return f"{name}[]"


def _as_python(text: str) -> str:
    """Return the text with `f32[()]` for `f32[]` and a name for `key<fry>`, as jaxprs have them."""
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(text).readline))
    except (tokenize.TokenError, SyntaxError):
        return text  # ast.parse says what is wrong
    tokens = [token for token in tokens if token.type not in _SPACE]
    words = [token.string for token in tokens]
    lines = text.splitlines(keepends=True)

    def put(new: str, first: int, last: int) -> None:
        """Replace the text from a token up to another one, on one line."""
        (row, start), (end_row, end) = tokens[first].start, tokens[last].start
        if row == end_row:
            lines[row - 1] = f"{lines[row - 1][:start]}{new}{lines[row - 1][end:]}"

    for at in reversed(range(len(tokens) - 2)):
        is_key = words[at] == "key" and words[at + 1 : at + 4 : 2] == ["<", ">"]
        is_key = is_key and words[at + 2] in _KEYS
        opening = at + 4 if is_key else at + 1
        if not is_key and words[at] not in _NAMES:
            continue
        if words[opening : opening + 2] == ["[", "]"]:
            put("()", opening + 1, opening + 1)
        if is_key and words[opening : opening + 1] == ["["]:
            put(f"{_KEY}{words[at + 2]}", at, opening)
    return "".join(lines)


def _quote(text: str) -> str:
    """Return the text in quotes, shortened."""
    return repr(text if len(text) <= 80 else f"{text[:77]}...")


# -- The devices -----------------------------------------------------------------------------------


def lowered(
    jitted: Any,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    platform: str | None,
    devices: Sequence[Any],
    name: str,
) -> Any:
    """Return a jitted function, lowered for devices.

    Args:
        jitted: the function.
        args: arrays or `jax.ShapeDtypeStruct`, in trees.
        kwargs: the same by name.
        platform: that of a target; None for the devices of this process.
        devices: those of the target. Arguments that are sharded over a mesh are sharded over a
            mesh of these with the same axes, the others as JAX does where it calls the function;
            without a mesh everything is for one device.
        name: of the target, for messages.

    Raises:
        WrongCallError: for a target it has no array, or too large a mesh.
    """
    if platform is None:
        return jitted.lower(*args, **kwargs)
    jax: Any = importlib.import_module("jax")
    leaves = [leaf for leaf in jax.tree_util.tree_leaves((args, kwargs)) if hasattr(leaf, "shape")]
    if not leaves:
        if platform == "cpu":
            with jax.default_device(devices[0]):
                return jitted.lower(*args, **kwargs)
        raise WrongCallError(
            "for a target a function needs an array or a ShapeDtypeStruct as argument"
        )
    if hasattr(jitted, "_jit_info"):
        traced = jitted.trace(*args, **kwargs)
        if hasattr(traced, "_params") and hasattr(traced, "_meta_tys_flat"):
            memories = _memories(traced, devices[0])
            Moved(devices, name).move(traced)
            return _in_memories(traced.lower(lowering_platforms=(platform,)), *memories)
    placed, named = _placed((tuple(args), dict(kwargs)), leaves, devices, name)
    stage = jitted.trace(*placed, **named).lower(lowering_platforms=(platform,))
    inputs = [_unknown(devices[0], getattr(leaf, "sharding", None)) for leaf in leaves]
    if not any(inputs):
        return stage
    outputs = [None] * len(jax.tree_util.tree_leaves(stage.out_info))
    return _in_memories(stage, inputs, outputs)


def _placed(tree: Any, leaves: Sequence[Any], devices: Sequence[Any], name: str) -> Any:
    """Return the arguments as shapes without values, on devices of the target."""
    jax: Any = importlib.import_module("jax")
    named = jax.sharding.NamedSharding
    meshes = [
        leaf.sharding.mesh for leaf in leaves if isinstance(getattr(leaf, "sharding", None), named)
    ]
    mesh = _mesh(meshes[0], devices, name) if meshes else None
    single = jax.sharding.SingleDeviceSharding(devices[0])

    def place(leaf: Any) -> Any:
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            return leaf
        sharding = single
        own = getattr(leaf, "sharding", None)
        if mesh is not None:
            spec = own.spec if isinstance(own, named) else jax.sharding.PartitionSpec()
            sharding = named(mesh, spec)
        kind = own_memory(own)
        if kind is not None and has_memory(devices[0], kind):
            sharding = sharding.with_memory_kind(kind)
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)

    return jax.tree_util.tree_map(place, tree)


def own_memory(sharding: Any) -> str | None:
    """Return the memory of an array that is not the usual one of this process's devices."""
    kind: str | None = getattr(sharding, "memory_kind", None)
    if kind is None:
        return None
    jax: Any = importlib.import_module("jax")
    return None if kind == jax.devices()[0].default_memory().kind else kind


def has_memory(device: Any, kind: str) -> bool:
    """Return whether JAX knows a memory of a described device; those of a GPU are unknown."""
    return any(one.kind == kind for one in device.addressable_memories())


def keeps_memory(device: Any, kind: str, platform: str) -> bool:
    """Return whether a program that is lowered for a described device has a memory of its own.

    Where JAX knows none, of a GPU, it is set in the module, as JAX does on the device.
    """
    return has_memory(device, kind) or platform in ("cuda", "rocm", "gpu")


def _memories(traced: Any, device: Any) -> tuple[list[str | None], list[str | None]]:
    """Return the memory of each argument and result whose kind JAX does not know on a device.

    A result without a sharding is where its value is, as the gradient of what is in host memory.
    """
    params = traced._params
    pairs = _pairs(traced._meta_tys_flat, params["in_shardings"])
    inputs = [_unknown(device, one.sharding, planned) for one, planned in pairs]
    results = _pairs(params["out_shardings"], getattr(traced.jaxpr, "jaxpr", traced.jaxpr).outvars)
    outputs = [_unknown(device, one) or _of_value(device, var.aval) for one, var in results]
    return inputs, outputs


def _unknown(device: Any, *shardings: Any) -> str | None:
    """Return the memory that one of some shardings has, if JAX knows none of that kind there."""
    kinds = (own_memory(one) for one in shardings)
    return next((kind for kind in kinds if kind and not has_memory(device, kind)), None)


def _of_value(device: Any, aval: Any) -> str | None:
    is_on_host = "Host" in str(getattr(aval, "memory_space", ""))
    return "pinned_host" if is_on_host and not has_memory(device, "pinned_host") else None


def _in_memories(stage: Any, inputs: Sequence[str | None], outputs: Sequence[str | None]) -> Any:
    """Return a lowered function, with the memory of arguments and results set in its module.

    It is what JAX writes for a device that it has: an attribute of each of them, and a call of
    `annotate_device_placement` for a result.
    """
    if not any((*inputs, *outputs)):
        return stage
    ir: Any = importlib.import_module("jaxlib.mlir.ir")
    kept = stage._lowering.compile_args["kept_var_idx"]
    main = _main(stage.compiler_ir(), ir)
    back = next(one for one in main.regions[0].blocks[0] if one.operation.name == "func.return")
    with main.context, ir.Location.unknown():
        kinds = [kind for at, kind in enumerate(inputs) if at in kept]
        _set_memories(ir, main, "arg_attrs", kinds)
        _set_memories(ir, main, "res_attrs", outputs)
        for at, kind in enumerate(outputs):
            if kind is None:
                continue
            value = back.operands[at]
            attributes = {
                "call_target_name": ir.StringAttr.get("annotate_device_placement"),
                "has_side_effect": ir.BoolAttr.get(True),
                "backend_config": ir.StringAttr.get(""),
                "mhlo.frontend_attributes": ir.DictAttr.get(
                    {"_xla_buffer_placement": ir.StringAttr.get(kind)}
                ),
            }
            with ir.InsertionPoint(back):
                placed = ir.Operation.create(
                    "stablehlo.custom_call", [value.type], [value], attributes
                )
            back.operands[at] = placed.results[0]
    return stage


def _main(module: Any, ir: Any) -> Any:
    """Return the function of a module that is called."""
    return next(
        one.operation
        for one in module.body.operations
        if ir.StringAttr(one.attributes["sym_name"]).value == "main"
    )


def _set_memories(ir: Any, main: Any, key: str, kinds: Sequence[str | None]) -> None:
    changed = []
    for attributes, kind in _pairs(ir.ArrayAttr(main.attributes[key]), kinds):
        own = {one.name: one.attr for one in ir.DictAttr(attributes)}
        if kind is not None:
            own["mhlo.memory_kind"] = ir.StringAttr.get(kind)
        changed.append(ir.DictAttr.get(own))
    main.attributes[key] = ir.ArrayAttr.get(changed)


def _mesh(like: Any, devices: Sequence[Any], name: str) -> Any:
    """Return a mesh of devices with the axes of `like`."""
    import numpy as np

    jax: Any = importlib.import_module("jax")
    shape = tuple(like.shape.values())
    count = math.prod(shape)
    if count > len(devices):
        raise WrongCallError(
            f"the arguments are sharded over {count} devices, {name} has "
            f"{len(devices)}; name a larger one with --target"
        )
    own = np.array(devices[:count], dtype=object).reshape(shape)
    types = {"axis_types": like.axis_types} if hasattr(like, "axis_types") else {}
    return jax.sharding.Mesh(own, like.axis_names, **types)


_pairs = zip
"""Of equal numbers, which Python 3.9 cannot demand."""


class Moved:
    """A traced program, moved from the devices of this process to those of a target.

    What a program has of devices is in the parameters of its trace: shardings of arguments and
    results, the mesh around it, and the shardings and meshes in its equations, such as those of
    `with_sharding_constraint` and `shard_map`. Meshes keep their axes, sizes and types.
    """

    def __init__(self, devices: Sequence[Any], name: str) -> None:
        """Take the devices of the target, and its name for messages."""
        self._jax: Any = importlib.import_module("jax")
        self._devices, self._name = devices, name
        self._meshes: dict[Any, Any] = {}
        self._inner: dict[int, tuple[Any, Any]] = {}
        """What was moved by its address, with itself, so that it keeps the address."""

    def move(self, traced: Any) -> None:
        """Move the result of `jitted.trace(…)`.

        Raises:
            WrongCallError: the target has fewer devices than the mesh.
        """
        traced._params = self._value(traced._params)
        for kind in traced._meta_tys_flat:
            if isinstance(kind.sharding, self._jax.sharding.NamedSharding):
                self._named(kind.sharding)
        mesh = next(iter(self._meshes.values()), None)
        alone: Any = self._jax.sharding.SingleDeviceSharding(self._devices[0])
        if mesh is not None:
            alone = self._jax.sharding.NamedSharding(mesh, self._jax.sharding.PartitionSpec())
        traced._meta_tys_flat = [
            self._argument(one, planned, alone)
            for one, planned in _pairs(traced._meta_tys_flat, traced._params["in_shardings"])
        ]

    def _argument(self, kind: Any, planned: Any, alone: Any) -> Any:
        """Return the type of an argument on the target: sharded as here, else in full.

        How an argument that is on no device of its own is sharded, is the compiler's choice where a
        program has a mesh.
        """
        if not hasattr(kind.aval, "shape"):
            return kind
        own = kind.sharding
        if isinstance(own, self._jax.sharding.NamedSharding) and own.mesh.shape:
            return kind.replace(sharding=self._named(own), committed=True)
        is_free = own is None or not kind.committed
        if hasattr(planned, "device_set") or (self._meshes and is_free):  # as the jit has it
            return kind.replace(sharding=None, committed=False)
        memory = self._kind(own)
        there = alone if memory is None else alone.with_memory_kind(memory)
        return kind.replace(sharding=there, committed=True)

    def _value(self, value: Any) -> Any:
        """Return a parameter with the devices of the target; itself if it has none."""
        sharding = self._jax.sharding
        if isinstance(value, sharding.Mesh):
            return self._mesh(value)
        if isinstance(value, sharding.NamedSharding):
            is_concrete = isinstance(value.mesh, sharding.Mesh)
            return self._named(value) if is_concrete else value
        if isinstance(value, sharding.SingleDeviceSharding):
            return sharding.SingleDeviceSharding(self._devices[0], memory_kind=self._kind(value))
        if isinstance(value, dict):
            return {key: self._value(one) for key, one in value.items()}
        if type(value) in (tuple, list):
            moved = type(value)(map(self._value, value))
            return moved if any(a is not b for a, b in _pairs(moved, value)) else value
        if hasattr(value, "eqns") or hasattr(getattr(value, "jaxpr", None), "eqns"):
            if id(value) not in self._inner:
                self._inner[id(value)] = value, self._program(value)
            return self._inner[id(value)][1]
        return value

    def _program(self, value: Any) -> Any:
        """Return a jaxpr, closed or not, whose equations have the devices of the target."""
        plain = getattr(value, "jaxpr", value)
        if plain is not value:  # closed, before JAX 0.12
            inner = self._value(plain)
            return value if inner is plain else value.replace(jaxpr=inner)
        equations = []
        for equation in value.eqns:
            params = {key: self._value(one) for key, one in equation.params.items()}
            is_same = all(params[key] is one for key, one in equation.params.items())
            equations.append(equation if is_same else equation.replace(params=params))
        if all(new is old for new, old in _pairs(equations, value.eqns)):
            return value
        return value.replace(eqns=equations)

    def _named(self, sharding: Any) -> Any:
        """Return a sharding over a mesh, whether of devices or abstract, over the target's."""
        mesh = self._mesh(sharding.mesh)
        return type(sharding)(mesh, sharding.spec, memory_kind=self._kind(sharding))

    def _kind(self, sharding: Any) -> str | None:
        """Return the memory of a sharding that is not the usual one, if the target has it."""
        kind = own_memory(sharding)
        return kind if kind is not None and has_memory(self._devices[0], kind) else None

    def _mesh(self, like: Any) -> Any:
        if like.empty:
            return like
        if like not in self._meshes:
            self._meshes[like] = _mesh(like, self._devices, self._name)
        return self._meshes[like]
