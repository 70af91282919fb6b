"""Values of a scan's body: saved for the backward pass, or computed again.

find     what an expression computes and another one reads
trace    the value gets a name, the body a checkpoint with a policy of names
edit     `checkpoint_name(EXPRESSION, "name")`, and the policy at the scan, at a checkpoint that
is there, or of flax
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bufdb.fitting import transforms
from bufdb.fitting.counting import (
    NAMES,
    REMATS,
    is_dropped,
    is_inexact,
    is_literal,
    kind,
    parameters,
)
from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import Refused, Render
from bufdb.fitting.lever import Atom, Lever, Trial, Value
from bufdb.fitting.levers.policy import policy, rest_of
from bufdb.fitting.places import place, spans
from bufdb.fitting.plans import Plan, PlanResult, Program, Region, Site
from bufdb.fitting.reader import SCAN, Reader
from bufdb.fitting.source import Source

NAME = ("jax.ad_checkpoint", "checkpoint_name")
NAMED = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Attribute, ast.IfExp, ast.Compare)
"""Expressions that compute what they are worth; a bare name computes nothing."""
OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**",
    ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
WORDS = 30
"""Characters of an expression that are shown."""


class Saved(Lever):
    """Values that expressions of a scan's body hand on."""

    name = "saved"

    def values(self, reader: Reader, jaxpr: Any) -> Mapping[Any, Value]:
        """Return the values of a body that cross expressions."""
        return reader.once(jaxpr, _crossing)

    def matters(self, trial: Trial, at: int) -> bool:
        """Return whether a scan saves other values under a policy than as written."""
        if trial.regions[at].kind != SCAN:
            return False
        own = [one for one in trial.switches if one.lever == self.name]
        names = tuple(one.name for one in own if at in one.regions)
        tried = [Plan(scans=(at,)), Plan(scans=(at,), saved=names)]
        written = trial.written
        return any(replace(trial.trace(plan), saved=written.saved) != written for plan in tried)

    def planned(
        self, program: Program, plan: Plan, given_up: Sequence[Atom], kept: Sequence[Atom]
    ) -> Plan:
        """Save the other names of the scans that get a policy."""
        scans = set(plan.scans)
        return replace(plan, saved=tuple(one.name for one in kept if scans & set(one.regions)))

    def edit(self, editing: Editing) -> None:
        """Name what is saved, give scans their policies, remove the checkpoints within."""
        program, plan = editing.program, editing.plan
        named = set()
        for switch in program.switches:
            is_own = switch.lever == self.name and switch.name in plan.names and not switch.is_named
            is_there = any(index in plan.scans for index in switch.regions)
            if is_own and is_there and switch.site not in named:
                how = f'put checkpoint_name(…, "{switch.name}") around'
                editing.attempt(switch.site, how, _name, switch.site, switch.name)
                named.add(switch.site)
        scanned = {site for index in plan.scans for site in program.regions[index].sites}
        for index in plan.scans:
            region = program.regions[index]
            made = policy(program.switches, plan, index)
            depth = plan.depth(index)
            for site in region.sites:
                if depth is None:
                    how = f"give the scan's body {made.words}"
                    editing.attempt(site, how, _scan, region, site, made.text)
                    continue
                rest = policy(program.switches, rest_of(plan, depth), index)
                how = (
                    f"run the scan as two: the body of the first {depth.count} iterations with "
                    f"{made.words}, that of the others with {rest.words}"
                )
                texts = made.text, rest.text
                editing.attempt(site, how, _scan_in_two, site, depth.count, texts)
            for site in set(region.remats) - scanned:  # a scan's own gets the policy
                editing.attempt(site, "remove the checkpoint of", _unwrap, region, site)

    def compared(
        self, rows: Sequence[PlanResult], program: Program, texts: Mapping[str, str]
    ) -> Sequence[PlanResult]:
        """Return the rows; those that have the same lines with what they save in `saves`."""
        alike: dict[tuple[str, ...], list[PlanResult]] = {}
        for row in rows:
            alike.setdefault(row.recomputed_lines, []).append(row)
        rows_shown = []
        for row in rows:
            others = alike[row.recomputed_lines] if row.recomputed_lines else []
            own = [
                name for name in row.plan.saved if any(name not in one.plan.saved for one in others)
            ]
            saved = [_expression(one.site, texts) for one in program.switches if one.name in own]
            rows_shown.append(replace(row, saves=tuple(saved)))
        return rows_shown

    def words(self, row: PlanResult) -> Sequence[str]:
        """Return what is computed again, and what is saved."""
        words = [f"again {spans(row.recomputed_lines)}"] if row.recomputed_lines else []
        return [*words, f"saves {', '.join(row.saves)}"] if row.saves else words


# -- What crosses expressions ----------------------------------------------------------------------


