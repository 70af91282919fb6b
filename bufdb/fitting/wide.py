"""A wide piece of a loss as expressions of the user's function, and what its names have.

expressions   which evaluate the piece, which a part of the batch can evaluate, what each gives
locals_of     which names have the batch: the function is traced at two sizes, and its frame read
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import FrameType, ModuleType
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import inner_jaxprs, is_dropped, is_inexact, is_literal, work
from bufdb.fitting.edits import Refused
from bufdb.fitting.flat import Flat
from bufdb.fitting.jax_inside import Files, Frame, frames
from bufdb.fitting.metrics import kinds_of, of_literal
from bufdb.fitting.plans import Expression, Gives, Local, OfBatch, Site

_JOINED: Mapping[str, Gives] = {"reduce_max": "max", "reduce_min": "min"}
_CREATED = ("broadcast_in_dim", "iota")
"""Primitives that may make an axis of the batch of nothing that has it, alike for each part."""
_OF_PARTS = ("each", "same", "mean", "sum", "size", "share")
_MIXED = "is of several examples at once"
_HEAVY = (
    "computes what is before the wide value, too; return that from it, and compute the wide value "
    "in the loss"
)
_DEPTH = 3
"""How far the attributes of objects are read."""


# -- Expressions -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """The function of the user's whose expressions make a piece."""

    file: str
    name: str
    first_line: int
    """Of its `def`, or of its first decorator."""
    line: int
    """First line of the piece."""


@dataclass(frozen=True)
class Piece:
    """A piece of a loss."""

    flat: Flat
    members: Sequence[int]
    """Numbers of its equations."""
    count: int
    """Of parts."""
    is_wide: Callable[[Any], bool]
    """Of a value, whether it is what is to be computed in parts."""


def expressions(piece: Piece, files: Files) -> tuple[Place, tuple[Expression, ...]]:
    """Return the expressions of the innermost function that has all of a piece.

    Raises:
        Refused: no function of the user's has all of it.
    """
    chains = [frames(eqn, files)[::-1] for eqn in piece.flat.full.eqns]
    return _of_function(
        piece, chains, level_of([chains[at] for at in piece.members]), piece.members
    )


def inside(piece: Piece, files: Files, call: Site) -> tuple[Place, tuple[Expression, ...]]:
    """Return the expressions of the function that one of these expressions calls.

    Raises:
        Refused: it calls no function of the user's, or several.
    """
    chains = [frames(eqn, files)[::-1] for eqn in piece.flat.full.eqns]
    level = level_of([chains[at] for at in piece.members])
    members = [at for at in piece.members if chains[at][level].site == call]
    below = {_function(chains[at][level + 1]) for at in members if len(chains[at]) > level + 1}
    if len(below) != 1 or any(len(chains[at]) <= level + 1 for at in members):
        raise Refused("it calls no function of the files that has all of them")
    return _of_function(piece, chains, level + 1, members)


def _of_function(
    piece: Piece, chains: Sequence[Sequence[Frame]], level: int, members: Sequence[int]
) -> tuple[Place, tuple[Expression, ...]]:
    above = chains[members[0]][: level + 1]

    def own(chain: Sequence[Frame]) -> Site | None:
        outer = [one.site for one in chain[:level]] == [one.site for one in above[:level]]
        is_here = len(chain) > level and outer and _function(chain[level]) == _function(above[-1])
        return chain[level].site if is_here else None

    by_site: dict[Site, list[int]] = {}
    for at, chain in enumerate(chains):
        site = own(chain)
        if site is not None:
            by_site.setdefault(site, []).append(at)
    reading = _Reading(piece.flat, frozenset(piece.members), piece.count, piece.is_wide)
    first = min(site.line for site, some in by_site.items() if set(some) & set(members))
    file, line, name = _function(above[-1])
    some = tuple(reading.expression(site, some) for site, some in sorted(by_site.items()))
    return Place(file, name, line, first), some


def _function(frame: Frame) -> tuple[str, int, str]:
    return frame.site.file, frame.first_line, frame.site.function


def level_of(chains: Sequence[Sequence[Frame]]) -> int:
    """Return the depth of the innermost call that all of some chains of frames are in.

    Raises:
        Refused: there is none.
    """
    level = 0
    while True:
        here = [chain[level] for chain in chains if len(chain) > level]
        if len(here) < len(chains) or len({_function(one) for one in here}) > 1:
            raise Refused("its lines are in no function of the files that has all of them")
        if len({one.site for one in here}) > 1 or any(len(one) == level + 1 for one in chains):
            return level
        level += 1


