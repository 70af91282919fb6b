"""bufdb's tables in a session of Spark or Sail, and the rows of a saved query from there."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from bufdb.database import ready, store
from bufdb.database.store import SCHEMA_VERSION
from bufdb.dataset import delta, layout
from bufdb.dataset.snapshot import Snapshot, asked_runs, require_rows, require_versions, table_sql
from bufdb.dataset.storage import Storage, storage_of
from bufdb.errors import BufdbError, DatabaseError, UsageError
from bufdb.lint import translate
from bufdb.query import parameters
from bufdb.query.header import SavedQuery, Value
from bufdb.query.result import Result

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# -- bufdb's tables in a session of Spark, as temporary views over Parquet -------------------------
#
# Types are those of bufdb's schema, never those that a file happens to have: a column that a file
# lacks is NULL, a table without files is empty. Which rows of a dataset count is what
# `bufdb.dataset.snapshot` says, once more in Spark's SQL.

OWNERS = "committed_owners"
"""View of the owners that count; no table of bufdb's has that name."""
SENT_OWNERS = 200_000
"""Limit on the owners that are sent to the server; it finds more of them itself."""
_OWNER = {**layout.OWN_COLUMNS, "ingested_at": "TIMESTAMP"}
"""Columns of that view that tables ask for."""
_TYPES = {
    "HUGEINT": "DECIMAL(38,0)",
    "UBIGINT": "DECIMAL(20,0)",
    "VARCHAR": "STRING",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "INTEGER": "INT",
    "BIGINT[]": "ARRAY<BIGINT>",
    "BLOB": "BINARY",
}
"""Spark's names of DuckDB's types, where they differ."""


def ddl(types: Mapping[str, str]) -> str:
    """Return columns as Spark's `schema` wants them."""
    return ", ".join(f"`{name}` {_TYPES.get(kind, kind)}" for name, kind in types.items())


def register(
    session: SparkSession, url: str, sql: str | None = None, runs: Sequence[str] | None = None
) -> None:
    """Make a view of each table of a dataset, or of what `bufdb export --format parquet` wrote.

    Of a dataset with no more than SENT_OWNERS the views show what counts now, not later ingests.

    Args:
        session: on Spark or on Sail; views that are there are replaced.
        url: the folder or URL; the session's server has to reach it under the same name.
        sql: a saved query, if only the tables that it needs are wanted.
        runs: globs of the runs that are asked about, if rows of no others are wanted. Then this
            process reads the markers, and the server opens the objects of these runs alone.

    Raises:
        UsageError: it is of Delta tables.
        DatabaseError: there is neither, or it was written by a bufdb of another schema.
    """
    with store.open_empty() as con:
        ((catalog,),) = con.execute("SELECT current_database()").fetchall()
        types = layout.columns(con, catalog)
        if sql is not None:
            types = {table: types[table] for table in layout.named(sql).union(layout.MARKERS)}
        place = storage_of(url)
        if (Path(place.root) / "modules.parquet").is_file():
            for table, columns in types.items():
                file = f"{place.root}/{table}.parquet"
                session.read.schema(ddl(columns)).parquet(file).createOrReplaceTempView(table)
            return
        if any(delta.is_log(place.names(table), table) for table in layout.MARKERS):
            # Among the files of a folder are those with rows that the log no longer lists.
            raise UsageError(
                f"{place.root} has Delta tables, which only DuckDB reads; for Spark: bufdb "
                "ingest --out with plain Parquet"
            )
        for table in layout.CONSTANT & types.keys():
            rows = con.execute(f'FROM "{table}"').fetchall()
            session.createDataFrame(rows, ddl(types[table])).createOrReplaceTempView(table)
    narrowed = None if runs is None else _narrowed(session, place, types, runs)
    objects = narrowed or _all_objects(place, types)
    for table in types.keys() - layout.CONSTANT:
        _register_stored(session, table, types[table], objects[table])
    if narrowed is None:
        _register_owners(session, place)
    for table in types.keys() - layout.CONSTANT:
        _register_table(session, table, types[table])


def _all_objects(place: Storage, types: layout.Columns) -> dict[str, list[str]]:
    """Return where the rows of each table lie.

    Raises:
        DatabaseError: no marker is there.
    """
    objects = {
        table: [f"{place.root}/{table}"] if place.names(table) else []
        for table in types.keys() - layout.CONSTANT
    }
    if not any(objects[table] for table in layout.MARKERS):
        raise DatabaseError(
            f"no dataset {place.root}; make one with 'bufdb ingest DUMPS --out {place.root}'"
        )
    return objects


