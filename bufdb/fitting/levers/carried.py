"""What a scan hands its body from one iteration to the next, in host memory.

A checkpoint of the body saves it on the device whatever its policy is, unless it has a name in the
body: then it is a value of the body that a policy moves, and it can be the only one that is saved.

    find     the arrays of a parameter that are carried
    trace    all of the parameter gets a name where the body begins
    price    bytes to the host and back; no product is computed again
    edit     `x = checkpoint_name(x, "x_in")` as the body's first statement
"""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bufdb.fitting.counting import carried_inputs, is_inexact
from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import Refused
from bufdb.fitting.jax_inside import source_of
from bufdb.fitting.lever import Atom, Lever, Trial, Value
from bufdb.fitting.levers.saved import NAME
from bufdb.fitting.plans import Plan, Program, Site, Switch
from bufdb.fitting.reader import Reader
from bufdb.fitting.source import FUNCTIONS, Source
from bufdb.fitting.transforms import Function, function_at, indent

_LINEN_SCAN = "flax/core/axes_scan.py"
_LINEN_CARRY = "c[1]"
"""What flax calls the function's part of the carry, in that file."""


class Carried(Lever):
    """Carried parameters of a scan's body."""

    name = "carried"
    is_lean = False

    def inputs(self, reader: Reader, eqn: Any) -> Mapping[Any, Value]:
        """Return the carried inputs of a body that is the user's, by the parameters they are of.

        The patch names a parameter with everything in it, so a plan does. One that has no floats
        is left alone.
        """
        jaxpr = eqn.params["jaxpr"].jaxpr
        info = getattr(jaxpr, "debug_info", None)
        names = getattr(info, "arg_names", None) or ()
        if len(names) != len(jaxpr.invars):
            return {}
        source = source_of(jaxpr)
        own: str | None = None
        if source is not None and reader.files.has(source[1]):
            function, file, line = source
            site = Site(file, line, 0, line, 0, function)
        else:
            linen = _of_linen(reader, jaxpr)
            if linen is None:
                return {}
            site, own = linen
        roots = {
            var: root if own is None else own
            for var, name in zip(jaxpr.invars, names, strict=True)
            if (root := _root(name or "", own is not None))
        }
        carry = [var for var in carried_inputs(eqn) if var in roots]
        large = {roots[var] for var in carry if is_inexact(var.aval) and var.aval.ndim}
        return {var: Value(site, None, roots[var]) for var in carry if roots[var] in large}

    def offered(self, trial: Trial, program: Program) -> Program:
        """Drop the parameters where there is no host memory."""
        if program.has_host_memory:
            return program
        others = tuple(one for one in program.switches if one.lever != self.name)
        return replace(program, switches=others)

    def planned(
        self, program: Program, plan: Plan, given_up: Sequence[Atom], kept: Sequence[Atom]
    ) -> Plan:
        """Move parameters to host memory, besides other values."""
        moved = {*plan.offloaded, *(atom.name for atom in given_up)}
        return replace(plan, offloaded=tuple(sorted(moved)))

    def edit(self, editing: Editing) -> None:
        """Name the parameters of a plan where their bodies begin."""
        for switch in editing.program.switches:
            if switch.lever == self.name and switch.name in editing.plan.offloaded:
                name = switch.argument
                line = f'{name} = checkpoint_name({name}, "{switch.name}")'
                how = f"put {line} at the beginning of"
                editing.attempt(switch.site, how, _edit, switch)


def _of_linen(reader: Reader, jaxpr: Any) -> tuple[Site, str] | None:
    """Return where the function that an `nn.scan` repeats is, and its parameter that is the carry.

    The body of the scan is flax's own. It hands what is repeated the module, then the carry.
    """
    source = source_of(jaxpr)
    if source is None or source[:1] != ("body_fn",) or not source[1].endswith(_LINEN_SCAN):
        return None
    _, site = reader.body(jaxpr)
    if site is None or not reader.files.has(site.file):
        return None
    parameters = reader.calls.state(site.file, site.line).parameters
    return (site, parameters[1]) if len(parameters) > 1 else None


def _root(name: str, is_linen: bool) -> str:
    """Return the parameter that an input of a body is of; '' if it is of none.

    What flax carries is the variables of the module, and then what the function has.
    """
    if is_linen:
        return _LINEN_CARRY if name.startswith(_LINEN_CARRY) else ""
    root = re.match(r"[^\W\d]\w*", name)
    return root[0] if root else ""


def _edit(source: Source, switch: Switch) -> None:
    """Name a parameter, with all arrays in it, in the first statement of its function.

    Where that has no line of its own, as in a lambda, the only expression that reads the parameter.

    Raises:
        Refused: the function has no such statement or expression, or no such parameter.
    """
    is_lambda = switch.site.function.rpartition(".")[2] == "<lambda>"
    function = _lambda_at(source, switch) if is_lambda else function_at(source, switch.site)
    if switch.argument not in _names(function):
        raise Refused(f"it has no parameter {switch.argument}")
    body = [function.body] if isinstance(function, ast.Lambda) else function.body
    first = body[0]
    name = source.imported(*NAME, [first])
    if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and len(body) > 1:
        first = body[1]
    before = indent(source, first) if isinstance(first, ast.stmt) else ""
    if not isinstance(first, ast.stmt) or before.strip():
        read = _only_read(source, body, switch.argument)
        source.wrap(read, f"{name}(", f', "{switch.name}")')
        return
    line = min([first.lineno, *(one.lineno for one in getattr(first, "decorator_list", ()))])
    text = f'{switch.argument} = {name}({switch.argument}, "{switch.name}")'
    source.insert_line(line, f"{before}{text}")


def _names(function: ast.Lambda | Function) -> list[str]:
    """Return the names of the positional parameters of a function."""
    return [one.arg for one in (*function.args.posonlyargs, *function.args.args)]


def _lambda_at(source: Source, switch: Switch) -> ast.Lambda:
    """Return the lambda of a body.

    Raises:
        Refused: its line has several that may be it.
    """
    nodes = (one for one in ast.walk(source.tree) if isinstance(one, ast.Lambda))
    line, name = switch.site.line, switch.argument
    lambdas = [one for one in nodes if one.lineno == line and name in _names(one)]
    if len(lambdas) != 1:
        raise Refused(f"the line has {len(lambdas) or 'no'} lambdas with {name}")
    return lambdas[0]


def _only_read(source: Source, body: Sequence[ast.AST], name: str) -> ast.expr:
    """Return the only expression that reads a parameter, which is evaluated once.

    Raises:
        Refused: there are several: each would be saved for itself.
    """
    nodes = [one for statement in body for one in ast.walk(statement)]
    reads = [one for one in nodes if isinstance(one, ast.Name) and one.id == name]
    if len(reads) != 1:
        raise Refused(f"it has no line for that, and not one place that reads {name}")
    around = itertools.takewhile(lambda one: one in nodes, source.above(reads[0]))
    if any(isinstance(one, _REPEATED) for one in around):
        raise Refused(f"it has no line for that, and may read {name} several times")
    return reads[0]


_REPEATED = (
    ast.Lambda, *FUNCTIONS, ast.For, ast.While,
    ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp,
)  # fmt: skip
"""Within these an expression may be evaluated several times."""
