"""Make a database of very many modules out of one of few: its runs again and again, by SQL.

Ingest takes as long for the last module as for the first; what 100,000 of them cost a question is
seen from their rows alone. Each copy of a run has a name, a label `copy` with its number, and
module_ids as ingest would have written them: `bufdb check` holds of it.

    python many_runs.py FEW.duckdb MANY.duckdb --modules 100000
"""

import argparse
import itertools
import time
from pathlib import Path

import duckdb

from bufdb.database import store
from bufdb.ingest.plan import module_id_of

Tables = dict[str, dict[str, str]]
"""Types of the columns of the tables that hold rows of runs or modules, by table and column."""


def tables_of_runs(con: duckdb.DuckDBPyConnection) -> Tables:
    rows = con.execute(
        "SELECT table_name, column_name, data_type FROM duckdb_columns() "
        "SEMI JOIN duckdb_tables() USING (table_oid) "
        "WHERE database_name = 'few' ORDER BY table_name, column_index"
    ).fetchall()
    found: Tables = {}
    for table, column, data_type in rows:
        found.setdefault(table, {})[column] = data_type
    return {
        table: columns
        for table, columns in found.items()
        if {"module_id", "run_name"} & columns.keys()
    }


def copy_run(con: duckdb.DuckDBPyConnection, tables: Tables, run: str, number: int) -> int:
    """Store the rows of a run of `few` under another name; the number of its modules."""
    name = f"{run}_{number:04d}"
    con.execute("BEGIN")
    modules = con.execute(
        "SELECT module_id, module_key FROM few.modules WHERE run_name = ?", [run]
    ).fetchall()
    con.execute("CREATE OR REPLACE TEMP TABLE renamed (old_id BIGINT, new_id BIGINT)")
    con.execute(
        "INSERT INTO renamed SELECT unnest(?::BIGINT[]), unnest(?::BIGINT[])",
        [[old for old, _ in modules], [module_id_of(name, key) for _, key in modules]],
    )
    for table, types in tables.items():
        cells = {column: f'stored."{column}"' for column in types}
        source = f'few."{table}" AS stored'
        if "module_id" in types:
            cells["module_id"] = "renamed.new_id"
            source += " LEFT JOIN renamed ON renamed.old_id = stored.module_id"
        if "run_name" in types:
            cells["run_name"] = "$name"
            source += " WHERE stored.run_name = $run"
        else:
            source += " WHERE renamed.new_id IS NOT NULL"
        listed = ", ".join(f'{cell} AS "{column}"' for column, cell in cells.items())
        values = {"name": name, "run": run} if "run_name" in types else {}
        con.execute(f"CREATE OR REPLACE TEMP TABLE copied AS SELECT {listed} FROM {source}", values)
        con.execute(f'INSERT INTO "{table}" FROM copied')
    con.execute("INSERT INTO run_labels VALUES (?, 'copy', ?, FALSE)", [name, str(number)])
    con.execute("COMMIT")
    return len(modules)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("few", type=Path, help="database that bufdb ingest has made")
    parser.add_argument("many", type=Path, help="new database")
    parser.add_argument("--modules", type=int, default=100_000)
    args = parser.parse_args()
    if args.many.exists():
        parser.error(f"{args.many} is there already")
    began, done = time.monotonic(), 0
    con = store.open_writable(str(args.many), {"threads": "1", "memory_limit": "1GB"})
    con.execute(f"ATTACH '{args.few}' AS few (READ_ONLY)")
    tables = tables_of_runs(con)
    con.execute("INSERT INTO shapes FROM few.shapes")
    runs = [run for (run,) in con.execute("SELECT run_name FROM few.runs ORDER BY ALL").fetchall()]
    for count, run in enumerate(itertools.cycle(runs)):
        if done >= args.modules:
            break
        done += copy_run(con, tables, run, count)
    con.close()
    size = args.many.stat().st_size / 1e6
    print(f"{done} modules in {count} runs, {size:.0f} MB, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