def _narrowed(
    session: SparkSession, place: Storage, types: layout.Columns, runs: Sequence[str]
) -> dict[str, list[str]] | None:
    """Return where rows of some runs lie, by table; make the view of their owners.

    None if there are too many of them.
    """
    with store.open_memory() as con:
        place.attach(con)
        snapshot = Snapshot(con, place, "owners")
        require_rows(snapshot)
        with ready.attached_schema(con, SCHEMA_VERSION):
            columns = layout.columns(con, ready.READY)
        for table in ("runs", "run_labels"):
            select = table_sql(table, columns[table], snapshot.relation(table), "owners")
            con.execute(f"CREATE TABLE {table} AS {select}")
        con.execute(f"CREATE TABLE asked AS {asked_runs('main')}", [list(runs)])
        some = "SELECT run_name FROM asked"
        rows = con.execute(
            f"SELECT {', '.join(_OWNER)} FROM owners "
            f"WHERE NOT is_removed AND run_name IN ({some}) LIMIT {SENT_OWNERS + 1}"
        ).fetchall()
        if len(rows) > SENT_OWNERS:
            return None
        # Otherwise Spark, which does not know that they are few, sorts what it joins them to.
        owners = session.createDataFrame(rows, ddl(_OWNER)).hint("broadcast")
        owners.createOrReplaceTempView(OWNERS)
        of = snapshot.owners_of(some)
        return {
            table: [f"{place.root}/{name}" for name in snapshot.chosen(table, of)]
            for table in types.keys() - layout.CONSTANT
        }


def _register_stored(
    session: SparkSession, table: str, types: Mapping[str, str], paths: Sequence[str]
) -> None:
    """Make a view of the rows of objects, whether they count or not."""
    whole = ddl({**types, **layout.extra_columns(table)})
    if paths:
        frame = session.read.schema(whole).parquet(*paths)
    else:
        frame = session.createDataFrame([], whole)
    frame.createOrReplaceTempView(f"stored_{table}")


def _register_owners(session: SparkSession, place: Storage) -> None:
    """Make the view of the owners that count, found by the server.

    Raises:
        DatabaseError: one is of another schema version.
    """
    parts = [
        "SELECT owner_id, owner_version, part_id, is_removed, schema_version, "
        + ("ingested_at" if table == "runs" else "CAST(NULL AS TIMESTAMP_NTZ) AS ingested_at")
        + f" FROM stored_{table}"
        for table in layout.MARKERS
    ]
    marked = " UNION ALL ".join(parts)
    owners = session.sql(marked)
    some = owners.limit(SENT_OWNERS + 1).toArrow()
    # Most datasets have one row of each owner; to rank them takes four times as long.
    if some.num_rows > SENT_OWNERS or len(some["owner_id"].unique()) < some.num_rows:
        ranked = (
            "SELECT *, row_number() OVER (PARTITION BY owner_id "
            f"ORDER BY owner_version DESC, part_id DESC) AS place FROM ({marked}) AS marked"
        )
        owners = session.sql(f"SELECT * FROM ({ranked}) AS ranked WHERE place = 1").drop("place")
        some = owners.limit(SENT_OWNERS + 1).toArrow()
    if some.num_rows <= SENT_OWNERS:
        # Otherwise they are found again for each table, wherever a query names it.
        owners = session.createDataFrame(some, owners.schema).hint("broadcast")
        versions = some["schema_version"].unique().to_pylist()
    else:
        versions = [row[0] for row in owners.select("schema_version").distinct().collect()]
    require_versions(place.root, [version for version in versions if version is not None])
    owners.where("NOT is_removed").select(*_OWNER).createOrReplaceTempView(OWNERS)


def _register_table(session: SparkSession, table: str, types: Mapping[str, str]) -> None:
    stored = f"stored_{table}"
    cells = ", ".join(f"stored.`{column}` AS `{column}`" for column in types)
    matched = " AND ".join(f"owners.{name} = stored.{name}" for name in layout.OWN_COLUMNS)
    rows = f"FROM {stored} AS stored JOIN {OWNERS} AS owners ON {matched}"
    if table in layout.SHARED:  # each owner has those that it needs
        sql = f"SELECT DISTINCT {cells} {rows}"
    elif table in ("runs", "run_labels"):
        sql = _merged(table, cells, rows)
    else:
        sql = f"SELECT {cells} {rows}"
    session.sql(sql).createOrReplaceTempView(table)


