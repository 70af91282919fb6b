"""Run SQL and return rows: a saved query with its parameters, or ad-hoc SQL that only reads.

Parameters become session variables (`SET VARIABLE`), reset after the query, so the text of the file
is the text that runs, and no value of one query is visible to the next. Rows come from `fetchall`:
nothing here imports NumPy or Arrow, which would cost more than most answers.

Invariant: a value is DuckDB's, or DuckDB's own text of it, never a lossy conversion by Python.
"""

import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import date, datetime
from typing import Any, TypeVar

from bufdb.database import definitions, narrowing
from bufdb.database.engine import duckdb
from bufdb.database.faults import is_interrupt
from bufdb.database.memory import SMALL
from bufdb.database.quoting import sql_name
from bufdb.errors import BufdbError, DatabaseError, UsageError, did_you_mean, quote
from bufdb.query import pairs, parameters
from bufdb.query.computed_views import (
    LIBRARY_FILES,
    MOST_FILES,
    NO_PATHS,
    OF_LIBRARY_FILES,
    OF_LINES,
    OF_MODULES,
    OTHER_INSTANT,
    UNREAD,
)
from bufdb.query.header import SavedQuery, Value
from bufdb.query.result import Result

_WRITING = r"(?i)\b(copy|insert|update|delete|merge)\b"
_WRITING_CTE = r"(?i)WITH clause containing an? (data-modifying statement|[A-Z]+)\b"
_EXACT = frozenset(
    ["null", "boolean", "varchar", "enum", "uuid", "bit", "bignum", "decimal", "float", "double"]
    + [f"{sign}{size}" for sign in ("", "u") for size in ("tinyint", "smallint", "integer")]
    + [f"{sign}{size}" for sign in ("", "u") for size in ("bigint", "hugeint")]
)
"""DuckDB's types, by its client's names, whose values Python represents exactly."""

ANSWER = "bufdb_answer"
"""Temporary table of `query_as_table`."""
_Done = TypeVar("_Done")
_TIMES = ("date", "timestamp")
_INFINITE = (date.min, date.max, datetime.min, datetime.max)


def bind(query: SavedQuery, texts: Mapping[str, str]) -> dict[str, Value]:
    """Return typed values of the parameters given; the others keep the query's defaults.

    The name of a memory space stays a name until `execute_query` looks it up.

    Raises:
        UsageError: an unknown parameter, or text that is not a value of its type.
    """
    values = {}
    for name, text in texts.items():
        param = query.param(name.replace("-", "_"))
        if param is None:
            known = [param.name for param in query.params]
            hint = did_you_mean(name, known) or f"; it has {', '.join(known) or 'none'}"
            raise UsageError(f"{query.name}: no parameter {quote(name)}{hint}")
        values[param.name] = parameters.value(query, param, text)
    return values


def runs_asked(values: Mapping[str, Value]) -> list[str] | None:
    """Return globs of the runs that a saved query of bufdb's is about; None if about all."""
    if values.get("run") is not None:
        return [str(values["run"])]
    sides = [values.get("base"), values.get("new")]
    if None in sides:
        return None
    return [parameters.glob(str(side)) for side in sides]


def execute_query(
    con: duckdb.DuckDBPyConnection,
    query: SavedQuery,
    values: Mapping[str, Value],
    *,
    explain: bool = False,
) -> Result:
    """Return the answer of a saved query with `values` from `bind`; with `explain` its plan.

    Raises:
        UsageError: the file has more than one SELECT, or something else, or a memory space that
            does not exist is named, or a pair that is not in both sides.
        BufdbError: DuckDB refused the query or failed.
    """
    if not query.is_own:  # bufdb's own are checked by `bufdb lint`, which takes longer
        require_select(con, query.sql, query.name)
    values = _settled(con, query, values)
    sql = f"EXPLAIN {query.sql}" if explain else query.sql
    with _variables(con, values), functions_alone(con, query):
        return execute(con, sql, query.name, is_own=query.is_own)


def _settled(
    con: duckdb.DuckDBPyConnection, query: SavedQuery, values: Mapping[str, Value]
) -> dict[str, Value]:
    """Return all values, with numbers of memory spaces; errors as of `execute_query`."""
    settled = parameters.numbered(con, query, query.with_settings(values))
    base, new, pair = (settled.get(name) for name in ("base", "new", "pair"))
    if query.is_own and base is not None and new is not None and pair:
        texts = str(pair).split(",")
        pairs.require_pairs(con, str(base), str(new), texts, f"{query.name}: pair")
    return settled


