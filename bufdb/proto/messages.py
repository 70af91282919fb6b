"""Fields of many messages at a time: columns, and instructions with their names."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Any, TypeVar

import numpy as np

from bufdb.columnar.scan import PAD, Bools, Ints, Words
from bufdb.proto import reader
from bufdb.proto.reader import DAMAGED, UnreadableProto

# -- Fields of many messages of one kind, a column of each: the wire format by NumPy ---------------
#
# A message that the package protobuf parses is an object, and so is each field taken out of it,
# which is most of what a proto costs. Here there is one cursor per message in bytes put end to end,
# and all move together from field to field. What is odd (numbers of more than 8 bytes, groups,
# lists in parts, what makes no sense) is left to the package, message by message, and so are few or
# long messages: what is read, and what is refused, is what the package reads and refuses.

T = TypeVar("T")

CHUNK = 1 << 13
"""Messages that are read together, so that they stay in a processor's cache: of 96,193 instructions
2,048 at a time take a quarter more, 131,072 two fifths."""
FEW = 48
"""Below this many messages the package is faster than some hundred calls of NumPy: of the protos in
data/ 16 takes a seventh more, 128 a tenth."""
_LONG = 1 << 12
"""Messages above this many bytes may have thousands of fields, which would be as many rounds."""
_NUMBER, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = np.array([0, 8, 0, -1, -1, 4, -1, -1])
"""By wire type, the bytes after the key, besides those that a number there gives; -1 if odd."""
_HIGH_BITS = 0x8080808080808080


def chunks(kind: str, messages: Sequence[bytes], why: str = DAMAGED) -> Iterator[Messages]:
    """Yield serialized messages of a kind, some thousands at a time."""
    for at in range(0, len(messages), CHUNK):
        yield Messages(kind, messages[at : at + CHUNK], why)


class Messages:
    """Some serialized messages of one kind; each column has a row for each."""

    def __init__(self, kind: str, messages: Sequence[bytes], why: str = DAMAGED) -> None:
        """Find the fields.

        Args:
            kind: name of the message in `hlo_fields.proto`.
            messages: their bytes.
            why: the error for messages that cannot be parsed.

        Raises:
            UnreadableProto: the package cannot parse one.
        """
        self._kind, self._messages, self._why = kind, messages, why
        self._fields = reader.fields_of(kind)
        self._odd: dict[int, Any] = {}
        """Messages that the package parsed, by row."""
        sizes = np.fromiter(map(len, messages), np.int64, len(messages))
        is_short = (sizes <= _LONG) & (len(messages) >= FEW)
        short = itertools.compress(messages, is_short)
        self._data = b"".join([*short, PAD])
        self._bytes = np.frombuffer(self._data, np.uint8)
        self._words: Words = np.ndarray(
            (len(self._data) - 7,), np.dtype("<u8"), self._data, strides=(1,)
        )
        self._find_fields(sizes, is_short)

    def __len__(self) -> int:
        return len(self._messages)

    def numbers(self, name: str) -> Ints:
        """Return a field with a number, or with a truth value; 0 where it is absent."""
        numbers = np.zeros(len(self), np.int64)
        fields = self._having(name, _NUMBER)
        values = self._value[fields]
        kind = self._fields[name].cpp_type
        if kind == reader.BOOL:
            values = (values != 0).astype(np.int64)
        elif kind == reader.INT32:
            values = values.astype(np.int32)
        numbers[self._row[fields]] = values
        for row, message in self._odd.items():
            numbers[row] = getattr(message, name)
        return numbers

    def texts(self, name: str) -> list[bytes]:
        """Return a field of bytes."""
        return self._by_row(name, self._texts(self._having(name, _BYTES)), adds_up=False)

    def joined(self, name: str) -> list[bytes]:
        """Return a field with a message; several occurrences are merged into one message."""
        return self._by_row(name, self._texts(self._having(name, _BYTES)), adds_up=True)

    def parts(self, names: Iterable[str]) -> list[bytes]:
        """Return several fields of any type together, as a serialized message of these alone."""
        names = list(names)
        is_part = np.zeros(1 << 11, np.bool_)
        is_part[[self._fields[name].number for name in names]] = True
        fields = np.flatnonzero(is_part[self._key >> 3])
        parts = [b""] * len(self)
        for row, text in zip(*self._texts(fields, self._begin), strict=True):
            parts[row] += text
        for row, message in self._odd.items():
            parts[row] = reader.with_fields(message, names)
        return parts

    def all_texts(self, name: str) -> tuple[list[bytes], list[int]]:
        """Return a repeated field of bytes or messages: all end to end, and each row's count."""
        fields = self._having(name, _BYTES)
        fields = fields[np.argsort(self._row[fields], kind="stable")]
        texts = self._texts(fields)[1]
        counts = np.bincount(self._row[fields], minlength=len(self)).tolist()
        if not self._odd:
            return texts, counts
        texts_and_counts = parted(texts, counts)
        for row, message in self._odd.items():
            texts_and_counts[row] = list(getattr(message, name))
        return list(itertools.chain.from_iterable(texts_and_counts)), list(
            map(len, texts_and_counts)
        )

    def all_numbers(self, name: str) -> tuple[list[int], list[int]]:
        """Return a repeated field of numbers, in the same way."""
        fields = self._having(name, _BYTES)
        fields = fields[np.argsort(self._row[fields], kind="stable")]
        rows = self._row[fields]
        values, count, is_odd = self._packed(self._start[fields], self._stop[fields])
        counts = np.zeros(len(self), np.int64)
        counts[rows] = count
        odd = {*self._row[self._having(name, _NUMBER)].tolist(), *self._odd}
        odd |= {*rows[is_odd].tolist(), *rows[1:][rows[1:] == rows[:-1]].tolist()}
        if not odd:
            return values.tolist(), counts.tolist()
        by_row: list[Sequence[int]] = [()] * len(self)
        pieces = parted(values.tolist(), count.tolist())
        for row, piece in zip(rows.tolist(), pieces, strict=True):
            by_row[row] = piece
        for row in odd:
            by_row[row] = list(getattr(self._parsed(row), name))
        return list(itertools.chain.from_iterable(by_row)), list(map(len, by_row))

    def _having(self, name: str, wire_type: int) -> Ints:
        """Return the places of a field among all fields, including some of odd messages."""
        return np.flatnonzero(self._key == (self._fields[name].number << 3 | wire_type))

    def _texts(self, fields: Ints, starts: Ints | None = None) -> tuple[list[int], list[bytes]]:
        """Return rows and contents of these fields, or what is between `starts` and the ends."""
        data, starts = self._data, self._start if starts is None else starts
        spans = zip(starts[fields].tolist(), self._stop[fields].tolist(), strict=True)
        return self._row[fields].tolist(), [data[start:stop] for start, stop in spans]

    def _by_row(
        self, name: str, spans: tuple[list[int], list[bytes]], *, adds_up: bool
    ) -> list[bytes]:
        """Return the contents of a field by message; of several the last, or all together."""
        rows, texts = spans
        if len(rows) == len(self) and not self._odd and rows == list(range(len(rows))):
            return texts
        contents = [b""] * len(self)
        for row, text in zip(rows, texts, strict=True):
            contents[row] = contents[row] + text if adds_up else text
        for row, message in self._odd.items():
            one = getattr(message, name)
            contents[row] = one if isinstance(one, bytes) else one.SerializeToString()
        return contents

    def _parsed(self, row: int) -> Any:
        """Return a message as the package parses it."""
        if row not in self._odd:
            self._odd[row] = reader.parsed(self._kind, self._messages[row], self._why)
        return self._odd[row]

    def _find_fields(self, sizes: Ints, is_short: Bools) -> None:
        """Step through the fields of all short messages, one field of each at a time."""
        odd = np.flatnonzero(~is_short).tolist()
        row = np.flatnonzero(is_short)
        end = np.cumsum(sizes[row])
        at = end - sizes[row]
        row, at, end = row[at < end], at[at < end], end[at < end]
        none = np.empty(0, np.int64)
        steps = [(none, none, none, none, none, none)]
        while len(row) >= FEW:
            key, start, value, stop = self._field(at)
            is_odd = (stop < 0) | (stop > end)
            if is_odd.any():
                odd += row[is_odd].tolist()
                kept = ~is_odd
                row, at, end, key = row[kept], at[kept], end[kept], key[kept]
                start, value, stop = start[kept], value[kept], stop[kept]
            steps.append((row, key, at, start, value, stop))
            at, goes_on = stop, stop < end
            if not goes_on.all():
                row, at, end = row[goes_on], at[goes_on], end[goes_on]
        for left in itertools.chain(odd, row.tolist()):
            self._parsed(left)
        columns = [np.concatenate(column) for column in zip(*steps, strict=True)]
        self._row, self._key, self._begin, self._start, self._value, self._stop = columns

    def _field(self, at: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Return key, start of the content, number and end of these fields; the end is -1 if odd.

        The number is the field's, or the length of its content.
        """
        head = self._words[at]
        is_long = (head & 0x80) != 0
        key = (head & 0x7F | np.where(is_long, head >> 1 & 0x3F80, 0)).view(np.int64)
        after = at + 1 + is_long
        value, size = _numbers(self._words[after])
        wire_type = key & 7
        more = _SIZES[wire_type]
        is_bytes = wire_type == _BYTES
        has_number = is_bytes | (wire_type == _NUMBER)
        start = after + np.where(is_bytes, size, 0)
        stop = after + np.where(has_number, size, more) + np.where(is_bytes, value, 0)
        is_odd = (has_number & (size > 8)) | (more < 0) | (key < 8)
        is_odd |= is_long & ((head & 0x8000) != 0)
        return key, start, value, np.where(is_odd, -1, stop)

    def _packed(self, starts: Ints, stops: Ints) -> tuple[Ints, Ints, Bools]:
        """Return all numbers in these spans, how many are in each, and which spans are odd."""
        sizes = stops - starts
        firsts = np.cumsum(sizes) - sizes
        places = np.arange(int(sizes.sum())) + np.repeat(starts - firsts, sizes)
        is_last = self._bytes[places] < 0x80
        lasts = np.flatnonzero(is_last)
        begins = np.concatenate([np.zeros(min(1, len(lasts)), np.int64), lasts[:-1] + 1])
        values, is_complete = _numbers(self._words[places[begins]])
        ended = np.concatenate([np.zeros(1, np.int64), np.cumsum(is_last)])
        counts = ended[firsts + sizes] - ended[firsts]
        is_odd = (sizes > 0) & (self._bytes[stops - 1] >= 0x80)
        is_long = is_complete > 8
        if is_long.any():
            is_odd[np.searchsorted(firsts + sizes, lasts[is_long], side="right")] = True
        return values, counts, is_odd


def parted(every: Sequence[T], counts: Iterable[int]) -> list[Sequence[T]]:
    """Cut a sequence into parts of these lengths."""
    ends = itertools.pairwise(itertools.accumulate(counts, initial=0))
    return [every[start:stop] if start < stop else () for start, stop in ends]


def _numbers(words: Words) -> tuple[Ints, Ints]:
    """Return the numbers that these words begin with, and their bytes; 9 for more than 8."""
    last = ~words & _HIGH_BITS
    below = (last & (~last + np.uint64(1))) - np.uint64(1)
    size = (np.bitwise_count(below) >> 3).astype(np.int64) + 1
    # Seven bits of each byte: of two bytes fourteen, of four twenty-eight.
    values = words & below & 0x7F7F7F7F7F7F7F7F
    values = values & 0x007F007F007F007F | (values & 0x7F007F007F007F00) >> 1
    values = values & 0x00003FFF00003FFF | (values & 0x3FFF00003FFF0000) >> 2
    values = values & 0x000000000FFFFFFF | (values & 0x0FFFFFFF00000000) >> 4
    return values.view(np.int64), size


# -- Instructions of serialized computations, end to end: a list of each field ---------------------

_NAME = re.compile(rb"[A-Za-z_][\w.\-]*")
_LETTERS = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_"
_IS_FIRST = np.isin(np.arange(256), np.frombuffer(_LETTERS, np.uint8))
_OTHERS = _LETTERS + b"0123456789.-"
_ATTRIBUTES = (
    *("fusion_kind", "dimensions", "window", "convolution_dimension_numbers", "channel_id"),
    *("custom_call_target", "dot_dimension_numbers", "sharding", "replica_groups"),
    *("feature_group_count", "source_target_pairs", "batch_group_count", "comparison_direction"),
    *("collective_device_list", "iota_collective_device_list", "mesh_axes_replica_group_list"),
)
"""Fields that only the printed attributes are made of: few are different from all others."""


@dataclass
class Instructions:
    """Instructions in the order of the proto; each list has all of them."""

    ids: list[int] = field(default_factory=list)
    """As the proto has them: from jaxlib 0.7 on the computation's is in the high half."""
    names: list[str] = field(default_factory=list)
    opcodes: list[str] = field(default_factory=list)
    shapes: list[bytes] = field(default_factory=list)
    """Serialized, as are the next three."""
    metadata: list[bytes] = field(default_factory=list)
    literals: list[bytes] = field(default_factory=list)
    attributes: list[bytes] = field(default_factory=list)
    """What else is printed, as an instruction that has nothing but these fields."""
    configs: list[bytes] = field(default_factory=list)
    """What backends add."""
    operand_ids: list[int] = field(default_factory=list)
    """Operands of all, end to end."""
    operand_counts: list[int] = field(default_factory=list)
    called: dict[int, Sequence[int]] = field(default_factory=dict)
    """Ids of the computations that instructions name, if they name any."""
    parameter_numbers: list[int] = field(default_factory=list)
    """0 for other instructions, as in the next."""
    tuple_indexes: list[int] = field(default_factory=list)

    def first_operand(self, i: int) -> int:
        """Return the id of an instruction's first operand, -1 without one."""
        return self.operand_ids[self._first_operands[i]] if self.operand_counts[i] else -1

    @cached_property
    def _first_operands(self) -> list[int]:
        return list(accumulate(self.operand_counts, initial=0))


def read_instructions(serialized: Sequence[bytes], payloads: Sequence[bytes] = ()) -> Instructions:
    """Read instructions.

    Args:
        serialized: their bytes.
        payloads: of their module.

    Raises:
        UnreadableProto: one cannot be parsed, or its name or opcode is invalid.
    """
    instructions = Instructions()
    names: list[bytes] = []
    opcodes: list[bytes] = []
    for some in chunks("HloInstructionProto", serialized):
        first = len(instructions.ids)
        instructions.ids += some.numbers("id").tolist()
        names += some.texts("name")
        opcodes += some.texts("opcode")
        instructions.shapes += some.texts("shape")
        instructions.metadata += some.texts("metadata")
        instructions.literals += some.joined("literal")
        instructions.attributes += some.parts(_ATTRIBUTES)
        instructions.configs += _configs(some, payloads)
        operands, counts = some.all_numbers("operand_ids")
        instructions.operand_ids += operands
        instructions.operand_counts += counts
        called, counts = some.all_numbers("called_computation_ids")
        spans = pairwise(accumulate(counts, initial=0))
        instructions.called |= {i: called[a:b] for i, (a, b) in enumerate(spans, first) if a < b}
        instructions.parameter_numbers += some.numbers("parameter_number").tolist()
        instructions.tuple_indexes += some.numbers("tuple_index").tolist()
    for data in set(instructions.attributes):
        reader.instruction_of(data)
    for data in set(instructions.literals):
        reader.literal_of(data)
    instructions.names = checked_names(names)
    instructions.opcodes = _opcodes(opcodes)
    return instructions


def _configs(some: Messages, payloads: Sequence[bytes]) -> list[bytes]:
    """Return backend configurations, which may be payloads of the module (since 2026-03)."""
    configs = some.texts("backend_config")
    for row, data in enumerate(some.joined("backend_config_payload")):
        if data and not configs[row]:
            payload = reader.payload_of(data)
            source = payload.WhichOneof("payload_source")
            if source == "value":
                configs[row] = payload.value
            elif source == "id" and 0 <= payload.id < len(payloads):
                configs[row] = payloads[payload.id]
    return configs


def _opcodes(words: Sequence[bytes]) -> list[str]:
    """Return opcodes, checked as names are: nothing in them can end a line either."""
    different = list(set(words))
    texts = dict(zip(different, checked_names(different), strict=True))
    return [texts[word] for word in words]


def checked_names(names: Sequence[bytes]) -> list[str]:
    """Return the same as text, if all are names, with nothing in them that could end a line.

    Raises:
        UnreadableProto: one is not a name.
    """
    together = b"\n".join(names)
    # All at once: without the letters of names, only the ends between them are left.
    ends = together.translate(None, _OTHERS)
    if not names:
        return []
    if len(ends) == ends.count(b"\n") == len(names) - 1:
        letters = np.frombuffer(b"\n" + together + b"\n", np.uint8)
        if _IS_FIRST[letters[np.flatnonzero(letters[:-1] == ord("\n")) + 1]].all():
            return together.decode("ascii").split("\n")
    for name in names:
        if not _NAME.fullmatch(name):
            shown = name[:80].decode("ascii", "backslashreplace")
            raise UnreadableProto(f"it is damaged: {shown!r} is not a name")
    return []
