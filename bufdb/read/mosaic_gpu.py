"""Shared memory of a Mosaic GPU kernel: what the launch in its MLIR module asks for.

The module is in the `backend_config` of the custom call, as text (JAX 0.7 and earlier) or as
bytecode of version 0 (since 0.8; `mlir/docs/BytecodeFormat.md`, format section 9.3). The size is
an operand of `gpu.launch`, a constant. Nothing else of the kernel is read.
"""

from __future__ import annotations

import re

_MAGIC = b"ML\xefR"
_VERSION = b"\x01"
"""0, as the format writes numbers: the one that JAX asks for."""
_STRING, _DIALECT, _ATTRIBUTES, _OFFSETS, _OPERATIONS = range(5)
"""Numbers of sections."""
_LAUNCH, _CONSTANT = b"gpu.launch", b"arith.constant"
_DICTIONARY, _TEXT, _INTEGER = 1, 2, 8
"""Codes of the builtin dialect's attributes."""
_I32 = bytes([0 << 1 | 1, *(32 << 2 << 2 | 2).to_bytes(2, "little")])
"""The builtin dialect's type: the code of integers, then width and signedness as one number."""
_HAS_ATTRIBUTES, _HAS_RESULTS, _HAS_OPERANDS, _HAS_SUCCESSORS, _HAS_REGIONS = (1, 2, 4, 8, 16)
_DEEPEST = 64
"""Regions in regions; a kernel has some ten."""
_MODULE = re.compile(rb'[{ ]module = "((?:[^"\\]|\\.)*)"', re.DOTALL)
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2}|.)", re.DOTALL)
_LINE = re.compile(
    rb'(?P<constant>%\w+) = "[\w.]*arith\.constant"\(\) \{value = (?P<size>\d{1,10}) : i32\}'
    rb'|gpu\.launch"\([^()\n]*?(?P<launched>%\w+)\)'
)


def shared_bytes(attributes: bytes) -> int | None:
    """Return the most that a launch of a kernel asks for [bytes].

    None if the custom call has no module, or the module no launch, or one without a constant.

    Args:
        attributes: what follows the operands of the custom call.

    Raises:
        ValueError: the module is bytecode of another version, or damaged.
    """
    match = _MODULE.search(attributes)
    if match is None:
        return None
    module = _ESCAPE.sub(_unescaped, match[1])
    try:
        sizes = _Kernel(module).sizes if module.startswith(_MAGIC) else _sizes_of_text(module)
    except IndexError as error:
        raise ValueError("the bytecode ends within what it announces") from error
    known = [size for size in sizes if size is not None]
    return max(known) if known and len(known) == len(sizes) else None


def _unescaped(escape: re.Match[bytes]) -> bytes:
    return bytes.fromhex(escape[1].decode()) if len(escape[1]) == 2 else escape[1]


def _sizes_of_text(module: bytes) -> list[int | None]:
    constants: dict[bytes, int] = {}
    sizes = []
    for line in _LINE.finditer(module):
        if line["constant"] is not None:
            constants[line["constant"]] = int(line["size"])
        else:
            sizes.append(constants.get(line["launched"]))
    return sizes


