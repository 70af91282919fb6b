"""One snapshot of a dataset: its objects, its tables as SQL, opened or written as a script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import duckdb

from bufdb.database import definitions, faults, memory, ready, store
from bufdb.database.definitions import CATALOG
from bufdb.database.quoting import sql_text
from bufdb.database.store import SCHEMA_VERSION
from bufdb.dataset import delta, layout
from bufdb.dataset.layout import MARKERS, Name
from bufdb.dataset.storage import Bucket, Listed, Storage, storage_of
from bufdb.errors import BufdbError, DatabaseError

# -- The tables of a dataset as SQL: which owners are committed, and their rows in bufdb's types ---
#
# The same texts serve bufdb's own readers, which name the objects to read, and a plain DuckDB
# shell, for which they are patterns. dt is a matter of names alone: no text reads it as a column,
# since two windows of different order over one hive column end a connection of DuckDB 2.0.

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
    """Return the rows of objects, whatever columns each of them has."""
    texts = ", ".join(sql_text(path) for path in paths)
    return (
        f"read_parquet([{texts}], union_by_name = true, hive_partitioning = false, filename = true)"
    )


def committed(relations: Mapping[str, str]) -> str:
    """Return a SELECT of the owners that count, one row each, with the marker that says so.

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


def table_sql(name: str, types: Mapping[str, str], relation: str | None, owners: str) -> str:
    """Return a SELECT of a table's rows.

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
    if name in layout.SHARED:  # each owner has those that it needs
        key = ", ".join(f"stored.{column}" for column in layout.SHARED[name])
        return (
            f"SELECT DISTINCT ON ({key})\n  {cells}\nFROM {rows}\n"
            f"SEMI JOIN {owners} AS owners ON {is_of} AND {whole}"
        )
    if name in ("runs", "run_labels"):
        return _merged(name, cells, f"{rows}\nJOIN {owners} AS owners ON {is_of} AND {whole}")
    return f"SELECT\n  {cells}\nFROM {rows}\nSEMI JOIN {owners} AS owners ON {is_of} AND {whole}"


def asked_runs(schema: str) -> str:
    """Return a SELECT of the runs that a parameter names: globs of names, or of label=value.

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
    """Merge duplicate run rows: the last ingest wins, the first dump time is kept."""
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
    """Return a SELECT of no row with columns of these types."""
    cells = ", ".join(f'NULL::{kind} AS "{column}"' for column, kind in types.items())
    return f"SELECT {cells} WHERE FALSE"


# -- What a dataset holds at one moment: its objects, and the owners that count --------------------
#
# Markers are listed first and the other tables after them. An owner's rows are all there before its
# marker is, and nothing that counted a while ago is removed; so a snapshot
# can read everything that it commits to, whatever is written meanwhile.

_ATTEMPTS = 20
FREE_ROWS, MOST_ROWS = 1_000_000, 30
"""Rows of an object, and beyond them rows for each of its bytes: five million that are the same
take four kilobytes, and each joined with each they have no end. Of the same run 300 times there
are 4 to a byte."""


@dataclass(frozen=True)
class Owners:
    """Some of the owners that count, by what names of objects say."""

    loose: set[tuple[int, int]] = field(default_factory=set)
    """Key and version of those with objects of their own."""
    parts: set[int] = field(default_factory=set)

    def have(self, name: Name) -> bool:
        """Return whether an object has rows of any of them."""
        if name.owner_id is None:
            return name.part_id is None or name.part_id in self.parts
        return (name.owner_id, name.owner_version) in self.loose


