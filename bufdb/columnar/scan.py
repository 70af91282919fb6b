"""The columnar scanner: many lines of text, one cursor position per line, all moved together.

A `Block` holds lines of text and a `Cursor` one position in each of some of them. A step of a
cursor (`expect`, `integer`, `until`, …) moves all positions in a few NumPy operations, so the
grammar of a line reads like a hand-written parser but runs once per block. NumPy's functions of
strings look for texts; numbers and hashes take eight bytes at a time, through an overlapping view
of the block as little-endian uint64. Text is never copied: a `Text` column is starts and stops
into the block.

The scanner knows nothing of XLA. Its one invariant: a line that does not follow the grammar is
remembered with the place where it failed first and what was expected there, and disturbs no other
line; where its cursor goes from there means nothing. Positions are rebound, never changed in
place, because `Text` columns share them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bufdb.columnar.sets import among

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Words = NDArray[np.uint64]

PAD = bytes(31) + b"\n"
"""Put after every block, so that eight bytes can be read at any position of it. It does not end
with NUL: NumPy strips NULs at the end of a string, counting them again for each row."""

_LOW_BYTES = np.array([(1 << 8 * n) - 1 for n in range(8)] + [2**64 - 1], np.uint64)
_LONG = 256
"""Strings above this many bytes, few but up to 100 kB, are hashed one by one."""


@lru_cache(maxsize=1 << 10)
def word(literal: bytes) -> np.uint64:
    """Return at most the first eight bytes, as a block's words hold them."""
    return np.uint64(int.from_bytes(literal[:8], "little"))


class Block:
    """Lines of text: line i is `data[starts[i]:ends[i]]`, its line end left out."""

    def __init__(self, *texts: bytes) -> None:
        """Split texts into lines; each text ends with a line end or is empty."""
        data = b"".join((*texts, PAD))
        self._split(data, 0, len(data) - len(PAD))

    @classmethod
    def within(cls, data: bytes, start: int, stop: int) -> Block:
        """Return the lines of a part of some bytes, in place.

        Args:
            data: the bytes; at least as many as PAD has follow the part, the last of them no NUL.
            start: where the part begins.
            stop: where it ends, after a line end.
        """
        block = cls.__new__(cls)
        block._split(data, start, stop)
        return block

    def _split(self, data: bytes, start: int, stop: int) -> None:
        self.data, self.size = data, stop
        self.bytes = np.frombuffer(self.data, np.uint8)
        self.words: Words = np.ndarray(
            (len(self.data) - 7,), np.dtype("<u8"), self.data, strides=(1,)
        )
        self.text = np.ndarray((), f"S{len(self.data)}", self.data)
        """All of it as one string, in which NumPy searches for each row at once: a row takes 10 to
        25 ns for a byte, 500 for a search of `data`, and 25 a word for one by words."""
        self.ends: Ints = np.flatnonzero(self.bytes[start:stop] == ord("\n"))
        if start:
            self.ends += start
        self.starts: Ints = np.concatenate([np.full(1, start), self.ends[:-1] + 1])
        self.starts = self.starts[: len(self.ends)]

    def __len__(self) -> int:
        return len(self.starts)

    def split(self, places: Ints) -> None:
        """Begin a new line at each of these positions, which lie inside lines."""
        self.starts = np.sort(np.concatenate([self.starts, places]))
        self.ends = np.sort(np.concatenate([self.ends, places]))

    def heads(self) -> Words:
        """Return the first eight bytes of every line (those of the next line if it is shorter)."""
        return self.words[self.starts]

    def cursor(self, lines: Ints) -> Cursor:
        """Return a cursor at the start of each of these lines."""
        return Cursor(self, self.starts[lines], self.ends[lines])

    def line(self, number: int) -> bytes:
        """Return the text of one line."""
        return self.data[self.starts[number] : self.ends[number]]


def starts_with(heads: Words, prefix: bytes) -> Bools:
    """Return which of these first words begin with a prefix of at most eight bytes."""
    some = heads if len(prefix) == 8 else heads & _LOW_BYTES[len(prefix)]
    begins: Bools = some == word(prefix)
    return begins


