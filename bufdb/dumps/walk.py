"""The regular files below a directory: each once, whatever lies there (links, FIFOs, odd names)."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from bufdb.dumps.files import Oddity, as_text, bears_dump_name

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Walk:
    """The regular files below a directory: each real directory once, however many links lead to it.

    Keeps a stack of its own, since before Python 3.12 `os.walk` calls itself at every level.
    """

    def __init__(self, oddities: list[Oddity]) -> None:
        self.files: dict[str, Path] = {}
        """By their name below the directory, with slashes."""
        self.oddities = oddities
        self.seen: dict[_Identity, str] = {}
        """Name of each directory that was read; '..' for those above the one given."""
        self.folder_links: list[tuple[str, Path]] = []
        self.file_links: list[tuple[str, Path]] = []

    def run(self, base: Path) -> None:
        """Look into a directory and all below it."""
        for folder in base.resolve().parents:
            with contextlib.suppress(OSError):
                self.seen[_identity(folder.stat())] = ".."
        self._read("", base)
        # Links wait until all real directories are read, and then go by their names: under which
        # name a directory is read depends on nothing else.
        while self.folder_links:
            links, self.folder_links = sorted(self.folder_links), []
            for name, path in links:
                self._read(name, path)
        if self.file_links:
            self._add_linked_files()

    def _read(self, name: str, path: Path) -> None:
        waiting = [(name, path)]
        while waiting:
            name, path = waiting.pop()
            try:
                identity = _identity(path.stat())
                if identity in self.seen:
                    self._seen_before(name, self.seen[identity])
                    continue
                self.seen[identity] = name
                with os.scandir(path) as found:
                    entries = sorted(found, key=lambda entry: entry.name, reverse=True)
            except OSError as error:
                self._odd(name, "error", "unreadable_file", why_unreadable(error))
                continue
            prefix = f"{name}/" if name else ""
            for entry in entries:
                text = as_text(entry.name)
                if text != entry.name or _CONTROL.search(text):
                    message = "the name is no plain text; bytes that are not UTF-8 show as \\xNN"
                    self._odd(prefix + text, "info", "odd_name", message)
                self._entry(prefix + text, path / entry.name, entry, waiting)

    def _entry(
        self, name: str, path: Path, entry: os.DirEntry[str], waiting: list[tuple[str, Path]]
    ) -> None:
        if entry.is_symlink():
            try:
                mode = entry.stat().st_mode
            except OSError as error:
                self._special(name, f"is a link that leads nowhere: {error.strerror}")
                return
            if stat.S_ISDIR(mode):
                self.folder_links.append((name, path))
            elif stat.S_ISREG(mode):
                self.file_links.append((name, path))
            else:
                self._special(name, f"is a link to {kind_of_entry(mode)}")
        elif entry.is_dir(follow_symlinks=False):
            waiting.append((name, path))
        elif entry.is_file(follow_symlinks=False):
            self._add(name, path)
        else:
            try:
                kind = kind_of_entry(entry.stat(follow_symlinks=False).st_mode)
            except OSError as error:
                kind = f"no file ({error.strerror})"
            self._special(name, f"is {kind}, not a file; it was not opened")

    def _add_linked_files(self) -> None:
        """Files behind links; one that is below the directory itself has its own name already.

        But where only the link bears a name of XLA's, as in stores that name files after their
        content, the link names the file.
        """
        real = {_identity(path.stat()): name for name, path in self._still_there()}
        for name, path in sorted(self.file_links):
            try:
                target = real.get(_identity(path.stat()))
            except OSError as error:
                self._special(name, f"is a link that leads nowhere: {error.strerror}")
                continue
            if target is None:
                self._add(name, path)
            elif bears_dump_name(name) and not bears_dump_name(target):
                self.files.pop(target, None)
                self._add(name, path)
            else:
                message = f"is a link to {target}, which is read under that name"
                self._odd(name, "info", "read_once", message)

    def _still_there(self) -> Iterator[tuple[str, Path]]:
        return ((name, path) for name, path in self.files.items() if path.exists())

    def _add(self, name: str, path: Path) -> None:
        if name in self.files:
            message = "another file has this name, but for bytes that are not UTF-8; rename one"
            self._odd(name, "error", "name_taken", message)
        else:
            self.files[name] = path

    def _seen_before(self, name: str, first: str) -> None:
        if first == "..":
            message = "leads to a directory above the one given; it was not followed"
        else:
            where = f"the directory {first}" if first else "the directory given"
            message = f"leads to {where}, which is read under that name"
        self._odd(name, "info", "read_once", message)

    def _special(self, name: str, message: str) -> None:
        """What is no file or directory is a loss if a dump should be there by its name."""
        severity = "error" if bears_dump_name(name.rpartition("/")[2]) else "info"
        self._odd(name, severity, "unreadable_file" if severity == "error" else "no_file", message)

    def _odd(self, name: str, severity: str, code: str, message: str) -> None:
        self.oddities.append(Oddity(name or ".", severity, code, message))


_Identity = tuple[int, int]


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino


def kind_of_entry(mode: int) -> str:
    """What a directory entry is, in words."""
    kinds = {
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFDIR: "a directory",
    }
    return kinds.get(stat.S_IFMT(mode), "no file")


def why_unreadable(error: OSError) -> str:
    """What hinders reading, with what to do about it."""
    hint = ""
    if error.errno == errno.ENAMETOOLONG:
        hint = "; ingest a directory further down, by a short path"
    return f"cannot be read: {error.strerror}{hint}"