@contextmanager
def together(
    con: duckdb.DuckDBPyConnection,
    queries: Sequence[SavedQuery],
    values: Mapping[str, Value],
    chosen: str | None,
    functions: str | None = None,
) -> Iterator[None]:
    """Within the block `execute_each` asks these queries with `values` and what it adds to them.

    `chosen` is SQL of the modules that are read, as of `_views_computed`; None for all.
    `functions` is SQL that takes the place of the view asked_functions.
    """
    sql = "\n".join(query.sql for query in queries)
    modules = chosen or "SELECT module_id FROM modules"
    with (
        _variables(con, values),
        narrowing.computed(con, {} if functions is None else {_ASKED: functions}),
        _views_computed(con, sql, modules, is_narrowed=chosen is not None),
    ):
        yield


@contextmanager
def of_function(
    con: duckdb.DuckDBPyConnection,
    queries: Sequence[SavedQuery],
    values: Mapping[str, Value],
    module_id: int,
    color: int,
    *,
    is_last: bool = False,
) -> Iterator[None]:
    """Within the block `execute_prepared` asks these queries about the function of one module.

    What their views compute from the module is computed once for all of them.

    Args:
        con: the database.
        queries: what will be asked.
        values: for all of them, as of `execute_query`.
        module_id: the compilation that answers show of the function.
        color: the memory space, in which its peak is known.
        is_last: as of `narrowing.computed`.
    """
    sql = "\n".join(query.sql for query in queries)
    if not sql:
        yield
        return
    is_narrowed = narrowing.module_count(con) >= LEAST_MODULES
    with (
        _variables(con, values, is_last=is_last),
        _views_computed(
            con,
            sql,
            module_id,
            is_narrowed=is_narrowed,
            is_last=is_last,
            parts=_parts(queries),
            functions=_FUNCTION.format(module_id=module_id, color=color),
        ),
    ):
        yield


@contextmanager
def of_figures(con: duckdb.DuckDBPyConnection) -> Iterator[None]:
    """Within the block, the last of the connection, memory figures of modules are read once."""
    with narrowing.computed(con, {_FIGURES: f"FROM {_FIGURES}"}, is_last=True):
        yield


@contextmanager
def of_asked(
    con: duckdb.DuckDBPyConnection, values: Mapping[str, Value]
) -> Iterator[Callable[[], AbstractContextManager[None]]]:
    """Within the block the modules that all of these values select are read once.

    Each statement in it has to be executed with the same values, but those in a block of what this
    yields with all memory spaces instead of those that the values select.
    """
    every = {"asked_modules": f"SELECT * EXCLUDE is_asked FROM {_SPACES}"}
    with _variables(con, values), narrowing.computed(con, {_SPACES: f"FROM {_SPACES}"}):
        yield lambda: narrowing.computed(con, every)


def execute_prepared(
    con: duckdb.DuckDBPyConnection, query: SavedQuery, values: Mapping[str, Value]
) -> Result:
    """Return the answer of a saved query of bufdb's in `of_function`, with more values."""
    with _variables(con, query.with_settings(values)):
        return execute(con, query.sql, query.name)


def execute_each(
    con: duckdb.DuckDBPyConnection,
    query: SavedQuery,
    values: Mapping[str, Value],
    keys: str,
    most: int,
) -> Result:
    """Return the answer of a saved query, the first of the rows with the same `keys`."""
    with _variables(con, query.with_settings(values)):
        _as_table(con, query.sql, query.name)
    ranked = f"row_number() OVER (PARTITION BY {keys} ORDER BY rowid) <= {most}"
    result = execute(con, f"FROM temp.main.{ANSWER} QUALIFY {ranked} ORDER BY rowid", query.name)
    con.execute(f"DROP TABLE temp.main.{ANSWER}")
    return result


def records(
    con: duckdb.DuckDBPyConnection,
    query: SavedQuery,
    values: Mapping[str, Value],
    guard: str,
    tables: Sequence[str],
) -> list[dict[str, Any]]:
    """Return the rows of a saved query, by column; of `values` those that it has a parameter for.

    A query takes longer to plan than most answers: if the SQL `guard` has no row, there is none,
    nor if none of `tables` has, which is seen without planning the guard.
    """
    known = {name: value for name, value in values.items() if query.param(name) is not None}
    if not have_rows(con, tables):
        return []
    if not execute_with(con, guard, known, query.name).rows:
        return []
    result = execute_query(con, query, known)
    names = [name for name, _ in result.columns]
    return [dict(zip(names, row, strict=True)) for row in result.rows]


