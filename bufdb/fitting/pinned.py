"""What a `custom_vjp` saves: its forward function says so, and no policy around it.

find     calls of one that what is differentiated reaches, outside of the checkpoints as written
trace    the forward function, as JAX does for a gradient: its residuals, and where each is made
words    bytes by line, and what there is to do
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from bufdb.fitting.counting import (
    REMATS,
    aval_bytes,
    carried_inputs,
    inner_jaxprs,
    is_inexact,
    is_literal,
    kind,
    repetitions,
)
from bufdb.fitting.jax_inside import site_of, source_of
from bufdb.fitting.places import place
from bufdb.fitting.plans import Site
from bufdb.fitting.reader import Reader
from bufdb.render.text import human_bytes

CALLS = ("custom_vjp_call", "custom_vjp_call_jaxpr")
"""Names of the primitives of a call of a `custom_vjp`."""
LINES = 4
"""Lines that a note names."""


@dataclass
class Pinned:
    """What all calls of a `custom_vjp` save for its backward function."""

    name: str
    forward: str = ""
    """Name of its forward function, if that is the user's."""
    calls: dict[Site, None] = field(default_factory=dict)
    count: int = 0
    """Calls, loops counted."""
    made: Counter[Site | None] = field(default_factory=Counter)
    """Bytes by the expression that makes them; None: not of the user's."""
    argument_bytes: int = 0
    """Of arguments that are made elsewhere, such as what a loop hands on."""

    @property
    def total_bytes(self) -> int:
        """Return the bytes of all calls."""
        return sum(self.made.values()) + self.argument_bytes

    @property
    def note(self) -> str:
        """Return it in words."""
        named = [(size, f"of {place(site)}") for site, size in self.made.items() if site]
        if unnamed := self.made[None]:
            named.append((unnamed, "of its forward function"))
        if self.argument_bytes:
            named.append((self.argument_bytes, "of other arguments"))
        named.sort(reverse=True)
        parts = [f"{human_bytes(size)} {what}" for size, what in named[:LINES]]
        if rest := sum(size for size, _ in named[LINES:]):
            parts.append(f"{human_bytes(rest)} of other lines")
        where = ", ".join(sorted({place(site) for site in self.calls})) or "a library"
        times = f"{self.count} calls" if self.count > 1 else "its call"
        text = (
            f"{human_bytes(self.total_bytes)} are saved because the custom_vjp of {self.name} pins "
            f"its residuals in {times} ({where}): {', '.join(parts)}; jax.checkpoint of a function "
            "with the call computes all of them again"
        )
        if self.forward:
            text += f", but those with a checkpoint_name in {self.forward} that its policy saves"
        return text


def pinned(reader: Reader, losses: Iterable[Any]) -> list[Pinned]:
    """Return what each `custom_vjp` of some closed losses saves, the largest first.

    Their arguments are what is differentiated, their constants are not.
    """
    records: dict[Any, Pinned] = {}
    for closed in losses:
        jaxpr = closed.jaxpr
        body = _Body(jaxpr, {*jaxpr.invars, *jaxpr.constvars}, 1)
        active = [is_inexact(var.aval) for var in jaxpr.invars]
        for eqn, around in _calls(body, active):
            _add(reader, records, eqn, around)
    return sorted(records.values(), key=lambda one: -one.total_bytes)


@dataclass
class _Body:
    """A jaxpr around calls."""

    jaxpr: Any
    held: set[Any]
    """Variables whose values are there anyway, such as parameters, or known to be saved."""
    times: int
    """How often it runs."""


def _calls(body: _Body, active: Sequence[bool]) -> Iterator[tuple[Any, _Body]]:
    """Yield the calls that what is differentiated reaches, each with what is around it.

    Args:
        body: what to read.
        active: whether what is differentiated reaches each of its inputs.
    """
    reached = {var for var, is_active in zip(body.jaxpr.invars, active, strict=True) if is_active}
    for eqn in body.jaxpr.eqns:
        taken = [not is_literal(var) and var in reached for var in eqn.invars]
        if not any(taken):
            continue
        reached.update(var for var in eqn.outvars if is_inexact(var.aval))
        name = kind(eqn)
        if name in CALLS:
            yield eqn, body
        elif name not in (*REMATS, "cond"):
            for inner in inner_jaxprs(eqn):
                if len(inner.invars) == len(eqn.invars):
                    yield from _calls(*_inside(eqn, inner, taken, body))


def _inside(eqn: Any, inner: Any, taken: Sequence[bool], body: _Body) -> tuple[_Body, list[bool]]:
    """Return a jaxpr of an equation, and whether what is differentiated reaches its inputs."""
    pairs = list(zip(inner.invars, eqn.invars, strict=True))
    reached = list(taken)
    held = {var for var, outer in pairs if is_literal(outer) or outer in body.held}
    if eqn.primitive.name == "scan":
        # JAX saves what an iteration is given once, except the carry.
        carry = carried_inputs(eqn)
        held = {*inner.invars} - {*carry}
        reached = [
            is_taken or (var in carry and is_inexact(var.aval))
            for var, is_taken in zip(inner.invars, taken, strict=True)
        ]
    return _Body(inner, held | {*inner.constvars}, body.times * repetitions(eqn)), reached


def _add(reader: Reader, records: dict[Any, Pinned], eqn: Any, around: _Body) -> None:
    """Add what a call saves; nothing where JAX does not show it."""
    params = eqn.params
    try:
        taken = eqn.invars[params["num_consts"] :]
        forward = params["fwd_jaxpr_thunk"].call_wrapped(*[False] * len(taken))[0]
        _, tree, forwarded = params["out_trees"]()
    except Exception:  # whatever a JAX of another kind, or the forward function, raises
        return
    own = source_of(forward)
    key = _function(reader, params["call_jaxpr"].jaxpr, forward)
    record = records.setdefault(key, Pinned(key[0]))
    if own is not None and reader.files.has(own[1]):
        record.forward = "its forward function" if "<lambda>" in own[0] else own[0]
    if (site := reader.site(eqn)) is not None:
        record.calls[site] = None
    record.count += around.times
    stop = tree.num_leaves - sum(at is not None for at in forwarded)
    outer = dict(zip(forward.invars, taken, strict=False))
    saved = [outer.get(var, var) for var in forward.outvars[:stop] if not is_literal(var)]
    saved += [eqn.invars[at] for at in forwarded if at is not None]
    own_maker = {var: one for one in forward.eqns for var in one.outvars}
    maker = {var: one for one in around.jaxpr.eqns for var in one.outvars}
    for var in dict.fromkeys(var for var in saved if not is_literal(var)):
        size = around.times * aval_bytes(var.aval)
        if var in own_maker:
            record.made[site_of(own_maker[var], reader.files)] += size
        elif var not in around.held:
            site = reader.site(maker[var]) if var in maker else None
            if site is None:
                record.argument_bytes += size
            else:
                record.made[site] += size
        around.held.add(var)  # of other calls it is the same value


def _function(reader: Reader, jaxpr: Any, forward: Any) -> tuple[str, str, int]:
    """Return name, file and line of the function that a call is of, as well as they are known."""
    name, file, line = source_of(jaxpr) or ("a function", "", 0)
    if not reader.files.has(file):  # jax.custom_gradient calls a function of its own
        sites = (site_of(eqn, reader.files) for eqn in forward.eqns)
        site = next((one for one in sites if one is not None), None)
        if site is not None:
            return site.function, site.file, 0
    return name, file, line
