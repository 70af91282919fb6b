"""Single corruptions of a database, chosen by seed over all tables and columns; which are found.

A case drops or doubles one row of any table, or alters one field of any column; tables, columns and
kinds are drawn with equal chances, and so are the rows of a table. What has no second source in a
database (`STATED_ONCE`) is not drawn. Every case changes what is
stored (a NULL does not become a NULL, and no column is left out) and is undone before the next.

    python tests/support/corrupt.py DATABASE... [--cases 200] [--seed 0]
"""

from __future__ import annotations

import argparse
import contextlib
import random
import re
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from bufdb.query import check
from bufdb.query.header import SavedQuery

GENERATIONS = ("tf-1.15", "tf-2.4", "cpu-0.4.13", "cpu-0.4.30", "cpu-0.7.2",
               "cpu-0.10.2/while_newton", "cpu-0.12.0/while_newton",
               "gpu-0.10.2/fsdp", "tpu-0.10.2/offload")  # fmt: skip
"""Sample dumps of every form that XLA's text has had, and of every backend."""
KINDS = ("drop", "double", "alter")
STATED_ONCE = ("run_labels", "runs.ingested_at")
"""What a user states of a run, and the clock: nothing else that is stored depends on it."""


@dataclass(frozen=True)
class Corruption:
    """One change to one row."""

    kind: str
    table: str
    column: str | None
    """The column that is altered; None for the other kinds."""
    rowid: int
    value: Any
    """New value of the field."""
    was: Any

    def __str__(self) -> str:
        if self.kind != "alter":
            return f"{self.kind} a row of {self.table}"
        return f"{self.table}.{self.column}: {str(self.was)[:60]!r} -> {str(self.value)[:60]!r}"

    @contextlib.contextmanager
    def applied(self, con: duckdb.DuckDBPyConnection) -> Iterator[bool]:
        """Make the change and undo it; False where the table's own constraints refuse it."""
        table = f'"{self.table}"'
        con.execute(f"CREATE OR REPLACE TEMP TABLE kept AS SELECT * FROM {table} {self._where}")
        try:
            if self.kind == "drop":
                con.execute(f"DELETE FROM {table} {self._where}")
            elif self.kind == "double":
                con.execute(f"INSERT INTO {table} FROM kept")
            else:
                change = f'UPDATE {table} SET "{self.column}" = ? {self._where}'
                con.execute(change, [self.value])
        except duckdb.ConstraintException:
            yield False
            return
        try:
            yield True
        finally:
            if self.kind == "drop":
                con.execute(f"INSERT INTO {table} FROM kept")
            elif self.kind == "double":
                last = f"(SELECT max(rowid) FROM {table})"
                con.execute(f"DELETE FROM {table} WHERE rowid = {last}")
            else:
                con.execute(f'UPDATE {table} SET "{self.column}" = ? {self._where}', [self.was])

    @property
    def _where(self) -> str:
        return f"WHERE rowid = {self.rowid}"


