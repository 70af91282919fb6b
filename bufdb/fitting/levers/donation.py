"""Arguments whose buffers an output takes: `donate_argnums` at the jit, `donate` of equinox.

`eqx.filter_jit` donates all arrays, or all but those of the first argument: also those that no
output takes, which the program must not read after the call either.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import aval_bytes, is_sized
from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import Refused
from bufdb.fitting.jitted import filtered, jitted
from bufdb.fitting.lever import Lever, Trial
from bufdb.fitting.plans import Plan, PlanResult, Program, Site, Traced
from bufdb.fitting.source import Source
from bufdb.fitting.transforms import FILTER_JITS, JITS, function_at, transform, whole

_OPTIONS = ("static_argnums", "static_argnames", "keep_unused", "inline")


class Donation(Lever):
    """Donated arguments, besides those that are donated as written."""

    name = "donation"

    def offered(self, trial: Trial, program: Program) -> Program:
        """Find the arguments whose buffers, or half of their bytes, free outputs can take."""
        if trial.is_alone:
            return program
        if _is_filtered(trial.function):
            return _of_equinox(trial, program)
        taken = _donated(trial.function)
        switches = _takeable(trial, _known(trial.function) if taken is None else taken)
        if taken is not None:
            return replace(program, donatable=switches)
        if switches:
            names = ", ".join(program.argument_names[at] for at in switches)
            trial.notes.append(
                f"donating {names} is not tried, which may save more: the jit of {trial.name} "
                f"hides which arguments it donates{_why_hidden(trial.function)}"
            )
        return program

    def jitted(self, function: Any, plan: Plan, name: str) -> Any:
        """Return the function, jitted as it is, that donates the arguments of a plan, too."""
        return _donating(function, plan.donated, name) if plan.donated else function

    def free(self, program: Program, plan: Plan) -> Plan:
        """Return a plan that donates every argument that can be."""
        return replace(plan, donated=program.donatable)

    def edit(self, editing: Editing) -> None:
        """Add the arguments to the options of the jit."""
        program, numbers = editing.program, editing.plan.donated
        if not numbers:
            return
        names = [program.argument_names[n] for n in numbers if n < len(program.argument_names)]
        listed = ", ".join(names) or ", ".join(map(str, numbers))
        how = f"donate {listed} (donate_argnums={_tuple(numbers)})"
        site = program.function_site
        if program.is_filtered:
            how = f"donate {listed} (eqx.filter_jit(donate={_mode(numbers)}))"
        if site is None:
            editing.steps.append(f"{how} where {program.function} is given to jax.jit")
            return
        edit = _filter if program.is_filtered else _donate
        editing.attempt(site, f"{how} where it is jitted", edit, site, numbers, program.lost)

    def results(self, program: Program, plan: Plan, traced: Traced) -> Mapping[str, Any]:
        """Return the names of the donated arguments."""
        return {"donated": tuple(program.argument_names[at] for at in plan.donated)}

    def words(self, row: PlanResult) -> Sequence[str]:
        """Return the names of the donated arguments."""
        return (f"donates {', '.join(row.donated)}",) if row.donated else ()


def _signature(leaf: Any) -> tuple[tuple[int, ...], str, int]:
    return tuple(leaf.shape), str(leaf.dtype), aval_bytes(leaf)


def _bytes_of(signature: tuple[tuple[int, ...], str, int]) -> int:
    return signature[2]


def _takeable(trial: Trial, taken: Sequence[int]) -> tuple[int, ...]:
    """Return the arguments besides donated ones half of whose bytes outputs can take."""
    free = Counter(_signature(leaf) for leaf in trial.outputs)
    switches = []
    for number in (*taken, *(n for n in range(len(trial.args)) if n not in taken)):
        leaves = jax_module().tree.leaves(trial.args[number])
        wanted = Counter(_signature(leaf) for leaf in leaves if is_sized(leaf))
        matched = wanted & free
        free -= matched
        all_bytes = sum(_bytes_of(one) * count for one, count in wanted.items())
        taken_bytes = sum(_bytes_of(one) * count for one, count in matched.items())
        if number not in taken and taken_bytes and 2 * taken_bytes >= all_bytes:
            switches.append(number)
    return tuple(switches)


# -- The jit ---------------------------------------------------------------------------------------

_HIDING = {
    "user_specified_in_shardings": "in_shardings",
    "device": "device",
    "backend": "backend",
    "compiler_options_kvs": "compiler_options",
}
"""Options of a jit, by JAX's names of them, with which it cannot be jitted again as it is."""


