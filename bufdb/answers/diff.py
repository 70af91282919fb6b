"""`bufdb diff`: the figures of two runs side by side, and what a changed peak is made of."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from bufdb.answers.opening import Open
from bufdb.database import definitions, narrowing
from bufdb.database.runs import require_selected
from bufdb.errors import UsageError, quote
from bufdb.query import pairs as wanted
from bufdb.query.execute import execute, execute_with, runs_asked
from bufdb.query.header import Value
from bufdb.query.parameters import ALL, glob
from bufdb.query.result import Result

if TYPE_CHECKING:
    import duckdb


# -- What `bufdb diff` says of two sides: the rows of schema/diff/, made readable ------------------
#
# Asks the table macros and lays out their answer; compares nothing itself. Pairs and figures are
# computed once, into temporary tables that the macros then read; parts span by span of places. So
# memory does not grow with the number of pairs, except what is fetched.

MOST_PLACES = 3
"""Changed peaks whose parts a text shows."""
AT_ONCE = 100_000
"""Values of both sides whose parts are computed at once; one pair may have more."""

_COMMON = """
  place, function_name, base_function_name, new_function_name, platform, paired_by,
  base_run_name, new_run_name, base_module_key, new_module_key,
  color, memory_space_name"""
_NUMBERS = "base_bytes, new_bytes, delta_bytes, delta_ratio"
_DETAILS = """
  base_value_count, new_value_count, base_added_bytes, new_added_bytes, base_shape, new_shape,
  base_source, new_source"""
_FILTER = """
WHERE (getvariable('function')::VARCHAR IS NULL
    OR base_function_name GLOB getvariable('function')::VARCHAR
    OR new_function_name GLOB getvariable('function')::VARCHAR)
  AND (getvariable('module')::VARCHAR IS NULL
    OR base_module_key GLOB getvariable('module')::VARCHAR
    OR new_module_key GLOB getvariable('module')::VARCHAR)
  AND (getvariable('platform')::VARCHAR IS NULL
    OR list_contains(string_split(platform, ' -> '), getvariable('platform')::VARCHAR))"""
_COLOR = """
WHERE color IS NULL
  OR (getvariable('color')::VARCHAR IS NULL AND is_device_memory)
  OR getvariable('color')::VARCHAR IN ('all', color::VARCHAR, memory_space_name)"""
_SIDES = "getvariable('base')::VARCHAR, getvariable('new')::VARCHAR"
_ASKED = "getvariable('pair')::VARCHAR"
_KEYED = f"{_SIDES}, getvariable('key_name')::VARCHAR, {_ASKED}"

_MODULES = f"""
SELECT {_COMMON}, figure, NULL::VARCHAR AS allocation_kind, NULL::VARCHAR AS part,
  CASE
    WHEN delta_bytes > 0 THEN 'grew' WHEN delta_bytes < 0 THEN 'shrank'
    WHEN delta_bytes = 0 THEN 'same' WHEN unknown_reason IS NOT NULL THEN 'unknown'
  END AS change,
  {_NUMBERS}, NULL::BIGINT AS base_value_count, NULL::BIGINT AS new_value_count,
  NULL::HUGEINT AS base_added_bytes, NULL::HUGEINT AS new_added_bytes,
  NULL::VARCHAR AS base_shape, NULL::VARCHAR AS new_shape,
  NULL::VARCHAR AS base_source, NULL::VARCHAR AS new_source, unknown_reason
FROM diff_modules({_SIDES}, {_ASKED})
ORDER BY place, figure_place"""
_TOP_MODULES = _MODULES.replace(
    "ORDER BY", "WHERE figure = 'peak' OR place <= getvariable('whole_places')::BIGINT\nORDER BY"
)
_PEAK = f"""
SELECT {_COMMON}, 'peak' AS figure, allocation_kind, part, change, {_NUMBERS}, {_DETAILS},
  unknown_reason
FROM diff_peak({_KEYED})
ORDER BY place, part_place"""
_TEMPS = f"""
SELECT {_COMMON}, 'temps' AS figure, 'temp' AS allocation_kind, part, change, {_NUMBERS},
  {_DETAILS}, NULL::VARCHAR AS unknown_reason
