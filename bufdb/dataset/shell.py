"""What a plain DuckDB shell executes to ask a dataset: bufdb's tables, views and macros as text."""

from __future__ import annotations

from bufdb.database import definitions, ready, store
from bufdb.database.store import SCHEMA_VERSION
from bufdb.dataset import layout, views
from bufdb.dataset.layout import MARKERS
from bufdb.dataset.places import Bucket, place_of
from bufdb.dataset.snapshot import Snapshot, require_rows

OWNERS = "bufdb_owners"


def text(url: str) -> str:
    """SQL that makes, in an empty database, all that bufdb's saved queries ask.

    Raises:
        DatabaseError: there is no dataset, or it cannot be read.
    """
    place = place_of(url)
    con = store.open_memory()
    try:
        place.attach(con)
        with ready.attached(con, SCHEMA_VERSION):
            columns = layout.columns(con, ready.CATALOG)
        snapshot = Snapshot(con, place, OWNERS)
        require_rows(snapshot)
        root = "".join(f"[{char}]" if char in "*?[" else char for char in place.root)
        patterns = {
            # A pattern would find what the log of a Delta table no longer lists.
            table: views.objects([f"{root}/{table}/dt=*/*.parquet"])
            if not snapshot.is_delta
            else snapshot.relation(table) or ""
            for table in layout.tables()
            if snapshot.objects(table)
        }
    finally:
        con.close()
    markers = {table: patterns[table] for table in reversed(MARKERS) if table in patterns}
    lines = [_HEAD.format(root=place.root, owners=OWNERS)]
    if isinstance(place, Bucket):
        lines.append("LOAD httpfs;\n")
    lines.append(f"CREATE TEMP TABLE {OWNERS} AS\n{views.committed(markers)};\n")
    for table in layout.tables():
        select = views.table(table, columns[table], patterns.get(table), OWNERS)
        lines.append(f'CREATE TEMP VIEW "{table}" AS\n{select};\n')
    lines += [definitions.tables()[table] for table in sorted(layout.CONSTANT)]
    lines += definitions.views(comments=False).values()
    return "\n".join(lines)


_HEAD = """\
-- The bufdb dataset {root} for a DuckDB shell: save as views.sql, then .read views.sql
-- {owners} says what counted when it was made; to see what was ingested since, read this again.
"""