def _donated(function: Any) -> tuple[int, ...] | None:
    """Return the numbers of the arguments that a function donates; None if that is unknown."""
    if not hasattr(function, "lower"):
        return ()
    info = getattr(function, "_jit_info", None)
    numbers = getattr(info, "donate_argnums", None)
    is_known = hasattr(function, "__wrapped__") and not _hiding(info)
    return tuple(numbers) if numbers is not None and is_known else None


def _hiding(info: Any) -> list[str]:
    return [shown for name, shown in _HIDING.items() if getattr(info, name, False)]


def _known(function: Any) -> tuple[int, ...]:
    """Return the arguments that a function is known to donate, which may donate others, too."""
    return tuple(getattr(getattr(function, "_jit_info", None), "donate_argnums", None) or ())


def _why_hidden(function: Any) -> str:
    options = _hiding(getattr(function, "_jit_info", None))
    return f", as it has {' and '.join(options)}" if options else ""


def _donating(function: Any, numbers: tuple[int, ...], name: str) -> Any:
    """Return a function jitted as it is, that donates some more arguments."""
    jax = jax_module()
    if not hasattr(function, "lower"):
        return jax.jit(function, donate_argnums=numbers)
    if _is_filtered(function):
        is_first = 0 in numbers or function.lifted.donate_first
        return filtered(function.lifted, is_first=is_first, is_rest=True)
    info = function._jit_info
    options = {name: getattr(info, name) for name in _OPTIONS if getattr(info, name, None)}
    options["donate_argnums"] = tuple(sorted({*info.donate_argnums, *numbers}))
    lifted = getattr(function, "lifted", None)
    if lifted is None:
        return jax.jit(function.__wrapped__, **options)
    if hasattr(lifted, "graph"):  # of nnx without updates of the graph
        options |= {"graph": lifted.graph, "graph_updates": False}
    nnx = importlib.import_module("flax.nnx")
    return jitted(nnx.jit(function.__wrapped__, **options), name)


def is_of_nnx(argument: Any) -> bool:
    """Return whether an argument has its arrays in variables alone, to which `nnx.jit` assigns."""
    kinds = [getattr(sys.modules["flax.nnx"], name, ()) for name in ("Pytree", "Object")]
    return isinstance(argument, tuple(one for one in kinds if one))


def shared(args: Sequence[Any], kwargs: Mapping[str, Any]) -> frozenset[int]:
    """Return the numbers of the arguments with an array that the call has twice.

    XLA refuses to run what donates one of these. Of nnx a variable counts once, wherever it is.
    """
    jax = jax_module()
    variable = getattr(sys.modules.get("flax.nnx"), "Variable", ())
    places: dict[int, set[Any]] = {}
    numbers: dict[int, set[int]] = {}
    for number, argument in enumerate([*args, *kwargs.values()]):
        leaves = jax.tree.leaves(argument, is_leaf=lambda one: isinstance(one, variable))
        for at, leaf in enumerate(leaves):
            place = id(leaf) if isinstance(leaf, variable) else (number, at)
            for array in jax.tree.leaves(leaf):
                if isinstance(array, jax.Array):
                    places.setdefault(id(array), set()).add(place)
                    numbers.setdefault(id(array), set()).add(number)
    return frozenset(at for array, some in numbers.items() if len(places[array]) > 1 for at in some)


# -- equinox's jit ---------------------------------------------------------------------------------


def _is_filtered(function: Any) -> bool:
    """Return whether a function is jitted by `eqx.filter_jit`."""
    return hasattr(getattr(function, "lifted", None), "donate_rest")


def _of_equinox(trial: Trial, program: Program) -> Program:
    """Return a program with what `eqx.filter_jit` donates, if an output can take some of it."""
    lifted = trial.function.lifted
    numbers = [at for at in range(len(trial.args)) if _arrays(trial.args[at])]
    taken = [at for at in numbers if (lifted.donate_first if at == 0 else lifted.donate_rest)]
    switches = _takeable(trial, taken)
    if not switches:
        return program
    if not lifted.donate_rest and _arrays(lifted._dynamic_fun):
        why = "eqx.filter_jit would donate the arrays of the function itself, too"
        trial.notes.append(f"no argument is donated: {why}")
        return program
    more = tuple(at for at in numbers if at not in taken and (at > 0 or at in switches))
    program = replace(program, donatable=more, is_filtered=True)
    kwargs = {} if lifted.donate_rest else trial.kwargs
    return replace(program, lost=lost_of(program, trial.args, kwargs, more, switches))


