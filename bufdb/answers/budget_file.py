"""Budget files: the limits that they set, and those that a run sets in them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from fractions import Fraction
from typing import Any

from bufdb.errors import UsageError, did_you_mean, quote
from bufdb.query.figures import METRICS, MemoryFigures
from bufdb.query.parameters import ALL
from bufdb.query.sizes import UNIT, in_bytes
from bufdb.render.text import human_bytes

_SIZE = re.compile(rf"([+-]?)\s*(\d+(?:\.\d+)?)\s*(%|{UNIT})", re.ASCII)
_LIMIT_HELP = "expected bytes such as 123456 or '16 GiB', or '+2%' or '+10 MiB' over a base run"
_KEYS = ("function", "metric", "limit", "memory_space", "color", "platform", "allow_new")


@dataclass(frozen=True)
class Limit:
    """A limit: so many bytes, or relative to the figure of a base run."""

    text: str
    amount: Fraction
    """Bytes; for a `%`, hundredths of the base's figure."""
    is_relative: bool = False
    is_percent: bool = False

    def bytes_for(self, base: int | None) -> int | None:
        """Return the limit in whole bytes, rounded down; None if relative without a base."""
        if not self.is_relative:
            return int(self.amount)
        if base is None:
            return None
        return int(base + (base * self.amount / 100 if self.is_percent else self.amount) // 1)


@dataclass(frozen=True)
class Budget:
    """One entry of a budget file."""

    function: str
    """Glob for function names; for the module where the function is not known."""
    metric: str
    limit: Limit
    color: int | str | None = None
    """Memory space: number, name or `all` (each space separately); None is the device's own."""
    platform: str | None = None
    allow_new: bool = False
    """Whether a module without a counterpart in the base run passes a relative limit."""
    where: str = ""
    """`file:line`."""
    limit_line: int | None = field(default=None, compare=False)
    """The line of the limit, from 1; None if the entry is of no file."""

    @property
    def space(self) -> str:
        """The memory space in words."""
        if self.color is None:
            return "of the device"
        return f"color {self.color}" if isinstance(self.color, int) else self.color


@dataclass(frozen=True)
class BudgetFile:
    """A budget file."""

    budgets: tuple[Budget, ...]
    base: str | None
    """The base run that the file names."""


def parse_limit(value: Any) -> Limit:
    """Return the limit given by a number of bytes or text such as '16 GiB', '+2%', '+10 MiB'.

    Raises:
        ValueError: it is none of these; the message says what was expected.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return Limit(str(value), Fraction(value))
    match = _SIZE.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        raise ValueError(f"{_LIMIT_HELP}, found {quote(_toml_text(value))}")
    sign, number, unit = match.groups()
    if unit == "%" and not sign:
        raise ValueError(f"expected a sign before a percentage, such as '+2%', found {value!r}")
    amount = Fraction(number) if unit == "%" else in_bytes(number, unit)
    return Limit(value, -amount if sign == "-" else amount, bool(sign), unit == "%")


def parse_color(value: Any) -> int | str | None:
    """Return a memory space from its number, its name or `all`; None for None.

    Raises:
        ValueError: it is none of these; the message says what was expected.
    """
    if isinstance(value, str) and value:
        return int(value) if value.isdecimal() else value
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise ValueError(f"expected a number from 0, a name or all, found {_quoted(value)}")


def parse(text: str, path: str) -> BudgetFile:
    """Parse a budget file; `path` is for messages.

    Raises:
        UsageError: it is not TOML, or an entry is wrong; the message has file and line.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Python 3.14 reports the line separately, earlier versions only in the text.
        position = re.search(r" \(at (?:line (\d+), column \d+|end of document)\)$", str(error))
        line = (position and position[1]) or str(text.count("\n") + 1)
        reason = str(error)[: position.start()] if position else str(error)
        raise UsageError(f"{path}:{line}: not TOML: {reason}") from error
    lines = _Lines(text, path)
    _check_keys(document, ("base", "budget"), lines, None)
    base = document.get("base")
    if base is not None and not isinstance(base, str):
        raise lines.error(None, "base", f"expected the name of a run, found {_quoted(base)}")
    entries = document.get("budget")
    if (
        not isinstance(entries, list)
        or not entries
        or not all(isinstance(e, dict) for e in entries)
    ):
        raise lines.error(None, "budget", "expected entries under [[budget]], found none")
    return BudgetFile(tuple(_budget(e, n, lines) for n, e in enumerate(entries)), base)


def _budget(entry: dict[str, Any], number: int, lines: _Lines) -> Budget:
    _check_keys(entry, _KEYS, lines, number)
    for key in ("function", "limit"):
        if key not in entry:
            raise lines.error(number, None, f"expected a key {key!r} in this entry, found none")
    for key in ("function", "platform"):
        if key in entry and (not isinstance(entry[key], str) or not entry[key]):
            raise lines.error(number, key, f"expected text, found {_quoted(entry[key])}")
    metric = entry.get("metric", "need")
    if metric not in METRICS:
        raise lines.error(
            number, "metric", f"expected one of {', '.join(METRICS)}, found {_quoted(metric)}"
        )
    if "color" in entry and "memory_space" in entry:
        raise lines.error(number, "color", "expected memory_space or color, found both")
    key = "color" if "color" in entry else "memory_space"
    try:
        color = parse_color(entry.get(key))
    except ValueError as error:
        raise lines.error(number, key, str(error)) from error
    allow_new = entry.get("allow_new", False)
    if not isinstance(allow_new, bool):
        raise lines.error(
            number, "allow_new", f"expected true or false, found {_quoted(allow_new)}"
        )
    try:
        limit = parse_limit(entry["limit"])
    except ValueError as error:
        raise lines.error(number, "limit", str(error)) from error
    return Budget(
        entry["function"],
        metric,
        limit,
        color,
        entry.get("platform"),
        allow_new,
        f"{lines.path}:{lines.line_of(number, None)}",
        lines.line_of(number, "limit"),
    )


def _check_keys(
    table: dict[str, Any], known: Sequence[str], lines: _Lines, number: int | None
) -> None:
    for key in table:
        if key not in known:
            hint = did_you_mean(key, known)
            raise lines.error(
                number, key, f"expected one of {', '.join(known)}, found {quote(key)}{hint}"
            )


class _Lines:
    """The lines of entries and keys in a file, which the TOML parser does not report."""

    _ENTRY = re.compile(r"\s*\[\[\s*(budget|\"budget\"|'budget')\s*\]\]")

    def __init__(self, text: str, path: str) -> None:
        self.path = path
        self.lines = text.splitlines()
        self.entries = [n for n, line in enumerate(self.lines) if self._ENTRY.match(line)]

    def line_of(self, number: int | None, key: str | None) -> int:
        """Return the line of a key of an entry, or of the entry if the key is not found; from 1."""
        first, last = 0, len(self.lines)
        if number is None:
            last = self.entries[0] if self.entries else last
        elif number < len(self.entries):
            first = self.entries[number]
            last = [*self.entries, last][number + 1]
        if key is not None:
            word = re.compile(rf"\s*\[*\s*[\"']?{re.escape(key)}[\"']?\s*[=\].]")
            for n in range(first, last):
                if word.match(self.lines[n]):
                    return n + 1
        return first + 1

    def error(self, number: int | None, key: str | None, message: str) -> UsageError:
        name = f"{key}: " if key else ""
        return UsageError(f"{self.path}:{self.line_of(number, key)}: {name}{message}")


def _toml_text(value: Any) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _quoted(value: Any) -> str:
    return quote(_toml_text(value))


# -- Limits learned from a run ---------------------------------------------------------------------

_LIMIT_LINE = re.compile(r"(\s*limit\s*=\s*)([^#\n]*?)(\s*(?:#.*)?)")

_SIZE_COMMENT = re.compile(r"(\s*# )[\d.]+ [KMGTPE]?i?B$")
"""What a new entry has after its limit."""


def learned(
    old: BudgetFile | None, text: str, figures: Sequence[MemoryFigures], run: str
) -> tuple[str, list[str]]:
    """Return the text of a budget file with the figures of a run as limits, and notes.

    Limits in bytes become the largest figure that they match, to the byte; those relative to a base
    run stay. Functions that no entry matches get an entry for their need. All else of the text is
    as it was.

    Args:
        old: the file, parsed; None if there is none.
        text: its text.
        figures: all modules of the run, one item per memory space.
        run: its name.
    """
    lines = text.splitlines() or [f"# Limits of run {json.dumps(run)}, by bufdb budget --write."]
    notes = []
    for budget in old.budgets if old is not None else ():
        matching = [one for one in figures if fits(budget, one) and in_space(budget, one)]
        if budget.limit.is_relative or budget.limit_line is None:
            continue
        known = [one.values[budget.metric] for one in matching]
        if not known or None in known:
            what = "fits no module" if not known else f"{budget.metric} is unknown"
            notes.append(f"{budget.where}: {what}: the limit stays")
            continue
        most = max(size for size in known if size is not None)
        match = _LIMIT_LINE.fullmatch(lines[budget.limit_line - 1])
        if match is not None:
            comment = _SIZE_COMMENT.sub(rf"\g<1>{human_bytes(most)}", match[3])
            lines[budget.limit_line - 1] = f"{match[1]}{most}{comment}"
    for function, platform in _unmatched(old, figures):
        named = [
            one for one in figures if (one.function, one.platform) == (function, platform)
            and one.is_device_memory
        ]  # fmt: skip
        needs = [one.values["need"] for one in named if one.color is not None]
        if not needs or None in needs:
            notes.append(f"{function}: need is unknown: there is no entry for it")
            continue
        most = max(size for size in needs if size is not None)
        lines += [
            "",
            "[[budget]]",
            f"function = {json.dumps(_literal(function))}",
            *([] if platform is None else [f"platform = {json.dumps(platform)}"]),
            f"limit = {most}  # {human_bytes(most)}",
        ]
    return "\n".join(lines) + "\n", notes


def _unmatched(
    old: BudgetFile | None, figures: Sequence[MemoryFigures]
) -> list[tuple[str, str | None]]:
    """Return functions and platforms that no entry matches, in order of their names."""
    budgets = () if old is None else old.budgets
    rest = {
        (one.function, one.platform)
        for one in figures
        if not any(fits(budget, one) for budget in budgets)
    }
    return sorted(rest, key=lambda pair: (pair[0], pair[1] or ""))


def _literal(name: str) -> str:
    """Return a glob that matches a name alone."""
    return re.sub(r"([*?\[])", r"[\1]", name)


def fits(budget: Budget, figure: MemoryFigures) -> bool:
    """Return whether an entry is about the function and platform of a figure."""
    is_named = fnmatchcase(figure.function, budget.function)
    return is_named and budget.platform in (None, figure.platform)


def in_space(budget: Budget, figure: MemoryFigures) -> bool:
    """Return whether an entry is about the memory space of a figure."""
    if budget.color is None:
        return figure.is_device_memory
    return budget.color in (ALL, figure.color, figure.memory_space)
