"""Archives and compressed files, read in place and bounded."""

from __future__ import annotations

import contextlib
import errno
import io
import lzma
import re
import stat
import struct
import sys
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

import xxhash

from bufdb.dumps.files import Problem, as_text, base_name, bears_dump_name, open_file
from bufdb.dumps.place import Place, Reader, Stat, damaged, suffix_of
from bufdb.dumps.streams import Compressed, Kept, check_bounds, gzip, zstandard

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
        found = _RECORD.match(data, at)
        if found is None:
            if data[at:].strip(b"\0"):
                raise damaged("a header cannot be read")
            return
        end = at + int(found[1])
        if end < found.end() or data[end - 1 : end] != b"\n":
            raise damaged("a header cannot be read")
        at = end
    if any(len(digits) > MOST_DIGITS for digits in re.findall(rb"\d+", data)):
        raise damaged(f"a header has a number of more than {MOST_DIGITS} digits")


# -- Files in archives, and compressed files, read where they lie ----------------------------------
#
# Nothing is unpacked to disk, so a member's name is a name and leads nowhere; one that means to
# leave its directory, or an archive within an archive, is refused all the same and said so.

TAR = (".tar", ".tar.gz", ".tgz", ".tar.zst")
ARCHIVES = (".zip", *TAR)
SINGLE = {".gz": gzip, ".zst": zstandard}
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
_LOCAL = struct.Struct("<4s22xHH")
"""Header of a member of a zip: its mark, and the lengths of its name and extra field."""
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


@dataclass(frozen=True)
class Member:
    """A file in an archive, or what a compressed file holds."""

    name: str
    outer: Path | Place
    size: int
    mtime_ns: int
    read_from: Callable[[int], Iterator[bytes]] = field(repr=False, compare=False)
    archive_stamp: str | None = None

    def __str__(self) -> str:
        return f"{self.outer}:{self.name}"

    @property
    def suffix(self) -> str:
        """The end of the name from its last dot on."""
        return suffix_of(self.name)

    @property
    def stamp(self) -> str | None:
        """That of the archive: its contents change only with it."""
        return self.archive_stamp

    def stat(self) -> Stat:
        """Return its own size, and which file the archive is now."""
        outer = self.outer.stat()
        changed = (outer.st_ino, outer.st_mtime_ns, outer.st_size)
        return Stat(self.size, self.mtime_ns or outer.st_mtime_ns, hash(changed))

    def open(self) -> IO[bytes]:
        """Return its bytes."""
        return io.BufferedReader(Reader(self.read_from, self.size))


def is_archive(name: str) -> bool:
    """Return whether a file of this name holds others."""
    return name.lower().endswith(ARCHIVES)


def inner_name(name: str) -> str | None:
    """Return the name of what a compressed file holds; None if it is no compressed dump or log."""
    for suffix in SINGLE:
        inner = name[: -len(suffix)]
        if name.endswith(suffix) and inner.endswith(_TEXTS):
            return inner
    return None


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
    found: dict[str, Path | Place] = {}
    kept = Kept()
    for name, path in files.items():
        inner, size = inner_name(name), kept.size
        if inner is None and not is_archive(name):
            found[name] = path
            continue
        if inner in files:
            text = f"was skipped: {inner} next to it is read"
            problems.append(Problem(name, "info", "read_once", text))
            continue
        try:
            if not is_given and inner is None and path.stat().st_size > LARGE_BYTES:
                text = f"is an archive of more than {LARGE_BYTES >> 20} MiB; to read it, name it"
                problems.append(Problem(name, "info", "not_unpacked", text))
            elif inner is not None:
                found[inner] = _decompressed(name, inner, path, kept)
            else:
                odd: list[Problem] = []
                members = list(_members(name, path, odd, kept))
                problems += odd if is_given else map(_among_others, odd)
                found.update({f"{name}:{member.name}": member for member in members})
        except (OSError, *_DAMAGE) as error:
            kept.drop(size)
            text = getattr(error, "strerror", None) or f"it is damaged: {error}"
            problems.append(Problem(name, "error", "unreadable_archive", f"cannot be read: {text}"))
    return found


def _among_others(problem: Problem) -> Problem:
    """Lower an problem of an archive that the user did not name, unless it has a dump's name."""
    if problem.name is not None and bears_dump_name(base_name(problem.name)):
        return problem
    return replace(problem, severity="info")


def _decompressed(name: str, inner: str, path: Path | Place, kept: Kept) -> Member:
    stream = SINGLE[suffix_of(name)](lambda: _open(path), kept)
    # The order matters: its size is known once it was read.
    stamp, size = stamp_of(path), stream.size()
    return Member(inner, path, size, path.stat().st_mtime_ns, stream.read_from, stamp)