def lost_of(
    program: Program,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    numbers: Collection[int],
    safe: Collection[int],
) -> tuple[str, ...]:
    """Return the names of the arguments that are donated although the program may read them later.

    Args:
        program: with the names of the arguments.
        args: with values, where they are known: NumPy's stay as they are.
        kwargs: the same by name, if they are not donated as written: they are by each plan.
        numbers: of those that are donated.
        safe: those that nothing reads later.
    """
    jax = jax_module()

    def is_lost(argument: Any) -> bool:
        kinds = jax.Array, jax.ShapeDtypeStruct
        return any(isinstance(leaf, kinds) for leaf in jax.tree.leaves(argument))

    lost = [program.argument_names[at] for at in numbers if at not in safe and is_lost(args[at])]
    by_name = kwargs.items() if numbers else ()
    return (*lost, *(name for name, argument in by_name if is_lost(argument)))


def _arrays(argument: Any) -> list[Any]:
    return [leaf for leaf in jax_module().tree.leaves(argument) if is_sized(leaf)]


# -- The edit --------------------------------------------------------------------------------------


def _donate(source: Source, site: Site, numbers: Iterable[int], _: Sequence[str]) -> None:
    """Add arguments to those that the jit of a function donates."""
    jit = _jit_of(source, site, JITS)
    if isinstance(jit, ast.Call):
        _add_numbers(source, jit, numbers)
        return
    partial = source.imported("functools", "partial", [jit])
    source.wrap(jit, f"{partial}(", f", donate_argnums={_tuple(numbers)})")


def _filter(source: Source, site: Site, numbers: Iterable[int], lost: Sequence[str]) -> None:
    """Have equinox's jit of a function donate."""
    if lost:
        names, are = ", ".join(lost), "are" if len(lost) > 1 else "is"
        raise Refused(
            f"{names} {are} given away, too, which the program may read after the call; if it does "
            'not, it is right; else give it as first argument, and donate="all-except-first"'
        )
    jit, mode = _jit_of(source, site, FILTER_JITS), _mode(numbers)
    if not isinstance(jit, ast.Call):
        source.wrap(jit, "", f"(donate={mode})")
        return
    if any(keyword.arg is None for keyword in jit.keywords):
        raise Refused("its options come from two stars")
    present = next((one.value for one in jit.keywords if one.arg == "donate"), None)
    if present is None:
        _add(source, jit, f"donate={mode}")
    elif isinstance(present, ast.Constant):
        if str(present.value).startswith("warn"):
            mode = mode.replace("all", "warn")
        source.replace(source.span(present), lambda render: mode)
    else:
        raise Refused("its donate is not a constant")


def _mode(numbers: Iterable[int]) -> str:
    return '"all"' if 0 in numbers else '"all-except-first"'


def _jit_of(source: Source, site: Site, names: Sequence[str]) -> ast.expr:
    """Return the call or the bare decorator that jits a function."""
    function = function_at(source, site)
    for decorator in function.decorator_list:
        if source.dotted(decorator) in names:
            return decorator
        if (call := transform(source, decorator, names)) is not None:
            return call
    calls = [
        one
        for one in ast.walk(source.tree)
        if isinstance(one, ast.Call)
        and source.dotted(one.func) in names
        and one.args
        and isinstance(one.args[0], ast.Name)
        and source.binding(one.args[0].id, one) is function
    ]
    if len(calls) != 1:
        what = names[0]
        raise Refused(f"the file has no {what} of it" if not calls else f"it has several {what}")
    return calls[0]


def _add_numbers(source: Source, call: ast.Call, numbers: Iterable[int]) -> None:
    if any(keyword.arg in (None, "donate_argnames") for keyword in call.keywords):
        raise Refused("it donates by names, or its options come from two stars")
    present = next((one.value for one in call.keywords if one.arg == "donate_argnums"), None)
    if present is not None:
        try:
            there = ast.literal_eval(present)
        except ValueError as error:
            raise Refused("its donate_argnums is not a constant") from error
        there = there if isinstance(there, tuple | list) else (there,)
        text = _tuple({*there, *numbers})
        source.replace(source.span(present), lambda render: text)
        return
    _add(source, call, f"donate_argnums={_tuple(numbers)}")


def _add(source: Source, call: ast.Call, option: str) -> None:
    parts: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    after = source.span(call)[1] - 1  # of no arguments
    last = max((whole(source, one)[1] for one in parts), default=after)
    source.replace((last, last), lambda render: f"{', ' if parts else ''}{option}")


def _tuple(numbers: Iterable[int]) -> str:
    """Return `(0, 1)`; `0` of one."""
    ordered = sorted(numbers)
    return str(ordered[0]) if len(ordered) == 1 else f"({', '.join(map(str, ordered))})"
