"""What `line:`, `op:` and `value:` patterns mean: sets of values, each with its name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np

from bufdb.columnar.scan import Ints
from bufdb.errors import UsageError, did_you_mean, quote
from bufdb.link.op_paths import op_path, strip_op_path
from bufdb.what_if.temps import Temps

KINDS = {"line": "source_line", "op": "op", "value": "value"}
"""peak_savings.what by the word before the colon."""
_RELATIONS = ("saved ", "slice of ", "copy of ", "for ")
RELATIONS = (*(f"{relation}library " for relation in (*_RELATIONS, "")), *_RELATIONS)
"""What may stand before the name of a line or an op: value_origin_details.relation, "for", and of
a line of library code "library" behind that."""


@dataclass(frozen=True)
class Taken:
    """Values that hold nothing any more, or less."""

    what: str
    """source_line, op or value."""
    name: str
    rows: Ints
    """Rows of `Temps`, whole buffers."""


def find(temps: Temps, patterns: Iterable[str]) -> list[Taken]:
    """What patterns take, each name once.

    A pattern that is a name in full takes that alone. Any other is a glob over names with what
    stands before them (saved, for) left out, or over their last elements, so that `model.py:53` is
    any file of that name; one that begins with such a word takes only names that do.

    Raises:
        UsageError: a pattern is of no known kind, or takes nothing.
    """
    found: dict[tuple[str, str], Taken] = {}
    for pattern in patterns:
        kind, colon, glob = pattern.partition(":")
        if not colon or not glob or kind not in KINDS:
            raise UsageError(
                f"--without wants line:GLOB, op:GLOB or value:GLOB, got {quote(pattern)}"
            )
        what = KINDS[kind]
        taken = _values(temps, glob) if kind == "value" else _labelled(temps, what, glob)
        if not taken:
            raise UsageError(
                f"no {kind} {quote(glob)} has temporary memory{_near(temps, what, glob)}"
            )
        for one in taken:
            found.setdefault((one.what, one.name), one)
    return list(found.values())


def _labelled(temps: Temps, what: str, glob: str) -> list[Taken]:
    labels = temps.labels[what]
    used = np.unique(labels.of_row[labels.of_row >= 0]).tolist()
    numbers = [number for number in used if labels.names[number] == glob]
    numbers = numbers or [number for number in used if _fits(labels.names[number], glob)]
    return [
        Taken(what, labels.names[number], np.flatnonzero(labels.of_row == number))
        for number in numbers
    ]


def _values(temps: Temps, glob: str) -> list[Taken]:
    """Whole buffers, each by the first of its names that fits."""
    names = temps.value_names
    rows = [row for row, name in enumerate(names) if name == glob or _is_of(name, glob)]
    rows = rows or [row for row, name in enumerate(names) if _fits_value(name, glob)]
    first = {int(temps.buffer[row]): row for row in reversed(rows)}
    return [
        Taken("value", names[row], np.flatnonzero(temps.buffer == buffer))
        for buffer, row in sorted(first.items(), key=lambda item: item[1])
    ]


def _is_of(name: str, instruction: str) -> bool:
    """Whether it is the instruction, or an element of what that gives."""
    return name.partition("{")[0] == instruction


def fits(name: str, glob: str) -> bool:
    """Whether a name fits a glob; its brackets may be a set, or stand in the name: params['w']."""
    return fnmatchcase(name, glob) or fnmatchcase(name, glob.replace("[", "[[]"))


def _fits_value(name: str, glob: str) -> bool:
    return fits(name, glob) or fits(name.partition("{")[0], glob)


def _fits(name: str, glob: str) -> bool:
    relation = relation_of(glob)
    if relation_of(name) != relation and relation:
        return False
    bare, glob = name.removeprefix(relation_of(name)), glob.removeprefix(relation)
    return fits(bare, glob) or fits(bare, f"*/{glob}")


def relation_of(name: str) -> str:
    """The words before the name of a line or op; '' where it has none."""
    return next((relation for relation in RELATIONS if name.startswith(relation)), "")


def _near(temps: Temps, what: str, glob: str) -> str:
    """What may have been meant, or where the bytes of that are."""
    labels = temps.labels[what]
    used = set(np.unique(labels.of_row).tolist())
    names: Sequence[str] = [name for at, name in enumerate(labels.names) if at in used]
    if what == "value":
        names = temps.value_names
    elif any(name == glob or _fits(name, glob) for name in labels.names):
        return " of its own: what it makes is part of buffers of other names; value:GLOB takes them"
    path = strip_op_path(op_path(glob))
    if what == "op" and path != glob and any(_fits(name, path) for name in names):
        return f"; without jit and transformations it is {quote(path)}"
    bare = {name.removeprefix(relation_of(name)) for name in names}
    short = {name.rpartition("/")[2] for name in bare}
    hint = did_you_mean(glob.strip("*"), sorted(bare | short))
    return hint or f"; 'bufdb query savings -p what {what} -p top_n 100' lists what the peak has"