def have_rows(con: duckdb.DuckDBPyConnection, tables: Sequence[str]) -> bool:
    """Return whether one of the tables has a row, which takes less than any question about them."""
    filled = (table for table in tables if not narrowing.is_empty(con, table))
    return any(con.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone() for table in filled)


def execute_with(
    con: duckdb.DuckDBPyConnection, sql: str, values: Mapping[str, Value], name: str
) -> Result:
    """Return the answer of bufdb's own SQL, which reads `values` with getvariable.

    Raises:
        BufdbError: DuckDB refused the query or failed; the message begins with `name`.
    """
    with _variables(con, values):
        return execute(con, sql, name)


@contextmanager
def _variables(
    con: duckdb.DuckDBPyConnection, values: Mapping[str, Value], *, is_last: bool = False
) -> Iterator[None]:
    """Set the variables to these values within the block, the connection's last if `is_last`."""
    _set(con, values)
    try:
        yield
    except BufdbError:
        _forget(con, values)
        raise
    # Not after an interrupt: the query is still running, and the process ends.
    if not is_last:
        _forget(con, values)


def _set(con: duckdb.DuckDBPyConnection, values: Mapping[str, Value]) -> None:
    for variable, value in values.items():
        con.execute(f'SET VARIABLE "{variable}" = ?', [value])


def _forget(con: duckdb.DuckDBPyConnection, variables: Iterable[str]) -> None:
    resets = [f'RESET VARIABLE "{variable}";' for variable in variables]
    if resets:
        con.execute(" ".join(resets))


def execute_sql(con: duckdb.DuckDBPyConnection, sql: str, *, explain: bool = False) -> Result:
    """Return the answer of one SELECT (or DESCRIBE, SHOW, SUMMARIZE); with `explain` its plan.

    Raises:
        UsageError: not exactly one statement, or another kind of statement.
        BufdbError: DuckDB refused the statement or failed.
    """
    require_select(con, sql, "sql")
    return execute(con, f"EXPLAIN {sql}" if explain else sql, "sql", is_own=False)


def require_select(con: duckdb.DuckDBPyConnection, sql: str, name: str) -> None:
    """Raise an error unless the SQL is one statement that only reads.

    A read-only database does not stop `COPY … TO` or `ATTACH`, so the kind of statement is checked
    too. `WITH x AS (COPY …)` counts as a SELECT, but DuckDB binds it only at the top level.

    Raises:
        UsageError: not exactly one statement, or another kind of statement.
        BufdbError: it is not SQL.
    """
    try:
        statements = con.extract_statements(sql)
    except duckdb.Error as error:
        raise BufdbError(f"{name}: {_reason(error)}") from error
    kinds = [_kind(statement) for statement in statements]
    if len(kinds) != 1:
        quantity = f"{len(kinds)}: {', '.join(kinds)}" if kinds else "none"
        raise UsageError(f"{name}: expected one statement, a SELECT, found {quantity}")
    if kinds[0] != "SELECT":
        raise UsageError(
            f"{name}: expected a SELECT, found {kinds[0]}; only reading is possible here"
        )
    if re.search(_WRITING, sql):
        try:
            # DESCRIBE binds alone; EXPLAIN plans and optimizes, too, which takes ten times as long.
            con.execute(f"DESCRIBE FROM ({_without_semicolon(sql)}\n)")
        except duckdb.Error as error:
            writing = re.search(_WRITING_CTE, str(error))
            if writing:
                raise UsageError(
                    f"{name}: expected a SELECT, found {writing[1]} in its WITH; "
                    "only reading is possible here"
                ) from error


def _kind(statement: duckdb.Statement) -> str:
    """Return a statement's kind in the user's terms."""
    kind = str(statement.type.name)
    if kind == "MULTI":  # DuckDB turns it into two statements
        return "PIVOT without its values (ON … IN (…))"
    return kind if kind == "SELECT" else _first_word(statement.query) or kind


def _first_word(sql: str) -> str:
    """Return the keyword that SQL begins with, after comments: DuckDB 2.0.1 leaves them there."""
    text = sql.encode()
    starts = (place for place, kind in duckdb.tokenize(sql) if kind != duckdb.token_type.comment)
    word = re.match(rb"[A-Za-z]*", text[next(starts, len(text)) :])
    return word[0].decode().upper() if word else ""


