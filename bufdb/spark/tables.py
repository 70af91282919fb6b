"""bufdb's tables in a session of Spark, as temporary views over Parquet.

Types are those of bufdb's schema, never those that a file happens to have: a column that a file
lacks is NULL, a table without files is empty. Which rows of a dataset count is what
`bufdb.dataset.views` says, once more in Spark's SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from bufdb.database import store
from bufdb.database.store import SCHEMA_VERSION
from bufdb.dataset import layout
from bufdb.dataset.delta import log
from bufdb.dataset.places import Place, place_of
from bufdb.errors import DatabaseError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

OWNERS = "committed_owners"
"""View of the owners that count; no table of bufdb's has that name."""
_TYPES = {
    "HUGEINT": "DECIMAL(38,0)",
    "UBIGINT": "DECIMAL(20,0)",
    "VARCHAR": "STRING",
    "TIMESTAMP": "TIMESTAMP_NTZ",
    "INTEGER": "INT",
    "BIGINT[]": "ARRAY<BIGINT>",
}
"""Spark's names of DuckDB's types, where they differ."""


def ddl(types: Mapping[str, str]) -> str:
    """Columns as Spark's `schema` wants them."""
    return ", ".join(f"`{name}` {_TYPES.get(kind, kind)}" for name, kind in types.items())


def register(session: SparkSession, url: str) -> None:
    """Make a view of each table of a dataset, or of what `bufdb export --format parquet` wrote.

    Args:
        session: whose temporary views they are.
        url: the folder or URL; the session's server has to reach it under the same name.

    Raises:
        UsageError: it is of Delta tables.
        DatabaseError: there is neither, or it was written by a bufdb of another schema.
    """
    with store.open_empty() as con:
        ((catalog,),) = con.execute("SELECT current_database()").fetchall()
        types = layout.columns(con, catalog)
        place = place_of(url)
        if (Path(place.root) / "modules.parquet").is_file():
            for table, columns in types.items():
                file = f"{place.root}/{table}.parquet"
                session.read.schema(ddl(columns)).parquet(file).createOrReplaceTempView(table)
            return
        if any(log.is_log(place.names(table), table) for table in layout.MARKERS):
            # Among the files of a folder are those with rows that the log no longer lists.
            raise UsageError(
                f"{place.root} is of Delta tables, which bufdb asks by DuckDB; for Spark: bufdb "
                "ingest --out with plain Parquet"
            )
        for table in layout.CONSTANT:
            rows = con.execute(f'FROM "{table}"').fetchall()
            session.createDataFrame(rows, ddl(types[table])).createOrReplaceTempView(table)
    _register_owners(session, place, types)
    for table in layout.tables():
        _register_table(session, place, table, types[table])


def _stored(session: SparkSession, place: Place, table: str, types: Mapping[str, str]) -> DataFrame:
    """The rows of all objects of a table, whether they count or not."""
    whole = ddl({**types, **layout.extra_columns(table)})
    if not place.names(table):
        return session.createDataFrame([], whole)
    return session.read.schema(whole).parquet(f"{place.root}/{table}")


def _register_owners(session: SparkSession, place: Place, types: layout.Columns) -> None:
    if not any(place.names(table) for table in layout.MARKERS):
        raise DatabaseError(
            f"no dataset {place.root}; make one with 'bufdb ingest DUMPS --out {place.root}'"
        )
    parts = []
    for table in layout.MARKERS:
        _stored(session, place, table, types[table]).createOrReplaceTempView(f"stored_{table}")
        time = "ingested_at" if table == "runs" else "CAST(NULL AS TIMESTAMP_NTZ)"
        parts.append(
            f"SELECT '{table}' AS marker, owner_id, owner_version, part_id, is_removed, "
            f"schema_version, run_name, {time} AS ingested_at FROM stored_{table}"
        )
    ranked = (
        "SELECT *, row_number() OVER (PARTITION BY owner_id "
        "ORDER BY owner_version DESC, part_id DESC) AS place FROM ("
        + " UNION ALL ".join(parts)
        + ") AS marked"
    )
    owners = session.sql(f"SELECT * FROM ({ranked}) AS ranked WHERE place = 1")
    odd = owners.where(f"schema_version <> {SCHEMA_VERSION}").limit(1).collect()
    if odd:
        raise DatabaseError(
            f"{place.root} holds rows of schema version {odd[0].schema_version}, this bufdb needs "
            f"{SCHEMA_VERSION}; ingest the dumps again, into another folder"
        )
    owners.where("NOT is_removed").createOrReplaceTempView(OWNERS)


def _register_table(
    session: SparkSession, place: Place, table: str, types: Mapping[str, str]
) -> None:
    stored = f"stored_{table}"
    _stored(session, place, table, types).createOrReplaceTempView(stored)
    cells = ", ".join(f"stored.`{column}` AS `{column}`" for column in types)
    matched = " AND ".join(f"owners.{name} = stored.{name}" for name in layout.OWN_COLUMNS)
    rows = f"FROM {stored} AS stored JOIN {OWNERS} AS owners ON {matched}"
    if table == "shapes":  # each owner has those that it needs
        sql = f"SELECT DISTINCT {cells} {rows}"
    elif table in ("runs", "run_labels"):
        sql = _merged(table, cells, rows)
    elif table == "run_checksums":  # of rows that come from several places together there are none
        sql = (
            f"SELECT {cells} {rows} WHERE owners.run_name IN (SELECT run_name FROM {OWNERS} "
            "WHERE marker = 'runs' GROUP BY run_name HAVING count(*) = 1)"
        )
    else:
        sql = f"SELECT {cells} {rows}"
    session.sql(sql).createOrReplaceTempView(table)


def _merged(table: str, cells: str, rows: str) -> str:
    """Rows of runs of which several places may tell: the latest word, the earliest dump."""
    key = "stored.run_name" if table == "runs" else "stored.run_name, stored.label"
    if table == "runs":
        cells = cells.replace(
            "stored.`dumped_at`", "min(stored.dumped_at) OVER (PARTITION BY stored.run_name)"
        )
    names = ", ".join(part.rpartition(" AS ")[2] for part in cells.split(", "))
    return (
        f"SELECT {names} FROM (SELECT {cells}, row_number() OVER (PARTITION BY {key} "
        f"ORDER BY owners.ingested_at DESC NULLS LAST, owners.owner_id) AS place {rows}) AS told "
        "WHERE place = 1"
    )