def _crossing(reader: Reader, jaxpr: Any) -> Mapping[Any, Value]:
    """Return the values of a body that cross expressions: where, and the name in the source.

    The value of an expression that is evaluated several times may go to the next evaluation
    alone, so all of its evaluations count if one does.
    """
    crossing: dict[Any, Value] = {}
    for site, names, eqns in _by_site(reader, jaxpr).values():
        period = _period([_signature(eqn) for eqn in eqns])
        positions = {
            (at % period, output)
            for at, eqn in enumerate(eqns)
            for output, var in enumerate(eqn.outvars)
            if var in names
        }
        for at, eqn in enumerate(eqns):
            if reader.nested(eqn) is not None or kind(eqn) in REMATS:
                continue
            for output, var in enumerate(eqn.outvars):
                is_wanted = (at % period, output) in positions and not is_dropped(var)
                if is_wanted and is_inexact(var.aval):
                    crossing[var] = Value(site, names.get(var))
    return crossing


def _by_site(
    reader: Reader, jaxpr: Any
) -> dict[Site, tuple[Site, dict[Any, str | None], list[Any]]]:
    """Return for each expression the values that leave it, with names, and its equations."""
    sites = [reader.site(eqn) for eqn in jaxpr.eqns]
    made: dict[Any, Site | None] = {}
    crossing: dict[Any, str | None] = {var: None for var in jaxpr.outvars if not is_literal(var)}
    aliases: set[Any] = set()
    for eqn, site in zip(jaxpr.eqns, sites, strict=True):
        if kind(eqn) in NAMES:  # the named value counts, not the same without a name
            aliases.update(var for var in eqn.invars if not is_literal(var))
            crossing.update((var, parameters(eqn)["name"]) for var in eqn.outvars)
        else:
            for var in eqn.invars:
                if not is_literal(var) and var in made and made[var] != site:
                    crossing.setdefault(var, None)
        made.update((var, site) for var in eqn.outvars)
    for var in aliases:
        crossing.pop(var, None)
    by_site: dict[Site, tuple[Site, dict[Any, str | None], list[Any]]] = {}
    for eqn, site in zip(jaxpr.eqns, sites, strict=True):
        if site is None:
            continue
        entry = by_site.setdefault(site, (site, {}, []))
        entry[2].append(eqn)
        entry[1].update((var, crossing[var]) for var in eqn.outvars if var in crossing)
    return by_site


def _signature(eqn: Any) -> tuple[str, tuple[str, ...]]:
    return kind(eqn), tuple(str(var.aval) for var in eqn.outvars)


def _period(signatures: list[Any]) -> int:
    """Return the length of the sequence that the whole repeats; its own length if none does."""
    count = len(signatures)
    for length in range(1, count):
        if count % length == 0 and signatures == signatures[:length] * (count // length):
            return length
    return max(count, 1)


# -- Edits -----------------------------------------------------------------------------------------


def _name(source: Source, site: Site, name: str) -> None:
    node = source.find(site)
    function = source.imported(*NAME, [node])
    if isinstance(node, ast.AugAssign):
        _name_augmented(source, node, function, name)
        return
    if not isinstance(node, NAMED):
        raise Refused("the expression computes no value of its own")
    if isinstance(source.parents[node], ast.Await):
        raise Refused("the value is awaited")
    source.wrap(node, f"{function}(", f', "{name}")')


def _scan(source: Source, region: Region, site: Site, policy: Callable[[str], str]) -> None:
    node = source.find(site)
    if not isinstance(node, ast.Call):
        raise Refused("it is not a call")
    transforms.put_policy(source, node, region, policy, site in region.remats)


def _scan_in_two(
    source: Source, site: Site, count: int, policies: tuple[transforms.Policy, transforms.Policy]
) -> None:
    node = source.find(site)
    if not isinstance(node, ast.Call):
        raise Refused("it is not a call")
    transforms.in_two(source, node, count, policies)


def _unwrap(source: Source, region: Region, site: Site) -> None:
    node = source.find(site)
    if not isinstance(node, ast.Call):
        raise Refused("it is not a call")
    calls = [one for one in region.remats if one.file == site.file]
    transforms.unwrap(source, node, len(set(calls)))


def _name_augmented(source: Source, node: ast.AugAssign, function: str, name: str) -> None:
    """Change `x += VALUE` into `x = checkpoint_name(x + (VALUE), "name")`."""
    if not isinstance(node.target, ast.Name):
        raise Refused("it is an augmented assignment to more than a name")
    start, end = source.span(node)
    _, after = source.span(node.target)
    operator = OPERATORS[type(node.op)]
    value = source.raw.index(b"=", after) + 1
    target = node.target.id

    def make(render: Render) -> str:
        inner = render(value, end).strip(" \t")
        return f'{target} = {function}({target} {operator} ({inner}), "{name}")'

    source.replace((start, end), make)


# -- Words -----------------------------------------------------------------------------------------


def _expression(site: Site, texts: Mapping[str, str]) -> str:
    """Return the place of an expression and how it begins."""
    rows = texts.get(site.file, "").splitlines()[site.line - 1 : site.line]
    row = rows[0].encode() if rows else b" " * site.column
    column = len(row[: site.column].decode()) + 1
    is_one = site.line == site.end_line
    begin = row[site.column : site.end_column if is_one else None].decode().strip()
    if begin and (len(begin) > WORDS or not is_one):
        begin = begin[: WORDS - 1] + "…"
    return f"{place(site)}:{column} {begin}".rstrip()
