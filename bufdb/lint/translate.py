"""A saved query in another dialect of SQL, over bufdb's tables alone."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from bufdb.database import definitions, store
from bufdb.errors import BufdbError, UsageError
from bufdb.lint import spark
from bufdb.lint.lint import catalog_schema
from bufdb.lint.parts import parted
from bufdb.lint.regex import Unportable
from bufdb.lint.whole import Whole
from bufdb.query.header import SavedQuery


def transpile(query: SavedQuery, dialect: str) -> str:
    """The query's text for another engine, its parameters as that engine's placeholders.

    Views and macros are part of it. The header goes along as it is; a first line says so if the
    query does not claim the engine.

    Raises:
        UsageError: sqlglot does not know the engine.
        BufdbError: the query cannot be translated.
    """
    lines = list(_header_lines(query.sql))
    if dialect not in query.engines:
        lines.insert(0, f"-- unverified: the query claims {', '.join(query.engines)} only")
    return "\n".join([*lines, body(query, dialect)]) + "\n"


def body(query: SavedQuery, dialect: str) -> str:
    """The same without the header.

    Raises:
        UsageError: sqlglot does not know the engine.
        BufdbError: the query cannot be translated.
    """
    return _written(query, dialect, lambda tree: [("", tree)])[0][1]


def parts(query: SavedQuery, dialect: str) -> list[tuple[str, str]]:
    """The same in parts of a size that engines plan (`bufdb.lint.parts`), each with its name.

    Raises:
        UsageError: sqlglot does not know the engine.
        BufdbError: the query cannot be translated.
    """
    return _written(query, dialect, parted)


def _written(
    query: SavedQuery, dialect: str, divided: Callable[[exp.Query], list[tuple[str, exp.Query]]]
) -> list[tuple[str, str]]:
    """The text of each part that a statement is divided into."""
    name = "spark" if dialect == "sail" else dialect
    if Dialect.get(name) is None:
        raise UsageError(f"no SQL dialect {dialect!r}; tried are spark and sail")
    try:
        tree = spark.rewritten(Whole(query.sql).statement(query.sql), _table_columns())
        return [(part, spark.text(made, name)) for part, made in divided(tree)]
    except (SqlglotError, Unportable) as error:
        raise BufdbError(f"{query.name}: cannot be written for {dialect}: {error}") from error


@functools.cache
def _table_columns() -> dict[str, object]:
    """Columns and their types of bufdb's tables."""
    with store.open_empty() as con:
        columns = catalog_schema(con)
    return {table: columns[table] for table in definitions.tables()}


def _header_lines(sql: str) -> Iterator[str]:
    for line in sql.splitlines():
        if not line.startswith("--"):
            return
        yield line
