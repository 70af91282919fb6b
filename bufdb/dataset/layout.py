"""Where rows lie in a dataset, and which of them count.

    <root>/<table>/dt=YYYY-MM-DD/<key>-<version>.parquet     rows of one owner
    <root>/<table>/dt=YYYY-MM-DD/part-<part>-<n>.parquet     rows of many, from `bufdb compact`

An owner is a module, or a run as it was ingested from one place; its key is the hash of run and
module. Its content decides the version, so that the same dumps are written to the same names.
Objects are never changed, only made and, long after they were replaced, removed. An owner is
committed by its row in `modules` or `runs`, which is written last; of several versions of an owner
the highest counts, of several copies of a version that of the highest part.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime

import duckdb

from bufdb.database import definitions, ready

CONSTANT = definitions.CONSTANT
SHARED = {"shapes": ("shape",), "file_contents": ("content_hash", "part_ordinal")}
"""Tables with rows that several modules share, and the key of a row: each module has its own."""
MARKERS = ("runs", "modules")
"""Tables whose rows commit owners."""
UNKNOWN_DAY = "1970-01-01"
"""Day of runs whose dump time is not known."""
LOOSE = 0
"""part_id of rows in an object of their owner alone."""
OWN_COLUMNS = {"owner_id": "BIGINT", "owner_version": "BIGINT", "part_id": "BIGINT"}
"""Columns that every object has after those of its table."""
MARKER_COLUMNS = {"is_removed": "BOOLEAN", "schema_version": "INTEGER"}
"""Further columns of objects of MARKERS."""
_STORED_AS = {"HUGEINT": "DECIMAL(38,0)", "UBIGINT": "DECIMAL(20,0)"}
"""Types that Parquet lacks; DuckDB would make floating point of a HUGEINT."""
_HASH_BITS = 40
_NAME = re.compile(
    r"(?P<table>\w+)/dt=(?P<day>\d{4}-\d\d-\d\d)/"
    r"(?:(?P<key>[0-9a-f]{16})-(?P<version>[0-9a-f]{16})|part-(?P<part>[0-9a-f]{16})-\d+)"
    r"\.parquet"
)
_PROSE = re.compile(r"--.*|'(?:[^']|'')*'|\bvalues\s*\(")
"""Comments and texts of SQL, and a keyword that is also the name of a table."""
_SOURCE = re.compile(r"\b\w+\b(?!\.)")
"""A word that does not qualify a column."""
_DAY = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)

Columns = dict[str, dict[str, str]]
"""The types of the columns of each table, in order."""


@dataclass(frozen=True)
class Name:
    """What the name of an object says."""

    table: str
    day: str
    owner_id: int | None
    """Whose rows it has; None for a part."""
    owner_version: int | None
    part_id: int | None
    """None in a Delta table, whose file names say nothing."""


def tables() -> list[str]:
    """Return the names of the tables of a dataset; markers last, as they are written."""
    names = definitions.tables().keys() - CONSTANT
    return [*sorted(names.difference(MARKERS)), *MARKERS]


def named(sql: str) -> set[str]:
    """Return the tables that a saved query needs: it names them itself, or by views."""
    whole = "\n".join([sql, *definitions.views(sql, comments=False).values()])
    return definitions.tables().keys() & set(re.findall(r"\w+", _PROSE.sub("", whole.lower())))


def times_named(sql: str) -> Mapping[str, int]:
    """Return how often a saved query names each table that it needs, counted through the views."""
    texts = {"": sql, **definitions.views(sql, comments=False)}
    words = {name: Counter(_SOURCE.findall(_PROSE.sub("", text))) for name, text in texts.items()}
    times = Counter({"": 1})
    for name in ["", *reversed(list(texts)[1:])]:  # what uses a view comes before it
        for word, count in words[name].items():
            if word != name:
                times[word] += times[name] * count
    return {table: times[table] for table in named(sql)}


def columns(con: duckdb.DuckDBPyConnection, catalog: str, sql: str | None = None) -> Columns:
    """Return all tables of bufdb's schema, as a database of `con` has them or as SQL gives them."""
    rows = con.execute(sql or ready.own_columns(catalog)).fetchall()
    columns_of: Columns = {table: {} for table in definitions.tables()}
    for table, column, data_type in rows:
        if table in columns_of:
            columns_of[table][column] = data_type
    return columns_of


def stored_type(data_type: str) -> str:
    """Return the type in which a column of one of DuckDB's types is stored in Parquet."""
    return _STORED_AS.get(data_type, data_type)


def extra_columns(table: str) -> dict[str, str]:
    """Return the types of the columns that an object has after those of its table."""
    return OWN_COLUMNS | (MARKER_COLUMNS if table in MARKERS else {})


def object_name(table: str, day: str, owner_id: int, version: int) -> str:
    """Return the object of one owner, below the root."""
    return f"{table}/dt={day}/{owner_id:016x}-{version:016x}.parquet"


def part_name(table: str, day: str, part_id: int, number: int) -> str:
    """Return an object with rows of many owners, below the root."""
    return f"{table}/dt={day}/part-{part_id:016x}-{number}.parquet"


def parse(name: str) -> Name | None:
    """Return what an object's name below the root says; None for anything else there."""
    match = _NAME.fullmatch(name)
    if match is None:
        return None
    if match["part"] is not None:
        return Name(match["table"], match["day"], None, None, int(match["part"], 16))
    key, version = int(match["key"], 16), int(match["version"], 16)
    return Name(match["table"], match["day"], key, version, LOOSE)


def run_key(run: str, source: str) -> int:
    """Return the key of a run as it is ingested from one place: a hash of 63 bits.

    Hosts that ingest parts of one run each have rows of their own for it, and none waits for
    another.
    """
    digest = hashlib.blake2b(f"run\0{run}\0{source}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def version_of(content: Iterable[object], before: int | None) -> int:
    """Return a version for `content`, to follow `before`: 23 bits are a count, 40 a hash.

    It is `before` itself if that was made of the same.
    """
    text = repr([str(part) for part in content])
    digest = hashlib.blake2b(text.encode(errors="surrogateescape"), digest_size=_HASH_BITS // 8)
    low = int.from_bytes(digest.digest(), "little")
    if before is None:
        return low
    count, same = divmod(before, 1 << _HASH_BITS)
    return before if same == low else ((count + 1) << _HASH_BITS) | low


def later_version(content: Iterable[object], before: int) -> int:
    """Return a version for `content` that replaces `before`, even if that was made of the same."""
    version = version_of(content, before)
    return version if version != before else before + (1 << _HASH_BITS)


def follows(version: int) -> bool:
    """Return whether a version replaced another one."""
    return version >= 1 << _HASH_BITS


def next_part(before: int) -> int:
    """Return a part_id above `before` that no other compaction has at the same time."""
    count = (before >> _HASH_BITS) + 1
    return (count << _HASH_BITS) | int.from_bytes(os.urandom(_HASH_BITS // 8), "little")


def day_of(seconds: float | None) -> str:
    """Return the day of an instant [s since 1970], in UTC; UNKNOWN_DAY if there is none."""
    try:
        return datetime.fromtimestamp(seconds or 0, UTC).strftime("%Y-%m-%d").rjust(10, "0")
    except (ValueError, OverflowError, OSError):  # no time at all, or not in years 1 to 9999
        return UNKNOWN_DAY


def day_in(path: str) -> str:
    """Return the day of an object, by its path."""
    return path.rpartition("/dt=")[2].partition("/")[0]


def is_day(text: str) -> bool:
    """Return whether a text can be the value of dt: a date written exactly as 2026-01-31."""
    try:
        return _DAY.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False