class Snapshot:
    """A dataset as it was when this was made."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        place: Storage,
        owners: str,
        module_ids: set[int] | None = None,
        *,
        of_earlier: bool = False,
    ) -> None:
        """List the markers and read them.

        Args:
            con: where they are read.
            place: where the dataset lies.
            owners: the table to make in `con`, of the columns COMMITTED_COLUMNS.
            module_ids: modules that are looked for, if not all are; others may be left out.
            of_earlier: whether owners may be of earlier schema versions.

        Raises:
            DatabaseError: the dataset cannot be read, or was written by a bufdb of another schema.
        """
        self.con, self.place, self.owners = con, place, owners
        self.paths: set[str] = set()
        """Objects from which rows are read."""
        self.row_counts: dict[str, int] = {}
        """Rows in the objects of the tables that `require_sound` has read, whosever they are."""
        self._listed: dict[str, dict[str, tuple[Name, Listed]]] = {}
        self._lost: dict[str, int] = {}
        self.is_delta = any(delta.is_log(place.names(table), table) for table in MARKERS)
        attempt = 0
        while not self._is_taken(module_ids):
            attempt += 1
            if attempt == _ATTEMPTS:
                raise DatabaseError(f"{place.root} is being written again and again; try later")
        rows = con.execute(
            f"SELECT DISTINCT schema_version FROM {owners} WHERE schema_version IS NOT NULL "
            "ORDER BY ALL"
        ).fetchall()
        self.versions: list[int] = [version for (version,) in rows]
        """Schema versions of the owners that count."""
        require_versions(place.root, self.versions, of_earlier=of_earlier)

    def _is_taken(self, module_ids: set[int] | None) -> bool:
        """Read the markers; return whether what they commit is still there.

        In a plain dataset it is. In a Delta table rows are deleted as soon as others have replaced
        them, so there the other tables are listed at once, and the last commit of each from before
        the markers were read shows whether it has lost any since.
        """
        self._listed.clear()
        self.paths.clear()
        before = self._versions() if self.is_delta else {}
        self._commit(module_ids)
        for table in before:
            self.objects(table)
        return all(self._lost.get(table, -1) <= version for table, version in before.items())

    def _versions(self) -> dict[str, int]:
        return {table: delta.version(self.place.names(table), table) for table in layout.tables()}

    def _commit(self, module_ids: set[int] | None) -> None:
        """Read the markers into the table of owners."""
        # Modules before runs: a run's row is there before its first module.
        owners: dict[str, str] = {}
        for table in reversed(MARKERS):
            ids = module_ids if table == "modules" else None
            names = [
                text
                for text, (name, _) in self.objects(table).items()
                if ids is None or name.owner_id is None or name.owner_id in ids
            ]
            if names:
                owners[table] = self._rows(names)
        self.has_markers = bool(owners)
        self.require_sound(owners)
        try:
            self.con.execute(f"CREATE OR REPLACE TABLE {self.owners} AS {committed(owners)}")
        except duckdb.Error as error:
            raise unreadable(self.place, error) from error

    def objects(self, table: str) -> dict[str, tuple[Name, Listed]]:
        """Return the objects of a table by their names."""
        if table not in self._listed and self.is_delta:
            self._listed[table] = self._of_log(table)
        if table not in self._listed:
            listed = self.place.names(table)
            named = ((text, layout.parse(text), entry) for text, entry in sorted(listed.items()))
            self._listed[table] = {
                text: (name, entry) for text, name, entry in named if name is not None
            }
        return self._listed[table]

    def _of_log(self, table: str) -> dict[str, tuple[Name, Listed]]:
        """Return the objects of a Delta table.

        Raises:
            DatabaseError: one is not there, or its name leads elsewhere.
        """
        listed = self.place.names(table)
        if not delta.is_log(listed, table):
            return {}
        try:
            log = delta.read(self.con, self.place, table, listed)
        except duckdb.Error as error:
            raise unreadable(self.place, error) from error
        self._lost[table] = log.lost_version
        names = sorted(f"{table}/{name}" for name in log.files)
        for name in names:
            if name not in listed:
                raise DatabaseError(f"{self.place.root}/{name[:200]}: in its Delta log, but gone")
        return {
            name: (Name(table, layout.day_in(name), None, None, None), listed[name])
            for name in names
        }

    def relation(self, table: str, of: Owners | None = None) -> str | None:
        """Return the rows of a table's objects, or of those of some owners; None without any."""
        chosen = self.chosen(table, of)
        return self._rows(list(chosen)) if chosen else None

    def require_sound(self, tables: Iterable[str], of: Owners | None = None) -> None:
        """Check that objects of tables have no more rows than bufdb can have written; count rows.

        Raises:
            DatabaseError: one has.
        """
        root = self.place.root
        paths = [f"{root}/{name}" for table in tables for name in self.chosen(table, of)]
        if not paths:
            return
        # One statement: for each table it would take longer than its footers.
        footers = self.con.execute(
            "SELECT file_name, num_rows, file_size_bytes FROM parquet_file_metadata(?)", [paths]
        )
        row_counts: Counter[str] = Counter()
        for name, rows, size in footers.fetchall():
            if rows > max(FREE_ROWS, MOST_ROWS * size):
                raise DatabaseError(
                    f"{name}: {rows} rows in {size} bytes; bufdb did not write that"
                )
            row_counts[name.rsplit("/", 3)[-3]] += rows
        self.row_counts.update(row_counts)

    def size(self, table: str, of: Owners) -> int:
        """Return the bytes in the objects of a table that have rows of some owners."""
        return sum(entry.size_bytes for entry in self.chosen(table, of).values())

    def chosen(self, table: str, of: Owners | None) -> dict[str, Listed]:
        """Return the objects of a table, or those that have rows of some owners, by name."""
        listed = self.objects(table).items()
        return {text: entry for text, (name, entry) in listed if of is None or of.have(name)}

    def _rows(self, names: list[str]) -> str:
        paths = [f"{self.place.root}/{name}" for name in names]
        self.paths.update(paths)
        return objects(paths)

    def owners_of(self, runs: str | None = None, *, with_removed: bool = False) -> Owners:
        """Return the owners that count.

        Args:
            runs: a SELECT of the names of runs, if only their owners are wanted.
            with_removed: also those that a marker says are gone.
        """
        where = "TRUE" if with_removed else "NOT is_removed"
        if runs is not None:
            where += f" AND run_name IN ({runs})"
        # In a compacted dataset a million owners are in a hundred parts.
        loose = self.con.execute(
            f"SELECT owner_id, owner_version FROM {self.owners} "
            f"WHERE part_id = {layout.LOOSE} AND {where}"
        ).fetchall()
        parts = self.con.execute(
            f"SELECT DISTINCT part_id FROM {self.owners} "
            f"WHERE part_id <> {layout.LOOSE} AND {where}"
        ).fetchall()
        return Owners({(key, version) for key, version in loose}, {part for (part,) in parts})


