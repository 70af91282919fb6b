"""Archives and compressed files, unpacked into a bounded temporary directory."""

from __future__ import annotations

import errno
import io
import lzma
import os
import re
import stat
import struct
import sys
import tarfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import IO, Any

import xxhash

from bufdb.database.spill import make_folder, remove_folder
from bufdb.dumps import streams
from bufdb.dumps.files import Problem, as_text, base_name, bears_dump_name, open_file
from bufdb.dumps.place import Place, Reader, Stat, damaged, suffix_of

# -- Headers of tar archives, each bounded before Python's `tarfile` looks at what is in it --------
#
# `tarfile` reads a header as long as it says it is, and searches it by patterns that take the
# square of its length; a kilobyte that was compressed becomes minutes, or gigabytes.

MOST_HEADER_BYTES = 64 << 10
"""Limit of a header: names have 4 KiB at most, attributes of files some more."""
MOST_DIGITS = 64
"""Limit of a number in a header."""
MOST_GLOBAL = 1000
"""Keywords that hold for all members."""
_RECORD = re.compile(rb"(\d{1,6}) [^=\n]+=")


class Header(tarfile.TarInfo):
    """The header of a member; OSError for one that no program writes.

    tarfile reads extended headers in methods that are missing in typeshed (misc below).
    """

    def _block(self, count: int) -> int:
        """Return a number of bytes, rounded up to whole blocks."""
        if count < 0:
            raise damaged("a size is negative")
        return int(super()._block(count))  # type: ignore[misc]

    def _proc_gnulong(self, archive: Any) -> Any:
        """Read a name that precedes its member."""
        self._require_short()
        return super()._proc_gnulong(archive)  # type: ignore[misc]

    def _proc_pax(self, archive: Any) -> Any:
        """Read records that precede their member, or all members."""
        self._require_short()
        data = archive.fileobj.read(self._block(self.size))
        _require_sound(data[: self.size])
        if len(archive.pax_headers) > MOST_GLOBAL:
            raise damaged(f"more than {MOST_GLOBAL} keywords hold for all members")
        archive.fileobj = _Read(data, archive)
        return super()._proc_pax(archive)  # type: ignore[misc]

    def _require_short(self) -> None:
        if not 0 <= self.size <= MOST_HEADER_BYTES:
            raise damaged(f"a header has more than {MOST_HEADER_BYTES >> 10} KiB")

    def _proc_sparse(self, archive: Any) -> Any:
        """Step over the parts of a sparse file, which is left out."""
        _, is_extended, size = getattr(self, "_sparse_structs")  # noqa: B009
        while is_extended:
            part = archive.fileobj.read(tarfile.BLOCKSIZE)
            if len(part) < tarfile.BLOCKSIZE:
                raise damaged("it ends too early")
            is_extended = bool(part[504])
        self.sparse = []  # type: ignore[assignment]  # typeshed knows None alone
        self.offset_data = archive.fileobj.tell()
        archive.offset = self.offset_data + self._block(self.size)
        self.size = size
        return self

    def _proc_gnusparse_10(self, member: Any, _keywords: Any, _archive: Any) -> None:
        """Do the same for its latest form."""
        member.sparse = []


class _Read:
    """What was already read of a file; after that the file is in its place again."""

    def __init__(self, data: bytes, archive: Any) -> None:
        self._data, self._archive, self._file = data, archive, archive.fileobj

    def read(self, _size: int) -> bytes:
        self._archive.fileobj = self._file
        return self._data


def _require_sound(data: bytes) -> None:
    """Check that records have the lengths that they claim, and that no number is endless."""
    at = 0
    while at < len(data):
        match = _RECORD.match(data, at)
        if match is None:
            if data[at:].strip(b"\0"):
                raise damaged("a header cannot be read")
            return
        end = at + int(match[1])
        if end < match.end() or data[end - 1 : end] != b"\n":
            raise damaged("a header cannot be read")
        at = end
    if any(len(digits) > MOST_DIGITS for digits in re.findall(rb"\d+", data)):
        raise damaged(f"a header has a number of more than {MOST_DIGITS} digits")