def execute(con: duckdb.DuckDBPyConnection, sql: str, name: str, *, is_own: bool = True) -> Result:
    """Return the answer of SQL, rows and columns; error messages begin with `name`.

    `is_own` is whether the SQL is bufdb's own, which is short on a small database.
    """
    return _waited_for(lambda: _fetch(con, sql), name, is_short=is_own and con in SMALL)


def query_as_table(
    con: duckdb.DuckDBPyConnection, query: SavedQuery, values: Mapping[str, Value]
) -> int:
    """Store the answer of a saved query in a table ANSWER of `con`; return its number of rows.

    Arguments and errors are those of `execute_query`; types are DuckDB's own.
    """
    if not query.is_own:
        require_select(con, query.sql, query.name)
    _set(con, _settled(con, query, values))
    with functions_alone(con, query, is_undone=False):
        return _as_table(con, query.sql, query.name)


def sql_as_table(con: duckdb.DuckDBPyConnection, sql: str, most_rows: int | None = None) -> int:
    """Store the answer of one SELECT, or its first `most_rows` rows; errors as `execute_sql`."""
    require_select(con, sql, "sql")
    return _as_table(con, sql, "sql", most_rows)


def _as_table(
    con: duckdb.DuckDBPyConnection, sql: str, name: str, most_rows: int | None = None
) -> int:
    def work() -> None:
        text = _without_semicolon(sql)
        if most_rows is not None:
            text = f"FROM ({text}\n) LIMIT {most_rows}"
        try:
            con.execute(f"CREATE TEMP TABLE {ANSWER} AS {text}")
        except duckdb.ParserException:  # DESCRIBE and the like are only valid in parentheses
            con.execute(f"CREATE TEMP TABLE {ANSWER} AS FROM ({text}\n)")

    _waited_for(work, name)
    ((row_count,),) = con.execute(f"SELECT count(*) FROM temp.main.{ANSWER}").fetchall()
    return int(row_count)


def _waited_for(work: Callable[[], _Done], name: str, *, is_short: bool = False) -> _Done:
    """Return the result of `work`, run on a separate thread while this one waits.

    DuckDB checks for Ctrl-C only between its tasks, which can take minutes; a thread that waits for
    another receives it at once. The query ends with the process. What is short runs on this one:
    each thread has memory of its own, and of a summary's page faults a sixth came of that.
    """
    done: list[_Done] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(work())
        except BaseException as error:  # passed to the waiting thread, which raises it
            failed.append(error)

    if is_short:
        run()
    else:
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join()
    for error in failed:
        if is_short and is_interrupt(error):
            raise KeyboardInterrupt from error
        if isinstance(error, duckdb.Error):
            raise _failure(name, error) from error
        raise error
    return done[0]


def _fetch(con: duckdb.DuckDBPyConnection, sql: str) -> Result:
    """Execute and fetch; types without a Python equivalent come as DuckDB's own text.

    Python's datetime, for example, has no infinity, no nanoseconds and no year after 9999, and
    DuckDB needs another package for times with a zone. The types are known only after execution,
    so such an answer is computed twice; one with plain dates and timestamps only if it contains
    Python's first or last one, which may also mean infinity.
    """
    description = con.execute(sql).description or []
    columns = [(str(column[0]), str(column[1])) for column in description]
    casts = [_cast(column[1]) for column in description]
    times = [place for place, column in enumerate(description) if column[1].id in _TIMES]
    if not any(cast for place, cast in enumerate(casts) if place not in times):
        rows = con.fetchall()
        if not any(row[place] in _INFINITE for place in times for row in rows):
            return Result(columns, rows)
    names = [f"c{number}" for number in range(len(casts))]
    cells = (f"{name}::{cast}" if cast else name for name, cast in zip(names, casts, strict=True))
    inner = _without_semicolon(sql)
    con.execute(f"SELECT {', '.join(cells)} FROM ({inner}\n) AS answer({', '.join(names)})")
    return Result(columns, con.fetchall())


def _without_semicolon(sql: str) -> str:
    """Return one statement in a form that is valid in parentheses."""
    text = sql.encode()
    start = 0
    for place, kind in duckdb.tokenize(sql):
        if text[place : place + 1] == b";" and kind != duckdb.token_type.comment:
            if text[start:place].strip():
                return text[start:place].decode()
            start = place + 1
    return text[start:].decode()


