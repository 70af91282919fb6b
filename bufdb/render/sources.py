"""Sources of programs, which no answer replaces: checked before anything is computed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bufdb.errors import UsageError

_SUFFIXES = (".py", ".pyw", ".ipynb")
_PASSED_OVER = ("site-packages", "node_modules", "__pycache__")
"""Folders in which no source of the user's is."""


def spare(option: str, path: Path | None, program: Sequence[str] = ()) -> None:
    """Refuse a file that an option writes to, if it is Python source.

    Args:
        option: its name, for the message.
        path: the file; None for none. One that does not exist yet is replaced by nothing.
        program: words of a command line or FILE.py:FUNCTION; a file that is the same as a source in
            their folders, by a link of any kind, is refused under any name.

    Raises:
        UsageError: it is a source.
    """
    if path is None or not os.path.isfile(path):  # noqa: PTH113 - False for a name too long
        return
    names = path.name, os.path.basename(os.path.realpath(path))  # noqa: PTH119 - links
    is_source = any(name.lower().endswith(_SUFFIXES) for name in names)
    if is_source or _identity(path) in _identities(_folders(program)):
        raise UsageError(
            f"{option} {path}: this file is Python source, which is not replaced; name another file"
        )


def _identity(path: Path) -> tuple[int, int]:
    """Return what hard links and symbolic links to a file have in common."""
    status = path.stat()
    return status.st_dev, status.st_ino


def _folders(program: Iterable[str]) -> set[Path]:
    """Return the folders of the sources that words name."""
    folders = set()
    for word in program:
        place, colon, _ = word.rpartition(":")
        file = Path(place if colon else word)
        if file.name.endswith(".py") and file.is_file():
            folders |= {file.absolute().parent, file.resolve().parent}
        elif colon and all(part.isidentifier() for part in place.split(".")):
            folders.add(Path.cwd())  # package.module:FUNCTION
    return folders


def _identities(folders: Iterable[Path]) -> Iterator[tuple[int, int]]:
    """Yield the identities of the sources in some folders."""
    for top in folders:
        for folder, inner, files in os.walk(top):
            inner[:] = [one for one in inner if one not in _PASSED_OVER and one[:1] != "."]
            for name in files:
                path = Path(folder, name)
                if name.lower().endswith(_SUFFIXES) and path.exists():
                    yield _identity(path)
