"""The dump files that a database keeps, byte for byte under the names that they were read by."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path, PurePosixPath

import xxhash

from bufdb.answers.opening import Open
from bufdb.database.contents import stored_parts
from bufdb.database.definitions import CATALOG
from bufdb.database.engine import duckdb
from bufdb.dumps.contents import expanded
from bufdb.errors import BufdbError, UsageError, listed, quote
from bufdb.export.tables import Selection
from bufdb.query.header import Value

_FILES = f"""
SELECT DISTINCT modules.run_name, files.path, files.content_hash, files.size_bytes, runs.dumped_at
FROM {CATALOG}.main.files AS files
JOIN temp.main.exported_modules AS modules ON modules.module_id = files.module_id
JOIN {CATALOG}.main.runs AS runs ON runs.run_name = modules.run_name
ORDER BY ALL
"""
_MOST_NAMED = 3
_Targets = dict[str, list[tuple[Path, datetime | None]]]
"""By content_hash, the files with that content and when their run was dumped."""


def export_sources(
    opened: Open,
    folder: Path,
    *,
    run: str | None = None,
    function: str | None = None,
    module: str | None = None,
) -> list[str]:
    """Write the dump files of modules into a new folder, those of each run below its name.

    A file has the time of its run's dumps. Filters are those of `export`.

    Returns:
        Notes for the reader.

    Raises:
        UsageError: the folder is not empty, or cannot be made.
        BufdbError: no file is kept, or one is damaged or cannot be written.
    """
    globs = {"run": run, "function": function, "module": module}
    filters: dict[str, Value] = {name: text for name, text in globs.items() if text is not None}
    con = opened(allow_files=True, runs=None if run is None else [run])
    Selection(con, filters, anonymous=False)
    made = folder.with_name(f".{folder.name}-{os.urandom(8).hex()}.tmp")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} exists already; --sources wants a new folder")
        made.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from error
    try:
        targets, sizes = _targets(con, made)
        lost = _write(con, targets, sizes)
        if len(lost) == len(targets):
            raise BufdbError(
                "no dump file is kept: what was ingested with --no-sources or by an older bufdb "
                "has none; ingest the dumps again"
            )
        if folder.exists():
            folder.rmdir()
        made.rename(folder)
    except (OSError, duckdb.Error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise BufdbError(f"cannot write {folder}: {reason.splitlines()[0]}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
    if not lost:
        return []
    names = [str(path.relative_to(made)) for one in lost for path, _ in targets[one]]
    text = listed(sorted(names), _MOST_NAMED)
    return [f"{len(names)} files are not kept and not written: {text}"]


def _targets(con: duckdb.DuckDBPyConnection, folder: Path) -> tuple[_Targets, dict[str, int]]:
    """Return where to write each content, and its size.

    Raises:
        BufdbError: a name would lead out of the folder.
    """
    targets: _Targets = {}
    sizes: dict[str, int] = {}
    taken: set[Path] = set()
    for run, path, content_hash, size, dumped_at in con.execute(_FILES).fetchall():
        for name in (run, path):
            parts = PurePosixPath(name).parts
            if not parts or name.startswith("/") or ".." in parts or "\0" in name:
                raise BufdbError(
                    f"the name {quote(name)} leads out of a folder; nothing is written"
                )
        target = folder / run / path
        if target in taken:
            raise BufdbError(f"two files would be {quote(f'{run}/{path}')}; choose runs with --run")
        taken.add(target)
        targets.setdefault(content_hash, []).append((target, dumped_at))
        sizes[content_hash] = size
    return targets, sizes


def _write(
    con: duckdb.DuckDBPyConnection, targets: _Targets, sizes: Mapping[str, int]
) -> list[str]:
    """Write all files; return the contents that are not there.

    Raises:
        BufdbError: one is damaged.
        OSError: it cannot be written.
    """
    lost = set(targets)
    for content_hash in [one for one in targets if sizes[one] == 0]:
        _place(content_hash, targets)
        lost.discard(content_hash)
    digests: dict[str, xxhash.xxh3_128] = {}
    for content_hash, piece in pieces(con):
        if content_hash in targets:
            digests.setdefault(content_hash, xxhash.xxh3_128()).update(piece)
            first, _ = targets[content_hash][0]
            first.parent.mkdir(parents=True, exist_ok=True)
            with first.open("ab") as file:
                file.write(piece)
    for content_hash, digest in digests.items():
        if digest.hexdigest() != content_hash:
            first, _ = targets[content_hash][0]
            raise BufdbError(f"the kept bytes of {first.name} are damaged; nothing is written")
        _place(content_hash, targets)
        lost.discard(content_hash)
    return sorted(lost)


def _place(content_hash: str, targets: _Targets) -> None:
    """Copy the first file of a content to all others, and date them."""
    first, _ = targets[content_hash][0]
    first.parent.mkdir(parents=True, exist_ok=True)
    first.touch()
    for path, dumped_at in targets[content_hash]:
        if path != first:
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(first, path)
        if dumped_at is not None:
            seconds = dumped_at.replace(tzinfo=UTC).timestamp()
            os.utime(path, (seconds, seconds))


def pieces(con: duckdb.DuckDBPyConnection) -> Iterator[tuple[str, bytes]]:
    """Yield the bytes of all files, piece by piece, with their content_hash.

    Raises:
        BufdbError: a piece is damaged.
    """
    for content_hash, _, size, compressed in stored_parts(con, CATALOG):
        try:
            yield content_hash, expanded(compressed, size)
        except OSError as error:
            raise BufdbError(f"a kept dump file is damaged: {error.strerror}") from error
