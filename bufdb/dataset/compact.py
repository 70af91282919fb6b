"""Few sorted objects in place of many small ones, while others read and write.

Rows of a day's owners, some thousands at a time, are copied under a new part_id, and the copy
counts from the moment its markers are there: of an owner always one copy counts. A writer that
meanwhile stores a later version of a module is not disturbed, since a higher version takes
precedence over any part. What nothing needs any more is removed by a later call, when readers have
had their time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import duckdb

from bufdb.database import ready, store
from bufdb.database.quoting import sql_text
from bufdb.database.store import SCHEMA_VERSION
from bufdb.dataset import layout
from bufdb.dataset.layout import LOOSE
from bufdb.dataset.snapshot import Owners, Snapshot, empty, require_rows, unreadable
from bufdb.dataset.storage import Storage, storage_of
from bufdb.dataset.writer import OPTIONS
from bufdb.errors import UsageError

GRACE_S = 3600.0
"""How long objects that no longer count stay for their readers [s]."""
PART_OWNERS = 10_000
"""Limit on the owners of a part. A question about one run opens the parts with its modules, and a
part is sorted at once."""
_FILE_BYTES = "256MB"
"""Approximate size at which DuckDB begins another object of a part."""


@dataclass
class Compacted:
    """The result of a compaction."""

    day_count: int = 0
    owner_count: int = 0
    """Modules, and runs by the places they were ingested from, that were copied."""
    written_count: int = 0
    """Objects."""
    removed_count: int = 0
    kept_count: int = 0
    """Objects that no longer count, and stay for their possible readers."""
    stopped_count: int = 0
    """Folders with unfinished objects of stopped writers, which were removed."""

    def line(self) -> str:
        """Return one line for people."""
        left = f" and those of {self.stopped_count} stopped writers" if self.stopped_count else ""
        return (
            f"compacted {self.owner_count} modules and runs of {self.day_count} days into "
            f"{self.written_count} files; removed {self.removed_count} files{left}, "
            f"{self.kept_count} more will be removed later"
        )


def compact(
    url: str,
    days: Sequence[str] = (),
    grace_s: float = GRACE_S,
) -> Compacted:
    """Rewrite days of a dataset and remove what no longer counts.

    Args:
        url: folder or URL of the dataset.
        days: only these; else all before today, in UTC.
        grace_s: how long what no longer counts is left to its readers [s]. What a stopped writer
        has left stays as long, and at least GRACE_S.

    Raises:
        UsageError: it is of Delta tables.
        DatabaseError: there is no dataset, or it cannot be read.
        BufdbError: an object cannot be written.
    """
    place = storage_of(url)
    done = Compacted()
    con = store.open_memory()
    try:
        place.attach(con)
        with ready.attached_schema(con, SCHEMA_VERSION):
            columns = layout.columns(con, ready.READY)
        snapshot = Snapshot(con, place, "owners")
        require_rows(snapshot)
        if snapshot.is_delta:
            raise UsageError(
                f"{place.root} has Delta tables: delta-rs (DeltaTable.optimize.compact, vacuum) "
                "and Spark (OPTIMIZE, VACUUM) compact these, and bufdb reads what they leave"
            )
        today = layout.day_of(time.time())
        for day in _to_rewrite(con):
            is_over = day < today or not layout.is_day(day)  # not a date, as was once accepted
            if day in days or (not days and is_over):
                _rewrite(snapshot, columns, day, done)
        con.execute("DROP TABLE owners")
        _remove(Snapshot(con, place, "owners"), grace_s, done)
        # Writers have an hour, whatever is left to readers.
        done.stopped_count = place.clear_staging(time.time() - max(grace_s, GRACE_S))
    except duckdb.Error as error:
        raise unreadable(place, error) from error
    finally:
        con.close()
    return done


def _to_rewrite(con: duckdb.DuckDBPyConnection) -> list[str]:
    """Return days whose owners are in objects of their own, or in more parts than needed."""
    day = "regexp_extract(filename, '/dt=([^/]*)/[^/]*$', 1)"
    con.execute(f"ALTER TABLE owners ADD COLUMN day VARCHAR; UPDATE owners SET day = {day}")
    rows = con.execute(
        "SELECT day FROM owners GROUP BY day "
        f"HAVING count(DISTINCT part_id) > ceil(count(*) / {PART_OWNERS}) "
        f"OR min(part_id) = {LOOSE} ORDER BY day"
    ).fetchall()
    return [day for (day,) in rows]


def _rewrite(snapshot: Snapshot, columns: layout.Columns, day: str, done: Compacted) -> None:
    """Copy the owners of a day, runs one after another, in parts of at most PART_OWNERS."""
    con = snapshot.con
    con.execute(
        "CREATE OR REPLACE TABLE of_day AS "
        "SELECT *, (row_number() OVER (ORDER BY run_name, owner_id) - 1) "
        f"// {PART_OWNERS} AS place FROM owners WHERE day = {sql_text(day)}"
    )
    ((last,),) = con.execute("SELECT max(place) FROM of_day").fetchall()
    for place in range(last + 1):
        con.execute(f"CREATE OR REPLACE TABLE chosen AS FROM of_day WHERE place = {place}")
        _rewrite_chosen(snapshot, columns, day, done)
    done.day_count += 1


def _rewrite_chosen(snapshot: Snapshot, columns: layout.Columns, day: str, done: Compacted) -> None:
    """Copy the owners in the table `chosen` as one part, markers last."""
    con = snapshot.con
    rows = con.execute("SELECT owner_id, owner_version, part_id FROM chosen").fetchall()
    of = Owners(
        {(key, version) for key, version, part in rows if part == LOOSE},
        {part for _, _, part in rows if part != LOOSE},
    )
    part_id = layout.next_part(max(part for _, _, part in rows))
    for table in layout.tables():
        relation = snapshot.relation(table, of)
        if relation is not None:
            select = _copied(table, columns[table], relation, part_id)
            done.written_count += _write(con, snapshot.place, select, table, day, part_id)
    done.owner_count += len(rows)


def _copied(table: str, types: dict[str, str], relation: str, part_id: int) -> str:
    """Return a SELECT of rows as they are stored, with another part_id."""
    all_types = {**types, **layout.extra_columns(table)}
    cells = ", ".join(
        f'stored."{column}"::{layout.stored_type(kind)} AS "{column}"'
        for column, kind in all_types.items()
        if column != "part_id"
    )
    is_of = " AND ".join(f"chosen.{column} = stored.{column}" for column in layout.OWN_COLUMNS)
    return (
        f"SELECT {cells}, {part_id}::BIGINT AS part_id "
        f"FROM ({empty(all_types)} UNION ALL BY NAME SELECT * FROM {relation}) AS stored "
        f"SEMI JOIN chosen ON {is_of} ORDER BY stored.owner_id"
    )


def _write(
    con: duckdb.DuckDBPyConnection, place: Storage, select: str, table: str, day: str, part_id: int
) -> int:
    """Store rows as objects of a part; return how many objects."""
    with place.staging() as folder:
        target = folder / table
        options = f"{OPTIONS}, FILE_SIZE_BYTES '{_FILE_BYTES}'"
        ((row_count,),) = con.execute(
            f"COPY ({select}) TO {sql_text(target)} ({options})"
        ).fetchall()
        if not row_count:
            return 0
        files = sorted(target.iterdir(), key=_number)
        for number, file in enumerate(files):
            place.put(file, layout.part_name(table, day, part_id, number))
        return len(files)


def _number(file: Path) -> int:
    return int("".join(char for char in file.stem if char.isdecimal()) or 0)


def _remove(snapshot: Snapshot, grace_s: float, done: Compacted) -> None:
    """Remove objects that have not counted for long enough.

    Objects of an owner that no marker commits stay: it may be about to be committed, and a new
    ingest of the same dumps writes them again.
    """
    now = time.time()
    written = {
        f"{snapshot.place.root}/{text}": entry.written_s
        for table in layout.MARKERS
        for text, (_, entry) in snapshot.objects(table).items()
    }
    rows = snapshot.con.execute(
        "SELECT owner_id, owner_version, part_id, filename FROM owners"
    ).fetchall()
    counts = {key: (version, part) for key, version, part, _ in rows}
    since = {key: written.get(filename, now) for key, _, _, filename in rows}
    parts = {part for _, _, part, _ in rows}
    newest: dict[str, float] = {}
    for key, _, _, filename in rows:
        day = layout.day_in(filename)
        newest[day] = max(since[key], newest.get(day, 0.0))
    gone: list[str] = []
    for table in layout.tables():
        for text, (name, entry) in snapshot.objects(table).items():
            if name.owner_id is None:
                is_needed, replaced = name.part_id in parts, newest.get(name.day, now)
            elif name.owner_id in counts:
                is_needed = counts[name.owner_id] == (name.owner_version, LOOSE)
                replaced = since[name.owner_id]
            else:
                continue
            if is_needed:
                continue
            if max(entry.written_s, replaced) <= now - grace_s:
                gone.append(text)
            else:
                done.kept_count += 1
    snapshot.place.remove(gone)
    done.removed_count = len(gone)
