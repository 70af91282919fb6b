"""The place of a dataset: a folder, or a bucket through fsspec (extra `bufdb[remote]`).

An object appears under its name whole or not at all: in a folder by renaming, in a bucket because
one request puts it there.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import duckdb

from bufdb.database.quoting import sql_text
from bufdb.dumps.file_systems import failure, file_system, written_s
from bufdb.errors import BufdbError, DatabaseError

RECENT_S = 600.0
"""How long an object stays as it is when another writer brings the same [s]. It is far less than
what `bufdb compact` leaves to readers: an object that is kept is not about to be removed."""
STAGING = "_staging"
"""Folder below the root of a local dataset in which objects are made."""
_ALLOWED = "SET allowed_paths = [{}]"


@dataclass(frozen=True)
class Listed:
    """What a listing says of an object."""

    written_s: float
    """When it was written [s since 1970]."""
    size_bytes: int


class Storage(Protocol):
    """What holds the objects of a dataset, by names below its root."""

    root: str
    """As DuckDB reads it, without a slash at its end."""

    def names(self, table: str) -> dict[str, Listed]:
        """Return the objects of a table, by name below the root."""

    def staging(self) -> contextlib.AbstractContextManager[Path]:
        """Return a folder in which objects are made; gone after the block."""

    def clear_staging(self, before_s: float) -> int:
        """Remove folders unused since then [s since 1970]; return how many.

        Their writers were stopped; a folder that is in use changes, or is touched.
        """

    def put(self, made: Path, name: str) -> None:
        """Make an object appear, unless one of its name has just been written.

        Its name determines its rows, though not its bytes, since versions of DuckDB and batches of
        modules differ: a reader of the other object, at its beginning now and at its end a moment
        later, must not find half of this one there.
        """

    def fetch(self, name: str, target: Path) -> None:
        """Copy an object into a file.

        Raises:
            DatabaseError: it cannot be read.
        """

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects, which may be gone already."""

    def attach(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let `con` read objects."""

    def allow(self, con: duckdb.DuckDBPyConnection, paths: Iterable[str]) -> None:
        """Let `con` read these even when it is locked."""


def storage_of(text: str) -> Storage:
    """Return the place that a user names: a folder or a URL.

    Raises:
        UsageError: what a URL needs is not installed.
    """
    scheme, colon, rest = text.partition("://")
    if not colon:
        return Folder(Path(text))
    return Folder(Path(rest)) if scheme == "file" else Bucket(text)


@dataclass
class Folder:
    """A folder on disk, which several hosts may share."""

    path: Path

    def __post_init__(self) -> None:
        self.root = str(self.path.absolute()).rstrip("/")

    def names(self, table: str) -> dict[str, Listed]:
        """Return the objects of a table; links do not count."""
        listed: dict[str, Listed] = {}
        for day in _entries(self._inside(table)):
            if day.is_dir(follow_symlinks=False):
                for file in _entries(Path(day.path)):
                    with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                        if file.is_file(follow_symlinks=False):
                            stat = file.stat(follow_symlinks=False)
                            name = f"{table}/{day.name}/{file.name}"
                            listed[name] = Listed(stat.st_mtime, stat.st_size)
        return listed

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a folder on the same disk, so that an object can be renamed into its place."""
        above = self._inside(STAGING)
        above.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=above))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def clear_staging(self, before_s: float) -> int:
        """Remove folders of writers that were stopped; links do not count."""
        count = 0
        for entry in _entries(self._inside(STAGING)):
            if entry.is_dir(follow_symlinks=False) and _changed_s(Path(entry.path)) < before_s:
                shutil.rmtree(entry.path, ignore_errors=True)
                count += 1
        return count

    def put(self, made: Path, name: str) -> None:
        """Link it into its place, or rename it where nothing can be linked."""
        target = self._inside(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(made, target)
        except FileExistsError:
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                if not target.is_symlink() and _is_recent(target.stat().st_mtime):
                    return
            made.replace(target)
        except OSError:  # a file system without links
            made.replace(target)

    def fetch(self, name: str, target: Path) -> None:
        """Copy a file."""
        try:
            shutil.copyfile(self._inside(name), target, follow_symlinks=False)
        except OSError as error:
            raise DatabaseError(f"{self.root}/{name}: cannot be read: {error.strerror}") from error

    def remove(self, names: Iterable[str]) -> None:
        """Remove files."""
        for name in names:
            self._inside(name).unlink(missing_ok=True)

    def _inside(self, name: str) -> Path:
        """Return the path of an object or a folder, to which no link leads out of the dataset.

        Raises:
            DatabaseError: a folder of the dataset is a link; the root itself may be one.
        """
        path = Path(os.path.realpath(self.root)) / name
        folder = path.parent if name.count("/") else path
        if os.path.realpath(folder) != str(folder):
            text = "is a symbolic link; the folders of a dataset must be inside it"
            raise DatabaseError(f"{folder}: {text}")
        return path

    def attach(self, con: duckdb.DuckDBPyConnection) -> None:
        """Do nothing: DuckDB reads files by itself."""

    def allow(self, con: duckdb.DuckDBPyConnection, paths: Iterable[str]) -> None:
        """Let `con` read what is in the folder: DuckDB takes 2 s for a list of 100,000 files.

        If links are in it, these files alone: to DuckDB `link/..` is inside, to the system it is
        the folder above what the link leads to.
        """
        if _has_link(self.path):
            con.execute(_ALLOWED.format(", ".join(sql_text(path) for path in sorted(paths))))
        else:
            con.execute(f"SET allowed_directories = [{sql_text(self.root + '/')}]")


class Bucket:
    """A folder of an object store, or of any other file system that fsspec has."""

    def __init__(self, url: str) -> None:
        """Find the file system.

        Raises:
            UsageError: it is not installed, or there is none of that name.
        """
        self.root = url.rstrip("/")
        self.system, path = file_system(self.root)
        self.path = path.rstrip("/")
        put_file = getattr(self.system, "_put_file", self.system.put_file)
        self._creates = "mode" in inspect.signature(put_file).parameters
        """Whether a request can say that it replaces nothing."""

    def names(self, table: str) -> dict[str, Listed]:
        """Return the objects of a table, as the store lists them now."""
        try:
            self.system.invalidate_cache()
            objects: dict[str, dict[str, Any]] = self.system.find(
                f"{self.path}/{table}", detail=True
            )
        except FileNotFoundError:
            return {}
        except Exception as error:  # each file system has classes of its own
            raise failure(error, self.root, DatabaseError) from error
        return {
            place[len(self.path) :].lstrip("/"): Listed(_time(info), info.get("size") or 0)
            for place, info in objects.items()
            if info.get("type", "file") == "file"
        }

    @contextlib.contextmanager
    def staging(self) -> Iterator[Path]:
        """Yield a folder for temporary files."""
        with tempfile.TemporaryDirectory(prefix="bufdb-") as folder:
            yield Path(folder)

    def clear_staging(self, before_s: float) -> int:
        """Do nothing: temporary files are those of the machine that makes them."""
        return 0

    def put(self, made: Path, name: str) -> None:
        """Send it by one request, or by parts that become an object together."""
        target = f"{self.path}/{name}"
        try:
            if self._creates:
                try:
                    self.system.put_file(str(made), target, mode="create")
                    return
                except FileExistsError:
                    if _is_recent(_time(self.system.info(target))):
                        return
            self.system.put_file(str(made), target)
        except Exception as error:  # as above
            raise failure(error, f"{self.root}/{name}", BufdbError) from error

    def fetch(self, name: str, target: Path) -> None:
        """Download it."""
        try:
            self.system.get_file(f"{self.path}/{name}", str(target))
        except Exception as error:  # as above
            raise failure(error, f"{self.root}/{name}", DatabaseError) from error

    def remove(self, names: Iterable[str]) -> None:
        """Remove objects."""
        for name in names:
            try:
                self.system.rm_file(f"{self.path}/{name}")
            except FileNotFoundError:
                continue
            except Exception as error:  # as above
                raise failure(error, f"{self.root}/{name}", BufdbError) from error

    def attach(self, con: duckdb.DuckDBPyConnection) -> None:
        """Let DuckDB read through this file system."""
        con.register_filesystem(self.system)

    def allow(self, con: duckdb.DuckDBPyConnection, paths: Iterable[str]) -> None:
        """Let `con` read these alone: DuckDB does not know what a server makes of `..`."""
        con.execute(_ALLOWED.format(", ".join(sql_text(path) for path in sorted(paths))))


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder, nothing if there is none.

    Raises:
        DatabaseError: it cannot be listed.
    """
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DatabaseError(f"{folder}: cannot be listed: {error.strerror}") from error


def _has_link(folder: Path) -> bool:
    """Return whether a symbolic link, or what cannot be read, is anywhere below a folder."""
    folders = [str(folder)]
    while folders:
        try:
            with os.scandir(folders.pop()) as entries:
                for entry in entries:
                    if entry.is_symlink():
                        return True
                    if entry.is_dir(follow_symlinks=False):
                        folders.append(entry.path)
        except FileNotFoundError:
            continue
        except OSError:
            return True
    return False


def _changed_s(folder: Path) -> float:
    """Return when something below a folder was made or written last [s since 1970]."""
    times = [0.0]
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # renamed meanwhile
            times.append(path.stat(follow_symlinks=False).st_mtime)
    return max(times)


def _time(info: dict[str, Any]) -> float:
    """Return when an object was written; one that does not say is not removed for its age."""
    written = written_s(info)
    return math.inf if written is None else written


def _is_recent(written_s: float) -> bool:
    return time.time() - written_s < RECENT_S