def _members(
    name: str, path: Path | Place, problems: list[Problem], kept: Kept
) -> Iterator[Member]:
    """Yield the regular files of an archive that may hold dumps.

    Raises:
        OSError: it is damaged, or beyond the bounds; so are the errors of _DAMAGE.
    """
    stamp = stamp_of(path)
    names: set[str] = set()
    is_tar = name.lower().endswith(TAR)
    found = _tar(name, path, stamp, problems, kept) if is_tar else _zip(name, path, stamp, problems)
    for member in found:
        why = _why_refused(member.name, names)
        if why is None:
            names.add(member.name)
            yield member
        else:
            problems.append(_odd(name, member.name, "error", "refused_member", why))


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


def _zip(
    name: str, path: Path | Place, stamp: str | None, problems: list[Problem]
) -> Iterator[Member]:
    with _open(path) as file:
        _require_small_directory(file)
        with zipfile.ZipFile(file) as archive:
            infos = [info for info in archive.infolist() if not info.is_dir()]
    _require_few(len(infos))
    packed = sum(info.compress_size for info in infos)
    if packed > path.stat().st_size:
        raise damaged("its members overlap")
    check_bounds(packed, sum(info.file_size for info in infos))
    for info in infos:
        inner = as_text(info.filename)
        if info.flag_bits & 1 or info.compress_type not in _BOUNDED:
            how = "encrypted" if info.flag_bits & 1 else "compressed by another method than deflate"
            text = f"is {how}; unpack the archive first"
            problems.append(_odd(name, inner, "error", "refused_member", text))
            continue
        if _is_link(info):
            problems.append(_odd(name, inner, "info", "no_file", _LINK))
            continue
        yield Member(inner, path, info.file_size, _written(info), _zip_reader(path, info), stamp)


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


def _zip_reader(path: Path | Place, info: zipfile.ZipInfo) -> Callable[[int], Iterator[bytes]]:
    """Return what reads a member, without the directory, which is as long as there are members."""

    def read_from(position: int) -> Iterator[bytes]:
        try:
            with _open(path) as file:
                _go_to_content(file, info)
                with zipfile.ZipExtFile(file, "r", info) as inner:
                    inner.seek(position)
                    while part := inner.read(_READ):
                        yield part
        except _DAMAGE as error:
            raise damaged(error) from error

    return read_from


def _go_to_content(file: IO[bytes], info: zipfile.ZipInfo) -> None:
    """Go past the header of a member, whose name and extra field have lengths of their own."""
    file.seek(info.header_offset)
    head = _LOCAL.unpack(file.read(_LOCAL.size))
    if head[0] != b"PK\3\4":
        raise damaged("a member's header cannot be read")
    file.seek(head[-2] + head[-1], io.SEEK_CUR)


def _tar(
    name: str, path: Path | Place, stamp: str | None, problems: list[Problem], kept: Kept
) -> Iterator[Member]:
    lower = name.lower()
    stream: Compressed | None = None
    if lower.endswith((".gz", ".tgz")):
        stream = gzip(lambda: _open(path), kept)
    elif lower.endswith(".zst"):
        stream = zstandard(lambda: _open(path), kept)
    with (
        contextlib.closing(stream) if stream is not None else contextlib.nullcontext(),
        _opened_tar(path, stream) as file,
        tarfile.open(fileobj=file, mode="r:", tarinfo=Header) as archive,
    ):
        for info in _each(archive):
            inner = as_text(info.name.removeprefix("./"))
            written = int(info.mtime) if 0 < info.mtime < _LATEST_S else 0
            if info.isreg() and not info.issparse():
                reader = _tar_reader(path, stream, info.offset_data, info.size)
                yield Member(inner, path, info.size, written * 10**9, reader, stamp)
            elif not info.isdir():
                problems.append(_odd(name, inner, "info", "no_file", _LINK))


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


def _opened_tar(path: Path | Place, stream: Compressed | None) -> IO[bytes]:
    if stream is None:
        return _open(path)
    return io.BufferedReader(Reader(stream.read_from, None))


def _tar_reader(
    path: Path | Place, stream: Compressed | None, begin: int, size: int
) -> Callable[[int], Iterator[bytes]]:
    def read_from(position: int) -> Iterator[bytes]:
        if stream is not None:
            yield from stream.read_from(begin + position)
            return
        with _open(path) as file:
            file.seek(begin + position)
            left = size - position
            while part := file.read(min(_READ, left)):
                yield part
                left -= len(part)

    return read_from


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
