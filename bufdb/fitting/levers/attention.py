"""Attention with the scores of all pairs, for some of its heads or rows at a time.

Where the scores are as wide as the sequence is long they are the largest value by far, saved for
the gradient or there once: in equal parts of an axis along which nothing is summed, each of them
checkpointed, one part is there at a time.

find     a product wider than what it is of, up to the product that sums its rows
trace    nothing by itself: that of the patched files has what the parts compute again
edit     the lines become a function of one part, which `jax.lax.map` calls
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from bufdb.fitting.axes import CUSTOM, Inlined, Step, Value, parallel
from bufdb.fitting.counting import (
    NAMES,
    REMATS,
    aval_bytes,
    equation_work,
    inner_jaxprs,
    is_literal,
    kind,
    open_jaxpr,
    repetitions,
)
from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import Refused
from bufdb.fitting.in_parts import MAPPED, Passage, passage, put_in_parts
from bufdb.fitting.jax_inside import Files, Frame, Held, frames
from bufdb.fitting.lever import Lever
from bufdb.fitting.places import place
from bufdb.fitting.plans import Change, Parts, Program, Site
from bufdb.fitting.reader import Reader
from bufdb.fitting.source import Source
from bufdb.fitting.wide import Place, Watched, level_of

WIDER = 2
"""How many times as large as what it is a product of a value must be."""
MOST = 8, 64
"""Into how many parts an axis is divided: as many or the next below, then up to the other."""
_MOVES = ("reshape", "squeeze", "transpose", "broadcast_in_dim", *NAMES, *REMATS)
"""Primitives that move values, name them for a policy, or run what is compared."""
_OF_AXES = ("axis", "dimension", "inline", "name")
"""Parameters that name an axis, or a function."""
NEAR = 0.5
"""Share of the largest scores up to which others are computed in parts, too."""


class Attention(Lever):
    """Scores of attention in parts."""

    name = "attention"

    def edit(self, editing: Editing) -> None:
        """Put the lines into functions of a part."""
        for change in editing.program.changes_of(editing.plan):
            if change.key.partition("=")[0] == self.name:
                for one in change.parts:
                    editing.attempt(one.last, change.step, put_in_parts, one)


# -- Find ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Lines:
    """Where scores are made, and what is computed of them last."""

    place: Place
    first: Site
    last: Site


@dataclass(frozen=True)
class Piece:
    """What some lines compute in one jaxpr, each time that they run there."""

    lines: _Lines
    scores: tuple[Value, ...]
    inlined: Inlined
    files: Files

    @property
    def held_bytes(self) -> int:
        """Return those of the scores together."""
        return sum(aval_bytes(one.aval) for one in self.scores)


def pieces(jaxprs: Iterable[Any], reader: Reader) -> list[Piece]:
    """Return what computes the largest scores, and others that are about as large.

    Raises:
        Refused: there are none.
    """
    every = [piece for jaxpr in jaxprs for one in _all(jaxpr) for piece in _of(one, reader)]
    if not every:
        raise Refused("no product of two values is much wider than these, and summed by a product")
    largest = max(one.held_bytes for one in every)
    chosen: dict[Site, _Lines] = {}
    for one in every:
        if one.held_bytes >= NEAR * largest:  # of several sums of scores the lines begin with one
            lines = chosen.setdefault(one.lines.last, one.lines)
            chosen[one.lines.last] = min(lines, one.lines, key=lambda lines: lines.first)
    return [one for one in every if one.lines in chosen.values()]


def with_scores(program: Program, jaxprs: Iterable[Any]) -> Program:
    """Return a program with what the products that make scores do and give."""
    every = list(_products(jaxprs))
    return replace(
        program,
        score_work=sum(equation_work(eqn).operations * times for eqn, times in every),
        score_bytes=sum(aval_bytes(eqn.outvars[0].aval) * times for eqn, times in every),
    )


def _products(jaxprs: Iterable[Any], times: int = 1) -> Iterator[tuple[Any, int]]:
    """Yield the products that make scores, each with how often it runs."""
    for eqn in (eqn for jaxpr in jaxprs for eqn in jaxpr.eqns):
        if _is_wide(eqn):
            yield eqn, times
        yield from _products(inner_jaxprs(eqn), times * repetitions(eqn))


def _all(jaxpr: Any, known: set[int] | None = None) -> Iterator[Any]:
    known = set() if known is None else known
    if id(jaxpr) not in known:
        known.add(id(jaxpr))
        yield jaxpr
        for eqn in jaxpr.eqns:  # a rule for derivatives makes its scores elsewhere, too
            for inner in inner_jaxprs(eqn) if eqn.primitive.name not in CUSTOM else ():
                yield from _all(inner, known)


def _of(jaxpr: Any, reader: Reader) -> list[Piece]:
    if not any(map(_is_wide, jaxpr.eqns)) and not any(
        _is_wide(eqn) for one in jaxpr.eqns for inner in inner_jaxprs(one) for eqn in inner.eqns
    ):
        return []
    inlined = Inlined.of(jaxpr, reader)
    groups: dict[_Lines, list[Value]] = {}
    for at, one in enumerate(inlined.steps):
        if _is_wide(one.eqn):
            # What nothing reads, or no product or several sum, are no scores of an attention.
            with suppress(Refused):
                last = _last(inlined.steps, at)
                lines = _lines(one, inlined.steps[last], reader.files)
                groups.setdefault(lines, []).append(_output(one))
    return [Piece(lines, tuple(scores), inlined, reader.files) for lines, scores in groups.items()]


def _is_wide(eqn: Any) -> bool:
    """Return whether a product is of two values with a common axis, and much wider than these."""
    if eqn.primitive.name != "dot_general" or not eqn.params["dimension_numbers"][1][0]:
        return False
    taken = sum(aval_bytes(var.aval) for var in eqn.invars)
    return aval_bytes(eqn.outvars[0].aval) >= WIDER * taken


def _output(one: Step) -> Value:
    (value,) = one.outputs
    if value is None:
        raise Refused("nothing reads the scores")
    return value


def _last(steps: Sequence[Step], at: int) -> int:
    """Return the product that sums the rows of scores.

    Raises:
        Refused: they go elsewhere.
    """
    least = aval_bytes(_output(steps[at]).aval)
    wide = {_output(steps[at])}
    ends = []
    for number, one in enumerate(steps[at + 1 :], at + 1):
        if wide.isdisjoint(one.inputs):
            continue
        if one.eqn.primitive.name == "dot_general":
            ends.append(number)
        else:
            wide |= {out for out in one.outputs if out and 2 * aval_bytes(out.aval) >= least}
    if len(ends) != 1 or 2 * aval_bytes(_output(steps[ends[0]]).aval) > least:
        raise Refused("the scores are not summed by one product")
    return ends[0]


def _lines(first: Step, last: Step, files: Files) -> _Lines:
    """Return the lines of the innermost function that has both."""
    chains = [frames(one.outer, files)[::-1] for one in (first, last)]
    level = level_of(chains)
    begin, end = (chain[level] for chain in chains)
    place = Place(begin.site.file, begin.site.function, begin.first_line, begin.site.line)
    return _Lines(place, begin.site, end.site)


# -- The axis --------------------------------------------------------------------------------------


def changes_of(
    some: Sequence[Piece], watch: Callable[[Place], tuple[Sequence[Piece], Watched]]
) -> list[Change]:
    """Return the changes for scores, in growing numbers of parts.

    Args:
        some: of `pieces`.
        watch: traces again; returns the pieces of that trace, and which variables of it the names
            of a function are.

    Raises:
        Refused: no axis is computed by itself, or the text does not show its names.
    """
    ways = []
    for lines in dict.fromkeys(one.lines for one in some):
        text = passage(_source(lines.first.file), lines.first, lines.last)
        again, watched = watch(replace(lines.place, line=text.line))
        ways.append(_ways(text, lines, [one for one in again if one.lines == lines], watched))
    shape = list(max((value for one in some for value in one.scores), key=_bytes).shape)
    changes: dict[int, Change] = {}
    for at in range(max(map(len, ways))):
        parts = tuple(one[min(at, len(one) - 1)] for one in ways)
        where = " ".join(map(_where, parts))
        count = max(one.count for one in parts)
        changes[count] = Change(
            f"{Attention.name}={count}",
            f"scores {shape} at {where} in {count} parts",
            f"put these lines into a function f of one of {count} equal parts of the heads or "
            "rows, and call jax.lax.map(jax.checkpoint(f), parts): what is in",
            where,
            "no sum of these lines is over several parts, by their equations",
            tuple(one.last for one in parts),
            count,
            parts=parts,
        )
    return list(changes.values())


def _where(parts: Parts) -> str:
    last = parts.last.line
    return place(parts.first) + (f"-{last}" if last != parts.first.line else "")


def _bytes(value: Value) -> int:
    return aval_bytes(value.aval)


def equations(every: Iterable[Any], reader: Reader, parts: Sequence[Parts]) -> list[str]:
    """Return what lines compute for one part, equation by equation, without a place in the files.

    What goes with the size of an axis, such as a mean or a branch, is another one in a part.
    Equations that move values alone are left out: they depend on whether a size is 1.

    Args:
        every: jaxprs of a function, closed ones for those of losses.
        reader: knows its files.
        parts: the lines; without any, what runs in the helper of the edit.
    """
    jaxprs = [open_jaxpr(one) for one in every]
    known = {(one.first, one.last): one for one in parts}
    steps: list[tuple[Step, Mapping[Value, int | None], int]] = []
    for step in _steps(jaxprs, reader) if not parts else ():
        site = reader.site(step.outer)
        if kind(step.eqn) in REMATS and site is not None and MAPPED.search(site.function):
            steps += [(inner, {}, 1) for inner in _steps(inner_jaxprs(step.eqn), reader)]
    for piece in pieces(jaxprs, reader) if parts else ():
        one = known.get((piece.lines.first, piece.lines.last))
        if one is not None:
            inside = _inside(piece, passage(_source(one.first.file), one.first, one.last))
            axes = parallel(inside, dict.fromkeys(piece.scores, one.scores_axis), one.count)
            steps += [(step, axes, one.count) for step in inside]
    return sorted(_text(*one) for one in steps if kind(one[0].eqn) not in _MOVES)


def _steps(jaxprs: Iterable[Any], reader: Reader) -> Iterator[Step]:
    """Yield the steps of jaxprs, and of what is nested in them; those of one jaxpr once."""
    known: set[int] = set()
    for jaxpr in jaxprs:
        if id(jaxpr) not in known:
            known.add(id(jaxpr))
            for step in Inlined.of(jaxpr, reader).steps:
                yield step
                yield from _steps(inner_jaxprs(step.eqn), reader)


def _text(one: Step, axes: Mapping[Value, int | None], count: int) -> str:
    """Return a step with the elements of what it takes and makes, in one of `count` parts."""

    def size(value: Value | None) -> str:
        if value is None:
            return "_"
        return str(math.prod(value.shape) // (1 if axes.get(value) is None else count))

    params = [
        f"{key}={item}"
        for key, item in sorted(one.eqn.params.items())
        if isinstance(item, int | float | str) and key not in _OF_AXES
    ]
    taken = [
        str(np.asarray(var.val)) if is_literal(var) else size(value)
        for var, value in zip(one.eqn.invars, one.inputs, strict=True)
    ]
    made_sizes = [size(value) for value in one.outputs]
    return f"{kind(one.eqn)} of {' '.join([*taken, *params])} gives {' '.join(made_sizes)}"


def _ways(text: Passage, lines: _Lines, some: Sequence[Piece], watched: Watched) -> list[Parts]:
    """Return how some lines are computed in parts, in growing numbers of them.

    Of several axes it is the first that has most parts.

    Raises:
        Refused: there is no way.
    """
    best: list[Parts] = []
    refusal: Refused | None = None
    for axis in _order(some[0]):
        size = some[0].scores[0].shape[axis]
        ways = []
        for count in sorted({_parts(size, most) for most in MOST} - {1}):
            try:
                ways.append(_way(text, lines, some, axis, count, watched))
            except Refused as why:
                refusal = refusal or why
        if ways and (not best or ways[0].count > best[0].count):
            best = ways
    if not best:
        raise refusal or Refused("no axis of the scores has equal parts")
    return best


def _source(file: str) -> Source:
    return Source(file, Path(file).read_bytes().decode())


def _order(piece: Piece) -> list[int]:
    """Return the axes of scores: those that both operands have, then others; the longer first."""
    (value, *_) = piece.scores
    eqn = next(one.eqn for one in piece.inlined.steps if value in one.outputs)
    shared = len(eqn.params["dimension_numbers"][1][0])
    return sorted(range(len(value.shape)), key=lambda at: (at >= shared, -value.shape[at]))


def _parts(size: int, most: int) -> int:
    """Return the largest number of equal parts of an axis, up to a number."""
    return next(count for count in range(min(size, most), 0, -1) if size % count == 0)


def _way(
    text: Passage, lines: _Lines, some: Sequence[Piece], axis: int, count: int, watched: Watched
) -> Parts:
    """Return how lines are computed in a number of parts of an axis of the scores.

    Raises:
        Refused: they are not, or their names do not have the axis.
    """
    known: dict[Any, int | None] = {}
    results: set[int] = set()
    for piece in some:
        inside = _inside(piece, text)
        axes = parallel(inside, dict.fromkeys(piece.scores, axis), count)
        own = {out for one in inside for out in one.outputs if out is not None}
        taken = {value for one in inside for value in one.inputs if value is not None} - own
        known |= {
            var: axes.get(value)
            for var, value in piece.inlined.values.items()
            if value is not None and value in taken
        }
        outside = piece.inlined.results & own
        for one in {*piece.inlined.steps} - {*inside}:
            outside |= {value for value in one.inputs if value is not None and value in own}
        if len(outside) != len(piece.scores) or any(axes.get(one) is None for one in outside):
            raise Refused("its lines give more than one value with the axis")
        results |= {at for one in outside if (at := axes[one]) is not None}
        if {value for value in taken if value in axes} - {*piece.inlined.values.values()}:
            raise Refused("what its lines take is not in names of the function")
    if len(results) != 1:
        raise Refused("its lines give values of several forms")
    (result,) = results
    names, mapped = _names(text, known, watched)
    # A vmap puts its axis first.
    return Parts(lines.first, lines.last, names, result - mapped, axis, count)


def _inside(piece: Piece, text: Passage) -> list[Step]:
    """Return the steps of some lines in a jaxpr."""
    return [one for one in piece.inlined.steps if _is_inside(one, text, piece.lines, piece.files)]


def _is_inside(one: Step, text: Passage, lines: _Lines, files: Files) -> bool:
    own = next((frame for frame in frames(one.outer, files) if _is_of(frame, lines.place)), None)
    return own is not None and text.has(own.site)


def _is_of(frame: Frame, place: Place) -> bool:
    return (frame.site.file, frame.first_line) == (place.file, place.first_line)


def _names(
    text: Passage, known: Mapping[Any, int | None], watched: Watched
) -> tuple[tuple[tuple[str, int], ...], int]:
    """Return the names that have the axis, and how many axes of vmaps are around them.

    Args:
        text: reads them.
        known: axes by variable of what the lines take; None where one has none.
        watched: which variables the names are.

    Raises:
        Refused: it is not known of all of these.
    """
    names: dict[str, int] = {}
    covered, depths = set(), set()
    for name in text.reads:
        every = watched.names.get(name, ())
        values = [one for one in every if one is not None and one.var in known]
        axes = {_own_axis(known[one.var], one) for one in values}
        if axes - {None}:
            if len(axes) > 1 or None in every:
                raise Refused(f"{name} has the axis at times")
            names[name] = next(axis for axis in axes if axis is not None)
            covered |= {one.var for one in values}
            depths |= {len(one.mapped) for one in values}
    if {var for var, axis in known.items() if axis is not None} - covered or len(depths) != 1:
        raise Refused("what its lines take is not in names of the function")
    return tuple(names.items()), depths.pop()


def _own_axis(axis: int | None, held: Held) -> int | None:
    """Return the axis of a value that vmaps have taken axes from."""
    for at in held.mapped:
        if axis == at:
            raise Refused("a vmap is over the axis")
        axis = None if axis is None else axis - (axis > at)
    return axis
