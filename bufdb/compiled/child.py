"""The process in which `bufdb explain` runs a user's file: `python -m bufdb.compiled.child`.

What the file does at import, to JAX or to this process, stays here. Invariant: the parent learns
all that it needs from files in one folder, whatever the user's code prints.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from bufdb.compiled.dump import dumped
from bufdb.compiled.lower import lowered
from bufdb.compiled.target import jax_module, target
from bufdb.errors import BufdbError, UsageError, did_you_mean, quote

DUMPS = "dumps"
FOUND = "found.json"
"""What was found: {"device": kind} or {"message": …, "exit_code": …}."""
DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "s64": "int64",
    "s32": "int32",
    "s16": "int16",
    "s8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "pred": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
"""JAX's name of an element type by XLA's."""


class Shapes:
    """`f32[8, 128]` in the text of --args: an array of a shape, without values."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __getitem__(self, shape: Any) -> Any:
        """The array; `f32[()]` is a scalar."""
        sizes = shape if isinstance(shape, tuple) else (shape,)
        return jax_module().ShapeDtypeStruct(sizes, self.dtype)


def run(spec: str, args: str, hardware: str | None, folder: Path) -> str:
    """Dump what a function of a user's file compiles to; the kind of its device.

    Args:
        spec: FILE.py:FUNCTION or package.module:FUNCTION.
        args: arguments, as Python: shapes as f32[8, 128], and names of the file.
        hardware: as --target names it; None for the devices of this machine.
        folder: where to dump to.

    Raises:
        UsageError: there is no such file, function or target, or the arguments are no Python.
        BufdbError: a package is missing, or XLA wrote no dump.
    """
    place, colon, name = spec.rpartition(":")
    if not colon:
        raise UsageError(f"expected FILE.py:FUNCTION, got {quote(spec)}")
    jax = jax_module()
    described = None if hardware is None else target(hardware)
    module = _module(place)
    function: Any = module
    for part in name.split("."):
        if not hasattr(function, part):
            known = [item for item in vars(function) if not item.startswith("_")]
            raise UsageError(f"{place} has no {quote(name)}{did_you_mean(part, known)}")
        function = getattr(function, part)
    stage = lowered(function, _arguments(args, module), {}, described)
    dumped(stage, folder, None if described is None else described.options)
    return described.device_kind if described else str(jax.devices()[0].device_kind)


def _module(place: str) -> ModuleType:
    """The module of a file or of a dotted name, imported."""
    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` does
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise  # it is one that the module imports
            raise UsageError(f"no module {quote(place)}; a file's name ends in .py") from error
    path = Path(place)
    if not path.is_file():
        raise UsageError(f"no file {place}")
    sys.path.insert(0, str(path.parent.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # for the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _arguments(text: str, module: ModuleType) -> tuple[Any, ...]:
    """The value of --args as positional arguments."""
    names = {**vars(module), **{name: Shapes(dtype) for name, dtype in DTYPES.items()}}
    if not text.strip():
        return ()
    try:
        code = compile(text.strip(), "--args", "eval")
    except SyntaxError as error:
        raise UsageError(f"--args {quote(text)} is no Python: {error.msg}") from error
    try:
        value = eval(code, names)
    except NameError as error:
        raise UsageError(f"--args {quote(text)}: {error}") from error
    return value if isinstance(value, tuple) else (value,)


def main(arguments: list[str]) -> int:
    """Run what `bufdb explain` asks for; the exit code."""
    spec, args, hardware, place = arguments
    folder = Path(place)
    (folder / DUMPS).mkdir()
    code = 0
    try:
        found: dict[str, Any] = {"device": run(spec, args, hardware or None, folder / DUMPS)}
    except BufdbError as error:
        code = error.exit_code
        found = {"message": str(error), "exit_code": code}
    (folder / FOUND).write_text(json.dumps(found), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