class Database:
    """The tables of a database, from which corruptions are drawn."""

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        self.con = con
        self.counts: dict[str, int] = {}
        self.columns: dict[str, list[tuple[str, str, bool]]] = {}
        rows = con.execute(
            "SELECT table_name, column_name, data_type, is_nullable FROM duckdb_columns() "
            "SEMI JOIN duckdb_tables() USING (database_name, schema_name, table_name) "
            "WHERE NOT internal AND database_name = current_database() ORDER BY ALL"
        ).fetchall()
        for table, column, data_type, nullable in rows:
            if table in STATED_ONCE or f"{table}.{column}" in STATED_ONCE:
                continue
            if table not in self.counts:
                (count,) = con.execute(f'SELECT count(*) FROM "{table}"').fetchall()[0]
                self.counts[table] = count
            if self.counts[table]:
                self.columns.setdefault(table, []).append((column, data_type, nullable))

    def draw(self, chance: random.Random) -> Corruption:
        """One corruption: a kind, then a table or a column, then a row, all with equal chances."""
        kind = chance.choice(KINDS)
        if kind != "alter":
            table = chance.choice(sorted(self.columns))
            return Corruption(kind, table, None, self._rowid(table, chance), None, None)
        fields = [
            (table, *column) for table in sorted(self.columns) for column in self.columns[table]
        ]
        while True:
            table, column, data_type, nullable = chance.choice(fields)
            rowid = self._rowid(table, chance)
            ((was,),) = self.con.execute(
                f'SELECT "{column}" FROM "{table}" WHERE rowid = ?', [rowid]
            ).fetchall()
            value = self._other(chance, table, column, data_type, nullable, was)
            if value != was or (value is None) != (was is None):
                return Corruption(kind, table, column, rowid, value, was)

    def _rowid(self, table: str, chance: random.Random) -> int:
        place = chance.randrange(self.counts[table])
        row = self.con.execute(f'SELECT rowid FROM "{table}" LIMIT 1 OFFSET {place}').fetchall()
        return int(row[0][0])

    def _other(
        self,
        chance: random.Random,
        table: str,
        column: str,
        data_type: str,
        nullable: bool,
        was: Any,
    ) -> Any:
        """Return another value for a field: NULL, a neighbor's, or its own slightly changed."""
        ways = ["neighbour", "change", *(["null"] if nullable else [])]
        way = chance.choice(ways)
        if way == "null":
            return None
        if way == "neighbour" or was is None:
            rowid = self._rowid(table, chance)
            query = f'SELECT "{column}" FROM "{table}" WHERE rowid = ?'
            return self.con.execute(query, [rowid]).fetchall()[0][0]
        if data_type == "BOOLEAN":
            return not was
        if data_type.endswith("[]"):
            return [*was, 1]
        if data_type == "TIMESTAMP":
            return was.replace(year=was.year - 1)
        if data_type == "VARCHAR":
            return was[:-1] if was and chance.random() < 0.5 else was + "x"
        return max(0, was + chance.choice([-1, 1, 8, 1 << 20]))


@dataclass
class Outcome:
    """Results of the cases."""

    tried: int = 0
    refused: int = 0
    """Cases that a constraint of the table did not let happen; not counted as tried."""
    missed: list[Corruption] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [
            f"found {self.tried - len(self.missed)} of {self.tried}",
            *(f"  missed: {corruption}" for corruption in self.missed),
        ]
        return "\n".join(lines)


def try_cases(con: duckdb.DuckDBPyConnection, seed: int, count: int) -> Outcome:
    """Make a number of corruptions, one at a time, and look for each.

    Args:
        con: the database; it is as before in the end.
        seed: of the corruptions.
        count: how many.
    """
    outcome, database, checks = Outcome(), Database(con), check.checks()
    chance = random.Random(seed)
    while outcome.tried < count:
        corruption = database.draw(chance)
        with corruption.applied(con) as happened:
            if not happened:
                outcome.refused += 1
                continue
            outcome.tried += 1
            if not _is_noticed(con, corruption, checks):
                outcome.missed.append(corruption)
    return outcome


def _is_noticed(
    con: duckdb.DuckDBPyConnection, corruption: Corruption, checks: list[SavedQuery]
) -> bool:
    """Return whether an invariant fails: those that name the table first, mostly enough."""
    names_it = re.compile(rf"\b{corruption.table}\b")
    first = [query for query in checks if names_it.search(query.sql)]
    others = [query for query in checks if query not in first]
    return any(
        not violation.is_explained
        for queries in (first, others)
        for violation in check.violations(con, queries)
    )


def main() -> None:
    """Try cases on a copy of a database and print which are not found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("db", type=Path, nargs="+", help="databases; they are copied")
    parser.add_argument("--cases", type=int, default=200, help="corruptions of each")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for path in options.db:
        with tempfile.TemporaryDirectory() as folder:
            copy = shutil.copy(path, folder)
            with duckdb.connect(str(copy)) as con:
                print(f"{path}: {try_cases(con, options.seed, options.cases)}", flush=True)


if __name__ == "__main__":
    main()
