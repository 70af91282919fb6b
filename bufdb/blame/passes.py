"""What dumps after each pass say: where a value comes to exist, where two compilers part.

There is no order before scheduling, so no peak: only which results exist is compared. Invariant: a
pass at which two programs differ is never called the cause.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path

from bufdb.blame.series import Part
from bufdb.capture.call import DTYPES
from bufdb.render.text import human_bytes

_FILE = re.compile(
    r"module_(?P<module>\d+)\..*?\.(?P<number>\d{4})\.(?P<pipeline>.+?)\.after_(?P<done>.+?)"
    r"(?:\.before_.*)?\.txt"
)
_Files = list[tuple[int, re.Match[str], Path]]
"""Files of a program: number, name, place."""
_START = "pipeline-start"
_LINE = re.compile(r"^\s*(?:ROOT )?%?[\w.\-]+ = (?P<shape>.+?) (?P<opcode>[a-z][\w\-]*)\(")
_HEAD = re.compile(r"(?:ENTRY )?%?([\w.\-]+) (?:\{|\(.*\{)$")
_FUSED = re.compile(r" fusion\(.*?, calls=%?([\w.\-]+)")
_SHAPE = re.compile(r"([a-z]+[0-9a-z]*)\[([\d,]*)\]")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_BITS = re.compile(r"\d+")
_SHARE = 4
"""Results of at least this part of the growth are compared."""
_MOST_ALONE = 3
"""Passes of one side alone that are named."""
NAMES = ("the old program", "the new program")
NOT_YET = "a pass that differs is not yet the cause"


@dataclass(frozen=True, slots=True)
class Result:
    """An array that an instruction makes."""

    opcode: str
    shape: str
    op: str
    """Last element of its op_name; empty without one."""
    size_bytes: int


@dataclass(frozen=True)
class State:
    """The program at one instant of its compilation."""

    name: str
    """The pass after which it was dumped."""
    pipeline: str
    results: tuple[Result, ...]

    @property
    def place(self) -> str:
        """Return "fusion (HLO_passes)" or "the start of HLO_passes"."""
        if self.name == _START:
            return f"the start of {self.pipeline}"
        return f"{self.name} ({self.pipeline})"

    def counted(self, wanted: Callable[[Result], bool]) -> Counter[str]:
        """Return the number of results of each opcode."""
        return Counter(result.opcode for result in self.results if wanted(result))


def states(dumps: Path) -> list[State]:
    """Return the states of the largest program of a folder, in order."""
    modules: dict[str, _Files] = {}
    for path in dumps.iterdir():
        match = _FILE.fullmatch(path.name)
        if match is not None:
            entry = (int(match["number"]), match, path)
            modules.setdefault(match["module"], []).append(entry)
    if not modules:
        return []
    largest = max(modules.values(), key=_size)
    files = sorted(largest, key=lambda item: item[0])
    # Most results are there after many passes: each is kept once.
    once: dict[Result, Result] = {}
    return [
        State(
            match["done"],
            match["pipeline"],
            tuple(once.setdefault(result, result) for result in _results(path)),
        )
        for _, match, path in files
    ]


def _size(files: _Files) -> int:
    return sum(path.stat().st_size for _, _, path in files)


def _results(path: Path) -> Iterator[Result]:
    """Yield the results of a program; what is within a fusion takes no memory of its own."""
    text = path.read_text(encoding="utf-8", errors="replace")
    fused = set(_FUSED.findall(text))
    is_fused = False
    for line in text.splitlines():
        if head := _HEAD.match(line):
            is_fused = head[1] in fused
        match = None if is_fused else _LINE.match(line)
        if match is None or match["opcode"] in ("parameter", "tuple", "get-tuple-element"):
            continue
        shape = _SHAPE.match(match["shape"])
        name = _OP_NAME.search(line)
        op = "" if name is None else name[1].rpartition("/")[2]
        if shape is None:  # a tuple
            yield Result(match["opcode"], "", op, 0)
            continue
        yield Result(match["opcode"], shape[0], op, _bytes(shape[1], shape[2]))


def _bytes(dtype: str, dimensions: str) -> int:
    bits = _BITS.search(dtype)
    count = max(1, int(bits[0]) // 8) if bits is not None and dtype in DTYPES else 1
    for size in dimensions.split(","):
        count *= int(size or 1)
    return count


def sentences(
    base: Sequence[State],
    new: Sequence[State],
    parts: Sequence[Part],
    delta_bytes: int,
    names: tuple[str, str] = NAMES,
) -> list[str]:
    """Return what is known of passes, a sentence each.

    Args:
        base: states of the one compilation.
        new: states of the other.
        parts: what grew, or, for a negative `delta_bytes`, what shrank.
        delta_bytes: the change of the need.
        names: of the two.
    """
    if not base or not new:
        return ["passes: unknown, the compiler dumped none"]
    texts = []
    for part in parts:
        name = f"{part.name} {part.shape}"
        text = _begun(new if delta_bytes > 0 else base, name, _is_of(part))
        if text is not None:
            texts.append(text)
        text = _parted(base, new, _is_of(part), names)
        if text is not None:
            texts.append(f"{name} {text}")
    # Many results that are smaller may make the growth.
    largest = max(
        (result.size_bytes for state in (*base, *new) for result in state.results), default=0
    )
    least = max(1, min(abs(delta_bytes) // _SHARE, largest))
    text = _parted(base, new, lambda result: result.size_bytes >= least, names)
    if text is None:
        text = "are the same after every pass that both have"
    return [*texts, f"all results of {human_bytes(least)} or more {text}"]


def _is_of(part: Part) -> Callable[[Result], bool]:
    op = part.name.removeprefix("saved ").removeprefix("for ").rpartition("/")[2]
    return lambda result: (result.op, result.shape) == (op, part.shape)


def _begun(passes: Sequence[State], name: str, wanted: Callable[[Result], bool]) -> str | None:
    """Return where results first exist; None if they are never seen."""
    for at, state in enumerate(passes):
        if state.counted(wanted):
            if at == 0:
                return f"{name} exists before the first pass"
            return f"{name} first exists after {state.place}"
    return None


def _parted(
    base: Sequence[State],
    new: Sequence[State],
    wanted: Callable[[Result], bool],
    names: tuple[str, str] = NAMES,
) -> str | None:
    """Return where two compilations first differ in some results; None if they never do.

    XLA dumps a pass only if it changed something. A pass that one side alone has is compared with
    its predecessor there: it may have made the difference that a later pass of both shows.
    """
    sides = tuple([state.counted(wanted) for state in side] for side in (base, new))
    alike = -1, -1
    for at in _aligned(base, new):
        before, after = (
            counts[min(index, len(counts) - 1)] for counts, index in zip(sides, at, strict=True)
        )
        if before == after:
            alike = at
            continue
        alone = [
            one
            for states, counts, low, high, name in zip(
                (base, new), sides, alike, at, names, strict=True
            )
            for one in _alone(states[:high], counts, low, name)
        ]
        state = base[alike[0]]
        known = f"the same {'at' if state.name == _START else 'after'} {state.place}; {NOT_YET}"
        if alone:
            passes = ", and ".join(alone[:_MOST_ALONE])
            return f"first differ after {passes}; {known if alike[0] >= 0 else NOT_YET}"
        if alike[0] < 0:
            return f"differ before the first pass that both have: {_changes(before, after)}"
        return f"first differ after {new[at[1]].place}: {_changes(before, after)}; {known}"
    return None


def _alone(
    states: Sequence[State], counts: Sequence[Counter[str]], low: int, name: str
) -> Iterator[str]:
    """Yield the passes after position `low` that changed some results on one side alone."""
    for at in range(max(low + 1, 1), len(states)):
        if counts[at - 1] != counts[at]:
            change = _changes(counts[at - 1], counts[at])
            yield f"{states[at].place}, which changed {name} alone: {change}"


def _changes(before: Counter[str], after: Counter[str]) -> str:
    """Return "add 2 → 1, call 1 → 0"."""
    return ", ".join(
        f"{opcode} {before[opcode]} → {after[opcode]}"
        for opcode in sorted(before | after)
        if before[opcode] != after[opcode]
    )


def _aligned(base: Sequence[State], new: Sequence[State]) -> Iterator[tuple[int, int]]:
    """Yield the positions of passes that both have, in order; at last the two ends."""
    one, other = ([state.place for state in side] for side in (base, new))
    matcher: SequenceMatcher[str] = SequenceMatcher(None, one, other, autojunk=False)
    last = -1, -1
    for block in matcher.get_matching_blocks():
        for at in range(block.size):
            last = block.a + at, block.b + at
            yield last
    if last not in ((-1, -1), (len(one) - 1, len(other) - 1)):
        yield len(one), len(other)
