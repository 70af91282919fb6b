"""Notes for a user: those that differ in a name alone are one, with the names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

_LEAST = 4
"""Least words of a note that is merged: fewer may differ in what they mean."""
_FEW = 2
"""Notes of a kind that stay as they are."""
_SHOWN = 20
"""Most names in a note."""
_MARKS = "()[]'\"`,;:"


def merged(notes: Sequence[str]) -> list[str]:
    """Return notes in their order, three or more that differ in one word as one that lists it."""
    unique = list(dict.fromkeys(notes))
    counts = Counter(key for note in unique for key in _keys(note))
    groups: dict[tuple[object, ...], list[str]] = {}
    for note in unique:
        best = max(_keys(note), key=lambda key: counts[key], default=None)
        is_one = best is None or counts[best] <= _FEW
        groups.setdefault((note,) if best is None or is_one else best, []).append(note)
    return [
        some[0] if len(some) == 1 else _listing([note.split(" ") for note in some])
        for some in groups.values()
    ]


def listed(names: Sequence[str]) -> str:
    """Return names with commas, at most 20, and how many more there are."""
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def _keys(note: str) -> Iterator[tuple[object, ...]]:
    """Return the note without each of its words, with the place of the word."""
    words = note.split(" ")
    if len(words) >= _LEAST:
        for at in range(len(words)):
            yield at, *words[:at], *words[at + 1 :]


def _listing(notes: Sequence[list[str]]) -> str:
    at = next(at for at, words in enumerate(zip(*notes, strict=True)) if len({*words}) > 1)
    names = [words[at] for words in notes]
    before, after = _marks(names), _marks([name[::-1] for name in names])[::-1]
    bare = [name[len(before) : len(name) - len(after)] for name in names]
    return " ".join([*notes[0][:at], f"{before}{listed(bare)}{after}", *notes[0][at + 1 :]])


def _marks(names: Sequence[str]) -> str:
    """Return the punctuation with which all names begin."""
    count = 0
    for letters in zip(*names, strict=False):
        if len({*letters}) > 1 or letters[0] not in _MARKS:
            break
        count += 1
    return names[0][:count]
