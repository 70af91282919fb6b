"""The log of a Delta table, from which it is known which files it has: read without delta-rs.

Source: the Delta transaction log protocol (PROTOCOL.md of delta-io/delta), readers of version 1,
and of version 3 with features that change no row. What is not known to be such is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import duckdb

from bufdb.dataset.layout import quoted
from bufdb.dataset.places import Listed
from bufdb.errors import DatabaseError

FOLDER = "_delta_log"
_FEATURES = frozenset(["timestampNtz", "vacuumProtocolCheck"])
"""Features with which a file still has all rows of the table that it seems to have, as they are."""
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint\.parquet")


@dataclass
class Log:
    """A Delta table as of its last commit."""

    version: int
    files: set[str] = field(default_factory=set)
    """Names below the table."""
    lost_version: int = -1
    """The last commit that may have taken rows away; what only moves them does not count."""


def is_log(names: Mapping[str, Listed], table: str) -> bool:
    """Whether among the objects of a table is a Delta log."""
    return any(name.startswith(f"{table}/{FOLDER}/") for name in names)


def version(names: Mapping[str, Listed], table: str) -> int:
    """The last commit of a table; -1 if it has none."""
    commits, checkpoint = _parts(names, table)
    return max([checkpoint, *commits])


def read(con: duckdb.DuckDBPyConnection, root: str, table: str, names: Mapping[str, Listed]) -> Log:
    """What the log of a table says.

    Args:
        con: reads the log.
        root: of the dataset, as `con` reads it.
        table: its name.
        names: its objects, those of the log among them.

    Raises:
        DatabaseError: the log is damaged, or asks for more than a list of files.
    """
    commits, checkpoint = _parts(names, table)
    where = f"{root}/{table}"
    last = max([checkpoint, *commits])
    wanted = range(checkpoint + 1, last + 1)
    if any(number not in commits for number in wanted):
        raise DatabaseError(f"{where}: a commit of its Delta log is missing")
    log = Log(last, lost_version=checkpoint)
    try:
        if checkpoint >= 0:
            path = f"{where}/{FOLDER}/{checkpoint:020}.checkpoint.parquet"
            rows = con.execute(
                "SELECT to_json({'add': add, 'protocol': protocol})"
                f"FROM read_parquet({quoted(path)}) WHERE add IS NOT NULL OR protocol IS NOT NULL"
            )
            for (text,) in _fetched(rows):
                _apply(log, checkpoint, json.loads(text), where)
        if wanted:
            paths = ", ".join(quoted(f"{where}/{FOLDER}/{number:020}.json") for number in wanted)
            rows = con.execute(
                f"SELECT parse_filename(filename, true), json::VARCHAR FROM read_ndjson_objects("
                f"[{paths}], filename = true) ORDER BY ALL"
            )
            for stem, text in _fetched(rows):
                _apply(log, int(stem), json.loads(text), where)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DatabaseError(f"{where}: its Delta log is damaged") from error
    return log


def _parts(names: Mapping[str, Listed], table: str) -> tuple[set[int], int]:
    """Numbers of the commits, and of the last checkpoint; -1 if there is none."""
    texts = [name.rpartition("/")[2] for name in names if name.startswith(f"{table}/{FOLDER}/")]
    commits = {int(found[1]) for text in texts if (found := _COMMIT.fullmatch(text))}
    checkpoints = [int(found[1]) for text in texts if (found := _CHECKPOINT.fullmatch(text))]
    return commits, max(checkpoints, default=-1)


def _fetched(rows: duckdb.DuckDBPyConnection) -> Iterator[tuple[Any, ...]]:
    while many := rows.fetchmany(10_000):
        yield from many


def _apply(log: Log, number: int, action: dict[str, Any], where: str) -> None:
    """Let an action of a commit have happened.

    Within a commit no file is both added and removed, so their order does not matter.
    """
    protocol, added, removed = (action.get(name) for name in ("protocol", "add", "remove"))
    if protocol is not None:
        _require_plain(protocol, where)
    if added is not None:
        if added.get("deletionVector") is not None:
            raise DatabaseError(f"{where} has deletion vectors, which bufdb does not read; {_CURE}")
        log.files.add(unquote(added["path"]))
    if removed is not None:
        log.files.discard(unquote(removed["path"]))
        if removed.get("dataChange", True):
            log.lost_version = max(log.lost_version, number)


_CURE = "ingest the dumps again, into another folder"


def _require_plain(protocol: dict[str, Any], where: str) -> None:
    """Nothing if a list of files is all that a reader of this protocol needs.

    Raises:
        DatabaseError: it is not.
    """
    needed, features = protocol["minReaderVersion"], set(protocol.get("readerFeatures") or ())
    if "deletionVectors" in features:
        raise DatabaseError(f"{where} has deletion vectors, which bufdb does not read; {_CURE}")
    unknown = sorted(features - _FEATURES)
    if unknown or needed not in (1, 3):
        what = ", ".join(unknown)[:200] or f"readers of version {needed}"
        raise DatabaseError(f"{where} is a Delta table for {what}, which bufdb does not know")
