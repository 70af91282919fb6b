"""Places in files as words, such as `train.py:14,16`; nothing here imports JAX."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from pathlib import Path

from bufdb.fitting.plans import Site


def place(site: Site) -> str:
    """Return the file and the line of an expression, such as `train.py:14`."""
    return f"{Path(site.file).name}:{site.line}"


def lines(sites: Iterable[Site]) -> tuple[str, ...]:
    """Return the lines of some expressions, such as `train.py:14`, each once."""
    places = sorted({(site.file, site.line) for site in sites})
    return tuple(f"{Path(file).name}:{line}" for file, line in places)


def spans(lines: Sequence[str]) -> str:
    """Return lines of files, `a.py:1 a.py:2 a.py:5 b.py:7`, as `a.py:1-2,5 b.py:7`."""
    pairs = [line.rpartition(":")[::2] for line in lines]
    texts = []
    for file, group in groupby(pairs, key=lambda pair: pair[0]):
        numbers = sorted({int(line) for _, line in group})
        texts.append(f"{file}:{','.join(_ranges(numbers))}")
    return " ".join(texts)


def _ranges(numbers: Sequence[int]) -> Iterable[str]:
    for _, group in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in group]
        yield str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"