FROM diff_temps({_KEYED})
ORDER BY place, part_place"""
_TIMES = f"SELECT place, part, is_whole, base_ns, new_ns FROM diff_times({_KEYED})"
_IS_TIMED = "SELECT 1 FROM instruction_times LIMIT 1"

_PARAMS = "base_run, new_run, asked_pairs := NULL"
_STAGES = {
    "diff_paired": f"SELECT pairs.* FROM diff_pairs({_SIDES}, {_ASKED}) AS pairs",
    # Shadows the view of that name.
    "memory_figures": """
SELECT figures.* FROM memory_figures AS figures
WHERE figures.module_id IN (
  SELECT base_module_id FROM temp.main.diff_paired
  UNION ALL
  SELECT new_module_id FROM temp.main.diff_paired
)""",
    "diff_spaces": f"SELECT * FROM diff_modules({_SIDES}, {_ASKED}) {_FILTER}",
    "diff_figures": f"""
SELECT * REPLACE (dense_rank() OVER (ORDER BY place) AS place)
FROM temp.main.diff_spaces {_COLOR}""",
}
"""Temporary tables in order; each reads the one before."""
_STAGED = {
    "diff_pairs": ("diff_paired", "FROM temp.main.diff_paired"),
    "diff_modules": (
        "diff_figures",
        """
SELECT figures.* FROM temp.main.diff_figures AS figures
WHERE figures.place BETWEEN getvariable('first_place')::BIGINT AND getvariable('last_place')::BIGINT
""",
    ),
}
"""By macro, the table that holds its rows and the SELECT that replaces it."""
_SPANS = """
WITH sizes AS (
  SELECT module_id, count(*) AS value_count
  FROM "values"
  GROUP BY module_id
),
running AS (
  SELECT
    figures.place,
    row_number() OVER (ORDER BY figures.place) AS number,
    sum(coalesce(base_sizes.value_count, 0) + coalesce(new_sizes.value_count, 0)) OVER (
      ORDER BY figures.place
    ) AS value_count
  FROM temp.main.diff_figures AS figures
  LEFT JOIN sizes AS base_sizes ON base_sizes.module_id = figures.base_module_id
  LEFT JOIN sizes AS new_sizes ON new_sizes.module_id = figures.new_module_id
  WHERE figures.figure = 'peak'
)
SELECT min(place) AS first_place, max(place) AS last_place
FROM running
WHERE number <= coalesce(getvariable('most_places')::BIGINT, number)
GROUP BY value_count // getvariable('at_once')::BIGINT
ORDER BY first_place"""
_OTHERS = """
SELECT coalesce(memory_space_name, 'color ' || color) AS space_name, sum(delta_bytes)
FROM temp.main.diff_spaces
WHERE getvariable('color')::VARCHAR IS NULL AND NOT is_device_memory
  AND figure = 'peak' AND delta_bytes <> 0
GROUP BY color, space_name, sign(delta_bytes)
ORDER BY color, sign(delta_bytes) DESC"""
_CHANGED = "(delta_bytes <> 0 OR change IN ('donated', 'not donated'))"

_RUNS = "SELECT run_name FROM selected_runs(getvariable('x')::VARCHAR)"
SQL = "\n".join((_MODULES, _PEAK, _TEMPS, _TIMES, wanted.SQL, _RUNS))
"""All SQL of a comparison."""


class Span(NamedTuple):
    """Places whose parts are computed at once, both ends inclusive."""

    first_place: int
    last_place: int


_NO_SPAN, _EVERY = Span(1, 0), Span(0, 2**62)


class Row(NamedTuple):
    """A figure of a pair of modules (`part` is None), or a part of its change."""

    place: int
    """Rank of the pair and memory space, the largest growth first."""
    function_name: str
    """The name in new, or in base if new does not have the function."""
    base_function_name: str | None
    new_function_name: str | None
    platform: str | None
    """Backend; OLD -> NEW if it differs."""
    paired_by: str
    base_run_name: str | None
    new_run_name: str | None
    base_module_key: str | None
    new_module_key: str | None
    color: int | None
    """None where neither side has allocations."""
    memory_space_name: str | None
    figure: str
    allocation_kind: str | None
    part: str | None
    change: str | None
    base_bytes: int | None
    new_bytes: int | None
    delta_bytes: int | None
    delta_ratio: float | None
    base_value_count: int | None
    new_value_count: int | None
    base_added_bytes: int | None
    """The portion of base_bytes that XLA adds for the part's operation."""
    new_added_bytes: int | None
    base_shape: str | None
    new_shape: str | None
    base_source: str | None
    new_source: str | None
    unknown_reason: str | None
    """Which side lacks the figure, and why."""


