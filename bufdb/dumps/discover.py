"""Dump files below the paths given: which they are, and which belong to one module.

Files of one module share a stem: the name without part suffix and extension (format section 2). A
file that does not bear XLA's name is recognised by its content, also when it is the captured
standard output of `--xla_dump_to=-`, where each file stands in a frame.
"""

from __future__ import annotations

import stat
from pathlib import Path

from bufdb.dumps.files import ModuleFiles, Oddity, as_text, before_of, stem_of
from bufdb.dumps.modules import modules_of
from bufdb.dumps.walk import Walk, kind_of_entry
from bufdb.errors import UsageError


def discover(path: Path, oddities: list[Oddity] | None = None) -> list[ModuleFiles]:
    """The modules in a directory and all below it, or of one file, in order of their keys.

    A single file brings along the files beside it that belong to the same module.

    Args:
        path: a directory or a file.
        oddities: takes what is left out or could not be looked into; without it that is passed
            over.

    Raises:
        UsageError: there is no such path, or it is neither a directory nor a file.
    """
    odd: list[Oddity] = [] if oddities is None else oddities
    try:
        mode = path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UsageError(f"no such file or directory: {path}") from error
    except OSError as error:
        raise UsageError(f"cannot look at {path}: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        walk = Walk(odd)
        walk.run(path)
        return modules_of(walk.files, odd)
    if not stat.S_ISREG(mode):
        raise UsageError(
            f"{path} is {kind_of_entry(mode)}; dumps are read from files and directories, "
            "so save it to one"
        )
    try:
        siblings = list(path.parent.iterdir())
    except OSError:
        siblings = []
    stem = stem_of(path.name)
    theirs = [f for f in siblings if stem_of(f.name) == stem or f.name == before_of(stem)]
    mine = [path, *(file for file in theirs if file.is_file())]
    modules = modules_of({as_text(file.name): file for file in mine}, odd)
    chosen = [m for m in modules if any(f.path == path for f in m.files.values())]
    return chosen or modules


def base_of(path: Path) -> Path:
    """The directory whose name a run takes: the path, or the directory of a file."""
    return path if path.is_dir() else path.parent