# -- Files in archives, and compressed files, unpacked ---------------------------------------------
#
# They have no names of their own there, so that a member's name leads nowhere; one that means to
# leave its directory, or an archive within an archive, is refused all the same and said so.

TAR = (".tar", ".tar.gz", ".tgz", ".tar.zst")
ARCHIVES = (".zip", *TAR)
SINGLE = {".gz": streams.gzip, ".tgz": streams.gzip, ".zst": streams.zstandard}
_TEXTS = (".txt", ".log", ".out", ".debug_options")
"""Compressed files whose inner name ends like this are dumps or logs; others are other things."""
_LINK = "is a link or not a regular file; it was not read"
_UNIX = 3
_READ = 1 << 20
LARGE_BYTES = 512 << 20
"""Above this size an archive among other files is only read if it is named."""
MOST_MEMBERS = 250_000
MOST_NAMES = 64 << 20
"""Members of an archive, and bytes of their names in memory."""
MOST_NAME = 4096
"""Characters of a name; those of a file system have no more."""
_MOST_DIRECTORY = 32 << 20
"""Bytes of the directory of a zip, which takes up to fifteen times as many in memory."""
_BOUNDED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Methods of a zip that Python decompresses piece by piece, as much as is asked for."""
_DAMAGE = (
    RecursionError,
    zipfile.BadZipFile,
    tarfile.TarError,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    NotImplementedError,
    OverflowError,
    ValueError,
)
"""What readers of archives raise for damaged ones, or for those that they do not know."""
_LATEST_S = 1 << 33
"""A time beyond this [s since 1970] is invalid."""


class Unpacked:
    """A file in a temporary folder with everything unpacked, one after the other.

    It is removed once no member of it is left, or with the process. A file for each member would
    take most of the time.
    """

    def __init__(self) -> None:
        """Make it.

        Raises:
            OSError: nothing can be written.
        """
        folder = make_folder()
        weakref.finalize(self, remove_folder, folder)
        self.path = folder / "unpacked"
        self.size = 0

    def add(self, parts: Iterable[bytes]) -> None:
        """Write what is unpacked to the end.

        Raises:
            OSError: there is no room, or everything together is beyond the bounds.
        """
        with self.path.open("ab") as file:
            for part in parts:
                self.size += len(part)
                streams.check_total(self.size)
                file.write(part)

    def cut(self, size: int) -> None:
        """Remove what is beyond a size."""
        if self.path.exists():
            os.truncate(self.path, size)
        self.size = size


@dataclass(frozen=True)
class Member:
    """A file in an archive, or what a compressed file holds."""

    name: str
    outer: Path | Place
    mtime_ns: int
    stamp: str | None
    """That of the archive: its contents change only with it."""
    unpacked: Unpacked = field(repr=False, compare=False)
    start: int
    """Where its bytes begin there."""
    size: int
    fault: OSError | None = None
    """Why it could not be unpacked to its end."""

    def __str__(self) -> str:
        return f"{self.outer}:{self.name}"

    @property
    def suffix(self) -> str:
        """The end of the name from its last dot on."""
        return suffix_of(self.name)

    def stat(self) -> Stat:
        """Return its size, and when it was written."""
        return Stat(self.size, self.mtime_ns)

    def open(self) -> IO[bytes]:
        """Return its bytes.

        Raises:
            OSError: it is damaged.
        """
        if self.fault is not None:
            raise self.fault
        return io.BufferedReader(Reader(self._read_from, self.size))

    def _read_from(self, position: int) -> Iterator[bytes]:
        with self.unpacked.path.open("rb", buffering=0) as file:
            file.seek(self.start + position)
            left = self.size - position
            while part := file.read(min(_READ, left)):
                yield part
                left -= len(part)


_Content = tuple[str, int, Iterator[bytes]]
"""A regular file in an archive: its name, when it was written [ns since 1970], its bytes."""


def is_archive(name: str) -> bool:
    """Return whether a file of this name holds others."""
    return name.lower().endswith(ARCHIVES)


def inner_name(name: str) -> str | None:
    """Return the name of what a compressed file holds; None if it is no compressed dump or log."""
    suffix = suffix_of(name)
    inner = name.removesuffix(suffix)
    return inner if suffix in (".gz", ".zst") and inner.endswith(_TEXTS) else None


def expand(
    files: dict[str, Path | Place], problems: list[Problem], *, is_given: bool = False
) -> dict[str, Path | Place]:
    """Return the files by name, with the members of archives in place of these, decompressed.

    Args:
        files: by name.
        problems: takes what is left out.
        is_given: whether the user named the archive. One among other files may be of anything: a
        large one is left alone, and what is refused in it is no error unless it has the name of a
        dump.
    """
    by_name: dict[str, Path | Place] = {}
    unpacked: Unpacked | None = None
    for name, path in files.items():
        inner = inner_name(name)
        if inner is None and not is_archive(name):
            by_name[name] = path
            continue
        if inner in files:
            text = f"was skipped: {inner} next to it is read"
            problems.append(Problem(name, "info", "read_once", text))
            continue
        size = 0 if unpacked is None else unpacked.size
        try:
            if not is_given and inner is None and path.stat().st_size > LARGE_BYTES:
                text = f"is an archive of more than {LARGE_BYTES >> 20} MiB; to read it, name it"
                problems.append(Problem(name, "info", "not_unpacked", text))
                continue
            unpacked = unpacked or Unpacked()
            odd: list[Problem] = []
            members = list(_members(name, path, odd, unpacked))
            problems += odd if is_given else map(_among_others, odd)
            by_name.update({inner or f"{name}:{member.name}": member for member in members})
        except (OSError, *_DAMAGE) as error:
            if unpacked is not None:
                unpacked.cut(size)
            text = getattr(error, "strerror", None) or f"it is damaged: {error}"
            problems.append(Problem(name, "error", "unreadable_archive", f"cannot be read: {text}"))
    return by_name


def _among_others(problem: Problem) -> Problem:
    """Lower an problem of an archive that the user did not name, unless it has a dump's name."""
    if problem.name is not None and bears_dump_name(base_name(problem.name)):
        return problem
    return replace(problem, severity="info")