TIMED = ("op", "source", "opcode")
"""Keys by which times are known."""


class Time(NamedTuple):
    """Measured time of a run, of a part or a whole module."""

    place: int
    part: str | None
    """Without relation; None for what has no name."""
    is_whole: bool
    base_ns: int
    new_ns: int


@dataclass(frozen=True)
class Comparison:
    """Two sides next to each other."""

    figures: list[Row]
    """By place, then in the order of figures."""
    peak_parts: list[Row]
    """Parts of each changed peak, by place, largest change first."""
    temp_parts: list[Row]
    """The same for temps; empty if they were not asked for."""
    columns: list[tuple[str, str]]
    """(name, DuckDB type) of the fields of `Row`."""
    key_name: str
    """What the parts are grouped by."""
    more_places: int = 0
    """Places with a changed part beyond those of peak_parts."""
    is_least: bool = False
    """Whether more_places is a lower bound: parts of unchanged peaks were not computed."""
    other_spaces: Sequence[tuple[str, int]] = ()
    """Memory spaces that were not requested, with the bytes by which peaks grew or shrank."""
    times: Sequence[Time] = ()
    """Of places that profiles timed on both sides."""


def selected_runs(con: duckdb.DuckDBPyConnection, selection: str) -> list[str]:
    """Return the names of the runs that a run name or LABEL=VALUE selects.

    Raises:
        UsageError: it selects none, or names both a run and a label of other runs.
    """
    require_selected(con, [glob(selection)])
    runs = _names(con, _RUNS, selection)
    labelled = _names(
        con,
        "SELECT run_name FROM run_labels WHERE label || '=' || label_value = getvariable('x')",
        selection,
    )
    if selection in runs and set(labelled) - {selection}:
        raise UsageError(
            f"{quote(selection)} is a run and also a label of {', '.join(labelled)}; name the runs"
        )
    return runs


def _names(con: duckdb.DuckDBPyConnection, sql: str, value: str) -> list[str]:
    rows = execute_with(con, sql, {"x": value}, "diff").rows
    return [name for (name,) in rows if name is not None]


def compare(
    con: duckdb.DuckDBPyConnection, values: Mapping[str, Value], *, temps: bool
) -> Comparison:
    """Compare two sides in one piece; arguments as for `pieces`."""
    rows = list(pieces(con, values, temps=temps))
    return Comparison(
        figures=[row for piece in rows for row in piece.figures],
        peak_parts=[row for piece in rows for row in piece.peak_parts],
        temp_parts=[row for piece in rows for row in piece.temp_parts],
        columns=rows[0].columns,
        key_name=rows[0].key_name,
        other_spaces=rows[0].other_spaces,
        times=[time for piece in rows for time in piece.times],
    )


def pieces(
    con: duckdb.DuckDBPyConnection, values: Mapping[str, Value], *, temps: bool
) -> Generator[Comparison]:
    """Compare two sides, a span of places at a time; yield one empty piece if there is no figure.

    `values`: base and new (see `selected_runs`), key_name (see diff_peak), and optionally function
    (a glob), color (a memory space's number or name, or all; by default the device's memory),
    platform, pair (OLD=NEW, with commas) and most_places, the maximum number of places. `temps`
    requests the parts of the temp allocations too. The first piece has the other memory spaces.
    """
    with _staged(con, values) as spans:
        others = _other_spaces(con, values)
        for span in spans or [_NO_SPAN]:
            with _alone(con, span, spans):
                piece = _piece(con, {**values, **span._asdict()}, temps=temps)
            yield replace(piece, other_spaces=others)
            others = []


def _piece(
    con: duckdb.DuckDBPyConnection, values: Mapping[str, Value], *, temps: bool
) -> Comparison:
    modules = execute_with(con, _MODULES, values, "diff")
    return Comparison(
        figures=_rows(modules),
        # A pair with an unknown peak has no parts; its figure gives the reason.
        peak_parts=[
            row
            for row in _rows(execute_with(con, _PEAK, values, "diff"))
            if row.unknown_reason is None
        ],
        temp_parts=_rows(execute_with(con, _TEMPS, values, "diff")) if temps else [],
        columns=modules.columns,
        key_name=str(values["key_name"]),
        times=_times(con, values),
    )


def _times(con: duckdb.DuckDBPyConnection, values: Mapping[str, Value]) -> list[Time]:
    if not con.execute(_IS_TIMED).fetchall():
        return []
    return [Time(*row) for row in execute_with(con, _TIMES, values, "diff").rows]


