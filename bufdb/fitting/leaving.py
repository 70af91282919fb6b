"""A value of a loss that is its output, too: which line returns it, and what reads it then."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bufdb.fitting.counting import inner_jaxprs, is_literal
from bufdb.fitting.edits import Refused
from bufdb.fitting.gradients import Gradient
from bufdb.fitting.jax_inside import JITS, Files, frames, gradient_number, site_of
from bufdb.fitting.places import lines, spans
from bufdb.fitting.plans import Site
from bufdb.fitting.source import FUNCTIONS, Source
from bufdb.fitting.transforms import function_at

INSTEAD = "return metrics in its place, means or sums over the batch, such as the accuracy"


def leaving(eqn: Any, aval: Any, one: Gradient, number: int, step: Any, files: Files) -> str:
    """Return in words where the result of an equation leaves a loss.

    Args:
        eqn: of the loss.
        aval: shape and type of the result.
        one: the loss.
        number: of the loss among those of the function.
        step: jaxpr of the function.
        files: of the user.
    """
    shown = f"{_spans(_returns(eqn, one, files)) or 'the loss'} returns it"
    readers = _Readers(number, aval, files)
    readers.walk(step, set())
    if readers.sites:
        shown += f" for {_spans(readers.sites)}"
    return f"{shown}; {INSTEAD}"


def _spans(sites: Sequence[Site]) -> str:
    return spans(lines(sites))


def _returns(eqn: Any, one: Gradient, files: Files) -> list[Site]:
    """Return where the loss returns: it is the function that is called to take its gradient."""
    called = frames(eqn, files)
    taken = None if one.site is None else one.site[:2]
    inside = list(itertools.takewhile(lambda frame: frame.site[:2] != taken, called))
    if not inside:
        return []
    site, line = inside[-1].site, inside[-1].first_line
    begin = Site(site.file, line, 0, line, 0, site.function)
    with suppress(Refused, OSError, UnicodeDecodeError):
        source = Source(site.file, Path(site.file).read_text("utf-8"))
        function = function_at(source, begin)
        returned = [
            node.lineno
            for node in ast.walk(function)
            if isinstance(node, ast.Return)
            and next(one for one in source.above(node) if isinstance(one, FUNCTIONS)) is function
        ]
        return [begin._replace(line=line) for line in returned]
    return [begin]  # a lambda, or what was typed


@dataclass
class _Readers:
    """Expressions outside of a gradient that read what its loss returns."""

    number: int
    aval: Any
    """What it returns has this shape and type."""
    files: Files
    sites: list[Site] = field(default_factory=list)

    def walk(self, jaxpr: Any, wide: set[Any]) -> list[bool]:
        """Read a jaxpr, some of whose inputs are such values; return which outputs are."""
        for eqn in jaxpr.eqns:
            if gradient_number(eqn) == self.number:
                wide.update(var for var in eqn.outvars if self._is_like(var))
                continue
            taken = [not is_literal(var) and var in wide for var in eqn.invars]
            if eqn.primitive.name in JITS:
                for inner in inner_jaxprs(eqn):
                    self._nested(eqn, inner, taken, wide)
            elif any(taken) and (site := site_of(eqn, self.files)) is not None:
                self.sites.append(site)
        return [not is_literal(var) and var in wide for var in jaxpr.outvars]

    def _nested(self, eqn: Any, inner: Any, taken: Sequence[bool], wide: set[Any]) -> None:
        own = {var for var, is_wide in zip(inner.invars, taken, strict=True) if is_wide}
        before = len(self.sites)
        out = self.walk(inner, own)
        wide.update(var for var, is_wide in zip(eqn.outvars, out, strict=True) if is_wide)
        site = site_of(eqn, self.files)
        if len(self.sites) > before and site is not None and any(taken):
            self.sites[before:] = [site]  # a library's function has no line of its own

    def _is_like(self, var: Any) -> bool:
        shape = getattr(var.aval, "shape", None)
        return bool(shape == self.aval.shape and var.aval.dtype == self.aval.dtype)