def _cast(type_: Any) -> str | None:
    """Return the type to read values as; None for a type that Python represents exactly."""
    kind = type_.id
    if kind in _EXACT:
        return None
    if kind in ("list", "array"):
        inner = _cast(type_.children[0][1])
        return inner and f"{inner}[]"
    if kind == "struct":
        casts = [(name, _cast(child), child) for name, child in type_.children]
        if not any(cast for _, cast, _ in casts):
            return None
        fields = (sql_name(name) + f" {cast or child}" for name, cast, child in casts)
        return f"STRUCT({', '.join(fields)})"
    if kind == "map":
        (_, key), (_, value) = type_.children
        if key.id in _EXACT:
            inner = _cast(value)
            return inner and f"MAP({key}, {inner})"
    return "VARCHAR"


def _failure(name: str, error: duckdb.Error) -> BufdbError:
    """Return DuckDB's message on one line, with a remedy if one is known."""
    reason = _reason(error)
    if "disabled by configuration" in reason:
        reason += "; --allow-files lets SQL read other files"
    if "Corrupt database" in reason:
        again = "remove the file and run 'bufdb ingest' on the dumps again"
        return DatabaseError(f"{name}: the database is damaged: {reason}; {again}")
    return BufdbError(f"{name}: {reason}")


def _reason(error: duckdb.Error) -> str:
    """Return DuckDB's message on one line, without the excerpt of the SQL that it appends."""
    lines = [line.strip() for line in str(error).splitlines()]
    kept = []
    for line in lines:
        if line.startswith("LINE "):
            break
        if line:
            kept.append(line)
    return " ".join(kept)


# -- The tables alone that an answer about a few functions needs -----------------------------------
#
# A query with the parameter `top_functions` shows the functions with the highest peaks, with one
# compilation each. DuckDB does not push that choice through the LEFT JOINs of views down to the
# tables: for one function among 10,000 modules it read the values of all, into 1.5 GB.
# Invariant: tables that determine the functions stay whole, so that the query's own choice is the
# same as without this.

LEAST_MODULES = 1000
"""With fewer, narrowing takes longer than it saves."""
_PARAMETER = "top_functions"
_ADVISED = "advised_"
"""Views whose names begin so have the others below them many times over."""
_PARTS = "FROM peak_parts"
"""What queries that share _ATTRIBUTED read."""
_ATTRIBUTED = "attributed_peak_values"
_FIGURES = "memory_figures"
_ASKED = "asked_functions"
_SPACES = "asked_spaces"
_FUNCTIONS = "answered_functions"
_FUNCTION = """
SELECT
  run_name, coalesce(function_name, module_key) AS function_name, platform, color, module_id,
  0::BIGINT AS unknown_count, peak_bytes, need_bytes, peak_time, constant_bytes,
  thread_local_bytes, total_bytes, fragmentation_bytes, NULL::VARCHAR AS unknown_reason,
  CASE WHEN peak_bytes <> 0 THEN 1::BIGINT END AS place, 1::BIGINT AS name_place
FROM memory_figures
WHERE module_id = {module_id} AND color = {color}
"""
"""The row of answered_functions for a function whose shown compilation is this one."""
_WITH_USES = "answered_functions_with_uses"
"""The view that gives the rank of a function in queries that do not use _FUNCTIONS."""


@contextmanager
def functions_alone(
    con: duckdb.DuckDBPyConnection, query: SavedQuery, *, is_undone: bool = True
) -> Iterator[None]:
    """Within the block the large tables hold the modules alone that the answer is made of.

    Args:
        con: as `store.open_readable` opens it, with the variables of the query set.
        query: what will be asked; one without the parameter, or that is not bufdb's, sees all.
        is_undone: as of `_views_computed`.
    """
    shown = query.param(_PARAMETER) if query.is_own else None
    # A query that ranks modules by something else shows other functions.
    is_narrowed = "asked_modules" not in query.sql and narrowing.module_count(con) >= LEAST_MODULES
    if shown is None or not (is_narrowed or _ADVISED in query.sql):
        yield
        return
    chosen = (
        f"SELECT DISTINCT module_id FROM {_places(query.sql)} WHERE module_id IS NOT NULL "
        f"AND place <= coalesce(getvariable('{_PARAMETER}')::BIGINT, {shown.default})"
    )
    with _views_computed(con, query.sql, chosen, is_narrowed=is_narrowed, is_undone=is_undone):
        yield


