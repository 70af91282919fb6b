"""A plain second reader of out-of-memory messages without a log around them (format section 9.2).

Line by line, by the words that a line begins with. It shares no code with bufdb's.
"""

from __future__ import annotations

import re
from typing import Any

UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
SIZE = r"([\d.]+)([KMGT]?)(?:iB|B)?\b"
EXACT = {
    r"Allocation \(size=(\w+)\) would exceed memory \(size=(\w+)\)": 1,
    r"upper bound \((\w+) words\).*upper bound \((\w+) words\)": 4,
    r"Shared memory size limit exceeded: requested (\w+), available: (\w+)": 1,
    r"memory requested \((\w+) b\) exceeds device resources \((\w+) b\)": 1,
    r"smem_bytes=(\w+) > max_smem_bytes=(\w+)": 1,
    r"Tensor memory size limit exceeded: requested (\w+), available: (\w+)": 512,
    r"too much shared data \((\w+) bytes, (\w+) max\)": 1,
}
"""Figures without a unit, by what one of them is in bytes."""
SUMS = {
    "arguments": "argument",
    "HLO temp": "temp",
    "scoped": "scoped",
    "parameter allocation:": "argument",
    "constant allocation:": "constant",
    "maybe_live_out allocation:": "output",
    "preallocated temp allocation:": "temp",
    "preallocated temp fragmentation:": "fragmentation",
    "Currently allocated:": "held",
}
FIGURES = (
    rf"Used {SIZE} of {SIZE}",
    rf"temporaries \({SIZE}\) exceeds available HBM \({SIZE}\)",
    rf"Requires {SIZE}, has {SIZE} available",
    rf"Scoped allocation with size {SIZE} and limit {SIZE}",
    rf"Attempting to (?:reserve|allocate) {SIZE}(?:.|\n)*?There are {SIZE} free",
)


def read_message(text: str) -> dict[str, Any]:
    """Read a message: `needed`, `limit`, `total`, `amounts`, and `buffers` as dicts."""
    message: dict[str, Any] = {"amounts": {}, "buffers": []}
    for pattern in FIGURES:
        if figure := re.search(pattern, text):
            message["needed"] = size(figure[1], figure[2])
            message["limit"] = size(figure[3], figure[4])
    for pattern, scale in EXACT.items():
        if exact := re.search(pattern, text):
            message["needed"], message["limit"] = (
                int(number, 0) * scale for number in exact.groups()
            )
            message["amounts"]["scoped"] = message["needed"]
    for line in text.split("\n"):
        read_line(message, line.strip())
    return message


def read_line(message: dict[str, Any], line: str) -> None:
    """Add what a line says."""
    for word, name in SUMS.items():
        if line.startswith(word) and (amount := re.match(rf"\s*{SIZE}", line[len(word) :])):
            message["amounts"][name] = size(*amount.groups())
    if line.startswith("HLO temp") and (rest := re.search(rf"fragmentation \({SIZE}\)", line)):
        message["amounts"]["fragmentation"] = size(*rest.groups())
    if line.startswith("Output size ") and (amount := re.search(rf"size {SIZE}", line)):
        message["amounts"]["output"] = size(*amount.groups())
        if shared := re.search(rf"shares {SIZE} with", line):
            message["amounts"]["alias"] = size(*shared.groups())
    if total := re.match(rf"(?:Total hbm usage >=|total allocation:) *{SIZE}", line):
        message["total"] = size(*total.groups())
    if head := re.match(rf"(\d+)\. Size: {SIZE}$", line):
        message["buffers"].append({"number": int(head[1]), "size": size(head[2], head[3])})
    elif head := re.match(r"Buffer (\d+):$", line):
        message["buffers"].append({"number": int(head[1])})
    elif message["buffers"]:
        read_field(message["buffers"][-1], line)


def read_field(buffer: dict[str, Any], line: str) -> None:
    """Add what a line says of its buffer."""
    key, colon, value = line.partition(": ")
    if key == "Size" and (amount := re.match(SIZE, value)):
        buffer["size"] = size(*amount.groups())
    elif key in ("Shape", "Entry Parameter Subshape"):
        buffer["shape"] = value
    elif key in ("XLA label", "XLA Label") and " = " in value:
        buffer["name"] = value.removeprefix("%").partition(" = ")[0]
    elif key == "Operator":
        for name in ("op_name", "source_file"):
            if text := re.search(rf'{name}="([^"]*)"', value):
                buffer[name] = text[1].encode()
        if number := re.search(r"source_line=(\d+)", value):
            buffer["source_line"] = int(number[1])
    assert colon or not line or set(line) == {"="}, line


def size(number: str, unit: str) -> int:
    """Bytes, to the nearest."""
    whole, _, fraction = number.partition(".")
    scale = 10 ** len(fraction)
    return (int(whole + fraction) * UNITS[unit] + scale // 2) // scale
