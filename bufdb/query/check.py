"""Invariants of a database: properties of every dump, and of what bufdb derives from it.

Each is a query in the folder of checks that returns the violating rows, as module_id and a text;
its header gives the source of the rule. They run on copies of a limited number of rows, so that
memory does not grow with the number of modules: whole modules at a time, in an in-memory database
with bufdb's own views. Rows of no module (runs, shapes) are a separate part.

If ingest reported lost or contradictory data for a module, the module may break invariants because
its dump does. Such findings are kept apart from unexplained ones.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from bufdb import resources
from bufdb.database import definitions
from bufdb.database.engine import duckdb
from bufdb.errors import BufdbError, UsageError, did_you_mean, quote
from bufdb.query import catalogue, execute, header, result
from bufdb.query.header import SavedQuery

PART_ROWS = 500_000
"""Rows that are checked together; a module with more of them is checked alone."""
NEVER_EXPLAINED = ("file-lines", "row-counts")
"""The invariants that hold for every module, however damaged its dump was."""
_COPY = "bufdb_check"
_PLAN_DATABASE = "bufdb_check_plan"
_PLAN = f"{_PLAN_DATABASE}.modules"


@dataclass
class Violation:
    """An invariant that does not hold."""

    check: SavedQuery
    finding_count: int = 0
    module_ids: set[int] = field(default_factory=set)
    explained_count: int = 0
    """Findings in modules for which ingest reported data_loss or an error."""
    examples: list[tuple[int | None, str]] = field(default_factory=list)
    """(module_id, text) of the first findings, unexplained ones before the others."""

    @property
    def is_explained(self) -> bool:
        """Whether every finding is in a module for which ingest reported a problem."""
        return self.explained_count == self.finding_count


def checks() -> list[SavedQuery]:
    """Return all invariants, by name."""
    paths = sorted(resources.check_folder().glob("*.sql"))
    return [catalogue.load(path) for path in paths]


def chosen(skipped: Collection[str] = ()) -> list[SavedQuery]:
    """Return all invariants except those in `skipped`.

    Raises:
        UsageError: a name is not an invariant.
    """
    queries = checks()
    known = [query.name for query in queries]
    for name in skipped:
        if header.query_name(name) not in known:
            hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
            raise UsageError(f"no invariant {quote(name)}{hint}")
    left_out = {header.query_name(name) for name in skipped}
    return [query for query in queries if query.name not in left_out]


def violations(
    con: duckdb.DuckDBPyConnection,
    queries: Sequence[SavedQuery] | None = None,
    examples: int = 3,
    part_rows: int = PART_ROWS,
    progress: Callable[[int, int], None] | None = None,
) -> list[Violation]:
    """Return the invariants that do not hold, by name.

    Args:
        con: the database, which is not changed.
        queries: the invariants to check; all if not given.
        examples: findings to keep per invariant.
        part_rows: rows to check together; does not change the result.
        progress: receives the number of modules checked, and their total; within a part, modules
            count in proportion to the invariants checked.

    Raises:
        BufdbError: DuckDB failed.
    """
    by_name: dict[str, Violation] = {}
    queries = checks() if queries is None else queries
    sql = "\n".join(query.sql for query in queries)
    done, total = 0, _module_count(con)
    for part in _parts(con, part_rows, sql):
        for number, query in enumerate(queries):
            if progress is not None:
                progress(done + part.module_count * number // len(queries), total)
            if not _is_about(query, part):
                continue
            found_rows = execute.execute(part.con, query.sql, query.name).rows
            rows = [(row[0], row[1]) for row in found_rows if (row[0] is None) == part.is_rest]
            if not rows:
                continue
            violation = by_name.setdefault(query.name, Violation(query))
            reported = set() if query.name in NEVER_EXPLAINED else part.reported
            _add(violation, rows, reported, examples)
        done += part.module_count
    if progress is not None:
        progress(total, total)
    return [by_name[query.name] for query in queries if query.name in by_name]


def summary(con: duckdb.DuckDBPyConnection, broken: Sequence[Violation]) -> result.Result:
    """Return a row per violated invariant, with the number of findings and the first ones."""
    columns = [
        ("invariant", "VARCHAR"),
        ("title", "VARCHAR"),
        ("finding_count", "BIGINT"),
        ("module_count", "BIGINT"),
        ("explained_count", "BIGINT"),
        ("examples", "VARCHAR"),
    ]
    ids = {module_id for violation in broken for module_id, _ in violation.examples}
    named = con.execute(
        "SELECT module_id, run_name || '/' || module_key FROM modules "
        "WHERE module_id IN (SELECT unnest(?::BIGINT[]))",
        [[module_id for module_id in ids if module_id is not None]],
    ).fetchall()
    names: dict[int | None, str] = {module_id: f"{name}: " for module_id, name in named}
    names[None] = ""
    rows = [
        (
            violation.check.name,
            violation.check.title,
            violation.finding_count,
            len(violation.module_ids),
            violation.explained_count,
            "; ".join(
                f"{names.get(module_id, f'module {module_id}: ')}{text}"
                for module_id, text in violation.examples
            ),
        )
        for violation in broken
    ]
    return result.Result(columns, rows)


def _module_count(con: duckdb.DuckDBPyConnection) -> int:
    row = con.execute("SELECT count(*) FROM modules").fetchone()
    return int(row[0]) if row else 0


def _add(
    violation: Violation, rows: list[tuple[int | None, str]], reported: set[int], examples: int
) -> None:
    """Count the findings of one part and keep the first of them."""
    explained = [row for row in rows if row[0] in reported]
    others = [row for row in rows if row[0] not in reported]
    if others and violation.is_explained:
        violation.examples = []
    if others or violation.is_explained:
        kept = others or explained
        violation.examples += kept[: examples - len(violation.examples)]
    violation.finding_count += len(rows)
    violation.explained_count += len(explained)
    violation.module_ids.update(module_id for module_id, _ in rows if module_id is not None)


@dataclass(frozen=True)
class _Part:
    """A part of the database, copied."""

    con: duckdb.DuckDBPyConnection
    """On it, unqualified names mean the copy and bufdb's own views of it."""
    is_rest: bool
    """Whether it has the rows of no module; else it has those of some modules."""
    module_count: int
    reported: set[int]
    """The modules for which ingest reported data_loss or an error."""