@contextmanager
def _views_computed(
    con: duckdb.DuckDBPyConnection,
    sql: str,
    chosen: str | int,
    *,
    is_narrowed: bool,
    is_undone: bool = True,
    is_last: bool = False,
    parts: Set[str] | None = None,
    functions: str = f"FROM {_FUNCTIONS}",
) -> Iterator[None]:
    """Within the block views that long queries have below them many times are tables.

    DuckDB expands a view wherever it is named and keeps the hash table of each join, which takes
    half a megabyte at the least, to the end: advice took 437 joins, and takes 67 so.

    Args:
        con: as `store.open_readable` opens it, with the variables of the queries set.
        sql: what will be asked, of one query or of several.
        chosen: SQL that gives module_id of the modules that answers are made of, or one of it.
        is_narrowed: whether the large tables hold these modules alone, too.
        is_undone: whether nothing that is made within the block is needed after it.
        is_last: as of `narrowing.computed`.
        parts: by what the parts of a peak are asked for, if nothing else is but advice, savings and
            lines of libraries. Where scope paths are not, they are NULL, which saves the patterns
            that make them, in three views.
        functions: SQL of the rows of answered_functions.
    """
    with ExitStack() as stack:
        if is_narrowed:
            needed = definitions.module_tables(_places(sql))
            tables = [name for name in definitions.module_tables(sql) if name not in needed]
            modules = f"SELECT {chosen}::BIGINT AS module_id" if isinstance(chosen, int) else chosen
            stack.enter_context(narrowing.to_modules(con, tables, modules, is_asked_often=True))
        # What is said of one module reaches the tables below a view.
        of_chosen = (
            f"WHERE module_id = {chosen}"
            if isinstance(chosen, int)
            else f"SEMI JOIN ({chosen}) USING (module_id)"
        )
        views = {"asked_instants": "FROM asked_instants", _FUNCTIONS: functions}
        views["asked_peak_values"] = (
            f"FROM asked_peak_values {of_chosen if isinstance(chosen, int) else ''}"
        )
        for view in OF_MODULES:
            columns = "*"
            if parts is not None and view in UNREAD:
                columns += f" EXCLUDE ({UNREAD[view]})"
            views[view] = f"SELECT {columns} FROM {view} {of_chosen}"
        if _ADVISED not in sql:  # advice needs all of them
            needed_views = definitions.views(sql, comments=False)
            views = {view: text for view, text in views.items() if view in needed_views}
        if sql.count(_PARTS) > 1:
            views[_ATTRIBUTED] = f"FROM {_ATTRIBUTED}"
        needs: dict[str, str | tuple[str, ...]] = {
            view: need.replace("{of_chosen}", of_chosen) if isinstance(need, str) else need
            for view, need in OF_MODULES.items()
            if need is not None
        }
        needs["asked_instants"] = OTHER_INSTANT
        if parts and parts <= {"line", "category"}:
            views = {"op_name_roles": "", **views}
            needs["op_name_roles"] = ""
        of_lines = [view for view in OF_LINES if view in views]
        macros = {} if parts is None or parts & {"op", "jit"} else NO_PATHS
        if of_lines and isinstance(chosen, int) and _looked_up(con, of_chosen):
            macros = {**macros, **OF_LIBRARY_FILES}
        stack.enter_context(
            narrowing.computed(
                con, views, needs, macros, of=of_lines, is_undone=is_undone, is_last=is_last
            )
        )
        yield


def _looked_up(con: duckdb.DuckDBPyConnection, of_chosen: str) -> bool:
    """Return whether names of library files can be looked up now, of the module `of_chosen`."""
    ((count,),) = con.execute(LIBRARY_FILES.format(of_chosen=of_chosen)).fetchall()
    return int(count) <= MOST_FILES


def _parts(queries: Sequence[SavedQuery]) -> set[str]:
    """Return by what queries ask for the parts of a peak: the values of their parameter `by`."""
    every = {"op", "role"}
    of_queries = [
        {str(query.with_settings({})["by"])} if query.alias is not None else every
        for query in queries
        if _PARTS in query.sql
    ]
    return set().union(*of_queries)


def _places(sql: str) -> str:
    """Return the view from which queries take the place of a function."""
    return _WITH_USES if _WITH_USES in sql else _FUNCTIONS
