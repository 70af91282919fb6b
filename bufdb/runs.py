"""Runs in the database: list them, change their labels, remove them.

Invariant: what is removed leaves no row behind in any table. The tables are found in the catalog
by their columns, so that a table added to the schema is not forgotten here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import duckdb

from bufdb import checksums
from bufdb.errors import UsageError, quote
from bufdb.run import Result, run_sql
from bufdb.saved_query import suggestion

DELETE_UNUSED_SHAPES = 'DELETE FROM shapes WHERE shape NOT IN (SELECT "values".shape FROM "values")'
"""What modules leave behind that were removed or replaced."""

_LIST = """
WITH labels AS (
  SELECT run_name, string_agg(label || '=' || label_value, ' ' ORDER BY label) AS labels
  FROM run_labels
  GROUP BY run_name
),
facts AS (
  SELECT
    run_name,
    count(*) AS module_count,
    string_agg(DISTINCT platform, ' ' ORDER BY platform) AS platforms,
    string_agg(DISTINCT format_era, ' ' ORDER BY format_era) AS format_eras,
    max(partition_count) AS max_partition_count
  FROM modules
  GROUP BY run_name
),
option_counts AS (
  SELECT
    modules.run_name,
    compiler_options.option_name || '=' || compiler_options.option_value AS option_text,
    count(DISTINCT modules.module_id) AS option_modules,
    max(with_options.option_modules) AS all_modules
  FROM compiler_options
  JOIN modules ON modules.module_id = compiler_options.module_id
  JOIN (
    SELECT modules.run_name, count(DISTINCT modules.module_id) AS option_modules
    FROM compiler_options
    JOIN modules ON modules.module_id = compiler_options.module_id
    GROUP BY modules.run_name
  ) AS with_options ON with_options.run_name = modules.run_name
  -- How the dump was made says nothing about the program.
  WHERE compiler_options.option_name NOT GLOB 'xla_dump_*'
  GROUP BY modules.run_name, option_text
),
options AS (
  SELECT
    run_name,
    -- TPU compilers print dozens; the table compiler_options has them all.
    CASE
      WHEN sum(length(option_text) + 1) <= 160
      THEN string_agg(option_text, ' ' ORDER BY option_text)
      ELSE count(*) || ' options'
    END AS compiler_options
  FROM option_counts
  WHERE option_modules = all_modules
  GROUP BY run_name
),
problems AS (
  SELECT run_name, count(*) AS problem_count
  FROM diagnostics
  WHERE severity IN ('data_loss', 'error')
  GROUP BY run_name
)
SELECT
  runs.run_name,
  labels.labels,
  coalesce(facts.module_count, 0) AS module_count,
  facts.platforms,
  facts.format_eras,
  facts.max_partition_count,
  options.compiler_options,
  coalesce(problems.problem_count, 0) AS problem_count,
  runs.dumped_at,
  runs.source_path
FROM runs
LEFT JOIN labels ON labels.run_name = runs.run_name
LEFT JOIN facts ON facts.run_name = runs.run_name
LEFT JOIN options ON options.run_name = runs.run_name
LEFT JOIN problems ON problems.run_name = runs.run_name
ORDER BY runs.dumped_at, runs.run_name
"""


@dataclass(frozen=True)
class Removal:
    """What was removed."""

    module_count: int
    row_count: int
    """Rows of all tables, shapes that nothing uses any more included."""


def list_runs(con: duckdb.DuckDBPyConnection) -> Result:
    """One row per run, in order of the time of its dumps.

    `compiler_options` are the flags that all modules of the run share, without those that only say
    how the dump was made; their number if they are too many to show.
    """
    return run_sql(con, _LIST)


def names(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Names of all runs, sorted."""
    rows = con.execute("SELECT run_name FROM runs ORDER BY run_name").fetchall()
    return [name for (name,) in rows]


def require(con: duckdb.DuckDBPyConnection, wanted: Iterable[str]) -> None:
    """Nothing if there are runs of all these names.

    Raises:
        UsageError: a name is no run's.
    """
    known = names(con)
    for name in wanted:
        if name not in known:
            hint = suggestion(name, known) or ";"
            raise UsageError(f"no run {quote(name)}{hint} 'bufdb runs' lists them")