def _merged(table: str, cells: str, rows: str) -> str:
    """Merge duplicate run rows: the last ingest wins, the first dump time is kept."""
    key = "stored.run_name" if table == "runs" else "stored.run_name, stored.label"
    if table == "runs":
        cells = cells.replace(
            "stored.`dumped_at`", "min(stored.dumped_at) OVER (PARTITION BY stored.run_name)"
        )
    names = ", ".join(part.rpartition(" AS ")[2] for part in cells.split(", "))
    return (
        f"SELECT {names} FROM (SELECT {cells}, row_number() OVER (PARTITION BY {key} "
        f"ORDER BY owners.ingested_at DESC NULLS LAST, owners.owner_id) AS place {rows}) AS ranked "
        "WHERE place = 1"
    )


# -- The answer of a saved query from Spark: the same rows in the same order as DuckDB's -----------
#
# The text is that of `bufdb query NAME --sql --dialect spark`; parameters are bound, never pasted.

_PLACEHOLDER = re.compile(r":([a-z][a-z0-9_]*)")


def require_claim(query: SavedQuery, engine: str) -> None:
    """Check that the query is known to give the same rows on an engine.

    Raises:
        UsageError: it is not; the message has the reason from its header.
    """
    if engine not in query.engines:
        reason = query.engines_reason or "its header claims no other engine"
        raise UsageError(f"{query.name} runs on {', '.join(query.engines)} only: {reason}")


def answer(session: SparkSession, query: SavedQuery, values: Mapping[str, Value]) -> Result:
    """Return the answer over the tables of a session (`bufdb.spark.tables.register`).

    Args:
        session: on Spark or on Sail.
        query: one that claims the engine (`require_claim`).
        values: from `bufdb.query.execute.bind`; parameters that are not there have their default.

    Raises:
        UsageError: a memory space is named, not numbered.
        BufdbError: the query cannot be written for Spark, or failed there.
    """
    values = query.with_settings(values)
    color = values.get("color")
    if color is not None and not parameters.is_plain_space(color):
        raise UsageError(f"{query.name}: outside DuckDB a memory space is its number, got {color}")
    *first, (_, text) = translate.parts(query, "spark")
    made: list[str] = []
    try:
        for name, part in first:
            _kept(session, _frame(session, query, part, values)).createOrReplaceTempView(name)
            made.append(name)
        rows = _frame(session, query, text, values).collect()
    except _failures() as error:
        reason = " ".join(str(error).split())[:300]
        raise BufdbError(f"{query.name}: Spark: {reason}") from error
    finally:
        for name in made:
            session.catalog.dropTempView(name)
    columns = [(column.name, column.type) for column in query.columns]
    kinds = [kind for _, kind in columns]
    return Result(columns, [tuple(map(_value, row, kinds)) for row in rows])


def _frame(
    session: SparkSession, query: SavedQuery, text: str, values: Mapping[str, Value]
) -> DataFrame:
    """Return what a part of a query gives, with the parameters that it names."""
    names = set(_PLACEHOLDER.findall(text)) & {param.name for param in query.params}
    return session.sql(text, args={name: values.get(name) for name in names})


_without_place: WeakSet[SparkSession] = WeakSet()
"""Sessions that have no place for rows; each plans a frame before it says so."""


def _kept(session: SparkSession, frame: DataFrame) -> DataFrame:
    """Return the rows that a frame gives, computed now and not again each time that they are read.

    They stay where the session computes. A server of Sail without a place for them
    (execution.checkpoint.path) sends them here, and Sail 0.7 those of some types always.
    """
    if session not in _without_place:
        try:
            return frame.localCheckpoint()
        except _failures() as error:
            if "checkpoint object-store path" in str(error):
                _without_place.add(session)
            elif "checkpoint storage schema" not in str(error):
                raise
    return session.createDataFrame(frame.toArrow(), frame.schema)


def _failures() -> tuple[type[Exception], ...]:
    """Return what a session raises; Spark in this process passes on some of Java's errors."""
    from pyspark.errors import PySparkException

    try:
        from py4j.protocol import Py4JError
    except ImportError:  # the client of Spark Connect alone
        return (PySparkException,)
    return PySparkException, Py4JError


def _value(value: Any, kind: str) -> Any:
    """Return a value as DuckDB gives it."""
    if isinstance(value, Decimal):
        return float(value) if kind == "DOUBLE" else int(value)
    return value