@dataclass
class Text:
    """A column of strings: slices of a block, some of them absent."""

    block: Block
    start: Ints
    stop: Ints
    valid: Bools | None = None
    """False where the string is absent; None if all are there."""
    default: bytes | None = None
    """The value of an absent string (at most 12 bytes); None for NULL."""
    patches: dict[int, bytes | None] = field(default_factory=dict)
    """Rows whose string is not a slice of the block (unescaped text), by row."""

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: Any) -> Text:
        """Return the column of these rows (positions or a mask)."""
        valid = None if self.valid is None else self.valid[rows]
        taken = Text(self.block, self.start[rows], self.stop[rows], valid, self.default)
        if self.patches:
            places = np.arange(len(self))[rows]
            new = np.flatnonzero(among(places, np.array(list(self.patches))))
            old = places[new]
            taken.patches = {
                row: self.patches[place]
                for row, place in zip(new.tolist(), old.tolist(), strict=True)
            }
        return taken

    def tolist(self) -> list[bytes | None]:
        """Return every string as bytes, the default or None where it is absent."""
        data = self.block.data
        spans = zip(self.start.tolist(), self.stop.tolist(), strict=True)
        strings: list[bytes | None] = [data[a:b] for a, b in spans]
        if self.valid is not None:
            for row in np.flatnonzero(~self.valid).tolist():
                strings[row] = self.default
        for row, patch in self.patches.items():
            strings[row] = patch
        return strings

    def hashes(self, seed: Words | np.uint64) -> Words:
        """Return a 64-bit hash of each string, mixed with a seed per row.

        Equal strings with equal seeds have equal hashes in one process; absent strings hash as
        their default. Patched rows hash as their own text, apart from rows that are not patched.
        """
        start, size = self.start, self.stop - self.start
        if self.valid is not None:
            size = np.where(self.valid, size, 0)
        seeds = np.broadcast_to(np.asarray(seed, np.uint64), start.shape)
        # In most strings the first eight bytes are the most, and choosing rows costs as much.
        first, length = self.block.words[start] & _LOW_BYTES[np.minimum(size, 8)], size
        if self.valid is not None and self.default:
            first = np.where(self.valid, first, word(self.default))
            length = np.where(self.valid, size, len(self.default))
        value = _mix(_mix(seeds ^ length.astype(np.uint64)) ^ first)
        rows = np.flatnonzero((size > 8) & (size <= _LONG))
        done = 8
        while len(rows):
            left = size[rows] - done
            piece = self.block.words[start[rows] + done] & _LOW_BYTES[np.minimum(left, 8)]
            value[rows] = _mix(value[rows] ^ piece)
            done += 8
            rows = rows[left > 8]
        for row in np.flatnonzero(size > _LONG).tolist():
            text = self.block.data[start[row] : self.stop[row]]
            value[row] ^= np.uint64(hash(text) & 0xFFFFFFFFFFFFFFFF)
        for row, patch in self.patches.items():
            own = np.uint64(hash(patch) & 0xFFFFFFFFFFFFFFFF)
            value[row] = _mix(seeds[row : row + 1] ^ own)[0]
        hashed: Words = value
        return hashed

    def views(self) -> tuple[Any, Any]:
        """Return Arrow's string views (length, 12 bytes or prefix, buffer, offset) and the data."""
        if self.valid is not None and self.default is not None and not self.patches:
            there = np.flatnonzero(self.valid)
            if 2 * len(there) < len(self):
                return self._views_of_few(there), self.block.bytes
        start, words, valid = self.start, self.block.words, self.valid
        size = self.stop - start
        if valid is not None:
            size = size * valid
        views = np.empty((len(size), 2), np.uint64)
        head = words[start]
        if size.min(initial=4) < 4:
            head &= _LOW_BYTES[np.minimum(size, 4)]
        head <<= np.uint64(32)
        np.bitwise_or(head, size.view(np.uint64), out=views[:, 0])
        # For a long string its position, for a short one what follows its first four bytes.
        is_long = size > 12
        np.multiply(start.view(np.uint64) << np.uint64(32), is_long, out=views[:, 1])
        middle = np.flatnonzero((size > 4) & ~is_long)
        views[middle, 1] = words[start[middle] + 4] & _LOW_BYTES[size[middle] - 4]
        if valid is not None and self.default is not None:
            views[~valid] = np.frombuffer(_view(self.default, 0), np.uint64)
        return (views, self.block.bytes) if not self.patches else self._patched(views)

    def _views_of_few(self, there: Ints) -> Any:
        """Return views where few strings exist, in an eighth of the time: most indexes are `{}`."""
        views = np.empty((len(self), 2), np.uint64)
        views[:, 0], views[:, 1] = np.frombuffer(_view(self.default or b"", 0), np.uint64)
        views[there] = Text(self.block, self.start[there], self.stop[there]).views()[0]
        return views

    def _patched(self, views: Any) -> tuple[Any, Any]:
        """Put the patches into the views; their text goes after a copy of the block.

        Arrow has views into several buffers, but nanoarrow 0.9 writes outside of them.
        """
        more, some = [self.block.data], bytearray()
        at = len(self.block.data)
        for patch in self.patches.values():
            some += _view(patch or b"", at)
            more.append(patch or b"")
            at += len(more[-1])
        views[list(self.patches)] = np.frombuffer(some, np.uint64).reshape(-1, 2)
        return views, np.frombuffer(b"".join(more), np.uint8)

    def there(self) -> Bools | None:
        """Return which rows are not NULL, not to be changed; None if all are there."""
        there = None if self.default is not None else self.valid
        if self.patches:
            there = np.ones(len(self), np.bool_) if there is None else there.copy()
            for row, patch in self.patches.items():
                there[row] = patch is not None
        return there