def _is_about(query: SavedQuery, part: _Part) -> bool:
    """Return whether an invariant applies to modules, or to the rest, by its column module_id."""
    text = next(column.text for column in query.columns if column.name == "module_id")
    return "NULL" in text if part.is_rest else not text.startswith("NULL")


def _parts(con: duckdb.DuckDBPyConnection, part_rows: int, sql: str) -> Iterator[_Part]:
    """Yield copies of the rows of some modules at a time, and of the rows of no module.

    Each copy has those of bufdb's views that `sql` names.
    """
    cursor = con.cursor()
    row = cursor.execute(
        "SELECT min(database_name) FROM duckdb_columns() "
        "WHERE table_name = 'modules' AND schema_name = 'main'"
    ).fetchone()
    assert row is not None
    tables = _Tables(cursor, str(row[0]), sql)
    try:
        tables.plan(part_rows)
        numbers = cursor.execute(f"SELECT DISTINCT part FROM {_PLAN} ORDER BY part").fetchall()
        for (number,) in [*numbers, (None,)]:
            tables.copy(number)
            reported = cursor.execute(
                "SELECT DISTINCT module_id FROM diagnostics "
                "WHERE severity IN ('data_loss', 'error') AND module_id IS NOT NULL"
            ).fetchall()
            count = 0 if number is None else _module_count(cursor)
            yield _Part(cursor, number is None, count, {module_id for (module_id,) in reported})
    except duckdb.Error as error:
        raise BufdbError(f"check: {' '.join(str(error).split())}") from error
    finally:
        tables.forget()
        cursor.close()


