"""Reads a report's data as its page does, by the description in bufdb/page/README.md alone.

Shares nothing with what writes it: text of the page in, columns and figures out.
"""

import base64
import json
import re
import zlib
from collections import defaultdict

_SLOT = re.compile(r'<script type="application/octet-stream" id="slot-(\d+)">([^<]*)</script>')


def slots(page):
    """Head of the report, and head and columns of each module, by number of the slot."""
    by_number = {int(number): slot(base64.b64decode(text)) for number, text in _SLOT.findall(page)}
    assert sorted(by_number) == list(range(len(by_number)))
    return by_number.pop(0)[0], by_number


def slot(data):
    data = zlib.decompress(data, wbits=31)
    length = int.from_bytes(data[:4], "little")
    head = json.loads(data[4 : 4 + length])
    at, columns = 4 + length, {}
    for name, count, is_delta, size in head["columns"]:
        numbers = decoded(data[at : at + size])
        assert len(numbers) == count
        if is_delta:
            for place in range(1, count):
                numbers[place] += numbers[place - 1]
        columns[name] = numbers
        at += size
    assert at == len(data)
    return head, columns


def decoded(data):
    numbers, number, shift = [], 0, 0
    for byte in data:
        number += (byte & 127) << shift
        shift += 7
        if byte < 128:
            numbers.append(number // 2 if number % 2 == 0 else -(number + 1) // 2)
            number, shift = 0, 0
    assert shift == 0
    return numbers


def modules(head):
    """Rows of the list of modules, each by the names of its columns."""
    listed = head["modules"]
    return [dict(zip(listed["columns"], row, strict=True)) for row in listed["rows"]]


class Module:
    """A slot with a picture."""

    def __init__(self, head, columns):
        self.head = head
        self.text = head["text"]
        self.columns = columns
        for name, numbers in columns.items():
            setattr(self, name, numbers)

    def table(self, name):
        """Rows of a table, each by the names of its columns."""
        for table in self.head["tables"]:
            if table["name"] == name:
                names = [column for column, _ in table["columns"]]
                return [dict(zip(names, row, strict=True)) for row in table["rows"]]
        return []

    def of(self, column, row):
        """A text of a row, None for none."""
        number = self.columns[column][row]
        return None if number < 0 else self.text[number]

    def name(self, row, group="value"):
        stem, number = self.of(f"{group}_stem", row), self.columns[f"{group}_number"][row]
        return stem if stem is None or number == 0 else f"{stem}.{number - 1}"

    def path(self, node):
        """A path of operations."""
        segments = []
        while node >= 0:
            segments.append(self.text[self.op_text[node]])
            node = self.op_parent[node]
        return "/".join(reversed(segments))

    def stack(self, row):
        """File, line, function and whether it is the user's own of each frame, innermost first."""
        node, frames = self.value_frame[row], []
        while node >= 0:
            frames.append(
                (
                    self.text[self.frame_file[node]],
                    self.frame_line[node],
                    self.text[self.frame_function[node]],
                    bool(self.frame_own[node]),
                )
            )
            node = self.frame_parent[node]
        return frames

    def sums(self, length):
        """Occupied bytes at each step, 0 to `length`."""
        change = [0] * (length + 2)
        for start, last, size in zip(
            self.block_start, self.block_last, self.block_size, strict=True
        ):
            change[start] += size
            change[start + last + 1] -= size
        total, occupied_bytes = 0, []
        for step in change[: length + 1]:
            total += step
            occupied_bytes.append(total)
        return occupied_bytes

    def held(self, time, key):
        """Bytes at an instant by a key of the value's row."""
        sizes = defaultdict(int)
        for row, start, last, size in zip(
            self.block_value, self.block_start, self.block_last, self.block_size, strict=True
        ):
            if start <= time <= start + last:
                sizes[key(row)] += size
        return dict(sizes)
