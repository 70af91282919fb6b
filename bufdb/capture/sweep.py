"""A command with placeholders, and the combinations of values that it is run with.

    --sweep batch=8,16 --sweep remat=none,full -- python train.py --batch {batch} --remat {remat}

`{batch}` is replaced by the value of `batch`; write a literal brace twice. The combinations
are in the order of nested loops, the first label outermost.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bufdb.errors import UsageError, did_you_mean, quote

_BRACES = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|[{}]")


@dataclass(frozen=True)
class Combination:
    """One run of a sweep."""

    values: Mapping[str, str]
    """Value of each label of the sweep."""
    command: tuple[str, ...]
    suffix: str
    """Suffix of the run's name after that of the sweep: 8-none."""


def parse(texts: Sequence[str]) -> dict[str, list[str]]:
    """Return the values of each label, from texts such as `batch=8,16,32`.

    Raises:
        UsageError: a text is not K=V1,V2…, or a label or a value is given twice.
    """
    sweep: dict[str, list[str]] = {}
    for text in texts:
        label, equals, values = text.partition("=")
        found = [value.strip() for value in values.split(",")]
        if not label or not equals or not all(found):
            raise UsageError(f"--sweep wants K=V1,V2,…, got {quote(text)}")
        if label in sweep:
            raise UsageError(f"--sweep {label} is repeated; list all its values in one")
        twice = next((value for value in found if found.count(value) > 1), None)
        if twice is not None:
            raise UsageError(f"--sweep {label} has {quote(twice)} twice")
        sweep[label] = found
    return sweep


def combinations(command: Sequence[str], sweep: Mapping[str, Sequence[str]]) -> list[Combination]:
    """Return every combination of the values, each with its command.

    Raises:
        UsageError: the command has a placeholder that is not a label of the sweep, lacks one of a
            label, or has a single brace; or two combinations would have the same name.
    """
    names = [name for word in command for name in _placeholders(word, sweep)]
    for label in sweep:
        if label not in names:
            raise UsageError(
                f"--sweep {label}: the command has no {{{label}}}, so its runs would not differ"
            )
    found = []
    for values in itertools.product(*sweep.values()):
        given = dict(zip(sweep, values, strict=True))
        words = tuple(_filled(word, given) for word in command)
        found.append(Combination(given, words, "-".join(values)))
    suffixes = [combination.suffix for combination in found]
    twice = next((suffix for suffix in suffixes if suffixes.count(suffix) > 1), None)
    if twice is not None:
        raise UsageError(f"--sweep: two runs would be named {quote(twice)}; change a value")
    return found


def numeric_labels(sweep: Mapping[str, Sequence[str]]) -> list[str]:
    """Return labels that a curve may run over: several values, all of them numbers."""
    return [
        label for label, values in sweep.items() if len(values) > 1 and all(map(_is_number, values))
    ]


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _placeholders(word: str, known: Iterable[str]) -> list[str]:
    """Return the names in braces; raise an error if one is unknown."""
    names = []
    for found in _BRACES.finditer(word):
        name = found[1]
        if name is None and len(found[0]) == 1:
            raise UsageError(f"a single brace in {quote(word)}; write a literal brace twice")
        if name is not None and name not in known:
            hint = did_you_mean(name, known) or "; write a literal brace twice: {{ }}"
            raise UsageError(f"no --sweep for {{{name}}} in {quote(word)}{hint}")
        if name is not None:
            names.append(name)
    return names


def _filled(word: str, values: Mapping[str, str]) -> str:
    """Return the word with names replaced by their values, and double braces by single ones."""
    return _BRACES.sub(lambda found: found[0][0] if found[1] is None else values[found[1]], word)
