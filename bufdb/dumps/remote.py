"""Objects in buckets and at URLs, through fsspec (extra `bufdb[remote]`)."""

from __future__ import annotations

import errno
import html
import importlib
import io
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any
from urllib.parse import urljoin

from bufdb.dumps.file_systems import failure, file_system, words, written_s
from bufdb.dumps.place import Reader, Stat, suffix_of
from bufdb.errors import UsageError

_READ = 4 << 20
_PAGES = ("http://", "https://")
_LINK = re.compile(r"""<a\s[^>]{0,1000}?href=["']([^"'<>]{1,4096})["']""", re.IGNORECASE)
_PARTIAL = 206
_MOST_PAGE = 16 << 20
_MOST_UNTOLD = 1 << 30
"""Bytes of a page with links, and of an object whose length its server does not report."""
_STAMPS = ("ETag", "etag", "md5Hash", "generation", "mtime", "LastModified", "updated", "created")
"""What file systems call the field that changes with an object."""


@dataclass(frozen=True)
class Url:
    """A URL as the user gave it."""

    text: str

    @property
    def name(self) -> str:
        """The last part of its path, or its host."""
        return self.text.rstrip("/").rpartition("/")[2]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Object:
    """An object of a file system, as it was listed."""

    name: str
    size: int
    mtime_ns: int
    stamp: str | None
    read_from: Callable[[int], Iterator[bytes]] = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.name

    @property
    def suffix(self) -> str:
        """The end of the name from its last dot on."""
        return suffix_of(self.name)

    def stat(self) -> Stat:
        """Return size and time of the listing."""
        return Stat(self.size, self.mtime_ns)

    def open(self) -> IO[bytes]:
        """Return its bytes."""
        return io.BufferedReader(Reader(self.read_from, self.size))


def is_url(text: str) -> bool:
    """Return whether a text is a URL and no path."""
    scheme, colon, _ = text.partition("://")
    return bool(colon) and scheme.replace("+", "").replace("-", "").isalnum()


def listed(url: Url) -> dict[str, Object]:
    """Return the objects below a URL by their names below it, or the one that it is.

    Raises:
        UsageError: there is nothing, it cannot be listed, or what that takes is not installed.
    """
    system, path = file_system(url.text)
    try:
        system.invalidate_cache()
        objects: dict[str, dict[str, Any]] = {}
        if not url.text.startswith(_PAGES):
            objects = system.find(path, detail=True)
        elif url.text.endswith("/"):
            objects = {link: {} for link in _linked(system, url.text)}
        if not objects and system.isfile(path):
            objects = {path: {}}
        infos = _infos(system, objects)
    except Exception as error:  # each file system has classes of its own; reported with its words
        raise failure(error, f"{url}: cannot be listed", UsageError) from error
    if not infos:
        raise UsageError(f"no such object or folder: {url}")
    base = path.rstrip("/")
    return {
        place[len(base) :].lstrip("/") or url.name: _object(system, place, info)
        for place, info in infos.items()
        if info.get("type", "file") == "file"
    }


def _infos(system: Any, objects: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return what is known of each object; one of several that fails is reported when read."""
    infos: dict[str, dict[str, Any]] = {}
    for place, known in objects.items():
        try:
            infos[place] = _info(system, place, known)
        except Exception as error:  # as in `listed`
            if len(objects) == 1:
                raise
            infos[place] = {"size": 1, "fault": f"its server does not return it: {words(error)}"}
    return infos


def _info(system: Any, place: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return an object's facts, from its listing or, if that lacks the size, from itself."""
    if known.get("size") is not None:
        return known
    known = system.info(place)
    if known.get("size") is not None:
        return known
    # A server that does not report beforehand how much it will send has to send it.
    if place.startswith(_PAGES):
        size = sum(len(part) for part in _streamed(system, place, 0, _MOST_UNTOLD))
        if size == _MOST_UNTOLD:
            most = f"{_MOST_UNTOLD >> 20} MiB"
            raise OSError(errno.EFBIG, f"its server sends more than {most} and no length")
    else:
        size = len(system.cat_file(place))
    return {**known, "size": size}


def _linked(system: Any, page: str) -> list[str]:
    """Return the files below a page that links to them; their own links are not followed."""
    parts = list(_streamed(system, page, 0, _MOST_PAGE))
    if sum(map(len, parts)) == _MOST_PAGE:
        raise OSError(errno.EFBIG, f"its page has more than {_MOST_PAGE >> 20} MiB")
    links = _LINK.findall(b"".join(parts).decode("utf-8", "replace"))
    linked = dict.fromkeys(urljoin(page, html.unescape(link)) for link in links)
    return [link for link in linked if link.startswith(page) and link[-1] not in "/?"]


def _streamed(
    system: Any, place: str, position: int, size: int, *, is_exact: bool = False
) -> Iterator[bytes]:
    """Yield what a server sends from a position on, until `size` is reached, as it comes.

    Raises:
        OSError: it ends at another size than it announced, if `is_exact`.
    """
    fsspec = importlib.import_module("fsspec.asyn")

    async def opened() -> Any:
        session = await system.set_session()
        head = {"Accept-Encoding": "identity", "Range": f"bytes={position}-"}
        options = {**system.kwargs, "headers": {**system.kwargs.get("headers", {}), **head}}
        if position == 0:
            del head["Range"], options["headers"]["Range"]
        response = await session.get(system.encode_url(place), **options)
        response.raise_for_status()
        return response

    async def closed(response: Any) -> None:
        response.close()

    response = fsspec.sync(system.loop, opened)
    try:
        # A server without ranges sends everything.
        skipped = 0 if response.status == _PARTIAL else position
        left = size - position
        last = b""
        while part := fsspec.sync(system.loop, response.content.read, _READ):
            part, skipped = part[skipped:], max(0, skipped - len(part))
            if len(part) > left and is_exact:
                raise OSError(errno.EIO, "its server sends more than it announced")
            part = part[:left]
            left -= len(part)
            if last:
                yield last
            last = part
            if not left and not is_exact:
                break
        if last:
            yield last
    finally:
        fsspec.sync(system.loop, closed, response)


def _object(system: Any, place: str, info: dict[str, Any]) -> Object:
    def read_from(position: int) -> Iterator[bytes]:
        if "fault" in info:
            raise OSError(errno.EIO, info["fault"])
        try:
            if place.startswith(_PAGES):
                yield from _streamed(system, place, position, info["size"], is_exact=True)
            else:
                yield from _ranges(position)
        except FileNotFoundError as error:
            raise OSError(errno.ENOENT, "it is gone") from error
        except Exception as error:  # the same: a diagnostic of the object, the rest is read
            if isinstance(error, OSError) and error.strerror:
                raise
            raise OSError(errno.EIO, words(error)) from error

    def _ranges(position: int) -> Iterator[bytes]:
        size = info["size"]
        while position < size:
            stop = min(size, position + _READ)
            part: bytes = system.cat_file(place, start=position, end=stop)
            if not part:
                return
            if len(part) > stop - position:
                yield part[position:]  # a server without ranges sends everything
                return
            yield part
            position += len(part)

    name = place.rstrip("/").rpartition("/")[2]
    known = [f"{key}={info[key]}" for key in _STAMPS if info.get(key)]
    stamp = f"{info['size']} {' '.join(known)}" if known else None
    return Object(name, info["size"], int((written_s(info) or 0) * 1e9), stamp, read_from)
