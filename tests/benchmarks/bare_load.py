"""The floor: the rows of a finished database, loaded from Parquet into a fresh database file.

`export` writes every table of a database to Parquet; `load` is what is timed: it applies the
schema to a new file, inserts the rows in their order and closes it, which checkpoints.
"""

import argparse
from pathlib import Path

import duckdb

from bufdb.database import definitions


def export(database: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    con = duckdb.connect(str(database), read_only=True)
    names = con.execute("SELECT table_name FROM duckdb_tables() ORDER BY 1").fetchall()
    for (name,) in names:
        wide = con.execute(
            "SELECT column_name FROM duckdb_columns() "
            "WHERE table_name = ? AND data_type IN ('HUGEINT', 'UHUGEINT')",
            [name],
        ).fetchall()
        exact = ", ".join(f'"{c}"::DECIMAL(38, 0) AS "{c}"' for (c,) in wide)
        columns = f"* REPLACE ({exact})" if exact else "*"
        con.execute(
            f"COPY (SELECT {columns} FROM \"{name}\") TO '{folder / name}.parquet' "
            "(FORMAT parquet, COMPRESSION zstd)"
        )
    con.close()


def load(folder: Path, database: Path, threads: int) -> None:
    con = duckdb.connect(str(database), config={"threads": threads})
    con.execute("BEGIN")
    for sql in [*definitions.tables().values(), *definitions.views().values()]:
        con.execute(sql)
    for file in sorted(folder.glob("*.parquet")):
        con.execute(f'DELETE FROM "{file.stem}"')
        con.execute(f"INSERT INTO \"{file.stem}\" BY NAME SELECT * FROM read_parquet('{file}')")
    con.execute("COMMIT")
    con.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    exporting = commands.add_parser("export", help="database to Parquet")
    exporting.add_argument("database", type=Path)
    exporting.add_argument("folder", type=Path, help="new directory")
    loading = commands.add_parser("load", help="Parquet to a new database")
    loading.add_argument("folder", type=Path)
    loading.add_argument("database", type=Path, help="file to make")
    loading.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    if args.command == "export":
        export(args.database, args.folder)
    elif args.database.exists():
        parser.error(f"{args.database} exists")
    else:
        load(args.folder, args.database, args.threads)


if __name__ == "__main__":
    main()
