"""Render a result as text: table and Markdown for people, csv, json and jsonl for programs.

Does no I/O. Invariant: csv, json and jsonl have exact values; units, percent and shortened text
appear only in the two formats for people. A column's name determines its unit: `_bytes` is shown
with IEC units, `_ratio` as percent, far above 1 as a factor. A column `unknown_reason` without any
reason is left out there.

Names come from dumps and are not trusted. `terminal_safe` makes any text safe to show, and csv
stays exact also where a cell begins with `=`, `+`, `-` or `@`: it is for programs; in a spreadsheet
import it with all columns as text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bufdb.render import table
from bufdb.render.table import Column
from bufdb.render.text import (
    escape_control,
    human_apart,
    human_bytes,
    human_change,
    human_ratio,
    human_time,
    markdown_escape,
)

if TYPE_CHECKING:
    from bufdb.query.result import Result

_NUMBER = r"(U?(TINY|SMALL|BIG|HUGE)INT|U?INTEGER|DOUBLE|FLOAT|DECIMAL.*)$"
_SHARE = r"(time|held|saving|peak|module_peak|padding|replicated|size|limit)_ratio"
"""Columns that are a share of a whole."""
_SIDE = r"^(base|new|low|high|previous|value|limit)_|_without$"
"""The part of a name that distinguishes columns whose sizes are compared."""
_CHANGE = r"(delta|change)_ratio$"
_TEXT = r"VARCHAR|JSON|STRUCT|MAP|UNION|.*\]$"


def render(
    result: Result,
    format_name: str,
    width: int | None = None,
    *,
    has_titles: bool = False,
    has_bars: bool = False,
    is_coloured: bool = False,
) -> tuple[str, int]:
    """Return the result's text in one of FORMATS, and the number of cells that had to be shortened.

    Only a table is fitted into `width` columns, see `bufdb.render.table`; with None it has no
    limit. Only a table has titles, for columns that are equal in all of several rows, bars, where
    its width leaves room for them, and colors.
    """
    if format_name in ("table", "markdown"):
        result = _without_empty_reasons(result)
    if format_name == "table":
        columns, alike = _columns(result, has_titles)
        if has_bars and len(result.rows) > 1:
            _add_shares(columns, result)
        return table.lay_out(
            columns, alike, width, has_sections=has_titles, is_coloured=is_coloured
        )
    writers: dict[str, Callable[[Result], str]] = {
        "csv": _csv,
        "json": _json,
        "jsonl": _jsonl,
        "markdown": _markdown,
    }
    return writers[format_name](result), 0


def pieces(results: Iterable[Result], format_name: str) -> Iterator[str]:
    """Yield the text of one result that arrives in pieces, as csv, json or jsonl."""
    is_first = True
    for result in results:
        if format_name == "json":
            lines = _objects(result)
            if lines:
                yield ("[\n" if is_first else ",\n") + ",\n".join(f"  {line}" for line in lines)
                is_first = False
        elif format_name == "csv":
            text = _csv(result)
            yield text if is_first else text.partition("\n")[2]
            is_first = False
        else:
            yield _jsonl(result)
    if format_name == "json":
        yield "[]\n" if is_first else "\n]\n"


def _without_empty_reasons(result: Result) -> Result:
    """Drop `unknown_reason` if it is empty, to leave its width to the other columns."""
    names = [name for name, _ in result.columns]
    if names[-1:] != ["unknown_reason"] or any(row[-1] is not None for row in result.rows):
        return result
    return result._replace(columns=result.columns[:-1], rows=[row[:-1] for row in result.rows])


def _columns(result: Result, has_titles: bool) -> tuple[list[Column], list[Column]]:
    """Return the columns of a table, and those that are equal in all of several rows."""
    columns: list[Column] = []
    alike: list[Column] = []
    cells = [[escape_control(cell) for cell in row] for row in _for_people(result)]
    for place, (name, type_name) in enumerate(result.columns):
        column = Column(
            escape_control(name),
            [row[place] for row in cells],
            is_number=_is_number(type_name),
            is_text=re.match(_TEXT, type_name) is not None,
        )
        # Compare values, not their texts: two numbers may both show as 8.5 MiB.
        values = [repr(row[place]) for row in result.rows]
        is_alike = has_titles and len(values) > 1 and len(set(values)) == 1
        (alike if is_alike else columns).append(column)
    return (columns, alike) if columns else (alike, [])


def _add_shares(columns: list[Column], result: Result) -> None:
    """Add bars for the column that ranks the rows: a share, else bytes in descending order.

    Bars of bytes are relative to the largest. Columns that are not parts of a whole have none:
    changes, and ratios that may be above 1.
    """
    names = [name for name, _ in result.columns]
    for column in columns:
        if re.fullmatch(_SHARE, column.name) and names.count(column.name) == 1:
            shares = [row[names.index(column.name)] for row in result.rows]
            if all(share is None or 0 <= share <= 1 for share in shares):
                column.shares = shares
                return
    if columns and columns[0].name.endswith("_bytes") and columns[0].is_number:
        sizes = [row[names.index(columns[0].name)] for row in result.rows]
        known = [size for size in sizes if size is not None]
        if known and known[0] > 0 and known == sorted(known, reverse=True) and known[-1] >= 0:
            columns[0].shares = [None if size is None else size / known[0] for size in sizes]


def _markdown(result: Result) -> str:
    rows = [
        [markdown_escape(name) for name, _ in result.columns],
        ["---:" if _is_number(type_name) else "---" for _, type_name in result.columns],
        *([markdown_escape(cell) for cell in row] for row in _for_people(result)),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _for_people(result: Result) -> list[list[str]]:
    """Return cells with units; NULL is '-'. Compared sizes in a row get distinct texts."""
    names = [name for name, _ in result.columns]
    stems: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        if name.endswith("_bytes") or "_bytes_" in name:
            stems.setdefault(re.sub(_SIDE, "", name), []).append(place)
    compared = [places for places in stems.values() if len(places) > 1]
    rows = []
    for row in result.rows:
        cells = [_human(name, value) for name, value in zip(names, row, strict=True)]
        for places in compared:
            known = [place for place in places if row[place] is not None]
            for place, text in zip(known, human_apart([row[p] for p in known]), strict=True):
                cells[place] = text
        rows.append(cells)
    for place in {place for places in compared for place in places}:
        if len({row[place] for row in result.rows}) == 1:  # a title has one text for all rows
            exact = max((cells[place] for cells in rows), key=len)
            for cells in rows:
                cells[place] = exact
    return rows


def _human(name: str, value: Any) -> str:
    if value is None:
        return "-"
    if name.endswith("_ratio") and isinstance(value, float):
        return human_change(value) if re.search(_CHANGE, name) else human_ratio(value)
    if isinstance(value, int | float) and not isinstance(value, bool) and "_bytes" in name:
        return human_bytes(round(value)) if math.isfinite(value) else _text(value)
    if isinstance(value, int | float) and name.endswith("_ns"):
        return human_time(value) if math.isfinite(value) else _text(value)
    return f"{value:.6g}" if isinstance(value, float) else _text(value)


def _csv(result: Result) -> str:
    # NULL is an empty field, '' a pair of quotes; csv.writer would not distinguish them.
    def cell(value: Any) -> str:
        if value is None:
            return ""
        text = _text(value)
        if text == "" or text != text.strip() or any(char in text for char in ',"\r\n'):
            return '"' + text.replace('"', '""') + '"'
        return text

    header = [name for name, _ in result.columns]
    return "".join(",".join(map(cell, row)) + "\n" for row in [header, *result.rows])


def _json(result: Result) -> str:
    lines = ",\n".join(f"  {line}" for line in _objects(result))
    return f"[\n{lines}\n]\n" if lines else "[]\n"


def _jsonl(result: Result) -> str:
    return "".join(f"{line}\n" for line in _objects(result))


def _objects(result: Result) -> list[str]:
    names: list[str] = []
    for name, _ in result.columns:
        # Ad-hoc SQL may give two columns the same name; an object would silently keep only one.
        alike = sum(known == name or known.startswith(f"{name}_dup") for known in names)
        names.append(f"{name}_dup{alike}" if alike else name)
    return [_dumped(dict(zip(names, row, strict=True))) for row in result.rows]


def _dumped(value: Any) -> str:
    import json  # 1 ms, which no table wants

    return json.dumps(_json_value(value), ensure_ascii=False)


def _json_value(value: Any) -> Any:
    """Return a value that JSON can represent: non-finite is null, times and the like are text."""
    if isinstance(value, float) and not abs(value) < float("inf"):
        return None
    if isinstance(value, list | tuple):
        return [_json_value(item) for item in value]
    if isinstance(value, dict):
        return {_text(key): _json_value(item) for key, item in value.items()}
    return value if isinstance(value, int | float | str | None) else _text(value)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple | dict):
        return _dumped(value)
    if hasattr(value, "as_tuple"):  # a Decimal; str gives 1E-7 where DuckDB has 0.0000001
        return f"{value:f}"
    return str(value)


def _is_number(type_name: str) -> bool:
    return re.match(_NUMBER, type_name) is not None
