"""Where equations were written, and which call of a user's function they are part of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from bufdb.fitting.counting import REMATS, inner_jaxprs, kind, open_jaxpr
from bufdb.fitting.jax_inside import JITS, Calls, Files, frames, site_of, source_of
from bufdb.fitting.plans import Site

SCAN = "scan"
Key = tuple[str, Any]
"""A region: its kind, and the site of the scan or the function that is called."""
ScanKey = tuple[Literal["scan"], Site]
CallKey = tuple[Literal["call"], tuple[str, str, int]]
Record = TypeVar("Record")


class Reader:
    """Reads where equations were written, and which call they are part of."""

    def __init__(self, files: Files, calls: Calls) -> None:
        self.files = files
        self.calls = calls
        self._known: dict[tuple[int, Callable[[Reader, Any], Any]], tuple[Any, Any]] = {}

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
        return closed if self.is_users(closed) else None

    def is_users(self, closed: Any) -> bool:
        """Return whether a jaxpr is of a function of the user's, by its source or its equations."""
        jaxpr = open_jaxpr(closed)
        if jaxpr is None:
            return False
        source = source_of(jaxpr)
        if source is not None and self.files.has(source[1]):
            return True
        return len({self.site(inner) for inner in jaxpr.eqns} - {None}) > 1

    def scan_key(self, eqn: Any) -> ScanKey | None:
        """Return the key of a scan; None if it is none, or not the user's."""
        if eqn.primitive.name != SCAN:
            return None
        site = self.site(eqn)
        return None if site is None else ("scan", site)

    def body(self, jaxpr: Any) -> tuple[str, Site | None]:
        """Return name and place of the function that a scan repeats: its frames begin with it."""
        for eqn in jaxpr.eqns:
            own = frames(eqn, self.files)
            if own:
                file, line, name = own[-1].site.file, own[-1].first_line, own[-1].site.function
                return name, Site(file, line, 0, line, 0, name)
            if kind(eqn) in REMATS:
                return self.body(next(inner_jaxprs(eqn)))
        source = source_of(jaxpr)
        return ("", None) if source is None else (source[0], None)

    def chain(self, eqn: Any) -> list[tuple[CallKey, Any, Site]]:
        """Return the calls around an equation within its jaxpr: function, which call, where."""
        calls: list[tuple[CallKey, Any, Site]] = [
            (("call", (call.file, call.name, call.first_line)), number, call.site)
            for number, call in self.calls.of(eqn)
        ]
        if self.nested(eqn) is not None and (site := self.site(eqn)) is not None:
            name = source_of(open_jaxpr(eqn.params.get("jaxpr", eqn.params.get("call_jaxpr"))))
            if name is not None and self.files.has(name[1]):
                calls.append((("call", (name[1], name[0], name[2])), ("jit", id(eqn)), site))
        return calls

    def once(self, jaxpr: Any, read: Callable[[Reader, Any], Record]) -> Record:
        """Return what a function reads of a jaxpr, read once."""
        key = id(jaxpr), read
        if key not in self._known:  # keeps the jaxpr, so that its id stays its own
            self._known[key] = jaxpr, read(self, jaxpr)
        record: Record = self._known[key][1]
        return record
