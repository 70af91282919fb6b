"""Dump files below the paths given: which they are, and which belong to one module.

Files of one module share a stem: the name without part suffix and extension (format section 2). A
file without a name of XLA's is recognized by its content, also when it is the captured standard
output of `--xla_dump_to=-`, where each file is in a frame.
"""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

from bufdb.dumps.archives import ARCHIVES, Member, expand, inner_name, is_archive
from bufdb.dumps.files import (
    ModuleFiles,
    Problem,
    Walk,
    as_text,
    before_of,
    kind_of_entry,
    open_file,
    stem_of,
)
from bufdb.dumps.memory_profiles import WATCHED, MemoryFile, below
from bufdb.dumps.modules import NOT_A_DUMP, modules_of
from bufdb.dumps.pasted import looks_like
from bufdb.dumps.place import Bytes, Files, Place
from bufdb.dumps.remote import Url, listed
from bufdb.errors import UsageError

Source = Path | Bytes | Files | Url
"""Where modules are looked for."""

_LOOK_BYTES = 1 << 18


def discover(
    path: Source,
    problems: list[Problem] | None = None,
    memory_files: list[MemoryFile] | None = None,
) -> list[ModuleFiles]:
    """Return the modules in a directory and all below it, or of one file, in order of their keys.

    A single file brings along the files next to it that belong to the same module.

    Args:
        path: a directory, a file, an archive, a URL, bytes, or files by name.
        problems: takes what is left out or could not be read; without it that is ignored.
        memory_files: takes the memory profiles in a directory or archive, or at a URL.

    Raises:
        UsageError: there is no such path, or it is neither a directory nor a file.
    """
    odd: list[Problem] = [] if problems is None else problems
    if isinstance(path, Bytes):
        return _found({path.name: path}, odd)
    if isinstance(path, Files):
        return modules_of(dict(path.files), odd)
    if isinstance(path, Url):
        files = expand(dict(listed(path)), odd, is_given=is_archive(path.name))
        return _found(_without_memory(files, odd, memory_files), odd)
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"no such file or directory: {path}") from error
    except OSError as error:
        raise UsageError(f"cannot access {path}: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        walk = Walk(odd)
        walk.run(path)
        files = expand(dict(walk.files), odd)
        return modules_of(_without_memory(files, odd, memory_files), odd)
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"{path} is {kind_of_entry(mode)}; dumps are read from files and directories, "
            "so save it to one, or pipe it into 'bufdb ingest -'"
        )
    if path.name.endswith(WATCHED):
        # It quotes the error, which would be read as a message of an out-of-memory.
        why = "bufdb.watch wrote it: it is read with the memory profile (.prof) next to it"
        odd.append(Problem(as_text(path.name), "notice", NOT_A_DUMP, why))
        return []
    files = _of_one_module(path)
    files = expand(files, odd, is_given=True)
    if is_archive(path.name):
        files = _without_memory(files, odd, memory_files)
    modules = _found(files, odd)
    chosen = [m for m in modules if any(_is_of(f.path, path) for f in m.files.values())]
    return chosen or modules


def _without_memory(
    files: dict[str, Path | Place], odd: list[Problem], memory_files: list[MemoryFile] | None
) -> dict[str, Path | Place]:
    """Return files without memory profiles, which are added to `memory_files`."""
    every_file = list(below(files, odd))
    if memory_files is not None:
        memory_files += every_file
    taken = {file.name for file in every_file if not file.is_log}
    # What bufdb.watch writes quotes the error, and is no log.
    return {n: file for n, file in files.items() if n not in taken and not n.endswith(WATCHED)}


def _found(files: dict[str, Path | Place], odd: list[Problem]) -> list[ModuleFiles]:
    """Return the modules of files; if a single file has none, report what it is."""
    modules = modules_of(files, odd)
    if not modules and len(files) == 1:
        ((name, path),) = files.items()
        with contextlib.suppress(OSError), open_file(path) as file:
            odd.append(
                Problem(name, "notice", NOT_A_DUMP, looks_like(file.read(_LOOK_BYTES) or b""))
            )
    return modules


def _of_one_module(path: Path) -> dict[str, Path | Place]:
    """Return a file and those next to it that share its stem; an archive alone."""
    if is_archive(path.name):
        return {as_text(path.name): path}
    try:
        siblings = list(path.parent.iterdir())
    except OSError:
        siblings = []

    def name(file: Path) -> str:
        return inner_name(file.name) or file.name

    stem = stem_of(name(path))
    relatives = [f for f in siblings if stem_of(name(f)) == stem or name(f) == before_of(stem)]
    files = [path, *(file for file in relatives if file.is_file())]
    return {as_text(file.name): file for file in files}


def _is_of(place: Path | Place, path: Path) -> bool:
    return (place.outer if isinstance(place, Member) else place) == path


def base_of(path: Source) -> Path:
    """Return the directory whose name a run takes: the path, or the directory of a file.

    An archive is one without its suffix; a URL and standard input have the last part of their name.
    """
    name = path.name
    if not isinstance(path, Path):
        is_single = not isinstance(path, Url) or any(name.endswith(end) for end in (".txt", ".log"))
        parent = str(path).rstrip("/").rpartition("/")[0].rpartition("/")[2]
        name = (parent or name) if isinstance(path, Url) and is_single else name
    elif not is_archive(name):
        return path if path.is_dir() else path.parent
    for suffix in sorted(ARCHIVES, key=len, reverse=True):
        if name.lower().endswith(suffix):
            name = name[: -len(suffix)] or name
            break
    return path.with_name(name) if isinstance(path, Path) else Path(name)
