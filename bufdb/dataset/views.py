"""The tables of a dataset as SQL: which owners are committed, and their rows in bufdb's types.

The same texts serve bufdb's own readers, who name the objects to read, and a plain DuckDB shell, to
which they are patterns. dt is a matter of names alone: no text reads it as a column, for two
windows of different order over one hive column end a connection of DuckDB 2.0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bufdb.dataset import layout
from bufdb.dataset.layout import quoted

COMMITTED_COLUMNS = {
    "marker": "VARCHAR",
    **layout.OWN_COLUMNS,
    **layout.MARKER_COLUMNS,
    "run_name": "VARCHAR",
    "ingested_at": "TIMESTAMP",
    "filename": "VARCHAR",
}
_OWNER = "owner_id, owner_version, part_id"


def objects(paths: Sequence[str]) -> str:
    """The rows of objects, whatever columns each of them has."""
    texts = ", ".join(quoted(path) for path in paths)
    return (
        f"read_parquet([{texts}], union_by_name = true, hive_partitioning = false, filename = true)"
    )


def committed(relations: Mapping[str, str]) -> str:
    """A SELECT of the owners that count, one row each, with the marker that says so.

    Args:
        relations: rows of each of MARKERS that has objects.
    """
    parts = [empty(COMMITTED_COLUMNS)]
    for table, relation in relations.items():
        time = "ingested_at" if table == "runs" else "NULL::TIMESTAMP"
        parts.append(
            f"SELECT '{table}' AS marker, {_OWNER}, {', '.join(layout.MARKER_COLUMNS)}, "
            f"run_name, {time} AS ingested_at, filename\n  FROM {relation}"
        )
    rows = "\n  UNION ALL BY NAME\n  ".join(parts)
    return (
        f"SELECT *\nFROM (\n  {rows}\n)\nQUALIFY row_number() OVER (\n"
        "  PARTITION BY owner_id ORDER BY owner_version DESC, part_id DESC, filename\n) = 1"
    )


def table(name: str, types: Mapping[str, str], relation: str | None, owners: str) -> str:
    """A SELECT of a table's rows.

    Args:
        name: the table.
        types: its columns.
        relation: rows of its objects; None if it has none.
        owners: the table with what `committed` selects.
    """
    if relation is None:
        return empty(types)
    stored = {**types, **layout.OWN_COLUMNS}
    rows = f"(\n  {empty(stored)}\n  UNION ALL BY NAME\n  SELECT * FROM {relation}\n) AS stored"
    cells = ",\n  ".join(
        f'stored."{column}"::{kind} AS "{column}"' for column, kind in types.items()
    )
    is_of = " AND ".join(f"owners.{column} = stored.{column}" for column in layout.OWN_COLUMNS)
    whole = "NOT owners.is_removed"
    if name == "shapes":  # each owner has those that it needs
        return (
            f"SELECT DISTINCT ON (stored.shape)\n  {cells}\nFROM {rows}\n"
            f"SEMI JOIN {owners} AS owners ON {is_of} AND {whole}"
        )
    if name in ("runs", "run_labels"):
        return _merged(name, cells, f"{rows}\nJOIN {owners} AS owners ON {is_of} AND {whole}")
    return f"SELECT\n  {cells}\nFROM {rows}\nSEMI JOIN {owners} AS owners ON {is_of} AND {whole}"


def asked_runs(schema: str) -> str:
    """A SELECT of the runs that a parameter names: globs of names, or of label=value.

    Args:
        schema: where the tables `runs` and `run_labels` are.
    """
    return (
        "SELECT DISTINCT run_name FROM ("
        f"SELECT run_name, run_name AS selector FROM {schema}.runs UNION ALL "
        f"SELECT run_name, label || '=' || label_value FROM {schema}.run_labels) "
        "JOIN (SELECT unnest(?::VARCHAR[]) AS asked) ON selector GLOB asked"
    )


def _merged(name: str, cells: str, source: str) -> str:
    """Rows of runs of which several places may tell: the latest word, the earliest dump."""
    key = "stored.run_name" if name == "runs" else "stored.run_name, stored.label"
    if name == "runs":
        cells = cells.replace(
            'stored."dumped_at"::TIMESTAMP',
            "min(stored.dumped_at) OVER (PARTITION BY stored.run_name)::TIMESTAMP",
        )
    return (
        f"SELECT\n  {cells}\nFROM {source}\nQUALIFY row_number() OVER (\n  PARTITION BY {key} "
        "ORDER BY owners.ingested_at DESC, owners.owner_id\n) = 1"
    )


def empty(types: Mapping[str, str]) -> str:
    """A SELECT of no row with columns of these types."""
    cells = ", ".join(f'NULL::{kind} AS "{column}"' for column, kind in types.items())
    return f"SELECT {cells} WHERE FALSE"
