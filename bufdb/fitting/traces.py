"""Traces of plans that earlier calls made, kept by content next to their compilations.

The name of a file is a hash of what a trace depends on: the equations of the losses and where each
was written, their gradients as written (which have the rules of functions with their own derivative
and the policies of the source), what of them can be switched, JAX, its settings, and bufdb's code.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import re
import sys
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from bufdb.capture import cache
from bufdb.capture.target import jax_module
from bufdb.fitting.counting import is_literal, kind, open_jaxpr
from bufdb.fitting.plans import Plan, Site, Traced
from bufdb.fitting.records import as_json, from_json

Record = TypeVar("Record")
_SUFFIX = ".traces"
_OF_PROCESS = re.compile(r"0x[0-9a-f]+")
"""What the text of a function has that another process has not."""


class Traces:
    """The traces of the plans of a program."""

    def __init__(self, content: Callable[[], Sequence[str]]) -> None:
        """Take a function that returns what a trace depends on, besides JAX and this code."""
        self._place = cache.folder()
        self._known: dict[Plan, Traced] = {}
        self._derived: dict[Plan, Traced | None] = {}
        """What is derived of plans; None if it cannot be."""
        self._again: dict[Plan, tuple[Site, ...]] = {}
        """What is computed again under plans."""
        self._texts: dict[Plan, str] = {}
        """What is kept of plans, as it is written."""
        self._is_written = True
        if self._place is None:
            return
        digest = hashlib.sha256(repr((*_versions(), content())).encode())
        self._name = digest.hexdigest() + _SUFFIX
        data = cache.read(self._place, self._name)
        if data is not None:
            for plan, traced, derived, again in json.loads(zlib.decompress(data)):
                own = from_json(Plan, plan)
                if traced is not None:
                    self._known[own] = from_json(Traced, traced)
                if derived is not None:
                    self._derived[own] = from_json(Traced, derived) if derived else None
                if again is not None:
                    self._again[own] = tuple(Site(*site) for site in again)

    def plans(self) -> Sequence[Plan]:
        """Return the plans that were traced, or derived, before."""
        return [*self._known, *(plan for plan, one in self._derived.items() if one is not None)]

    def traced(self, plan: Plan, trace: Callable[[], Traced]) -> Traced:
        """Return the trace of a plan, made if it is not known."""
        return self._once(self._known, plan, trace)

    def derived(self, plan: Plan, derive: Callable[[], Traced | None]) -> Traced | None:
        """Return what is derived of a plan, now if it is not known; None if it cannot be."""
        return self._once(self._derived, plan, derive)

    def forget_derived(self) -> None:
        """Keep nothing that is derived: it is not what JAX traces."""
        self._derived.clear()
        self._texts.clear()
        self._is_written = False
        self.write()

    def again(self, plan: Plan, read: Callable[[], tuple[Site, ...]]) -> tuple[Site, ...]:
        """Return what is computed again under a plan, read if it is not known."""
        return self._once(self._again, plan, read)

    def _once(self, known: dict[Plan, Record], plan: Plan, make: Callable[[], Record]) -> Record:
        if plan.extra:  # what it changes in the text is no part of the name
            return make()
        if plan not in known:
            known[plan] = make()
            self._texts.pop(plan, None)
            self._is_written = False
        return known[plan]

    def write(self) -> None:
        """Keep what is known now."""
        if self._place is None or self._is_written:
            return
        for plan in dict.fromkeys([*self._known, *self._derived, *self._again]):
            if plan not in self._texts:
                derived = self._derived.get(plan) or (False if plan in self._derived else None)
                row = [plan, self._known.get(plan), derived, self._again.get(plan)]
                self._texts[plan] = json.dumps(as_json(row))
        text = f"[{','.join(self._texts.values())}]"
        cache.write(self._place, self._name, zlib.compress(text.encode()))
        self._is_written = True


def content(jaxpr: Any, site: Callable[[Any], Site | None] = lambda eqn: None) -> str:
    """Return the equations of a jaxpr as text, also those nested in it, each with its place."""
    lines: list[str] = []
    _write(jaxpr, site, lines.append)
    return "\n".join(lines)


def _write(jaxpr: Any, site: Callable[[Any], Site | None], write: Callable[[str], object]) -> None:
    numbers: dict[Any, int] = {}

    def texts(variables: Iterable[Any]) -> str:
        return " ".join(
            f"{var.val!r}"
            if is_literal(var)
            else f"{numbers.setdefault(var, len(numbers))}:{var.aval}"
            for var in variables
        )

    write(f"({texts(jaxpr.constvars)}; {texts(jaxpr.invars)}")
    for eqn in jaxpr.eqns:
        write(f"{kind(eqn)} {texts(eqn.invars)} > {texts(eqn.outvars)} {site(eqn)}")
        for name, param in sorted(eqn.params.items()):
            items = param if isinstance(param, tuple | list) else (param,)
            inner = [one for item in items if (one := open_jaxpr(item)) is not None]
            write(f"{name}={'' if inner else _OF_PROCESS.sub('', str(param))}")
            for one in inner:
                _write(one, site, write)
    write(f"{texts(jaxpr.outvars)})")


def _versions() -> Sequence[object]:
    """Return what identifies JAX with its settings, and the code that traces and counts."""
    jax = jax_module()
    values = importlib.import_module("jax._src.config").config.values
    own = Path(__file__).parent
    files = sorted((path.name, path.stat().st_mtime_ns) for path in own.rglob("*.py"))
    settings = _OF_PROCESS.sub("", str(sorted(values.items())))
    return sys.version, jax.__version__, settings, files
