"""The one-line text of an instruction and its metadata (format section 7)."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from bufdb.columnar.scan import Bools, Columns, Cursor, Ints, Numbers, Text
from bufdb.read.hlo import unescape

_MARK_TEXT = b", metadata={"
_RAW = b", backend_config={\n"
"""A configuration of several lines; in one of one line, a quote precedes anything that matters."""
_FIRST = _MARK_TEXT + b'op_name="'
_FIRST_TYPE = _MARK_TEXT + b'op_type="'
_KIND = b"), kind="
_KINDS = (b"kLoop", b"kInput", b"kOutput", b"kCustom")
"""The kinds that XLA prints; another word is accepted too."""
_WORD = re.compile(rb"\w+", re.ASCII)
TEXT_FIELDS = ("op_type", "op_name", "source_file")
NUMBER_FIELDS = (
    "source_line",
    "source_end_line",
    "source_column",
    "source_end_column",
    "stack_frame_id",
)


def read(text: Text) -> tuple[Columns, Cursor]:
    """Return name, opcode, shape and metadata of each instruction; the cursor holds the failures.

    Args:
        text: instructions from their name on, with or without its `%`.
    """
    c = Cursor(text.block, text.start, text.stop)
    c.optional(b"%")
    columns: Columns = {"instruction_name": c.until(b" ")}
    c.expect(b" = ")
    start = c.at
    is_tuple = c.matches(b"(")
    after = c.find(b" ", where=~is_tuple)
    paren = c.find(b") ", where=is_tuple)
    c.at = np.where(is_tuple, np.minimum(paren + 1, c.end), after)
    columns["shape"] = Text(c.block, start, c.at)
    c.expect(b" ")
    opcode = columns["opcode"] = c.until(b"(")
    quote = np.strings.find(c.block.text, b'"', c.at, c.end)
    columns["fusion_kind"] = _fusion_kind(c, opcode, quote)
    columns.update(_metadata(c, quote))
    return columns, c


def _fusion_kind(c: Cursor, opcode: Text, quote: Ints) -> Text:
    """Return the word after the first `), kind=` of a fusion, if no quote precedes it.

    Only operands precede it, and no operand has such a text or a quote.

    Args:
        c: in instructions, after the opcode.
        opcode: their opcodes.
        quote: position of the first quote after each opcode, -1 without one.
    """
    is_fusion = Cursor(c.block, opcode.start, opcode.stop).matches(b"fusion(")
    place = c.find(_KIND, where=is_fusion)
    rows = np.flatnonzero(is_fusion & (place < c.end) & ((quote < 0) | (quote > place)))
    start, stop = c.at.copy(), c.at.copy()
    cursor = Cursor(c.block, place[rows] + len(_KIND), c.end[rows])
    start[rows], stop[rows] = cursor.at, cursor.find(b",", b"}", b" ")
    size = stop[rows] - start[rows]
    is_known = np.zeros(len(rows), np.bool_)
    for kind in _KINDS:
        is_known |= (size == len(kind)) & cursor.matches(kind)
    for row in rows[~is_known].tolist():
        if not _WORD.fullmatch(c.block.data, int(start[row]), int(stop[row])):
            stop[row] = start[row]
    return Text(c.block, start, stop, stop > start)


def _metadata(c: Cursor, quote: Ints) -> Columns:
    """Return the fields of `, metadata={…}` outside all quotes and brackets; `quote` as above."""
    data, begin = c.block.data, c.at
    place, slow = _marks(c, quote)
    has = place < c.end
    c.at = np.where(has, place, c.end)
    c.optional(_MARK_TEXT)
    failed = set(c.problems)
    columns: Columns = {}
    for name in TEXT_FIELDS:
        columns[name], odd = _quoted(c, f'{name}="'.encode(), has)
        slow |= odd
    for name in NUMBER_FIELDS:
        if name == "stack_frame_id":
            slow |= _skip_names(c, has)
        there = c.optional(f"{name}=".encode()) & has
        columns[name] = c.integer_where(there)
        c.optional(b" ")
    slow |= has & ~c.matches(b"}")
    for row in np.flatnonzero(slow).tolist():
        if row not in failed:
            c.problems.pop(row, None)
        fields = metadata_of(data[int(begin[row]) : int(c.end[row])])
        for name in TEXT_FIELDS:
            columns[name].patches[row] = fields.get(name)
        for name in NUMBER_FIELDS:
            _set(columns[name], row, fields.get(name))
    return columns


def _marks(c: Cursor, quote: Ints) -> tuple[Ints, Bools]:
    """Return where `, metadata={` is, or the line's end; and the rows to read one by one.

    Only quoted text, or a sharding, which quotes names, can hold a mark that does not count. In
    most lines the first quote is that of the first field.
    """
    data, begin = c.block.data, c.at
    find = data.find
    first = Cursor(c.block, np.maximum(quote + 1 - len(_FIRST), begin), c.end)
    plain = first.matches(_FIRST) | first.matches(_FIRST_TYPE)
    place = np.where(plain, first.at, c.end)
    slow = np.zeros(len(c), np.bool_)
    last = c.block.bytes[np.maximum(c.end - 1, 0)] == ord("}")
    for row in np.flatnonzero(~plain & ((quote >= 0) | last)).tolist():
        start, end = int(begin[row]), int(c.end[row])
        marks = find(_MARK_TEXT, start, end)
        if marks >= 0:
            place[row] = marks
            slow[row] = 0 <= quote[row] < marks and not _is_outside(data, start, marks)
    # After the start of a configuration that is printed raw, a mark may be part of it.
    ends = c.block.ends  # in a tenth of the time of searching all the text
    raw = ends[c.block.bytes[ends - 1] == ord("{")] + 1 - len(_RAW)
    raw = raw[np.strings.startswith(c.block.text, _RAW, raw)]
    if len(raw):
        slow |= (place < c.end) & (np.searchsorted(raw, begin) != np.searchsorted(raw, place))
    return place, slow


def _is_outside(data: bytes, start: int, stop: int) -> bool:
    """Return whether all quotes and braces opened in a span are closed at its end."""
    text = _QUOTED.sub(lambda quoted: b"" if quoted["closed"] else b'"', data[start:stop])
    return text.find(b'"') < 0 and text.count(b"{") == text.count(b"}")


def _skip_names(c: Cursor, has: Bools) -> Bools:
    """Step over the names before the frame; return the rows in which one holds an escape."""
    odd = np.zeros(len(c), np.bool_)
    for name in (b"deduplicated_name", b"scheduling_name"):
        if name == b"scheduling_name":
            c.optional(b"preserve_layout=true ")
        if c.matches(name).any():
            odd |= _quoted(c, name + b'="', has)[1]
    return odd


def _set(column: Numbers, row: int, value: Any) -> None:
    assert column.valid is not None
    column.valid[row] = value is not None
    column.values[row] = value or 0


def _quoted(c: Cursor, opener: bytes, has: Bools) -> tuple[Text, Bools]:
    """Read a quoted field, unescaped, and the blank after it; return it and the unclosed rows."""
    there = c.optional(opener) & has
    start = c.at
    stop = c.find(b'"', b"\\", where=there)
    open_rows = np.zeros(len(c), np.bool_)
    patches: dict[int, bytes | None] = {}
    data = c.block.data
    ended = (stop < c.end) & (c.block.bytes[np.minimum(stop, c.block.size)] == ord('"'))
    for row in np.flatnonzero(there & ~ended).tolist():
        closing = _REST_OF_STRING.match(data, int(stop[row]), int(c.end[row]))
        if closing is None:
            open_rows[row] = True
        else:
            stop[row] = closing.end() - 1
            patches[row] = unescape(data[int(start[row]) : int(stop[row])])
    c.at = np.where(there & ~open_rows, stop + 1, start)
    c.optional(b" ")
    text = Text(c.block, start, np.where(there, stop, start), there)
    text.patches = patches
    return text, open_rows


_REST_OF_STRING = re.compile(rb'(?:[^"\\]|\\.)*+"', re.DOTALL)
# An unclosed quote takes all the rest; otherwise each quote in it would be tried again.
_QUOTED = re.compile(rb'"(?:[^"\\]|\\.)*+(?P<closed>")?', re.DOTALL)
_TOKEN = re.compile(
    rb'"(?:[^"\\]|\\.)*+"?|(?P<open>[{(\[])|(?P<close>[})\]])|(?P<mark>, metadata=\{)',
    re.DOTALL,
)
_PLAIN = re.compile(
    rb'(?<=, metadata=\{op_name=)"(?P<op_name>[^"\\]*)"(?: scheduling_name="[^"\\]*")?'
    rb"(?: stack_frame_id=(?P<frame>\d{1,18}))?\}"
)
"""From the first field's quote on: the form of most lines from jaxlib 0.8.2 on."""
_MARK = re.compile(rb", metadata=\{")
_FIELD = re.compile(
    rb' ?(?P<name>\w{1,64})=(?:"(?P<quoted>(?:[^"\\]|\\.)*+)"|(?P<number>-?\d{1,19})(?=[ }])'
    rb'|(?P<word>[^ "{}]+))',
    re.DOTALL,
)