def compare_top(
    con: duckdb.DuckDBPyConnection,
    values: Mapping[str, Value],
    top: int,
    most_places: int = MOST_PLACES,
) -> Comparison:
    """Compare two sides: all figures of so many places, and the parts of the first that changed.

    Of other places the peak alone is fetched; parts are computed until `most_places` have changed.
    """
    parts: list[Row] = []
    places: list[int] = []
    more, last = 0, 0
    with _staged(con, values) as spans:
        for span in spans:
            with _alone(con, span, spans):
                room = most_places - len(places)
                changed, rest = _changed_parts(con, {**values, **span._asdict()}, room)
            parts += rest
            places += changed[:room]
            more, last = more + len(changed), span.last_place
            if len(places) == most_places:
                break
        every: dict[str, Value] = {**values, **_EVERY._asdict()}
        every["whole_places"] = max([top, *places])
        modules = execute_with(con, _TOP_MODULES, every, "diff")
        # Of other places neither are the parts.
        times = [one for one in _times(con, every) if one.is_whole or one.place in places]
        others = _other_spaces(con, values)
    figures = _rows(modules)
    beyond = [row.delta_bytes for row in figures if row.place > last and row.figure == "peak"]
    more += sum(1 for delta in beyond if delta) - len(places)
    key_name = str(values["key_name"])
    return Comparison(
        figures, parts, [], modules.columns, key_name, more, 0 in beyond, others, times
    )


def _other_spaces(
    con: duckdb.DuckDBPyConnection, values: Mapping[str, Value]
) -> list[tuple[str, int]]:
    return execute_with(con, _OTHERS, values, "diff").rows


def _changed_parts(
    con: duckdb.DuckDBPyConnection, values: Mapping[str, Value], most: int
) -> tuple[list[int], list[Row]]:
    """Return the places of a span with a changed part, and the parts of the first `most`."""
    execute_with(con, f"CREATE TEMP TABLE diff_parts AS {_PEAK}", values, "diff")
    known = "FROM temp.main.diff_parts WHERE unknown_reason IS NULL"
    sql = f"SELECT DISTINCT place {known} AND {_CHANGED} ORDER BY place"
    places = [place for (place,) in execute(con, sql, "diff").rows]
    shown = ", ".join(map(str, places[:most]))
    sql = f"SELECT * {known} AND place IN ({shown}) ORDER BY rowid"
    rows = _rows(execute(con, sql, "diff")) if shown else []
    con.execute("DROP TABLE temp.main.diff_parts")
    return places, rows


@contextmanager
def _staged(con: duckdb.DuckDBPyConnection, values: Mapping[str, Value]) -> Iterator[list[Span]]:
    """Let the macros read precomputed pairs and figures within the block; yield the spans."""
    with ExitStack() as stack:
        for table, sql in _STAGES.items():
            create = f"CREATE TEMP TABLE {table} AS {sql}"
            execute_with(con, create, values, "diff")
            stack.callback(con.execute, f"DROP TABLE temp.main.{table}")
            for macro, (needed, text) in _STAGED.items():
                if needed == table:
                    con.execute(f"CREATE TEMP MACRO {macro}({_PARAMS}) AS TABLE {text}")
                    stack.callback(con.execute, f"DROP MACRO TABLE temp.main.{macro}")
        yield [
            Span(*row)
            for row in execute_with(con, _SPANS, {**values, "at_once": AT_ONCE}, "diff").rows
        ]


def _alone(
    con: duckdb.DuckDBPyConnection, span: Span, spans: Sequence[Span]
) -> AbstractContextManager[None]:
    """Narrow the tables to the modules of a span within the block, if there are others."""
    if len(spans) < 2 or narrowing.module_count(con) == 0:
        return nullcontext()
    chosen = (
        "SELECT DISTINCT unnest([base_module_id, new_module_id]) AS module_id "
        f"FROM temp.main.diff_figures WHERE place BETWEEN {span.first_place} AND {span.last_place}"
    )
    return narrowing.to_modules(con, definitions.module_tables(_PEAK), chosen)


def _rows(result: Result) -> list[Row]:
    return [Row(*row) for row in result.rows]


# --------------------------------------------------------------------------------------------------
# `diff` as an answer: two selections of runs compared, or why there is nothing to compare.

KEYS = ("op", "source", "shape", "dtype", "opcode", "category", "stack", "all")
"""Keys of the macro diff_peak."""