@dataclass
class _Reading:
    """What the equations of a loss say of its expressions."""

    flat: Flat
    members: frozenset[int]
    count: int
    is_wide: Callable[[Any], bool]

    def __post_init__(self) -> None:
        self.kinds = kinds_of(self.flat, self.count)
        self.readers: dict[Any, set[int]] = {}
        for at, eqn in enumerate(self.flat.full.eqns):
            for var in eqn.invars:
                if not is_literal(var):
                    self.readers.setdefault(var, set()).add(at)
        self.outputs = {var for var in self.flat.full.outvars if not is_literal(var)}

    def expression(self, site: Site, own: Sequence[int]) -> Expression:
        gives = self._gives(own)
        reasons = {at: why for at in own if (why := self._why_not(at))}
        return Expression(
            site=site,
            gives=gives,
            is_member=bool(self.members & set(own)),
            is_part=not reasons,
            why_not=next(iter(reasons.values()), ""),
            is_joined=bool(reasons) and all(self._is_last(at) for at in reasons),
        )

    def _gives(self, own: Sequence[int]) -> Gives:
        """Return what an expression gives to the others: each example, or a number of all."""
        eqns, inside = self.flat.full.eqns, set(own)
        kinds: set[Gives] = set()
        for at in own:
            for var in eqns[at].outvars:
                if var in self.outputs or self.readers.get(var, set()) - inside:
                    kinds.add(self._gives_of(var, eqns[at]))
        return kinds.pop() if len(kinds) == 1 else ""

    def _gives_of(self, var: Any, eqn: Any) -> Gives:
        axis = self.flat.axes.get(var)
        if axis is not None:
            return "" if axis else "wide" if self.is_wide(var) else "each"
        kind = self.kinds.get(var)
        if kind in ("mean", "sum", "same"):
            return kind
        is_reduced = any(self._has_batch(one) for one in eqn.invars)
        return _JOINED.get(eqn.primitive.name, "") if is_reduced else ""

    def _has_batch(self, var: Any) -> bool:
        return not is_literal(var) and self.flat.axes.get(var) is not None

    def _has_own_numbers(self, at: int) -> bool:
        """Return whether an equation has a number that is another one for a part.

        Whole numbers of examples are places of examples, and a part has its own places.
        """
        (var, *_) = self.flat.full.eqns[at].outvars
        if at in self.members and self.flat.axes.get(var) is not None and not is_inexact(var.aval):
            return False
        pairs = zip(self.flat.full.eqns[at].invars, self.flat.part.eqns[at].invars, strict=True)
        return any(
            is_literal(var) and of_literal(var, small, self.count) != "same" for var, small in pairs
        )

    def _why_not(self, at: int) -> str:
        """Return why a part of the batch cannot compute an equation for itself; '' if it can."""
        eqn = self.flat.full.eqns[at]
        outs = [var for var in eqn.outvars if not is_dropped(var)]
        if self._has_own_numbers(at):
            return "has a number that grows with the batch"
        if at in self.members:
            is_part = all(self.flat.axes.get(var) is not None or self._is_same(var) for var in outs)
            return "" if is_part else _MIXED
        if _is_heavy(eqn):
            return _HEAVY
        has_batch = any(self._has_batch(var) for var in eqn.invars)
        is_created = any(self.flat.axes.get(var) is not None for var in outs) and not has_batch
        if is_created and eqn.primitive.name not in _CREATED:
            return _MIXED
        return "" if all(self.kinds.get(var) in ("each", "same") for var in outs) else _MIXED

    def _is_same(self, var: Any) -> bool:
        return self.kinds.get(var) == "same"

    def _is_last(self, at: int) -> bool:
        """Return whether an equation is of what a part of the batch adds to a number of all."""
        eqn = self.flat.full.eqns[at]
        if any(self.kinds.get(var) in _OF_PARTS for var in eqn.outvars):
            return not _is_heavy(eqn)
        return eqn.primitive.name in _JOINED


def _is_heavy(eqn: Any) -> bool:
    """Return whether an equation is a product or a loop, or has a product in it."""
    if eqn.primitive.name in ("dot_general", "scan", "while"):
        return True
    return any(work(jaxpr).count for jaxpr in inner_jaxprs(eqn))


