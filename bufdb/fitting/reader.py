"""Where equations were written, and which call of a user's function they are part of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from bufdb.fitting.counting import (
    NAMES,
    REMATS,
    is_dropped,
    is_inexact,
    is_literal,
    kind,
    open_jaxpr,
    parameters,
)
from bufdb.fitting.jax_inside import JITS, Calls, Files, site_of, source_of
from bufdb.fitting.plans import Site

SCAN = "scan"
Key = tuple[str, Any]
"""A region: its kind, and the site of the scan or the function that is called."""
ScanKey = tuple[Literal["scan"], Site]
CallKey = tuple[Literal["call"], tuple[str, str, int]]


class Reader:
    """Reads where equations were written, and which call they are part of."""

    def __init__(self, files: Files, calls: Calls) -> None:
        self.files = files
        self.calls = calls
        self._names: dict[int, tuple[Any, dict[Any, tuple[Site, str | None]]]] = {}

    def site(self, eqn: Any) -> Site | None:
        """Return the user's expression that made an equation."""
        return site_of(eqn, self.files)

    def nested(self, eqn: Any) -> Any | None:
        """Return the closed jaxpr of a nested function that is the user's; None if it is none.

        A library's own, such as softmax, cannot be changed by a patch. Its equations are all of one
        expression, that of the first call, as its trace is kept.
        """
        if eqn.primitive.name not in JITS:
            return None
        closed = eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))
        jaxpr = open_jaxpr(closed)
        if jaxpr is None:
            return None
        source = source_of(jaxpr)
        if source is not None and self.files.has(source[1]):
            return closed
        sites = {self.site(inner) for inner in jaxpr.eqns} - {None}
        return closed if len(sites) > 1 else None

    def scan_key(self, eqn: Any) -> ScanKey | None:
        """Return the key of a scan; None if it is none, or not the user's."""
        if eqn.primitive.name != SCAN:
            return None
        site = self.site(eqn)
        return None if site is None else ("scan", site)

    def chain(self, eqn: Any) -> list[tuple[CallKey, Any, Site]]:
        """Return the calls around an equation within its jaxpr: function, which call, where."""
        found: list[tuple[CallKey, Any, Site]] = [
            (("call", (call.file, call.name, call.first_line)), number, call.site)
            for number, call in self.calls.of(eqn)
        ]
        if self.nested(eqn) is not None and (site := self.site(eqn)) is not None:
            name = source_of(open_jaxpr(eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))))
            if name is not None and self.files.has(name[1]):
                found.append((("call", (name[1], name[0], name[2])), ("jit", id(eqn)), site))
        return found

    def crossing(self, jaxpr: Any) -> Mapping[Any, tuple[Site, str | None]]:
        """Return the values of a body that cross expressions: where, and the name in the source.

        The value of an expression that is evaluated several times may go to the next evaluation
        alone, so all of its evaluations count if one does.
        """
        kept = self._names.get(id(jaxpr))
        if kept is not None:
            return kept[1]
        found: dict[Any, tuple[Site, str | None]] = {}
        for site, names, eqns in self._by_site(jaxpr).values():
            period = _period([_signature(eqn) for eqn in eqns])
            positions = {
                (at % period, output)
                for at, eqn in enumerate(eqns)
                for output, var in enumerate(eqn.outvars)
                if var in names
            }
            for at, eqn in enumerate(eqns):
                if self.nested(eqn) is not None or kind(eqn) in REMATS:
                    continue
                for output, var in enumerate(eqn.outvars):
                    is_wanted = (at % period, output) in positions and not is_dropped(var)
                    if is_wanted and is_inexact(var.aval):
                        found[var] = (site, names.get(var))
        self._names[id(jaxpr)] = (jaxpr, found)  # keeps the jaxpr, so that its id stays its own
        return found

    def _by_site(self, jaxpr: Any) -> dict[Site, tuple[Site, dict[Any, str | None], list[Any]]]:
        """Return for each expression the values that leave it, with names, and its equations."""
        sites = [self.site(eqn) for eqn in jaxpr.eqns]
        made: dict[Any, Site | None] = {}
        crossing: dict[Any, str | None] = {
            var: None for var in jaxpr.outvars if not is_literal(var)
        }
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
