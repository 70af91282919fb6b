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
_SHAPE = re.compile(r"([a-z]+[0-9a-z]*)\[([\d,]*)\]")
_OP_NAME = re.compile(r'op_name="([^"]*)"')
_BITS = re.compile(r"\d+")
_SHARE = 4
"""Results of at least this part of the growth are compared."""
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
        found = _FILE.fullmatch(path.name)
        if found is not None:
            entry = (int(found["number"]), found, path)
            modules.setdefault(found["module"], []).append(entry)
    if not modules:
        return []
    largest = max(modules.values(), key=_size)
    files = sorted(largest, key=lambda item: item[0])
    # Most results are there after many passes: each is kept once.
    once: dict[Result, Result] = {}
    return [
        State(
            found["done"],
            found["pipeline"],
            tuple(once.setdefault(result, result) for result in _results(path)),
        )
        for _, found, path in files
    ]


def _size(files: _Files) -> int:
    return sum(path.stat().st_size for _, _, path in files)


def _results(path: Path) -> Iterator[Result]:
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        found = _LINE.match(line)
        if found is None or found["opcode"] in ("parameter", "tuple", "get-tuple-element"):
            continue
        shape = _SHAPE.match(found["shape"])
        name = _OP_NAME.search(line)
        op = "" if name is None else name[1].rpartition("/")[2]
        if shape is None:  # a tuple
            yield Result(found["opcode"], "", op, 0)
            continue
        yield Result(found["opcode"], shape[0], op, _bytes(shape[1], shape[2]))


def _bytes(dtype: str, dimensions: str) -> int:
    bits = _BITS.search(dtype)
    count = max(1, int(bits[0]) // 8) if bits is not None and dtype in DTYPES else 1
    for size in dimensions.split(","):
        count *= int(size or 1)
    return count


def sentences(
    base: Sequence[State], new: Sequence[State], parts: Sequence[Part], delta_bytes: int
) -> list[str]:
    """Return what is known of passes, a sentence each.

    Args:
        base: states of the one compilation.
        new: states of the other.
        parts: what grew, or, for a negative `delta_bytes`, what shrank.
        delta_bytes: the change of the need.
    """
    if not base or not new:
        return ["passes: unknown, the compiler dumped none"]
    said = []
    for part in parts:
        name = f"{part.name} {part.shape}"
        text = _begun(new if delta_bytes > 0 else base, name, _is_of(part))
        if text is not None:
            said.append(text)
        text = _parted(base, new, _is_of(part))
        if text is not None:
            said.append(f"{name} {text}")
    # Many results that are smaller may make the growth.
    largest = max(
        (result.size_bytes for state in (*base, *new) for result in state.results), default=0
    )
    least = max(1, min(abs(delta_bytes) // _SHARE, largest))
    text = _parted(base, new, lambda result: result.size_bytes >= least)
    if text is None:
        text = "are the same after every pass that both have"
    return [*said, f"all results of {human_bytes(least)} or more {text}"]


def _is_of(part: Part) -> Callable[[Result], bool]:
    op = part.name.removeprefix("saved ").removeprefix("for ").rpartition("/")[2]
    return lambda result: (result.op, result.shape) == (op, part.shape)


def _begun(found: Sequence[State], name: str, wanted: Callable[[Result], bool]) -> str | None:
    """Return where results first exist; None if they are never seen."""
    for at, state in enumerate(found):
        if state.counted(wanted):
            if at == 0:
                return f"{name} exists before the first pass"
            return f"{name} first exists after {state.place}"
    return None


def _parted(
    base: Sequence[State], new: Sequence[State], wanted: Callable[[Result], bool]
) -> str | None:
    """Return where two compilations first differ in some results; None if they never do."""
    alike = None
    for one, other in _aligned(base, new):
        before, after = one.counted(wanted), other.counted(wanted)
        if before == after:
            alike = one
            continue
        changes = ", ".join(
            f"{opcode} {before[opcode]} → {after[opcode]}"
            for opcode in sorted(before | after)
            if before[opcode] != after[opcode]
        )
        if alike is None:
            return f"differ before the first pass that both have: {changes}"
        return f"first differ after {other.place}: {changes}; alike after {alike.place}; {NOT_YET}"
    return None


def _aligned(base: Sequence[State], new: Sequence[State]) -> Iterator[tuple[State, State]]:
    """Yield the states after passes that both have, in order."""
    one, other = ([state.place for state in side] for side in (base, new))
    matcher: SequenceMatcher[str] = SequenceMatcher(None, one, other, autojunk=False)
    for block in matcher.get_matching_blocks():
        for at in range(block.size):
            yield base[block.a + at], new[block.b + at]
