"""Arguments whose buffers an output takes: `donate_argnums` at the jit."""

from __future__ import annotations

import ast
import importlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import aval_bytes, is_sized
from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import Refused
from bufdb.fitting.frameworks import named
from bufdb.fitting.jitted import jitted
from bufdb.fitting.lever import Lever, Trial
from bufdb.fitting.plans import Plan, PlanResult, Program, Site, Traced
from bufdb.fitting.source import Source
from bufdb.fitting.transforms import JITS, function_at, transform, whole

_OPTIONS = ("static_argnums", "static_argnames", "keep_unused", "inline")


class Donation(Lever):
    """Donated arguments, besides those that are donated as written."""

    name = "donation"

    def offered(self, trial: Trial, program: Program) -> Program:
        """Find the arguments whose buffers, or half of their bytes, free outputs can take."""
        if trial.is_alone:
            return program
        taken = _donated(trial.function)
        switches = _takeable(trial, _known(trial.function) if taken is None else taken)
        if taken is not None:
            return replace(program, donatable=switches)
        if switches and not _donates_by_itself(trial.function):
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
        if site is None:
            editing.steps.append(f"{how} where {program.function} is given to jax.jit")
            return
        editing.attempt(site, f"{how} where it is jitted", _donate, site, numbers)

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


def _donates_by_itself(function: Any) -> bool:
    """Return whether a function of equinox donates, as it says for all arguments alike."""
    lifted = getattr(function, "lifted", None)
    return any(getattr(lifted, name, False) for name in ("donate_first", "donate_rest"))


def _why_hidden(function: Any) -> str:
    if hasattr(getattr(function, "lifted", None), "donate_rest"):
        return f"; {named('equinox').donation} does"
    options = _hiding(getattr(function, "_jit_info", None))
    return f", as it has {' and '.join(options)}" if options else ""


def _donating(function: Any, numbers: tuple[int, ...], name: str) -> Any:
    """Return a function jitted as it is, that donates some more arguments."""
    jax = jax_module()
    if not hasattr(function, "lower"):
        return jax.jit(function, donate_argnums=numbers)
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


# -- The edit --------------------------------------------------------------------------------------


def _donate(source: Source, site: Site, numbers: Iterable[int]) -> None:
    """Add arguments to those that the jit of a function donates."""
    function = function_at(source, site)
    for decorator in function.decorator_list:
        if source.dotted(decorator) in JITS:
            partial = source.imported("functools", "partial", [decorator])
            options = f", donate_argnums={_tuple(numbers)})"
            source.wrap(decorator, f"{partial}(", options)
            return
        call = transform(source, decorator, JITS)
        if call is not None:
            _add_numbers(source, call, numbers)
            return
    calls = [
        one
        for one in ast.walk(source.tree)
        if isinstance(one, ast.Call)
        and source.dotted(one.func) in JITS
        and one.args
        and isinstance(one.args[0], ast.Name)
        and source.binding(one.args[0].id, one) is function
    ]
    if len(calls) != 1:
        raise Refused("the file has no jax.jit of it" if not calls else "it has several jax.jit")
    _add_numbers(source, calls[0], numbers)


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
    options = f", donate_argnums={_tuple(numbers)}"
    parts: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    last = max(whole(source, one)[1] for one in parts)
    source.replace((last, last), lambda render: options)


def _tuple(numbers: Iterable[int]) -> str:
    """Return `(0, 1)`; `0` of one."""
    ordered = sorted(numbers)
    return str(ordered[0]) if len(ordered) == 1 else f"({', '.join(map(str, ordered))})"