def _members(
    name: str, path: Path | Place, problems: list[Problem], unpacked: Unpacked
) -> Iterator[Member]:
    """Unpack the regular files of an archive that may hold dumps, or what a compressed file holds.

    Raises:
        OSError: it is damaged, or beyond the bounds; so are the errors of _DAMAGE.
    """
    stamp, written_ns = stamp_of(path), path.stat().st_mtime_ns
    held = inner_name(name)
    if held is not None:
        start = unpacked.size
        unpacked.add(SINGLE[suffix_of(name)](lambda: _open(path)))
        yield Member(held, path, written_ns, stamp, unpacked, start, unpacked.size - start)
        return
    names: set[str] = set()
    is_zip = not name.lower().endswith(TAR)
    for inner, mtime_ns, parts in (_zip if is_zip else _tar)(name, path, problems):
        why = _why_refused(inner, names)
        if why is not None:
            problems.append(_odd(name, inner, "error", "refused_member", why))
            continue
        names.add(inner)
        start, fault = unpacked.size, None
        try:
            unpacked.add(parts)
        except _DAMAGE as error:
            if not is_zip:  # what follows it cannot be found
                raise
            fault = damaged(error)
        size, when = unpacked.size - start, mtime_ns or written_ns
        yield Member(inner, path, when, stamp, unpacked, start, size, fault)


def _odd(archive: str, name: str, severity: str, code: str, text: str) -> Problem:
    """Return an problem about a member; an overlong name is cut."""
    shown = name if len(name) <= MOST_NAME else f"{name[:100]}…"
    return Problem(f"{archive}:{shown}", severity, code, text)


def _require_few(count: int) -> None:
    if count > MOST_MEMBERS:
        raise OSError(errno.EFBIG, f"it has more than {MOST_MEMBERS:,} members; unpack it first")


def _why_refused(name: str, taken: set[str]) -> str | None:
    if len(name) > MOST_NAME:
        return f"its name has more than {MOST_NAME} characters; it was not read"
    if name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
        return "its name leads out of the archive; it was not read"
    if is_archive(name) or inner_name(name) is not None:
        return "is an archive within an archive, which is not read; unpack the outer one"
    return "another member has this name; it was not read" if name in taken else None


