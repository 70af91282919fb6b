"""A few rows in a database, written by hand: what the tests of queries and views start from."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
from sqlglot import parse_one

from bufdb import resources
from bufdb.database import store
from bufdb.query import catalogue, execute
from bufdb.query.header import SavedQuery
from bufdb.read import hlo

_FILL = {
    "BIGINT": 0,
    "VARCHAR": "",
    "BOOLEAN": False,
    "TIMESTAMP": "2026-01-01",
    "HUGEINT": 0,
    "BLOB": b"",
}
"""Value of a NOT NULL column that the test does not care about."""
_SUMS = """
SELECT
  module_id,
  color,
  coalesce(sum(size_bytes) FILTER (WHERE kind IN ('parameter', 'donated_parameter')), 0),
  coalesce(sum(size_bytes) FILTER (WHERE kind IN ('output', 'donated_parameter')), 0),
  coalesce(sum(size_bytes) FILTER (WHERE kind = 'donated_parameter'), 0),
  coalesce(sum(size_bytes) FILTER (WHERE kind = 'temp'), 0),
  coalesce(sum(size_bytes) FILTER (WHERE kind = 'constant'), 0),
  coalesce(sum(size_bytes) FILTER (WHERE kind = 'thread_local'), 0),
  sum(size_bytes),
  coalesce(sum(size_bytes) FILTER (WHERE kind NOT IN ('temp', 'thread_local')), 0)
FROM allocations
GROUP BY module_id, color
"""
"""Rows of memory_sums."""


def _expected(check: str) -> str:
    """The rows that an invariant expects of a table: its CTE `expected`, and those before it."""
    tree = parse_one((resources.check_folder() / f"{check}.sql").read_text("utf-8"), read="duckdb")
    names = [cte.alias for cte in tree.ctes]
    within = tree.args["with_"]
    within.set("expressions", tree.ctes[: names.index("expected") + 1])
    return f"{within.sql('duckdb')} SELECT * FROM expected"


_HELD, _USERS = _expected("peak_values"), _expected("value_users")
"""Rows of peak_values and of value_users."""
_SIGNATURES = """
UPDATE modules SET entry_hash = derived.entry_hash, shapes_name = derived.shapes_name
FROM derived_signatures AS derived
WHERE derived.module_id = modules.module_id
"""
_HAS_RESULTS = "SELECT EXISTS (FROM allocations WHERE output_shape IS NOT NULL)"
_HAS_PROFILES = "SELECT EXISTS (FROM live_profiles) OR EXISTS (FROM allocator_statistics)"
_NOTE_DERIVED = "SET VARIABLE derived_at = txid_current()"
_IS_DERIVED = "SELECT txid_current() = getvariable('derived_at') + 1"
"""Whether it is the first statement after that (each is a transaction, with the next number).

To derive takes 14 ms, and many tests ask several questions of the same rows.
"""
_OF_PLATFORMS = (
    "first-regression", "jit-functions", "modules", "peak-matrix", "ranks", "retraces", "scaling",
    "series", "top-values",
)  # fmt: skip
"""Queries of whose answers `answer` gives the platform too."""
_defaults: dict[str, dict[str, Any]] = {}
_waiting: dict[str, list[dict[str, Any]]] | None = None


def open_copy(path: Path) -> duckdb.DuckDBPyConnection:
    """A copy of a database in memory."""
    con = duckdb.connect(config={**store._FILE_FORMAT, **store._NO_EXTENSIONS})
    con.execute(f"ATTACH '{path}' AS original (READ_ONLY)")
    con.execute("COPY FROM DATABASE original TO memory")
    con.execute("DETACH original")
    return con


@contextlib.contextmanager
def in_bulk(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Rows inserted within come into the database at its end, a table at a time.

    What ingest computes of rows follows (`derive`).
    """
    global _waiting
    _waiting = {}
    try:
        yield
        for table, rows in _waiting.items():
            names = list(dict.fromkeys(name for row in rows for name in row))
            default = _defaults[table]
            cells = [row.get(name, default.get(name)) for row in rows for name in names]
            marks = ", ".join(["(" + ", ".join("?" * len(names)) + ")"] * len(rows))
            quoted = ", ".join(f'"{name}"' for name in names)
            con.execute(f'INSERT INTO "{table}" ({quoted}) VALUES {marks}', cells)
        derive(con)
    finally:
        _waiting = None


def insert(con: duckdb.DuckDBPyConnection, table: str, **cells: Any) -> None:
    """Insert one row; columns not given are NULL, or 0, '' or FALSE where NULL is not allowed."""
    if table not in _defaults:
        columns = con.execute(
            "SELECT column_name, data_type FROM duckdb_columns() "
            "WHERE table_name = ? AND NOT is_nullable",
            [table],
        ).fetchall()
        _defaults[table] = {name: _FILL[data_type] for name, data_type in columns}
    row = _defaults[table] | cells
    if _waiting is not None:
        _waiting.setdefault(table, []).append(row)
        return
    names = ", ".join(f'"{name}"' for name in row)
    marks = ", ".join("?" for _ in row)
    con.execute(f'INSERT INTO "{table}" ({names}) VALUES ({marks})', list(row.values()))


