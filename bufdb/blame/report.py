"""A folder for a bug report: the smallest arguments, StableHLO, both dumps, what is known."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bufdb import __version__
from bufdb.answers.opening import open_readable
from bufdb.blame.comparison import Blaming
from bufdb.blame.runs import DUMPS, STABLEHLO, Compilation, Job, Variant
from bufdb.blame.series import Jump, Series, text
from bufdb.capture.dump import programs
from bufdb.errors import BufdbError, UsageError
from bufdb.export.anonymous import Words

_KEPT = 0.5
"""Part of the relative jump that smaller arguments must still show."""
_MOST_TRIALS = 24
SIDES = ("old", "new")
_SUFFIXES = (".txt", ".debug_options")
_MLIR = """
stablehlo chlo mhlo func tensor public private result info aliasing donor tf iterArg cst arg SIGNED
UNSIGNED FLOAT dense num partitions replicas nested while do usage report
mlir pool thread
"""
"""Words of StableHLO's text."""


def require_new(folder: Path) -> None:
    """Check before a long command that the folder can take a report.

    Raises:
        UsageError: it is there and holds something.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"--report wants a new or empty directory, {folder} is none")


def report(work: Blaming, compared: Sequence[Series], folder: Path, *, is_anonymous: bool) -> None:
    """Write the report of the largest jump into a folder.

    Raises:
        BufdbError: there is no jump, or it cannot be shown again.
    """
    jumps = [jump for one in compared for jump in one.jumps]
    if not jumps:
        raise BufdbError("--report: there is no jump to report")
    jump = max(jumps, key=lambda jump: abs(jump.delta_bytes))
    base, new = work.ready[jump.base], work.ready[jump.new]
    divisors = smallest(work.job, base, new, work.percent)
    db = str(work.job.folder / "report.duckdb")
    small = Blaming(
        replace(work.job, divisors=divisors),
        [base, new],
        partial(open_readable, db),
        db,
        work.run,
        percent=work.percent,
        note=work.note,
    )
    shown = small.answer()
    sides = [pair for one in shown for jump in one.jumps for pair in (small.sides[jump.new],)]
    if not sides or not sides[0]:
        raise BufdbError("--report: the jump did not show again")
    pythons = [base.value, new.value] if base.label == "python" else []
    words = _words(work.job, sides[0]) if is_anonymous else None
    _write(folder, shown, sides[0], small.job, pythons, words)


def smallest(job: Job, base: Variant, new: Variant, percent: float) -> dict[int, int]:
    """Return divisors of the sizes of the arguments with which the jump still shows.

    Each size is halved as often as the jump stays, the largest size first; a dimension is known by
    its size, because equal ones often must stay equal.
    """
    if job.script is not None:
        return {}  # the command makes its arguments
    first = job.compile(base)
    sizes: list[int] = json.loads((first.folder / "sizes.json").read_text(encoding="utf-8"))
    whole = _ratio(first, job.compile(new))
    if whole is None:
        return {}
    divisors: dict[int, int] = {}
    trials = 0
    for size in sizes:
        low, high = 0, (size & -size).bit_length() - 1
        while low < high and trials < _MOST_TRIALS:
            middle = (low + high + 1) // 2
            trials += 1
            tried = {**divisors, size: 1 << middle}
            if _shows(job, base, new, tried, whole, percent):
                low = middle
            else:
                high = middle - 1
        if low:
            divisors[size] = 1 << low
    return divisors


def _shows(
    job: Job,
    base: Variant,
    new: Variant,
    divisors: Mapping[int, int],
    whole: float,
    percent: float,
) -> bool:
    """Return whether the jump stays with smaller arguments; no, if they are not compiled."""
    try:
        small = replace(job, divisors=divisors)
        ratio = _ratio(small.compile(base), small.compile(new))
    except BufdbError:
        return False
    return (
        ratio is not None
        and ratio * whole > 0
        and abs(ratio) >= max(_KEPT * abs(whole), 2 * percent / 100)
    )


def _ratio(base: Compilation, new: Compilation) -> float | None:
    """Return the change of the need over the smaller need; None if one is unknown."""
    if not base.need_bytes or not new.need_bytes:
        return None
    return (new.need_bytes - base.need_bytes) / min(base.need_bytes, new.need_bytes)


def _words(job: Job, sides: Sequence[Compilation]) -> Words:
    """Return what replaces the user's names; names of passes are XLA's."""
    function = job.function_name
    words = Words([function, *function.split(".")])
    names = {
        part
        for side in sides
        for path in (side.folder / DUMPS).glob("*.after_*")
        for part in re.split(r"\.\d{4}\.", path.name, maxsplit=1)[1:]
    }
    known = re.findall("[A-Za-z]+", f"{_MLIR} {' '.join(names)}")
    words.known |= {word.lower() for word in known}
    return words


def _write(
    folder: Path,
    compared: Sequence[Series],
    sides: Sequence[Compilation],
    job: Job,
    pythons: Sequence[str],
    words: Words | None,
) -> None:
    for name, side in zip(SIDES, sides, strict=True):
        _write_side(folder / name, side, words)
    answer = text(_without_names(compared, words))
    call = f"`{job.spec.rpartition(':')[2]}({job.args})` of `{Path(job.spec).name}`, "
    if job.script is not None:
        call = f"of the call of `{job.function_name}` in `{job.spec}`, "
    if words is not None:
        call = ""
        for name, path in zip(SIDES, pythons, strict=False):
            answer = answer.replace(path, name)
    smaller = ", ".join(f"{size} → {size // by}" for size, by in job.divisors.items())
    lines = [
        "# Memory of one program in two compilations\n",
        "".join(f"    {line}\n" for line in answer.splitlines() if "bufdb diff" not in line),
        f"Arguments: {call}sizes made smaller while the jump stayed: {smaller or 'none'}.\n",
        "".join(f"- {name}: {_versions(side)}\n" for name, side in zip(SIDES, sides, strict=True)),
        f"`old` and `new` have StableHLO (`{STABLEHLO}`), the dump of XLA and, in `passes`, the "
        f"HLO after each pass. Made by bufdb {__version__} on {platform.system()} "
        f"{platform.machine()}.\n",
    ]
    (folder / "README.md").write_text("\n".join(lines), encoding="utf-8")


def _versions(side: Compilation) -> str:
    parts = [f"{name} {version}" for name, version in side.versions.items()]
    return f"{', '.join(parts)}, on {side.device}"


def _write_side(folder: Path, side: Compilation, words: Words | None) -> None:
    (folder / "passes").mkdir(parents=True)
    files: dict[str, bytes] = {STABLEHLO: (side.folder / STABLEHLO).read_bytes()}
    for name, place in programs(side.folder / DUMPS).items():
        short = name.rpartition("/")[2]
        if short.endswith(_SUFFIXES):
            data = place.read_bytes() if isinstance(place, Path) else place.open().read()
            files[f"passes/{short}" if ".after_" in short else short] = data
    for name, data in files.items():
        if words is not None:
            data = words.text(data.decode("utf-8", errors="replace")).encode()
            parent, _, last = name.rpartition("/")
            name = f"{parent}/{words.text(last)}" if parent else words.text(last)
        (folder / name).write_bytes(data)


def _without_names(compared: Sequence[Series], words: Words | None) -> Sequence[Series]:
    """Return the series with the user's names replaced."""
    if words is None:
        return compared
    return [
        replace(
            one,
            function=words.whole(one.function),
            jumps=tuple(_jump_without_names(jump, words) for jump in one.jumps),
        )
        for one in compared
    ]


def _jump_without_names(jump: Jump, words: Words) -> Jump:
    parts = tuple(
        replace(part, name=words.text(part.name), source=words.text(part.source or "") or None)
        for part in jump.parts
    )
    passes = list(jump.passes)
    for part, shown in zip(jump.parts, parts, strict=True):
        passes = [sentence.replace(part.name, shown.name) for sentence in passes]
    culprit = jump.culprit
    if jump.verdict == "unknown" and culprit is not None:  # it may quote an error
        culprit = words.text(culprit)
    return replace(jump, parts=parts, passes=tuple(passes), culprit=culprit)
