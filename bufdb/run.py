"""Runs SQL and gives back rows: a saved query with its parameters, or ad-hoc SQL that only reads.

Parameters become session variables on a cursor of their own (`SET VARIABLE`), so the text of the
file is the text that runs, and no value of one query is seen by the next. Rows come by `fetchall`:
nothing here imports NumPy or Arrow, which would cost more than most answers.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from bufdb.errors import BufdbError, UsageError, quote
from bufdb.saved_query import Parameter, SavedQuery, Value, parse_value, suggestion


@dataclass(frozen=True)
class Result:
    """An answer."""

    columns: list[tuple[str, str]]
    """(name, DuckDB type) of each column."""
    rows: list[tuple[Any, ...]]


def bind(query: SavedQuery, given: Mapping[str, str]) -> dict[str, Value]:
    """Typed values of the parameters that the user gave; the others keep the query's defaults.

    Raises:
        UsageError: an unknown parameter, or text that is no value of the parameter's type.
    """
    values = {}
    for name, text in given.items():
        param = query.param(name.replace("-", "_"))
        if param is None:
            known = [param.name for param in query.params]
            hint = suggestion(name, known) or f"; it has {', '.join(known) or 'none'}"
            raise UsageError(f"{query.name}: no parameter {quote(name)}{hint}")
        values[param.name] = _typed(query, param, text)
    return values


def run_query(
    con: duckdb.DuckDBPyConnection,
    query: SavedQuery,
    values: Mapping[str, Value],
    *,
    explain: bool = False,
) -> Result:
    """The answer of a saved query with `values` from `bind`; with `explain` DuckDB's plan of it.

    Raises:
        BufdbError: DuckDB refused the query or failed on the way.
    """
    return run_with(con, f"EXPLAIN {query.sql}" if explain else query.sql, values, query.name)


def run_with(
    con: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, Value], name: str
) -> Result:
    """The answer of SQL of bufdb's own that reads `values` with getvariable.

    Raises:
        BufdbError: DuckDB refused the query or failed on the way; the message begins with `name`.
    """
    cursor = con.cursor()
    for variable, value in values.items():
        cursor.execute(f'SET VARIABLE "{variable}" = ?', [value])
    return execute(cursor, sql, name)


def run_sql(con: duckdb.DuckDBPyConnection, sql: str, *, explain: bool = False) -> Result:
    """The answer of one SELECT (or DESCRIBE, SHOW, SUMMARIZE); with `explain` DuckDB's plan of it.

    A read-only database does not stop `COPY … TO` or `ATTACH`, so the kind of statement is looked
    at too.

    Raises:
        UsageError: not exactly one statement, or another kind of statement.
        BufdbError: DuckDB refused the statement or failed on the way.
    """
    try:
        statements = con.extract_statements(sql)
    except duckdb.Error as error:
        raise BufdbError(f"sql: {_reason(error)}") from error
    if len(statements) != 1:
        raise UsageError(f"sql: expected one statement, found {len(statements)}")
    kind = statements[0].type.name
    if kind != "SELECT":
        raise UsageError(f"sql: expected a SELECT, found {kind}; only reading is possible here")
    return execute(con.cursor(), f"EXPLAIN {sql}" if explain else sql, "sql")


def _typed(query: SavedQuery, param: Parameter, text: str) -> Value:
    try:
        value = parse_value(param.type, text)
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"{query.name}: parameter {param.name} wants {param.type}, got {quote(text)}"
        ) from error
    if param.choices and value not in param.choices:
        choices = ", ".join(repr(choice) for choice in param.choices)
        raise UsageError(
            f"{query.name}: parameter {param.name} is one of {choices}, got {quote(text)}"
        )
    return value


def execute(cursor: duckdb.DuckDBPyConnection, sql: str, name: str) -> Result:
    """Execute on a thread of its own while this one waits.

    DuckDB looks for Ctrl-C only between its tasks, which can take minutes; a thread that waits for
    another gets it at once. The query dies with the process.
    """
    outcome: list[Result | BaseException] = []

    def work() -> None:
        try:
            cursor.execute(sql)
            description = cursor.description or []
            columns = [(str(column[0]), str(column[1])) for column in description]
            outcome.append(Result(columns, cursor.fetchall()))
        except BaseException as error:  # handed to the waiting thread, which raises it
            outcome.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join()
    result = outcome[0]
    if isinstance(result, Result):
        return result
    if isinstance(result, duckdb.Error):
        raise BufdbError(f"{name}: {_reason(result)}") from result
    raise result


def _reason(error: duckdb.Error) -> str:
    """DuckDB's message on one line, without the excerpt of the SQL that it appends."""
    lines = [line.strip() for line in str(error).splitlines()]
    kept = []
    for line in lines:
        if line.startswith("LINE "):
            break
        if line:
            kept.append(line)
    return " ".join(kept)