def _has_run(con: duckdb.DuckDBPyConnection, run_name: str) -> bool:
    if _waiting and any(row["run_name"] == run_name for row in _waiting.get("runs", [])):
        return True
    runs = con.execute("SELECT 1 FROM runs WHERE run_name = ?", [run_name]).fetchall()
    return bool(runs)


class Module:
    """One module; allocations and values are added, then `close` computes its peaks."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        module_id: int,
        run_name: str = "r",
        function_name: str | None = "f",
        **cells: Any,
    ) -> None:
        self.con = con
        self.id = module_id
        self.allocations: dict[int, tuple[str, int]] = {}
        self.instructions: set[str] = set()
        self.temps: list[tuple[int, int, int, int, int, int]] = []
        if not _has_run(con, run_name):
            insert(con, "runs", run_name=run_name)
        row = {"module_key": f"m{module_id}", "format_era": "C"} | cells
        row = {"has_live_ranges": True, "has_used_values": True} | row
        if not row["has_live_ranges"]:
            row.setdefault("peak_unknown_reason", "the dump has no live ranges")
        insert(
            con,
            "modules",
            module_id=module_id,
            run_name=run_name,
            function_name=function_name,
            **row,
        )

    def allocation(self, index: int, kind: str, size: int, color: int = 0, **cells: Any) -> None:
        self.allocations[index] = (kind, color)
        insert(
            self.con,
            "allocations",
            module_id=self.id,
            allocation_index=index,
            kind=kind,
            size_bytes=size,
            color=color,
            **cells,
        )

    def value(
        self,
        value_id: int,
        index: int,
        offset: int,
        size: int,
        live: tuple[int, int] | None = (0, 9),
        name: str | None = None,
        shape: str = "f32[]",
        is_phi: bool = False,
        shape_index: str = "{}",
        logical: int | None = None,
        **instruction: Any,
    ) -> None:
        """A value, its live range (both ends included) and, once per name, its instruction."""
        name = name or f"v{value_id}"
        key = {"module_id": self.id, "instruction_name": name}
        insert(
            self.con,
            "values",
            **key,
            value_id=value_id,
            allocation_index=index,
            offset_bytes=offset,
            size_bytes=size,
            shape=shape,
            shape_index=shape_index,
            is_phi=is_phi,
            logical_bytes=logical,
        )
        if name not in self.instructions:
            self.instructions.add(name)
            insert(self.con, "instructions", **key, **instruction)
        if live is not None:
            times = {"start_time": live[0], "end_time": live[1]}
            insert(
                self.con, "live_ranges", **key, value_id=value_id, shape_index=shape_index, **times
            )
            kind, color = self.allocations[index]
            if kind == "temp":
                self.temps.append((color, index, offset, offset + size, *live))

    def saves(self, value_id: int, saving: int, half: int = 0, **cells: Any) -> None:
        """Add the peak saving of removing a value, and of halving it; or of removing a name."""
        fields = {"what": "value", "value_id": value_id, "held_bytes": saving, **cells}
        insert(self.con, "peak_savings", module_id=self.id, color=0, saving_bytes=saving,
               half_saving_bytes=half, **fields)  # fmt: skip

    def use(self, value_id: int, by: str, operand: int = 0, index: str = "{}") -> None:
        """Add a use of a value by an instruction."""
        row = {"value_id": value_id, "instruction_name": by}
        number = {"operand_number": operand, "operand_index": index}
        insert(self.con, "uses", module_id=self.id, **row, **number)

    def close(self) -> None:
        """Compute occupied_peaks byte by byte, for small sizes only, and what `derive` does."""
        for color in {color for _, color in self.allocations.values()}:
            best = (0, 0)
            for time in sorted({temp[4] for temp in self.temps if temp[0] == color}):
                occupied = {
                    (index, byte)
                    for temp_color, index, begin, end, start, last in self.temps
                    if temp_color == color and start <= time <= last
                    for byte in range(begin, end)
                }
                if len(occupied) > best[0]:
                    best = (len(occupied), time)
            insert(
                self.con,
                "occupied_peaks",
                module_id=self.id,
                color=color,
                peak_time=best[1],
                occupied_temp_bytes=best[0],
                naive_live_bytes=0,
            )
        if _waiting is None:
            derive(self.con)


def shape(
    con: duckdb.DuckDBPyConnection, text: str, logical: int | None = None, count: int = 1
) -> str:
    """A row of `shapes` taken from the text, once; the text again, for `Module.value`."""
    if con.execute("SELECT 1 FROM shapes WHERE shape = $1", [text]).fetchall():
        return text
    is_tuple = text.startswith("(")
    head, _, layout = text.partition("{")
    dtype, _, dimensions = head.partition("[")
    insert(
        con,
        "shapes",
        shape=text,
        dtype="tuple" if is_tuple else dtype,
        dimensions_text=None if is_tuple else dimensions.rstrip("]"),
        layout="{" + layout if layout else None,
        logical_bytes=logical,
        element_count=count,
        is_tuple=is_tuple,
    )
    return text


def derive(con: duckdb.DuckDBPyConnection) -> None:
    """Recompute by SQL what ingest derives from the other rows."""
    _place_frames(con)
    con.execute("DELETE FROM memory_sums")
    con.execute(f"INSERT INTO memory_sums {_SUMS}")
    con.execute("DELETE FROM peak_values")
    con.execute(f"INSERT INTO peak_values {_HELD}")
    con.execute("DELETE FROM value_users")
    if con.execute("SELECT 1 FROM uses LIMIT 1").fetchall():  # half of the time, and seldom any
        con.execute(f"INSERT INTO value_users {_USERS}")
    if con.execute(_HAS_RESULTS).fetchall() == [(True,)]:
        con.execute(_SIGNATURES)
    con.execute("DELETE FROM live_totals")
    if con.execute(_HAS_PROFILES).fetchall() == [(True,)]:
        con.execute("INSERT INTO live_totals BY NAME FROM derived_live_totals")
    con.execute(_NOTE_DERIVED)


def _place_frames(con: duckdb.DuckDBPyConnection) -> None:
    """Compute where frames are in the tree of calls, from their callers."""
    rows = con.execute(
        "SELECT module_id, stack_frame_id, coalesce(parent_frame_id, 0) FROM stack_frames"
    ).fetchall()
    for module_id in {row[0] for row in rows}:
        frames = {frame: (0, parent) for module, frame, parent in rows if module == module_id}
        depths, _, _ = hlo._chains(set(), {}, {}, frames)
        spans = hlo.tree_spans({frame: frames[frame][1] for frame in frames}, depths)
        for frame, depth in depths.items():
            con.execute(
                "UPDATE stack_frames SET depth = ?, tree_ordinal = ?, last_tree_ordinal = ? "
                "WHERE module_id = ? AND stack_frame_id = ?",
                [depth, *spans[frame], module_id, frame],
            )


@functools.cache
def find(name: str) -> SavedQuery:
    """A saved query that comes with bufdb, or an alias."""
    return catalogue.Catalogue([resources.query_folder()]).find(name)


def rows(con: duckdb.DuckDBPyConnection, name: str, **params: Any) -> list[dict[str, Any]]:
    """Rows of a saved query by column, as it gives them."""
    query = find(name)
    bound = execute.bind(query, {key: str(value) for key, value in params.items()})
    names = [column.name for column in query.columns]
    tuples = execute.execute_query(con, query, bound).rows
    return [dict(zip(names, row, strict=True)) for row in tuples]


@contextlib.contextmanager
def derived(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Within the block, which only reads, a test's own rows have what ingest computes of them."""
    is_derived = con.execute(_IS_DERIVED).fetchall() == [(True,)]
    if not is_derived and not con.execute("SELECT 1 FROM files LIMIT 1").fetchall():
        derive(con)
        is_derived = True
    yield
    if is_derived:
        con.execute(_NOTE_DERIVED)