class _Cursor:
    """Bytes, and how far they are read."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """Return an integer whose first byte ends in as many zeros as bytes follow it."""
        first = self.byte()
        more = (first & -first).bit_length() - 1 if first else 8
        whole = int.from_bytes(self.take(more), "little") << 8 | first
        return whole >> (more + 1) if first else whole >> 8

    def signed(self) -> int:
        """Return an integer whose sign is its lowest bit."""
        number = self.number()
        return number >> 1 ^ -(number & 1)

    def numbers(self) -> list[int]:
        """Return a list after its length."""
        return [self.number() for _ in range(self.number())]

    def take(self, size: int) -> bytes:
        if size > len(self.data) - self.at:
            raise IndexError(size)
        self.at += size
        return self.data[self.at - size : self.at]


class _Kernel:
    def __init__(self, bytecode: bytes) -> None:
        if not bytecode.startswith(_VERSION, len(_MAGIC)):
            raise ValueError("the bytecode is not of version 0")
        cursor = _Cursor(bytecode)
        while cursor.byte():  # the name of the producer
            pass
        sections: dict[int, _Cursor] = {}
        while cursor.at < len(bytecode):
            number, size = cursor.byte(), cursor.number()
            if number & 128:  # it begins at a multiple
                cursor.at += -cursor.at % max(cursor.number(), 1)
            sections[number & 127] = _Cursor(cursor.take(size))
        if not sections.keys() >= {_STRING, _DIALECT, _ATTRIBUTES, _OFFSETS, _OPERATIONS}:
            raise ValueError("a section of the bytecode is missing")
        self.strings = _strings(sections[_STRING])
        self._read_names(sections[_DIALECT])
        self._read_offsets(sections[_OFFSETS], sections[_ATTRIBUTES])
        self.operations = sections[_OPERATIONS]
        self.undefined = len(bytecode)
        """How many more values it has room for."""
        self.values: list[int | None] = []
        """Integers of constants, by the numbers of values; None for other values."""
        self.sizes: list[int | None] = []
        """What each launch asks for [bytes]; None where that is no constant."""
        self._read_block(0, 0)

    def _read_names(self, cursor: _Cursor) -> None:
        """Read dialects, and the names of operations with the last part of their dialect's."""
        self.dialects = [self.strings[number] for number in cursor.numbers()]
        self.names: list[bytes] = []
        while cursor.at < len(cursor.data):
            # JAX's stable dialect has those of other dialects in its names, as gpu.launch.
            dialect = self.dialects[cursor.number()]
            self.names += [dialect + b"." + self.strings[name] for name in cursor.numbers()]

    def _read_offsets(self, cursor: _Cursor, data: _Cursor) -> None:
        """Read attributes, then types: bytes of those of the builtin dialect, b"" for others."""
        self.attributes: list[bytes] = []
        self.types: list[bytes] = []
        counts = cursor.number(), cursor.number()
        for encoded, count in zip((self.attributes, self.types), counts, strict=True):
            while len(encoded) < count:
                is_builtin = self.dialects[cursor.number()] == b"builtin"
                for size in cursor.numbers():
                    one = data.take(size >> 1)
                    encoded.append(one if is_builtin and size & 1 else b"")

    def _read_block(self, number: int, depth: int) -> int:
        """Read the next block.

        Args:
            number: of the next value that is defined in its region.
            depth: how many regions are around it.

        Returns:
            The number of the next value after it.
        """
        cursor = self.operations
        header = cursor.number()
        if header & 1:
            for _ in range(cursor.number()):
                cursor.number(), cursor.number()  # type and location
                number += 1
        for _ in range(header >> 1):
            number = self._read_operation(number, depth)
        return number

    def _read_operation(self, number: int, depth: int) -> int:
        cursor = self.operations
        name, has = self.names[cursor.number()], cursor.byte()
        cursor.number()  # location
        attributes = cursor.number() if has & _HAS_ATTRIBUTES else None
        results = cursor.numbers() if has & _HAS_RESULTS else []
        operands = cursor.numbers() if has & _HAS_OPERANDS else []
        if has & _HAS_SUCCESSORS:
            cursor.numbers()
        if name.endswith(_LAUNCH) and operands:
            # The size is the last operand, and an i32; all others are no i32.
            self.sizes.append(self.values[operands[-1]])
        if name.endswith(_CONSTANT) and attributes is not None and results:
            self.values[number] = self._constant(attributes)
        number += len(results)
        if has & _HAS_REGIONS:
            self._read_regions(depth)
        return number

    def _read_regions(self, depth: int) -> None:
        """Read the regions of an operation; their values are numbered after all of those around."""
        cursor = self.operations
        if depth == _DEEPEST:
            raise ValueError("the bytecode's regions are nested too deeply")
        header = cursor.number()
        around = self.values
        for _ in range(header >> 1):
            block_count = cursor.number()
            value_count = cursor.number() if block_count else 0
            self.undefined -= value_count
            if self.undefined < 0:
                raise IndexError(value_count)
            self.values = [] if header & 1 else around
            first = number = len(self.values)
            self.values += [None] * value_count
            for _ in range(block_count):
                number = self._read_block(number, depth + 1)
            del self.values[first:]
            self.values = around

    def _constant(self, number: int) -> int | None:
        """Return the i32 that is the value in a dictionary of attributes; None if it is another."""
        dictionary = _Cursor(self.attributes[number])
        if not dictionary.data or dictionary.number() != _DICTIONARY:
            return None
        for _ in range(dictionary.number()):
            name, value = _Cursor(self.attributes[dictionary.number()]), dictionary.number()
            if name.number() == _TEXT and self.strings[name.number()] == b"value":
                cursor = _Cursor(self.attributes[value])
                is_i32 = cursor.data and cursor.number() == _INTEGER
                if is_i32 and self.types[cursor.number()] == _I32:
                    return cursor.signed()
        return None


def _strings(cursor: _Cursor) -> list[bytes]:
    """Return the strings of a section, whose sizes are in the other order and count a last zero."""
    sizes = cursor.numbers()
    return [cursor.take(size)[:-1] for size in reversed(sizes)]