class _Tables:
    """The tables of a database, and a copy of a part of them."""

    def __init__(self, cursor: duckdb.DuckDBPyConnection, database: str, sql: str) -> None:
        self.cursor, self.database, self.sql = cursor, database, sql
        self.has_views = False
        rows = cursor.execute(
            "SELECT table_name, list(column_name) FROM duckdb_columns() "
            "WHERE database_name = ? AND schema_name = 'main' AND list_contains(?, table_name) "
            "GROUP BY table_name ORDER BY table_name",
            [database, [*definitions.tables()]],
        ).fetchall()
        self.names: list[str] = [name for name, _ in rows]
        # The larger tables of a dataset are views over its files, whose rows have no rowid.
        ((self.has_places,),) = cursor.execute(
            "SELECT count(*) > 0 FROM duckdb_tables() "
            "WHERE database_name = ? AND schema_name = 'main' AND table_name = 'modules'",
            [database],
        ).fetchall()
        self.of_modules: set[str] = {name for name, columns in rows if "module_id" in columns}

    def plan(self, part_rows: int) -> None:
        """Assign every module to a part of about `part_rows` rows, in storage order."""
        self.cursor.execute(f"ATTACH ':memory:' AS {_PLAN_DATABASE} (READ_WRITE)")
        counts = " UNION ALL ".join(
            f"SELECT module_id, count(*) AS row_count, "
            f"{'min(rowid)' if table == 'modules' and self.has_places else 'NULL'} AS place "
            f"FROM {self._of(table)} WHERE module_id IS NOT NULL GROUP BY module_id"
            for table in sorted(self.of_modules)
        )
        self.cursor.execute(
            f"CREATE TABLE {_PLAN} AS WITH sizes AS ("
            "SELECT module_id, sum(row_count) AS row_count, min(place) AS place "
            f"FROM ({counts}) GROUP BY module_id) "
            "SELECT module_id, ((sum(row_count) OVER (ORDER BY place, module_id) - row_count) "
            f"// {part_rows})::BIGINT AS part FROM sizes"
        )

        self.cursor.execute(f"ATTACH ':memory:' AS {_COPY} (READ_WRITE)")

    def copy(self, part: int | None) -> None:
        """Copy the modules of a part, or the rows of no module, replacing the last part.

        Afterwards unqualified names mean the copy, and those of bufdb's own views of it that
        `sql` names. Creating all views, with comments, took longer than most checks.
        """
        execute = self.cursor.execute
        execute(f"USE {_COPY}")
        for table in self.names:
            if table in self.of_modules:
                self._copy(table, "module_id IS NULL" if part is None else _of_part(part))
        used = 'SELECT shape FROM "values" UNION SELECT shape FROM instructions'
        self._copy("shapes", "TRUE" if part is None else f"shape IN ({used})")
        if self.has_views:
            return
        self.has_views = True
        for table in self.names:
            if table not in self.of_modules and table != "shapes":
                execute(f'CREATE VIEW "{table}" AS SELECT * FROM {self._of(table)}')
        for sql in definitions.views(self.sql, comments=False).values():
            execute(sql)

    def _copy(self, table: str, condition: str) -> None:
        self.cursor.execute(
            f'CREATE OR REPLACE TABLE "{table}" AS SELECT * FROM {self._of(table)} '
            f"WHERE {condition}"
        )

    def forget(self) -> None:
        """Detach the copy."""
        self.cursor.execute(f'USE "{self.database}"')
        for database in (_COPY, _PLAN_DATABASE):
            self.cursor.execute(f"DETACH DATABASE IF EXISTS {database}")

    def _of(self, table: str) -> str:
        return f'"{self.database}".main."{table}"'


def _of_part(part: int) -> str:
    return f"module_id IN (SELECT module_id FROM {_PLAN} WHERE part = {part})"