class Row(tuple[Any, ...]):
    """The cells of a row, by the name of their column too."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, cells: Sequence[Any], names: Sequence[str]) -> Row:
        """A row of these cells."""
        row = cls(cells)
        row.names = tuple(names)
        return row

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return super().__getitem__(self.names.index(key))
        value = super().__getitem__(key)
        return Row.of(value, self.names[key]) if isinstance(key, slice) else value


def answer(con: duckdb.DuckDBPyConnection, name: str, **params: Any) -> list[Row]:
    """Rows of a saved query that comes with bufdb.

    A row whose unknown_reason is NULL is given without that column, which is the last, and without
    an unknown_count of 0 before it. The platform is left out but where it counts: tests of few
    rows have one backend.
    """
    with derived(con):
        query = find(name)
        bound = execute.bind(query, {key: str(value) for key, value in params.items()})
        rows = execute.execute_query(con, query, bound).rows
    names = [column.name for column in query.columns]
    answer_rows = [Row.of(row, names) for row in rows]
    if "platform" in names and name not in _OF_PLATFORMS:
        place = names.index("platform")
        names.pop(place)
        answer_rows = [Row.of((*row[:place], *row[place + 1 :]), names) for row in answer_rows]
    if names[-1] != "unknown_reason":
        return answer_rows
    known = (0, None) if names[-2] == "unknown_count" else (None,)
    return [row[: -len(known)] if row[-len(known) :] == known else row for row in answer_rows]