def require_versions(root: str, versions: Sequence[int], *, of_earlier: bool = False) -> None:
    """Check the schema versions of a dataset's owners.

    Raises:
        DatabaseError: one is later than this bufdb's, or earlier if that is not wanted.
    """
    later = [version for version in versions if version > SCHEMA_VERSION]
    if later:
        raise store.of_later_version(root, max(later))
    if versions and not of_earlier and min(versions) < SCHEMA_VERSION:
        raise DatabaseError(
            f"{root} has schema version {min(versions)}, this bufdb needs {SCHEMA_VERSION}; "
            f"run 'bufdb upgrade {root}'"
        )


def unreadable(place: Storage, error: duckdb.Error) -> BufdbError:
    """Return DuckDB's error about a dataset that it cannot read, on one line."""
    if faults.is_memory(error):
        return BufdbError(f"{place.root} needs more memory than --memory-limit gives DuckDB")
    reason = " ".join(str(error).split())[:300]
    return DatabaseError(f"{place.root} cannot be read: {reason}")


def require_rows(snapshot: Snapshot) -> None:
    """Check that a dataset is there.

    Raises:
        DatabaseError: there is none, or the row of a run is lost.
    """
    root = snapshot.place.root
    if not snapshot.has_markers:
        raise DatabaseError(f"no dataset {root}; make one with 'bufdb ingest DUMPS --out {root}'")
    lost = snapshot.con.execute(
        f"SELECT run_name FROM {snapshot.owners} WHERE marker = 'modules' AND NOT is_removed "
        f"EXCEPT SELECT run_name FROM {snapshot.owners} WHERE marker = 'runs' ORDER BY ALL LIMIT 1"
    ).fetchone()
    if lost is not None:
        raise DatabaseError(
            f"{root}/runs: the row of run {lost[0]} is lost; ingest its dumps again"
        )


# -- A dataset opened for questions, as `bufdb.database.store` opens a database file ---------------
#
# Nothing outside the dataset can be reached, and nothing in it is obeyed: Parquet holds only rows.

