"""The layouts of 2019: rewritten into the later one, line by line (format section 12).

Until 2019-09 a value's positions, uses and place were together below its allocation, before 2019-07
only its place. The rewritten text goes through the same readers as any other text; for each of its
lines the number of its source line is kept.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_BLOCK = re.compile(
    rb"  (?P<id>\d{1,18}) (?P<phi>PHI )?(?P<name>[\w.-]+)(?P<index>\{[\d,]*\})?"
    rb" @(?P<color>\d+), positions:"
)
_INDENTED = re.compile(rb"  (?:\d+ |[\w.-]+\[[\d,]*\]\(#)")
_PLACE = re.compile(rb" \[(?P<offset>-?\d+),(?P<size>-?\d+)\]: (?P<shape>.*)")
_BUFFER = re.compile(
    rb"  (?P<name>[\w.-]+)\[(?P<index>[\d,]*)\]\(#(?P<id>\d+)(?: @(?P<color>\d+))?\)"
    rb" \[(?P<offset>-?\d+),(?P<size>-?\d+)\]: (?P<shape>.*)"
)


@dataclass
class Rewritten:
    """The text in the later layout, and the source line of each of its lines."""

    allocations: list[bytes] = field(default_factory=list)
    allocation_lines: list[int] = field(default_factory=list)
    used_values: list[bytes] = field(default_factory=list)
    used_lines: list[int] = field(default_factory=list)


def is_block_layout(text: bytes) -> bool:
    """Return whether an allocation section is in a layout of 2019."""
    indented = text.find(b"\n  ")
    return indented >= 0 and _INDENTED.match(text, indented + 1) is not None


def rewrite(text: bytes) -> Rewritten:
    """Put every value on one line below its allocation and its uses into a list by number."""
    result = Rewritten()
    blocks: list[tuple[int, list[bytes], list[int]]] = []
    head: re.Match[bytes] | None = None
    body: list[bytes] = []
    numbers: list[int] = []
    for number, line in enumerate(text.split(b"\n")[: text.count(b"\n")], 1):
        if buffer := _BUFFER.fullmatch(line):
            index = (
                b"{" + buffer["index"] + b"}"
                if buffer["shape"].startswith(b"(") or buffer["index"]
                else b""
            )
            short = b"<%s %s%s @%s>" % (
                buffer["id"],
                buffer["name"],
                index,
                buffer["color"] or b"0",
            )
            _place(result, short, buffer, number)
        elif match := _BLOCK.fullmatch(line):
            _leave(result, head, body, numbers)
            head, body, numbers = match, [], []
            body.append(_short(match))
            numbers.append(number)
            body.append(b" positions:")
            numbers.append(number)
        elif head is not None and (place := _PLACE.fullmatch(line)):
            _place(result, body[0], place, number)
            blocks.append((int(head["id"]), body, numbers))
            head = None
        elif head is not None and line.startswith((b"  ", b" uses:")):
            body.append(line)
            numbers.append(number)
        else:
            _leave(result, head, body, numbers)
            head = None
            result.allocations.append(line)
            result.allocation_lines.append(number)
    _leave(result, head, body, numbers)
    if blocks:
        for _, body, numbers in sorted(blocks, key=lambda block: block[0]):
            result.used_values += body
            result.used_lines += numbers
    return result


def _leave(
    result: Rewritten, head: re.Match[bytes] | None, body: list[bytes], numbers: list[int]
) -> None:
    """Leave a block without a place as it is: the reader of allocations reports its lines."""
    if head is not None:
        result.allocations += [head[0], *body[2:]]
        result.allocation_lines += [numbers[0], *numbers[2:]]


def _short(match: re.Match[bytes]) -> bytes:
    phi = b" (phi)" if match["phi"] else b""
    return b"<%s %s%s%s @%s>" % (
        match["id"],
        match["name"],
        match["index"] or b"",
        phi,
        match["color"],
    )


def _place(result: Rewritten, short: bytes, place: re.Match[bytes], number: int) -> None:
    line = b" value: %s (size=%s,offset=%s): %s" % (
        short,
        place["size"],
        place["offset"],
        place["shape"],
    )
    result.allocations.append(line)
    result.allocation_lines.append(number)
