"""Notes for a user: those that differ in a name alone are one, with the names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

_LEAST = 4
"""Least words that notes have in common if they are merged; they are half of each, too."""
_LONGEST = 8
"""Most words of a name, such as `step (a.py:3, b.py:5)`."""
_FEW = 2
"""Notes of a kind that stay as they are."""
_SHOWN = 20
"""Most names in a note."""
_MARKS = ":,;"

_Frame = tuple[tuple[str, ...], tuple[str, ...]]
"""The words before a name, and those after it."""


def merged(notes: Sequence[str]) -> list[str]:
    """Return notes in their order, three or more that differ in a name as one that lists it."""
    unique = list(dict.fromkeys(notes))
    counts = Counter(frame for note in unique for frame in _frames(note))

    def rank(frame: _Frame) -> tuple[int, int]:
        return counts[frame], sum(map(len, frame))

    groups: dict[_Frame, list[str]] = {}
    for note in unique:
        best = max(_frames(note), key=rank, default=None)
        if best is None or counts[best] <= _FEW:
            best = (note,), ()
        groups.setdefault(best, []).append(note)
    shown: list[str] = []
    for best, some in groups.items():
        shown += [_listing(best, some)] if len(some) > _FEW else some
    return shown


def listed(names: Sequence[str]) -> str:
    """Return names with commas, at most 20, and how many more there are."""
    more = len(names) - _SHOWN
    mark = "; " if any("," in name for name in names) else ", "
    return mark.join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _frames(note: str) -> Iterator[_Frame]:
    """Return what is around each part of a note that may be a name."""
    words = tuple(note.split(" "))
    longest = min(_LONGEST, len(words) - _LEAST, len(words) // 2)
    for size in range(1, longest + 1):
        for at in range(len(words) - size + 1):
            yield words[:at], words[at + size :]


def _listing(frame: _Frame, notes: Sequence[str]) -> str:
    """Return one note in place of several, with the name of each."""
    first, last = frame
    names = [" ".join(note.split(" ")[len(first) : -len(last) or None]) for note in notes]
    mark = next((one for one in _MARKS if all(name.endswith(one) for name in names)), "")
    bare = [name.removesuffix(mark) for name in names]
    return " ".join([*first, f"{listed(bare)}{mark}", *last])