COPIED_BYTES = 16 << 20
"""Parquet that is read into memory once, when a dataset is opened. A query may name a table thirty
times, through views upon views, and opens its files again each time."""
LARGE_OBJECT, MANY_ROWS, FEW_TIMES = 64 << 10, 5000, 5
"""Mean size and mean rows of the objects of a table, from which on their rows take longer than
their opening; and how often a question may name it, to read them there each time. What repeats
itself is small: 10,000 profiles take nine kilobytes."""
_KEY_SUMS = "sum({0})::HUGEINT AS row_count, sum(hash(module_id)::HUGEINT * ({0})) AS key_sum"
LONGEST_TEXT = 16 << 20
"""Bytes of a text in what is copied: 30 of 100 MB that are the same take eleven kilobytes."""
_OWNERS = f"{CATALOG}.stored.owners"
_ALWAYS = ("runs", "run_labels", "modules", "memory_sums", "diagnostics")
"""Tables that explain why an answer is empty, whatever was asked."""


def open_readable(
    url: str,
    sql: str | None = None,
    *,
    allow_files: bool = False,
    runs: Sequence[str] | None = None,
    before: Mapping[str, Sequence[tuple[Any, ...]]] | None = None,
) -> duckdb.DuckDBPyConnection:
    """Open a dataset for questions: one snapshot of it, locked, with bufdb's own views.

    Args and views are those of `store.open_readable`; tables that `sql` does not need are left out.

    Raises:
        UsageError: what the URL needs is not installed.
        DatabaseError: there is no dataset, or it cannot be read.
    """
    place = storage_of(url)
    con = store.open_memory()
    try:
        place.attach(con)
        con.execute(f"ATTACH ':memory:' AS {CATALOG}")
        if sql is None:
            with ready.attached_schema(con, SCHEMA_VERSION):
                columns = _furnish(con, f"{ready.READY}.main", ready.own_columns(ready.READY))
                store.copy_own_views(con)
            con.execute(f"SET search_path = '{store.search_path()}'")
        else:
            store.attach_views(con, sql)
            own = f"{ready.VIEWS}.{ready.OWN}"
            columns = _furnish(con, own, f"FROM {own}.{ready.COLUMNS}")
        con.execute("SET parquet_metadata_cache = true")
        con.execute(f"CREATE SCHEMA {CATALOG}.stored")
        # Copies are in memory; a few kilobytes of Parquet must not fill the disk instead.
        con.execute(f"SET max_temp_directory_size = '{memory.memory_limit()}B'")
        snapshot = Snapshot(con, place, _OWNERS)
        require_rows(snapshot)
        # The narrowed views hide these, which are then asked only why an answer is empty.
        few = [] if sql is None or runs is None else definitions.module_tables(sql)
        tables = [table for table in _needed(sql) if table not in few or table in _ALWAYS]
        every = snapshot.owners_of()
        times = {} if sql is None else layout.times_named(sql)
        _make(snapshot, columns, tables, f"{CATALOG}.main", every, _OWNERS, times, few)
        if few:
            _narrow(con, snapshot, columns, few, runs or (), times)
        _require_shapes(snapshot, tables)
        if not allow_files:
            place.allow(con, snapshot.paths)
        con.execute("RESET max_temp_directory_size")
        store.close_up(con, before, allow_files=allow_files)
    except duckdb.Error as error:
        con.close()
        raise unreadable(place, error) from error
    except BaseException:
        con.close()
        raise
    return con


def _furnish(con: duckdb.DuckDBPyConnection, schema: str, listed: str) -> layout.Columns:
    """Copy bufdb's own tables from a schema; return the columns of all, which SQL lists."""
    for table in sorted(layout.CONSTANT):
        con.execute(f"CREATE TABLE {CATALOG}.main.{table} AS FROM {schema}.{table}")
    return layout.columns(con, ready.READY, listed)


def _needed(sql: str | None) -> list[str]:
    """Return the tables that SQL names, by itself or by views; all if it is not known."""
    if sql is None:
        return layout.tables()
    named = layout.named(sql).union(_ALWAYS)
    return [table for table in layout.tables() if table in named]


