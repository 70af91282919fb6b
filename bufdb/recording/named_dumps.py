"""Dumps that a question names by their paths: a database of them in the user's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from bufdb import __version__, resources, user_cache
from bufdb.database.store import SCHEMA_VERSION
from bufdb.dumps.discover import Source, base_of
from bufdb.dumps.place import Bytes
from bufdb.ingest.ingest import ingest
from bufdb.ingest.plan import Progress, Summary

MOST_BYTES = 2 << 30
"""Of all databases in the cache; the one that was asked longest ago goes first."""
_FOLDER, _SUFFIX = "dumps", ".duckdb"


class Named(NamedTuple):
    """A database of dumps, the run of each path, and how each was read."""

    db: str
    run_names: list[str]
    summaries: list[Summary]


@contextmanager
def database_of(
    paths: Sequence[Source],
    observed: Callable[[], AbstractContextManager[Progress | None]],
    own_globs: Sequence[str] | None = None,
) -> Iterator[Named]:
    """Yield a database with a run for each path, named after its directory.

    It stays in the user's cache. The same paths make the same database, and what has not changed
    since, by content, is not read again; what is gone from them is removed. Without a cache it is
    removed after the block.

    Args:
        paths: dump directories, archives, single files, URLs or bytes.
        observed: yields what receives the bytes done and in total.
        own_globs: what counts as the user's own code.

    Raises:
        UsageError: a path does not exist or holds no dump.
    """
    place = user_cache.folder(_FOLDER)
    made = None if place is not None else Path(tempfile.mkdtemp(prefix="bufdb-"))
    file = (place or made or Path()) / f"{_key(paths, own_globs)}{_SUFFIX}"
    names = run_names(paths)
    try:
        with observed() as progress:
            summaries = [
                ingest(
                    str(file), [path], run=name, prune=True, own_globs=own_globs, jobs=None,
                    progress=progress, keeps_sources=False,
                )
                for path, name in zip(paths, names, strict=True)
            ]  # fmt: skip
        if place is not None:
            with suppress(OSError):
                os.utime(file)
                user_cache.make_room(place, (_SUFFIX,), MOST_BYTES)
        yield Named(str(file), names, summaries)
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)


def run_names(paths: Sequence[Source]) -> list[str]:
    """Return a name for each path: its last folder, with those above where they are alike.

    Of several files of one folder it has the file.
    """
    parts = [Path(os.path.abspath(base_of(path))).parts[1:] for path in paths]  # noqa: PTH100
    if len({*parts}) < len({*map(str, paths)}):
        parts = [
            (*part, path.name) if isinstance(path, Path) and path.is_file() else part
            for part, path in zip(parts, paths, strict=True)
        ]
    names: list[str] = []
    for depth in range(1, max(map(len, parts), default=0) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len({*names}) == len({*parts}):
            break
    return [name or "dumps" for name in names]


def _key(paths: Sequence[Source], own_globs: Sequence[str] | None) -> str:
    """Return the hash of where the dumps are, how they are read, and of the tables."""
    where = [_where(path) for path in paths]
    tables = [path.read_bytes() for path in resources.schema_files("tables")]
    described = (__version__, SCHEMA_VERSION, tables, where, own_globs and [*own_globs])
    return hashlib.sha256(repr(described).encode()).hexdigest()[:32]


def _where(path: Source) -> str | bytes:
    if isinstance(path, Bytes):
        return path.content
    return os.path.abspath(path) if isinstance(path, Path) else str(path)  # noqa: PTH100