def plain_metadata(text: bytes, start: int, stop: int) -> dict[str, Any] | None:
    """Return the fields as `metadata_of` does, for the most frequent form; None for other lines."""
    # Without a quote it is tried at the text's start, where nothing precedes it.
    plain = _PLAIN.match(text, text.find(b'"', start, stop), stop)
    if plain is None:
        return None
    name, frame = plain.groups()
    return {"op_name": name} if frame is None else {"op_name": name, "stack_frame_id": int(frame)}


def metadata_of(text: bytes) -> dict[str, Any]:
    """Return the metadata fields of an instruction's text from its operands on.

    Only a `metadata={` outside all quotes and brackets counts: a sharding may hold another one.
    Text fields are unescaped bytes, number fields are int; a missing field is left out.
    """
    depth, at = 0, 0
    while True:
        if depth == 0 and (mark := _MARK.match(text, at)):
            return _fields(text, mark.end())
        token = _TOKEN.search(text, at)
        if token is None:
            return {}
        if token["mark"]:
            if depth == 0:
                return _fields(text, token.end())
            depth += 1
        elif token["open"]:
            depth += 1
        elif token["close"]:
            depth -= 1
        at = token.end()


def _fields(text: bytes, at: int) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    while at < len(text) and text[at : at + 1] != b"}":
        match = _FIELD.match(text, at)
        if match is None:
            at = _over(text, at)
            continue
        name = match["name"].decode()
        if match["quoted"] is not None:
            fields.setdefault(name, unescape(match["quoted"]))
        elif match["number"] is not None and abs(int(match["number"])) < 2**63:
            fields.setdefault(name, int(match["number"]))
        at = match.end()
    return {
        name: value
        for name, value in fields.items()
        if (name in TEXT_FIELDS and isinstance(value, bytes))
        or (name in NUMBER_FIELDS and isinstance(value, int))
    }


def _over(text: bytes, at: int) -> int:
    """Return the position after a field with a value in braces (profile_type), or one byte on."""
    match = re.compile(rb" ?\w{1,64}=\{").match(text, at)
    if match is None:
        return at + 1
    depth, at = 1, match.end()
    while depth and (token := _TOKEN.search(text, at)):
        depth += bool(token["open"] or token["mark"]) - bool(token["close"])
        at = token.end()
    return at if not depth else len(text)