def _make(
    snapshot: Snapshot,
    columns: layout.Columns,
    tables: Sequence[str],
    schema: str,
    of: Owners,
    owners: str,
    times: Mapping[str, int],
    as_views: Sequence[str] = (),
) -> None:
    """Make tables of the rows of some owners: the smallest as copies, the others as views.

    Args:
        snapshot: where they are.
        columns: of all tables.
        tables: those to make.
        schema: where.
        of: the owners.
        owners: the table with them.
        times: how often the question names tables.
        as_views: those never to copy.
    """
    left = COPIED_BYTES
    # Those of MARKERS are known to be sound, or they would not have been read.
    snapshot.require_sound([table for table in tables if table not in (*as_views, *MARKERS)], of)
    for table in sorted(tables, key=lambda table: snapshot.size(table, of)):
        select = table_sql(table, columns[table], snapshot.relation(table, of), owners)
        is_copied = (
            table not in as_views
            and snapshot.size(table, of) <= left
            and not _is_read_there(snapshot, table, of, times.get(table), columns[table])
        )
        left -= snapshot.size(table, of) if is_copied else 0
        if is_copied:
            select = _with_short_texts(select, columns[table])
        if is_copied and table == "file_contents":  # as a database file has them
            select = f"FROM ({select}) ORDER BY content_hash, part_ordinal"
        kind = "TABLE" if is_copied else "VIEW"
        snapshot.con.execute(f'CREATE {kind} {schema}."{table}" AS {select}')
    counts = table_sql(
        "row_counts", columns["row_counts"], snapshot.relation("row_counts", of), owners
    )
    _require_whole(
        snapshot,
        {
            table: f'{schema}."{table}"'
            for table in tables
            if table not in as_views and table != "row_counts" and "module_id" in columns[table]
        },
        counts,
    )


def _is_read_there(
    snapshot: Snapshot, table: str, of: Owners, times: int | None, types: Mapping[str, str]
) -> bool:
    """Return whether to read a few columns a few times takes less than to copy all of them once."""
    object_count = len(snapshot.chosen(table, of))
    if times is None or not object_count:
        return False
    size, rows = snapshot.size(table, of), snapshot.row_counts.get(table, 0)
    is_large = size >= LARGE_OBJECT * object_count or rows >= MANY_ROWS * object_count
    # Rows of modules are read at opening, too, to be counted.
    return (is_large and times <= FEW_TIMES) or (times == 1 and "module_id" not in types)


def _with_short_texts(select: str, types: Mapping[str, str]) -> str:
    """Return a SELECT that fails at a text that is too long to be bufdb's."""
    cells = ", ".join(
        f'CASE WHEN strlen("{column}") > {LONGEST_TEXT} '
        f"THEN error('a text in {column} has ' || strlen(\"{column}\") || ' bytes; "
        f'bufdb did not write that\') ELSE "{column}" END AS "{column}"'
        for column, kind in types.items()
        if kind == "VARCHAR"
    )
    return f"SELECT * REPLACE ({cells}) FROM ({select})" if cells else select


def _require_whole(snapshot: Snapshot, tables: Mapping[str, str], counts: str) -> None:
    """Compare tables with what ingest stored of each module; of a view, only keys are read.

    Args:
        snapshot: where they are.
        tables: their names in SQL.
        counts: a SELECT of the rows of row_counts.

    Raises:
        DatabaseError: rows are missing, or are there twice: an object was lost, cut off or copied.
    """
    if not tables:
        return
    sums = " UNION ALL ".join(
        f"SELECT {sql_text(table)} AS table_name, {_KEY_SUMS.format('1')} FROM {name} "
        "WHERE module_id IS NOT NULL"
        for table, name in tables.items()
    )
    # Sums of keys are equal where the rows of each module are, and need no table of modules.
    differing = snapshot.con.execute(
        f"SELECT table_name FROM (({sums}) UNION ALL "
        f"SELECT table_name, {_KEY_SUMS.format('-row_count')} FROM ({counts}) "
        f"WHERE table_name IN ({', '.join(map(sql_text, tables))}) GROUP BY table_name) "
        "GROUP BY table_name HAVING sum(row_count) <> 0 OR sum(key_sum) <> 0"
    ).fetchall()
    if not differing:
        return
    counted = " UNION ALL ".join(
        f"SELECT {sql_text(table)} AS table_name, module_id, count(*) AS row_count "
        f"FROM {tables[table]} WHERE module_id IS NOT NULL GROUP BY module_id"
        for (table,) in differing
    )
    names = ", ".join(sql_text(table) for (table,) in differing)
    odd = snapshot.con.execute(
        "SELECT table_name, module_id, coalesce(stored.row_count, 0), coalesce(found.row_count, 0)"
        f" FROM (FROM ({counts}) WHERE table_name IN ({names})) AS stored"
        f" FULL JOIN ({counted}) AS found USING (table_name, module_id)"
        " WHERE stored.row_count IS DISTINCT FROM found.row_count ORDER BY ALL LIMIT 1"
    ).fetchone()
    if odd is not None:
        table, module_id, stored, count = odd
        raise DatabaseError(
            f"{snapshot.place.root}/{table}: {count} rows of module {module_id:016x}, where "
            f"{stored} were stored; an object is lost or damaged: ingest the dumps again"
        )