def _zip(name: str, path: Path | Place, problems: list[Problem]) -> Iterator[_Content]:
    with _open(path) as file:
        _require_small_directory(file)
        with zipfile.ZipFile(file) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
            _require_few(len(infos))
            packed = sum(info.compress_size for info in infos)
            if packed > path.stat().st_size:
                raise damaged("its members overlap")
            streams.check_bounds(packed, sum(info.file_size for info in infos))
            for info in infos:
                inner = as_text(info.filename)
                if info.flag_bits & 1 or info.compress_type not in _BOUNDED:
                    how = "compressed by another method than deflate"
                    how = "encrypted" if info.flag_bits & 1 else how
                    text = f"is {how}; unpack the archive first"
                    problems.append(_odd(name, inner, "error", "refused_member", text))
                elif _is_link(info):
                    problems.append(_odd(name, inner, "info", "no_file", _LINK))
                else:
                    yield inner, _written(info), _parts(partial(archive.open, info))


def _is_link(info: zipfile.ZipInfo) -> bool:
    """Return whether a member, by its mode on Unix, is a link: its text is a path."""
    return info.create_system == _UNIX and stat.S_ISLNK(info.external_attr >> 16)


def _require_small_directory(file: IO[bytes]) -> None:
    """Check that the directory, which `zipfile` reads at once, is no larger than allowed."""
    # zipfile has no public way to see the size before it reads the directory; nor has typeshed.
    end = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    if end is not None and end[zipfile._ECD_SIZE] > _MOST_DIRECTORY:  # type: ignore[attr-defined]
        most = f"{_MOST_DIRECTORY >> 20} MiB"
        raise OSError(errno.EFBIG, f"its directory has more than {most}; unpack it first")


def _written(info: zipfile.ZipInfo) -> int:
    """Return when a member was written, by some clock [ns since 1970]; 0 if that is no time."""
    try:
        return int(datetime(*info.date_time, tzinfo=UTC).timestamp()) * 10**9
    except ValueError:
        return 0


def _parts(opener: Callable[[], IO[bytes] | None]) -> Iterator[bytes]:
    content = opener()
    assert content is not None, "it is a regular file"
    with content:
        while part := content.read(_READ):
            yield part


def _tar(name: str, path: Path | Place, problems: list[Problem]) -> Iterator[_Content]:
    with (
        _opened(path, SINGLE.get(suffix_of(name.lower()))) as file,
        tarfile.open(fileobj=file, mode="r|", bufsize=_READ, tarinfo=Header) as archive,
    ):
        for info in _each(archive):
            inner = as_text(info.name.removeprefix("./"))
            written = int(info.mtime) if 0 < info.mtime < _LATEST_S else 0
            if info.isreg() and not info.issparse():
                yield inner, written * 10**9, _parts(partial(archive.extractfile, info))
            elif not info.isdir():
                problems.append(_odd(name, inner, "info", "no_file", _LINK))


def _opened(path: Path | Place, decompressed: streams.Decompressor | None) -> IO[bytes]:
    """Open what a tar is compressed as, to be read once."""
    if decompressed is None:
        return _open(path)
    parts = decompressed(lambda: _open(path))
    return io.BufferedReader(Reader(lambda _: parts, None))


def _each(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Yield the members one by one: `tarfile` would keep all of them."""
    count = size = 0
    while (info := archive.next()) is not None:
        # `members` is tarfile's list of everything that was read; typeshed lacks it.
        archive.members.clear()  # type: ignore[attr-defined]
        count += 1
        _require_few(count)
        size += sys.getsizeof(info.name)
        if size > MOST_NAMES:
            raise OSError(errno.EFBIG, f"its names take more than {MOST_NAMES >> 20} MiB")
        yield info


def stamp_of(path: Path | Place) -> str | None:
    """Return what shows whether an archive is the same: its hash, or the stamp of its place."""
    if not isinstance(path, Path):
        return path.stamp
    digest = xxhash.xxh3_128()
    with _open(path) as file:
        while part := file.read(_READ):
            digest.update(part)
    return digest.hexdigest()


def _open(path: Path | Place) -> IO[bytes]:
    return io.BufferedReader(open_file(path))
