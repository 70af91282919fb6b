"""Equal blocks that a Python loop calls one after another: one `jax.lax.scan` over them.

Unrolled, XLA may make what their backward passes need at once, such as the stacks of checkpointed
scans; in a scan it is there for one block at a time.

find     what is made several times by one expression: a checkpoint, or a scan
trace    nothing: products are the same; a plan is compiled from the patched files
edit     the body of the `for` becomes a function; what each block alone has is stacked
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from bufdb.fitting.counting import REMATS, aval_bytes, inner_jaxprs, kind
from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import Refused
from bufdb.fitting.jax_inside import Files, frames
from bufdb.fitting.lever import Lever
from bufdb.fitting.places import place
from bufdb.fitting.plans import Change, Site
from bufdb.fitting.reader import SCAN
from bufdb.fitting.rolled import loop_around, roll
from bufdb.fitting.source import Source

LEAST = 3
"""How many blocks there are at least."""


class Blocks(Lever):
    """A scan over equal blocks."""

    name = "blocks"
    is_compared = True

    def edit(self, editing: Editing) -> None:
        """Put a scan in the place of the loop."""
        for change in editing.program.changes_of(editing.plan):
            if change.key.partition("=")[0] == self.name:
                editing.attempt(change.sites[0], change.step, roll, change.sites[0])


# -- Find ------------------------------------------------------------------------------------------


def changes_of(losses: Iterable[Any], files: Files) -> list[Change]:
    """Return the change for the blocks that take most, as no change or one.

    Args:
        losses: jaxprs.
        files: of the user.

    Raises:
        Refused: there are none.
    """
    groups: list[tuple[int, int, Site]] = []
    for jaxpr in losses:
        for inner in _all(jaxpr):
            groups += _repeated(inner, files)
    if not groups:
        raise Refused(f"no checkpoint or scan is made {LEAST} times by one expression")
    _, count, site = max(groups, key=lambda one: one[:2])
    return [
        Change(
            f"{Blocks.name}={count}",
            f"{count} blocks at {place(site)} in one scan",
            "run the equal blocks as one jax.lax.scan over their stacked parameters, not as",
            place(site),
            "each is computed as before, by its equations",
            (site,),
            count,
        )
    ]


def _all(jaxpr: Any) -> Iterator[Any]:
    yield jaxpr
    for eqn in jaxpr.eqns:
        for inner in inner_jaxprs(eqn):
            yield from _all(inner)


def _repeated(jaxpr: Any, files: Files) -> list[tuple[int, int, Site]]:
    """Return bytes, number and place of what one expression makes several times, all alike."""
    groups: dict[tuple[Site, ...], list[Any]] = {}
    for eqn in jaxpr.eqns:
        if kind(eqn) in REMATS or eqn.primitive.name == SCAN:
            sites = tuple(frame.site for frame in frames(eqn, files))
            groups.setdefault(sites, []).append(eqn)
    return [
        (
            sum(aval_bytes(var.aval) for var in eqns[0].outvars) * len(eqns),
            len(eqns),
            _in_loop(sites),
        )
        for sites, eqns in groups.items()
        if sites and len(eqns) >= LEAST and len({_shapes(eqn) for eqn in eqns}) == 1
    ]


def _shapes(eqn: Any) -> tuple[str, ...]:
    return (eqn.primitive.name, *(str(var.aval) for var in (*eqn.invars, *eqn.outvars)))


def _in_loop(sites: tuple[Site, ...]) -> Site:
    """Return the innermost of some expressions that a `for` repeats; the first if there is none."""
    for site in sites:
        with suppress(Refused, OSError, UnicodeDecodeError):
            source = Source(site.file, Path(site.file).read_bytes().decode())
            if loop_around(source, source.find(site)) is not None:
                return site
    return sites[0]
