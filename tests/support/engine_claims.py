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

_ONE_LINE = re.compile(r"\s+")
_PLAIN = str.maketrans({";": ",", "(": "[", ")": "]"})


def with_claim(
    text: str, engines: set[str], reasons: str | None, engine: str, reason: str | None
) -> str:
    """A query file's text with a claim in its header.

    Args:
        text: the file.
        engines: those that give DuckDB's rows.
        reasons: what the header says of those that do not, `ENGINE: why; ENGINE: why`.
        engine: the engine of which `reason` is new.
        reason: why it does not give DuckDB's rows; None if it does.
    """
    known = dict(part.split(": ", 1) for part in (reasons or "").split("; ") if ": " in part)
    known = {name: why for name, why in known.items() if name != engine}
    if reason is not None:
        known[engine] = _ONE_LINE.sub(" ", reason).translate(_PLAIN)[:150].rstrip()
    line = f"-- engines: {', '.join(name for name in ENGINES if name in engines)}"
    if known:
        told = "; ".join(f"{name}: {known[name]}" for name in ENGINES if name in known)
        line = "\n--   ".join(textwrap.wrap(f"{line} ({told})", 95))
    line += "\n"
    if LINE.search(text):
        return LINE.sub(lambda _: line, text, count=1)
    return GROUP.sub(lambda found: found[0] + line, text, count=1)


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