# -- Names -----------------------------------------------------------------------------------------

Signature = tuple[tuple[tuple[str, ...], Any], ...]
"""Of a value: by the path of each array or number in it, the shape, or the number."""


@dataclass
class Watched:
    """What the names of a function have while it runs."""

    place: Place
    names: dict[str, list[Any]] = field(default_factory=dict)
    """Of each name what `read` has of its values in order, those alike once."""
    read: Callable[[Any], Any] | None = None
    """None: its `Signature`."""

    @contextlib.contextmanager
    def watching(self) -> Iterator[Watched]:
        """Read the frame of the function at each of its lines from the first of the piece."""
        before = sys.gettrace()
        sys.settrace(self._called)
        try:
            yield self
        finally:
            sys.settrace(before)

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        code, place = frame.f_code, self.place
        is_here = (code.co_filename, code.co_firstlineno) == (place.file, place.first_line)
        return self._line if is_here else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        read = self.read or _signature
        is_here = frame.f_lineno >= self.place.line
        if self.read is not None:  # before the first line runs, as later ones may assign the names
            is_here = event == "line" and frame.f_lineno == self.place.line
        if event in ("line", "return") and is_here:
            for name, value in frame.f_locals.items():
                known, signature = self.names.setdefault(name, []), read(value)
                if signature not in known:
                    known.append(signature)
        return self._line


def _signature(value: Any, depth: int = _DEPTH) -> Signature:
    jax = jax_module()
    leaves: list[tuple[tuple[str, ...], Any]] = []
    for path, leaf in jax.tree_util.tree_flatten_with_path(value)[0]:
        at = tuple(_text(key) for key in path)
        if hasattr(leaf, "shape") and hasattr(leaf, "dtype"):
            leaves.append((at, (tuple(leaf.shape), str(leaf.dtype))))
        elif isinstance(leaf, int | float | complex) and not isinstance(leaf, bool):
            leaves.append((at, leaf))
        elif depth and hasattr(leaf, "__dict__") and not _is_code(leaf):
            for name, inner in vars(leaf).items():
                more = _signature(inner, depth - 1)
                leaves += [((*at, f".{name}", *rest), one) for rest, one in more]
    return tuple(leaves)


def _is_code(value: Any) -> bool:
    return isinstance(value, type | ModuleType) or (callable(value) and hasattr(value, "__code__"))


def _text(key: Any) -> str:
    """Return a key of a path as an expression has it."""
    if hasattr(key, "key"):
        return f"[{key.key!r}]"
    return f"[{key.idx}]" if hasattr(key, "idx") else f".{getattr(key, 'name', key)}"


def locals_of(full: Watched, part: Watched, count: int) -> tuple[Local, ...]:
    """Return what of the batch names have, and items of those that have it in part."""
    known: dict[str, set[OfBatch]] = {}
    for name, values in full.names.items():
        others = part.names.get(name, [])
        if len(values) != len(others):
            known[name] = {"unclear"}
            continue
        for one, other in zip(values, others, strict=True):
            known.setdefault(name, set()).add(_has(one, other, count))
            for item in {path[0] for path, _ in one if path}:
                inside, small = (
                    tuple((path, leaf) for path, leaf in each if path[:1] == (item,))
                    for each in (one, other)
                )
                known.setdefault(f"{name}{item}", set()).add(_has(inside, small, count))
    return tuple(
        Local(text, has.pop() if len(has) == 1 else "unclear")
        for text, has in sorted(known.items())
    )


def _has(one: Signature, other: Signature, count: int) -> OfBatch:
    """Return whether values have the batch as their leading axis, by those of a part of it."""
    if [path for path, _ in one] != [path for path, _ in other]:
        return "unclear"
    kinds: set[OfBatch] = set()
    for (_, leaf), (_, small) in zip(one, other, strict=True):
        if leaf == small:
            kinds.add("same")
        elif not isinstance(leaf, tuple) or not isinstance(small, tuple):
            kinds.add("size")
        else:
            (shape, dtype), (other_shape, other_dtype) = leaf, small
            is_leading = shape[:1] == tuple(count * size for size in other_shape[:1])
            is_leading &= shape[1:] == other_shape[1:] and dtype == other_dtype
            kinds.add("batch" if is_leading else "unclear")
    if not kinds:
        return "same"
    return kinds.pop() if len(kinds) == 1 else "unclear" if "unclear" in kinds else "mixed"