def set_labels(con: duckdb.DuckDBPyConnection, run: str, labels: Mapping[str, str]) -> None:
    """Give a run these labels; its others stay.

    Raises:
        UsageError: there is no such run.
    """
    require(con, [run])
    con.execute("BEGIN")
    try:
        _delete_labels(con, run, labels)
        for label, value in labels.items():
            con.execute("INSERT INTO run_labels VALUES (?, ?, ?)", [run, label, value])
        checksums.store_run(con, run)
    except BaseException:
        con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")


def remove_labels(con: duckdb.DuckDBPyConnection, run: str, labels: Iterable[str]) -> None:
    """Take these labels from a run.

    Raises:
        UsageError: there is no such run, or it lacks one of the labels; nothing is changed then.
    """
    require(con, [run])
    labels = list(labels)
    rows = con.execute("SELECT label FROM run_labels WHERE run_name = ?", [run]).fetchall()
    known = sorted(label for (label,) in rows)
    for label in labels:
        if label not in known:
            hint = suggestion(label, known) or f"; it has {', '.join(known) or 'none'}"
            raise UsageError(f"run {run} has no label {quote(label)}{hint}")
    con.execute("BEGIN")
    try:
        _delete_labels(con, run, labels)
        checksums.store_run(con, run)
    except BaseException:
        con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")


def remove_runs(con: duckdb.DuckDBPyConnection, runs: Iterable[str]) -> dict[str, Removal]:
    """Remove runs with all that belongs to them, in one transaction; what was removed, by run.

    Raises:
        UsageError: a name is no run's; nothing is removed then.
    """
    wanted = list(dict.fromkeys(runs))
    require(con, wanted)
    con.execute("BEGIN")
    try:
        removed = {run: delete(con, run) for run in wanted}
    except BaseException:
        con.execute("ROLLBACK")
        raise
    con.execute("COMMIT")
    # Gives the space back to the file now, and not when somebody writes the next time.
    con.execute("CHECKPOINT")
    return removed


def delete(con: duckdb.DuckDBPyConnection, run: str) -> Removal:
    """Delete all rows of a run, if there is one, in the transaction that is open."""
    by_module, by_run = _tables_with(con, "module_id"), _tables_with(con, "run_name")
    modules = "(SELECT module_id FROM modules WHERE run_name = ?)"
    (module_count,) = con.execute(
        "SELECT count(*) FROM modules WHERE run_name = ?", [run]
    ).fetchall()[0]
    rows = 0
    # `modules` goes with the tables of runs: until then it tells whose the modules are.
    for table in by_module:
        if table not in by_run:
            rows += _delete(con, f'"{table}" WHERE module_id IN {modules}', [run])
    for table in by_run:
        rows += _delete(con, f'"{table}" WHERE run_name = ?', [run])
    return Removal(module_count, rows + delete_unused_shapes(con))


def delete_unused_shapes(con: duckdb.DuckDBPyConnection) -> int:
    """Delete the shapes that removed or replaced modules left behind; their number."""
    return _delete(con, 'shapes WHERE shape NOT IN (SELECT "values".shape FROM "values")', [])


def _tables_with(con: duckdb.DuckDBPyConnection, column: str) -> list[str]:
    rows = con.execute(
        "SELECT duckdb_columns.table_name FROM duckdb_columns() "
        "JOIN duckdb_tables() ON duckdb_tables.table_oid = duckdb_columns.table_oid "
        "WHERE duckdb_columns.column_name = ? AND NOT duckdb_columns.internal "
        "ORDER BY duckdb_columns.table_name",
        [column],
    ).fetchall()
    return [name for (name,) in rows]


def _delete(con: duckdb.DuckDBPyConnection, where: str, values: list[str]) -> int:
    count: int = con.execute(f"DELETE FROM {where}", values).fetchall()[0][0]
    return count


def _delete_labels(con: duckdb.DuckDBPyConnection, run: str, labels: Iterable[str]) -> None:
    for label in labels:
        con.execute("DELETE FROM run_labels WHERE run_name = ? AND label = ?", [run, label])