@dataclass
class Numbers:
    """A column of 64-bit integers, some of them absent."""

    values: Ints
    valid: Bools | None = None

    def __len__(self) -> int:
        return len(self.values)

    def take(self, rows: Any) -> Numbers:
        """Return the column of these rows (positions or a mask)."""
        return Numbers(self.values[rows], None if self.valid is None else self.valid[rows])

    def filled(self, value: int) -> Ints:
        """Return the integers with `value` where they are absent."""
        return self.values if self.valid is None else np.where(self.valid, self.values, value)


class Cursor:
    """One position in each of some lines, between the line's start and its end."""

    def __init__(self, block: Block, at: Ints, end: Ints) -> None:
        self.block, self.at, self.end = block, at, end
        self.problems: dict[int, tuple[int, str]] = {}
        """Where a line failed first and what was expected there, by row."""

    def __len__(self) -> int:
        return len(self.at)

    def good(self) -> Bools | None:
        """Return which rows followed the grammar so far; None if all did."""
        if not self.problems:
            return None
        mask = np.ones(len(self.at), np.bool_)
        mask[list(self.problems)] = False
        return mask

    def require(self, good: Bools, what: str, at: Ints | None = None) -> None:
        """Note, for the rows where `good` is false, that `what` was expected (there or `at`)."""
        if not good.all():
            places = self.at if at is None else at
            for row in np.flatnonzero(~good).tolist():
                self.problems.setdefault(row, (int(places[row]), what))

    def matches(self, literal: bytes) -> Bools:
        """Return in which rows this text is at the position."""
        is_match: Bools
        if len(literal) == 1:  # in a third of the time
            is_match = self.block.bytes[self.at] == ord(literal)
        else:
            is_match = np.strings.startswith(self.block.text, literal, self.at)
        return is_match

    def optional(self, literal: bytes) -> Bools:
        """Step over this text where it is; return where it was."""
        is_match = self.matches(literal)
        if is_match.any():
            self.at = self.at + is_match * len(literal)
        return is_match

    def expect(self, literal: bytes, where: Bools | None = None) -> None:
        """Step over this text, which must be in every row (in those of `where`)."""
        is_match = self.matches(literal)
        if where is None:
            self.require(is_match, repr(literal.decode()))
        else:
            self.require(is_match | ~where, repr(literal.decode()))
            is_match = is_match & where
        self.at = self.at + is_match * len(literal)

    def integer(self, signed: bool = False) -> Ints:
        """Read a decimal number of 64 bits, eight digits at a time."""
        negative = self.optional(b"-") if signed else None
        begin = self.at
        values, self.at = _digits(self.block, self.at)
        length = self.at - begin
        self.require(length > 0, "a number")
        if len(length) and length.max() > 18:
            lowest = values == np.iinfo(np.int64).min
            fits = values >= 0 if negative is None else (values >= 0) | (negative & lowest)
            self.require((length <= 19) & fits, "a number of 64 bits", begin)
        return values if negative is None else np.where(negative, -values, values)

    def integer_where(self, where: Bools, signed: bool = False) -> Numbers:
        """Read a decimal number in the rows of `where`, absent in the others."""
        values = np.zeros(len(where), np.int64)
        rows = np.flatnonzero(where)
        if len(rows):
            some = Cursor(self.block, self.at[rows], self.end[rows])
            values[rows] = some.integer(signed)
            at = self.at.copy()
            at[rows] = some.at
            self.at = at
            for row, problem in some.problems.items():
                self.problems.setdefault(int(rows[row]), problem)
        return Numbers(values, where)

    def optional_integer(self, prefix: bytes) -> Numbers:
        """Read a number after a prefix, absent where the prefix is."""
        return self.integer_where(self.optional(prefix))

    def find(self, *texts: bytes, where: Bools | None = None) -> Ints:
        """Return where the first of these texts is, at or after each position, or the line's end.

        Outside `where` it is the position itself. If there are several texts, each has one byte.
        """
        rows = slice(None) if where is None else np.flatnonzero(where)
        at, stop = self.at[rows], self.end[rows]
        for text in texts:
            place = np.strings.find(self.block.text, text, at, stop)
            stop = np.where(place < 0, stop, place)
        if where is None:
            return stop
        nearest = np.minimum(self.at, self.end)
        nearest[rows] = stop
        return nearest

    def until(self, *chars: bytes) -> Text:
        """Read the text up to the first of these bytes or the line's end; it must not be empty."""
        start, self.at = self.at, self.find(*chars)
        self.require(self.at > start, "a name")
        return Text(self.block, start, self.at)

    def enclosed(self, opener: bytes, closer: bytes, default: bytes | None = None) -> Text:
        """Read the text between two marks, absent where the opener is."""
        there = self.optional(opener)
        start = self.at
        stop = self.find(closer, where=there)
        closed = there & (stop < self.end)
        self.require(closed | ~there, repr(closer.decode()))
        self.at = np.where(closed, stop + len(closer), start)
        return Text(self.block, start, np.where(there, stop, start), there, default)

    def braced(self, prefix: bytes = b"") -> Text:
        """Read an index in its braces after a prefix, `{}` where there is none."""
        text = self.enclosed(prefix + b"{", b"}", default=b"{}")
        assert text.valid is not None
        text.start, text.stop = text.start - text.valid, text.stop + text.valid
        return text

    def rest(self) -> Text:
        """Read the text up to the line's end."""
        start, self.at = self.at, self.end
        return Text(self.block, start, self.end)

    def finish(self) -> None:
        """Require the line's end."""
        self.require(self.at == self.end, "the end of the line")

    def failures(self) -> Iterator[tuple[int, int, str]]:
        """Yield (row, where it failed, what was expected there) of every line that failed."""
        for row, (place, what) in sorted(self.problems.items()):
            yield row, place, what