def _require_shapes(snapshot: Snapshot, tables: Sequence[str]) -> None:
    """Check that each shape of a value has its row; those are of no module.

    Raises:
        DatabaseError: one has none.
    """
    if not {"values", "shapes"} <= set(tables):
        return
    lost = snapshot.con.execute(
        'SELECT shape FROM (SELECT DISTINCT shape FROM "values") ANTI JOIN shapes USING (shape) '
        "WHERE shape IS NOT NULL LIMIT 1"
    ).fetchone()
    if lost is not None:
        raise DatabaseError(
            f"{snapshot.place.root}/shapes: no row of {lost[0][:100]}; an object is lost or "
            "damaged: ingest the dumps again"
        )


def _narrow(
    con: duckdb.DuckDBPyConnection,
    snapshot: Snapshot,
    columns: layout.Columns,
    tables: Sequence[str],
    runs: Sequence[str],
    times: Mapping[str, int],
) -> None:
    """Put views of the modules of some runs in front of tables, with fewer objects."""
    con.execute(
        f"CREATE TEMP TABLE narrowed_runs AS {asked_runs(f'{CATALOG}.main')}",
        [list(runs)],
    )
    some = "SELECT run_name FROM temp.main.narrowed_runs"
    narrowed = f"{CATALOG}.stored.narrowed_owners"
    con.execute(f"CREATE TABLE {narrowed} AS FROM {_OWNERS} WHERE run_name IN ({some})")
    _make(snapshot, columns, tables, "memory.main", snapshot.owners_of(some), narrowed, times)


# --------------------------------------------------------------------------------------------------
# What a plain DuckDB shell executes to ask a dataset: bufdb's tables, views and macros as text.

OWNERS = "bufdb_owners"


def shell_text(url: str) -> str:
    """Return SQL that makes, in an empty database, everything that saved queries need.

    Raises:
        DatabaseError: there is no dataset, or it cannot be read.
    """
    place = storage_of(url)
    con = store.open_memory()
    try:
        place.attach(con)
        with ready.attached_schema(con, SCHEMA_VERSION):
            columns = layout.columns(con, ready.READY)
        snapshot = Snapshot(con, place, OWNERS)
        require_rows(snapshot)
        root = "".join(f"[{char}]" if char in "*?[" else char for char in place.root)
        patterns = {
            # A pattern would find what the log of a Delta table no longer lists.
            table: objects([f"{root}/{table}/dt=*/*.parquet"])
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
    lines.append(f"CREATE TEMP TABLE {OWNERS} AS\n{committed(markers)};\n")
    for table in layout.tables():
        select = table_sql(table, columns[table], patterns.get(table), OWNERS)
        lines.append(f'CREATE TEMP VIEW "{table}" AS\n{select};\n')
    lines += [definitions.tables()[table] for table in sorted(layout.CONSTANT)]
    lines += definitions.views(comments=False).values()
    return "\n".join(lines)


_HEAD = """\
-- The bufdb dataset {root} for a DuckDB shell: save as views.sql, then .read views.sql
-- {owners} is the snapshot of that moment; read this again to see later ingests.
"""
