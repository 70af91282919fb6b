"""The line `-- engines:` of a saved query: which engines gave DuckDB's rows, and why others not."""

from __future__ import annotations

import math
import re
import textwrap
from datetime import datetime
from decimal import Decimal
from typing import Any

from bufdb.query.header import ENGINES

LINE = re.compile(r"^-- engines: .*\n(?:--   .*\n)*", re.MULTILINE)
GROUP = re.compile(r"^-- group: .*\n", re.MULTILINE)

PLAIN = {
    "Physical input schema": "its planner holds a column that can be NULL for one that cannot",
    "BoundedWindowAggExec": "its planner does not find a way to sort for a window",
    "LambdaVariable": "its planner holds a value in a lambda that can be NULL for one that cannot",
    "PLAN_VALIDATION_FAILED": "a rule of its optimizer breaks the plan, as it says itself",
    "cannot be parsed": "it does not read the text",
    "StackOverflow": "its planner runs out of stack on a text as long as this",
    "OutOfMemory": "its planner runs out of memory on a text as long as this",
}
"""Engines' error messages, in plain words."""


def plain(message: str) -> str:
    """Why an engine stops, in plain words where they are known; without what breaks a header."""
    for part, words in PLAIN.items():
        if part in message:
            return words
    text = " ".join(message.translate(str.maketrans({";": ",", "(": "[", ")": "]"})).split())
    return f"it stops with {text[:110].rstrip()}"


def reasons_of(reasons: str | None) -> dict[str, str]:
    """`ENGINE[, ENGINE]: why; …` of a header, by engine."""
    parts = [part.split(": ", 1) for part in (reasons or "").split("; ") if ": " in part]
    return {name.strip(): why for names, why in parts for name in names.split(",")}


def with_claim(text: str, reasons: dict[str, str]) -> str:
    """A query file's text with a claim in its header.

    Args:
        text: the file.
        reasons: why an engine does not give DuckDB's rows; one that is not there does.
    """
    line = f"-- engines: {', '.join(name for name in ENGINES if name not in reasons)}"
    by_reason: dict[str, list[str]] = {}
    for name in ENGINES:
        if name in reasons:
            by_reason.setdefault(reasons[name], []).append(name)
    if by_reason:
        joined = "; ".join(f"{', '.join(names)}: {why}" for why, names in by_reason.items())
        line = "\n--   ".join(textwrap.wrap(f"{line} ({joined})", 95))
    line += "\n"
    if LINE.search(text):
        return LINE.sub(lambda _: line, text, count=1)
    return GROUP.sub(lambda match: match[0] + line, text, count=1)


def comparable(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Rows with floating point to 9 digits: engines add in another order."""
    return [tuple(map(_value, row)) for row in rows]


def _value(value: Any) -> Any:
    if isinstance(value, Decimal):
        value = int(value) if value == int(value) else float(value)
    if isinstance(value, float) and math.isfinite(value):
        return float(f"{value:.9g}")
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat()
    return value