Columns = dict[str, Any]
"""Columns of one table by name, all of one length: NumPy arrays, Text, Numbers or Labels."""


def take(columns: Columns, rows: Any) -> Columns:
    """Return the rows of all columns that a mask or positions choose; None chooses all."""
    if rows is None:
        return columns
    return {
        name: column[rows] if isinstance(column, np.ndarray) else column.take(rows)
        for name, column in columns.items()
    }


def runs_of(lines: Ints, total: int) -> Ints:
    """Return the last of the sorted `lines` at or before each of `total` lines, or -1."""
    counts = np.diff(np.concatenate([np.zeros(1, np.int64), lines, np.array([total])]))
    return np.repeat(np.arange(-1, len(lines)), counts)


def _digits(block: Block, at: Ints) -> tuple[Ints, Ints]:
    """Return the number at each position and the position after it, or after 24 digits."""
    values, count = _eight_digits(block, at)
    after = at + count
    open_rows = np.flatnonzero(count == 8)
    for _ in range(2):
        open_rows = open_rows[block.bytes[after[open_rows]] - np.uint8(ord("0")) < 10]
        if not len(open_rows):
            break
        rest, count = _eight_digits(block, after[open_rows])
        values[open_rows] = values[open_rows] * 10 ** count.astype(np.int64) + rest
        after[open_rows] += count
        open_rows = open_rows[count == 8]
    return values, after


def _eight_digits(block: Block, at: Ints) -> tuple[Ints, Any]:
    """Return the number of at most eight digits at each position, and its digits (a byte each).

    It works in place where possible, which takes a third less time.
    """
    digits = block.words[at]
    digits ^= np.uint64(0x3030303030303030)
    marks = digits + np.uint64(0x7676767676767676)
    marks |= digits
    marks &= np.uint64(0x8080808080808080)  # at each byte that is no digit
    bits = np.bitwise_count(~marks & (marks - np.uint64(1)))  # below the lowest of them, or 64
    digits <<= (np.uint8(64) - (bits & np.uint8(0x78))).astype(np.uint64)  # by 64 leaves 0
    pairs = digits * np.uint64(10)
    digits >>= np.uint64(8)
    pairs += digits
    low = pairs & np.uint64(0x000000FF000000FF)
    low *= np.uint64(0x000F424000000064)
    pairs >>= np.uint64(16)
    pairs &= np.uint64(0x000000FF000000FF)
    pairs *= np.uint64(0x0000271000000001)
    low += pairs
    low >>= np.uint64(32)
    return low.view(np.int64), bits >> np.uint8(3)


def _view(text: bytes, at: int) -> bytes:
    """Return Arrow's view of a string, which lies at this place in the data if it is long."""
    size = len(text).to_bytes(4, "little")
    if len(text) <= 12:
        return size + text.ljust(12, b"\0")
    return size + text[:4] + bytes(4) + at.to_bytes(4, "little")


def _mix(value: Any) -> Any:
    """Mix 64 bits reversibly, so that every input bit moves about half of the output bits."""
    value = value ^ (value >> np.uint64(32))
    value *= np.uint64(0xD6E8FEB86659FD93)
    value ^= value >> np.uint64(29)
    value *= np.uint64(0x9FB21C651E98DF25)
    value ^= value >> np.uint64(32)
    return value