@dataclass(frozen=True)
class Diff:
    """Two sides."""

    comparison: Comparison
    note: str | None
    """Why there is no figure; None if there is one."""


def diff(
    opened: Open,
    base: str,
    new: str,
    *,
    top: int = 10,
    most_places: int = MOST_PLACES,
    **options: Any,
) -> Diff:
    """Return the modules of two runs side by side; arguments as the options of `bufdb diff`.

    Args:
        opened: opens the database.
        base: a run, or LABEL=VALUE.
        new: the same of the other side.
        top: places whose figures are all fetched; of others only the peak is.
        most_places: changed places whose parts are fetched.
        options: by (one of KEYS, what the parts of a changed peak are grouped by), function
            (a glob), module (a glob of keys), color (a memory space, its number or its name, or
            all; the memory of the device by default) and pairs (texts OLD=NEW: which functions or
            modules are to be compared).

    Raises:
        UsageError: a run, a key or a pair does not exist.
    """
    con, values = _opened(opened, base, new, **options)
    comparison = compare_top(con, values, top, most_places)
    return Diff(comparison, None if comparison.figures else _why_nothing(con, values))


def peaks(opened: Open, base: str, new: str, **options: Any) -> list[tuple[Row, bool]]:
    """Return the peaks of modules that both sides have, and whether any figure of them changed.

    Arguments and errors as for `diff`.
    """
    con, values = _opened(opened, base, new, **options)
    with _staged(con, values):
        rows = _rows(execute_with(con, _MODULES, {**values, **_EVERY._asdict()}, "diff"))
    changed = {row.place for row in rows if row.delta_bytes}
    both = [row for row in rows if row.figure == "peak" and row.delta_bytes is not None]
    known = [row for row in both if row.base_module_key and row.new_module_key]
    return [(row, row.place in changed) for row in known]


def why_nothing(opened: Open, base: str, new: str, **options: Any) -> str | None:
    """Return why `diff` with these arguments has no rows; None if that is not its filters."""
    con, values = _opened(opened, base, new, **options)
    with _staged(con, values):
        rows = execute_with(con, _MODULES, {**values, **_EVERY._asdict()}, "diff").rows
    return None if rows else _why_nothing(con, values)


def in_pieces(opened: Open, base: str, new: str, **options: Any) -> Iterator[Diff]:
    """Yield all rows of `diff`, some pairs at a time."""
    con, values = _opened(opened, base, new, **options)
    rows = pieces(con, values, temps=True)
    first = next(rows)
    if not first.figures:
        rows.close()
        yield Diff(first, _why_nothing(con, values))
        return
    yield Diff(first, None)
    yield from (Diff(piece, None) for piece in rows)


def _opened(
    opened: Open,
    base: str,
    new: str,
    *,
    by: str = "op",
    function: str | None = None,
    module: str | None = None,
    color: int | str | None = None,
    pairs: Sequence[str] = (),
) -> tuple[duckdb.DuckDBPyConnection, dict[str, Value]]:
    """Return the database and the query parameters; arguments and errors as for `diff`."""
    if by not in KEYS:
        raise UsageError(f"--by is one of {', '.join(KEYS)}, got {quote(by)}")
    values: dict[str, Value] = {"base": base, "new": new, "key_name": by}
    values |= {"function": function, "module": module}
    values["color"] = None if color is None else str(color)
    con = opened(SQL, runs=runs_asked(values))
    for selection in (base, new):
        selected_runs(con, selection)
    wanted.require_pairs(con, base, new, pairs, "--pair")
    values["pair"] = ",".join(pairs) or None
    return con, values


def _why_nothing(con: duckdb.DuckDBPyConnection, values: Mapping[str, Value]) -> str:
    """Return the reason why neither side has a figure."""
    filters = ("function", "module", "color")
    filtered = [name for name in filters if values[name] is not None]
    everything = {**values, **dict.fromkeys(filters), "color": ALL}
    whole = compare(con, everything, temps=False).figures
    if not whole:
        return "no rows: neither side has a module"
    functions = ", ".join(dict.fromkeys(row.function_name for row in whole))
    spaces = ", ".join(
        dict.fromkeys(f"{row.color} ({row.memory_space_name or 'no name'})" for row in whole)
    )
    wanted = " and ".join(f"{name} {quote(str(values[name]))}" for name in filtered)
    return f"no rows: neither side has {wanted}; there is {functions} in memory space {spaces}"
