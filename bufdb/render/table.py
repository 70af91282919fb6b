"""Tables that fit a width: layout, cells that give way, bars."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field

from bufdb.render.text import BOLD, DIM, YELLOW, display_width, painted, shorten, style_of

# -- Shorten the text of one cell where a table is too wide: keep its most informative part --------
#
# Invariant: a figure is never shortened; a shortened text shows an `…`, except a shape that loses
# its layout: `f32[8,100]{1,0}` becomes `f32[8,100]`.

SMALLEST = 18
"""Minimum width of a name."""
SMALLEST_PROSE = 48
"""Minimum width of a sentence."""
SMALLEST_START = 24
"""Minimum width of a shape or a call stack, whose start is most informative."""
SMALLEST_PATH = 16
"""Minimum width of the end of a path."""
SMALLEST_OP = 24
"""Minimum width of the end of an op_name."""

_SHAPE = r"(?:.*_)?shapes?$"
_OP = r"(?:.*_)?(?:op_name|op_path)$"
_START = r"(?:.*_)?(?:key|stack)$"
"""Columns whose start is most informative: module_0002.jit_train_step.cpu_after_optimizations."""
_PROSE = r"(?:.*_)?(?:reason|message|advice|labels|metadata|options)$"
"""Columns whose texts are not paths, even with slashes."""
_WHOLE = ("layout", "remedy")
"""Columns that are the point of a query, and never shortened."""
_LAYOUT = r"\{[^{}]*\}"
_PATH = r"(?s)((?:saved |for )?library |saved |for )(.+)|()(.*/.*)"


def least(column: str, text: str) -> int:
    """Return the minimum width that a text of this column of a table needs."""
    if column in _WHOLE:
        return display_width(text)
    if re.fullmatch(_SHAPE, column):
        return min(display_width(re.sub(_LAYOUT, "", text)), SMALLEST_START)
    if column.endswith("stack"):
        return min(display_width(text), SMALLEST_START)
    if re.fullmatch(_PROSE, column):
        return min(display_width(text), SMALLEST_PROSE)
    prefix, path = _parts(column, text)
    if path:
        smallest = SMALLEST_OP if re.fullmatch(_OP, column) else SMALLEST_PATH
        return min(display_width(text), len(prefix) + smallest)
    return min(display_width(text), SMALLEST)


def give_way(column: str, text: str, width: int) -> str:
    """Shorten a text to at most `width` columns.

    A shape loses its layout first. A path and an op_name keep their end, in whole parts if one
    fits, a module's key and a call stack their start; any other text loses its middle.
    """
    if display_width(text) <= width:
        return text
    if re.fullmatch(_SHAPE, column):
        bare = re.sub(_LAYOUT, "", text)
        return bare if display_width(bare) <= width else _start(bare, width)
    if re.fullmatch(_START, column):
        return _start(text, width)
    prefix, path = _parts(column, text)
    if path and width > len(prefix) + 2:
        return prefix + _end(path, width - len(prefix))
    return shorten(text, width)


def _parts(column: str, text: str) -> tuple[str, str]:
    """Return the relation before a path ("saved ", "library ") and the path; '' if not a path."""
    match = re.fullmatch(_PATH, text)
    if match is None or re.fullmatch(_PROSE, column) or re.fullmatch(_START, column):
        return "", ""
    return match[1] or "", match[2] or match[4]


def _start(text: str, width: int) -> str:
    while display_width(text) > width - 1:
        text = text[:-1]
    return text + "…"


def _end(path: str, width: int) -> str:
    """Return '…' and the longest end of whole parts that fits, else as much of the last as fits."""
    for slash in re.finditer("/", path):
        if display_width(path[slash.start() :]) < width:
            return "…" + path[slash.start() :]
    while display_width(path) > width - 1:
        path = path[1:]
    return "…" + path


# -- Draw bars of a share, in eighths of a column of a terminal ------------------------------------

BAR_WIDTH = 22
"""Columns of a bar for 100 %, where there is room."""
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def bar(ratio: float, width: int = BAR_WIDTH, *, is_plain: bool = False) -> str:
    """Return a bar for a share of 1, in eighths of a column; nothing above 1 is drawn.

    With `is_plain` it has whole columns, of ASCII characters.
    """
    share = max(0.0, min(1.0, ratio))
    if is_plain:
        return "#" * round(share * width)
    whole, rest = divmod(round(share * width * 8), 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


# -- Rows as a table for people, fitted into a terminal --------------------------------------------
#
# Title lines above hold what all rows have alike. The rest is laid out as it is, if that fits;
# else what many rows in a row have alike moves into a title line above those, names of columns are
# folded at their underscores, texts are shortened (`cells`), and where that is not enough every row
# takes several lines, those after the first indented. Why a row is unknown is below it, whole.
# A single row that does not fit is set out with one name and value a line.
#
# Invariant: every figure is there in full, whatever the width; a width of None has no limit.

GAP = "  "
INDENT = "  "
"""Prefix of the second and later lines of a row."""
NARROWEST = 24
"""Columns of the narrowest supported terminal."""
SECTION_ROWS = 3
"""Minimum average rows of a section."""
LEAST_BAR = 10
"""Minimum columns of bars."""
REASON = "unknown_reason"
"""The last column of many answers, empty in most rows."""


@dataclass
class Column:
    """A column with texts that are safe to show."""

    name: str
    """Its name in the result."""
    body: list[str]
    is_number: bool = False
    is_text: bool = True
    """Whether it may be shortened: a number, a flag or a time may not."""
    header: list[str] = field(default_factory=list)
    """Displayed lines of its name."""
    width: int = 0
    shares: list[float | None] | None = None
    """Shares of 1 to draw as bars after it where there is room; None for no bars."""
    most: int | None = None
    """Maximum width; only a figure may be wider."""

    def __post_init__(self) -> None:
        self.header = [self.name]
        self.width = self.whole

    @property
    def whole(self) -> int:
        """Width with nothing shortened."""
        return max(map(display_width, [*self.header, *self.body]))

    @property
    def least(self) -> int:
        """Minimum width."""
        if not self.is_text:
            return self.whole
        shortest = max((least(self.name, cell) for cell in self.body), default=0)
        return max(_widest(self.header), min(shortest, self.most or shortest))

    def fold_header(self, room: int) -> None:
        """Fold the name into lines that fit this width, broken after underscores."""
        lines = [""]
        for piece in self.name.replace("_", "_\0").split("\0"):
            if lines[-1] and display_width(lines[-1] + piece) > room:
                lines.append("")
            lines[-1] += piece
        self.header = lines

    def shorten(self) -> int:
        """Shorten its texts to its width; return how many were shortened."""
        wide = [place for place, cell in enumerate(self.body) if display_width(cell) > self.width]
        for place in wide:
            self.body[place] = give_way(self.name, self.body[place], self.width)
        return len(wide)


def lay_out(
    columns: list[Column],
    alike: list[Column],
    width: int | None,
    *,
    has_sections: bool = False,
    is_coloured: bool = False,
) -> tuple[str, int]:
    """Return the table's text and the number of texts that were shortened.

    `alike` are columns with one value for all rows, for the title lines. There is at least one
    other column.
    """
    paint: Callable[[str, str | None], str] = painted if is_coloured else _plain
    row_count = len(columns[0].body)
    width = None if width is None else max(NARROWEST, width)
    title, cut = _title(alike, row_count, width)
    head = "".join(paint(line, DIM) + "\n" for line in title)
    if width is None:
        return head + _text([columns], paint), cut
    if _length(columns) <= width:
        return head + _text([_barred(columns, width)], paint), cut
    if row_count == 0:
        return _names(columns, width), cut
    if row_count == 1:
        return _record(columns, width, paint), cut
    reasons = {}
    if columns[-1].name == REASON:
        *columns, last = columns
        lines_of = [
            [] if text == "-" else _reason_lines(last.name, text, width) for text in last.body
        ]
        reasons = dict(enumerate(lines_of))
    sections: dict[int, list[str]] = {}
    if has_sections:
        columns, sections, cuts = _sections(columns, row_count, width)
        cut += cuts
    lines = _lines(columns, width)
    for place, line in enumerate(lines):
        lines[place], cuts = _fitted(line, _room(width, place))
        cut += cuts
    return head + _text(lines, paint, sections, reasons), cut


def _fitted(line: list[Column], room: int) -> tuple[list[Column], int]:
    """Return the columns of a line with widths and bars, and the number of shortened texts.

    A text that fits without bars is not shortened for them. If texts are shortened anyway, they
    also make room for the narrowest bars, but keep their minimum width.
    """
    _widen(line, room)
    is_cut = any(column.width < column.whole for column in line)
    has_bars = any(any(column.shares or ()) for column in line)
    least = sum(column.least for column in line) + len(GAP) * len(line) + LEAST_BAR
    if is_cut and has_bars and least <= room:
        _widen(line, room - len(GAP) - LEAST_BAR)
    cut = sum(column.shorten() for column in line)
    return _barred(line, room), cut


def _barred(line: list[Column], room: int) -> list[Column]:
    """Return the columns of a line, with bars after one of them if there is room."""
    left = min(BAR_WIDTH, room - _length(line) - len(GAP))
    for place, column in enumerate(line):
        if column.shares is not None and left >= LEAST_BAR:
            drawn = ["" if share is None else bar(share, left) for share in column.shares]
            rest = [Column("", drawn)] if any(drawn) else []
            return [*line[: place + 1], *rest, *line[place + 1 :]]
    return line


def _reason_lines(name: str, text: str, width: int) -> list[str]:
    return [INDENT + piece for piece in pieces(f"{name}: {text}", width - len(INDENT))]


def _plain(text: str, _style: str | None) -> str:
    return text


def _length(columns: list[Column]) -> int:
    return sum(column.width for column in columns) + len(GAP) * (len(columns) - 1)


# -- columns that are equal in all rows ------------------------------------------------------------


def _title(alike: list[Column], row_count: int, width: int | None) -> tuple[list[str], int]:
    """Return lines such as 'run cpu_b8 · color 0 · in each of 12 rows'; NULL columns come last."""
    if not alike:
        return [], 0
    return _titled(
        [(column, column.body[0]) for column in alike], f"in each of {row_count} rows", width
    )


def _sections(
    columns: list[Column], row_count: int, width: int
) -> tuple[list[Column], dict[int, list[str]], int]:
    """Split rows with equal first columns into sections: other columns, titles by row, shortenings.

    A section has all rows that are equal in the first columns, in as many of them as leave sections
    of three rows on average. There is none if the rows are not in such an order, or if the first
    column is a figure, which would be no useful title.
    """
    starts: list[int] = []
    moved = 0
    for count in range(1, len(columns) if columns[0].is_text else 1):
        heads = list(zip(*(column.body for column in columns[:count]), strict=True))
        first_rows = [row for row in range(row_count) if row == 0 or heads[row] != heads[row - 1]]
        if len(first_rows) * SECTION_ROWS > row_count:
            break
        if len(first_rows) == len(set(heads)):
            starts, moved = first_rows, count
    titles, cut = {}, 0
    for start, end in zip(starts, [*starts[1:], row_count][: len(starts)], strict=True):
        values = [(column, column.body[start]) for column in columns[:moved]]
        counted = f"{end - start} row{'s' if end > start + 1 else ''}"
        titles[start], cuts = _titled(values, counted, width)
        cut += cuts
    return columns[moved:], titles, cut


def _titled(
    values: list[tuple[Column, str]], count: str, width: int | None
) -> tuple[list[str], int]:
    cut = 0
    items = []
    for column, value in values:
        name = column.name.removesuffix("_name").removesuffix("_bytes")
        if value == "-":
            continue
        room = None if width is None else max(1, width - len(name) - 1)
        if room is not None and column.is_text and display_width(value) > room:
            value = give_way(column.name, value, room)
            cut += 1
        items.append(f"{name} {value}")
    items += [f"no {column.name}" for column, value in values if value == "-"]
    items.append(count)
    lines = [items[0]]
    for item in items[1:]:
        if width is not None and display_width(f"{lines[-1]} · {item}") > width:
            lines.append(item)
        else:
            lines[-1] += f" · {item}"
    return lines, cut


# -- assign the columns to the lines of a row ------------------------------------------------------


def _lines(columns: list[Column], width: int) -> list[list[Column]]:
    """Return the columns by line of a row: one line if possible, else as few as possible."""
    for column in columns:
        column.most = width - len(INDENT)
        if display_width(column.name) > column.most:  # an unnamed expression of SQL
            column.name = give_way(column.name, column.name, column.most)
            column.header = [column.name]
    unfolded = _packed(columns, width)
    for column in columns:
        column.fold_header(column.least if column.is_text else _widest(column.body))
        column.fold_header(max(_widest(column.header), _widest(column.body)))
    folded = _packed(columns, width)
    lines = folded if len(folded) < len(unfolded) or len(folded) == 1 else unfolded
    for place, line in enumerate(lines):
        _unfold(line, _room(width, place))
    return lines


def _room(width: int, place: int) -> int:
    """Return the width that the terminal leaves for this line of a row."""
    return width - (len(INDENT) if place else 0)


def _packed(columns: list[Column], width: int) -> list[list[Column]]:
    """Return the columns in order, each in the line of the previous one while there is room."""
    lines: list[list[Column]] = [[]]
    left = width
    for column in columns:
        if lines[-1] and column.least + len(GAP) > left:
            lines.append([])
            left = width - len(INDENT)
        left -= column.least + (len(GAP) if lines[-1] else 0)
        lines[-1].append(column)
    return lines


def _unfold(line: list[Column], width: int) -> None:
    """Put the names of columns on one line again where there is room, from the left."""
    left = width - sum(column.least for column in line) - len(GAP) * (len(line) - 1)
    for column in line:
        folded, before = column.header, column.least
        column.header = [column.name]
        if column.least - before > left:
            column.header = folded
        else:
            left -= column.least - before


def _widen(line: list[Column], width: int) -> None:
    """Set the widths of the columns of a line: the longest texts are cut most."""
    for cap in range(width, 0, -1):
        for column in line:
            column.width = max(column.least, min(column.whole, cap))
        if _length(line) <= width:
            return


def _widest(texts: list[str]) -> int:
    return max(map(display_width, texts), default=0)


# -- text ------------------------------------------------------------------------------------------


def _text(
    lines: list[list[Column]],
    paint: Callable[[str, str | None], str],
    before: dict[int, list[str]] | None = None,
    after: dict[int, list[str]] | None = None,
) -> str:
    """Return column names, a rule and the rows, with lines before and after some rows."""
    parts = []
    for place, line in enumerate(lines):
        height = max(len(column.header) for column in line)
        headers = [[""] * (height - len(column.header)) + column.header for column in line]
        for row in zip(*headers, strict=True):
            parts.append(_joined(place, line, row, [BOLD] * len(row), paint))
    if len(lines) == 1:
        parts.append(GAP.join("-" * column.width for column in lines[0]))
    else:
        ends = [_length(line) + (len(INDENT) if place else 0) for place, line in enumerate(lines)]
        parts.append("-" * max(ends))
    for row_place in range(len(lines[0][0].body)):
        if before and row_place in before:
            parts += [""] if row_place else []
            parts += [paint(title, DIM) for title in before[row_place]]
        for place, line in enumerate(lines):
            row = tuple(column.body[row_place] for column in line)
            if place and not any(row):
                continue  # a table with empty cells
            styles = [style_of(c.name, cell) for c, cell in zip(line, row, strict=True)]
            parts.append(_joined(place, line, row, styles, paint))
        if after:
            parts += [paint(reason, YELLOW) for reason in after[row_place]]
    return "".join(f"{part}\n" for part in parts)


def _joined(
    place: int,
    line: list[Column],
    row: tuple[str, ...],
    styles: list[str | None] | list[str],
    paint: Callable[[str, str | None], str],
) -> str:
    """Return one line of a row, with spaces outside of the colors and none at the end."""
    text, pending = "", INDENT if place else ""
    for column, cell, style in zip(line, row, styles, strict=True):
        pad = " " * (column.width - display_width(cell))
        before, after = (pad, "") if column.is_number else ("", pad)
        if cell:
            text += pending + before + paint(cell, style)
            pending = after + GAP
        else:
            pending += pad + GAP
    return text


def _names(columns: list[Column], width: int) -> str:
    """Return the header of a table without rows, wrapped to the width."""
    names = [column.name for column in columns]
    text = textwrap.fill("  ".join(names), width, break_on_hyphens=False)
    return f"{text}\n{'-' * max(map(display_width, text.splitlines()))}\n"


def _record(columns: list[Column], width: int, paint: Callable[[str, str | None], str]) -> str:
    """Return one row as a name and value per line; a long value continues below itself."""
    left = _widest([column.name for column in columns])
    left = min(left, width // 2)
    parts = []
    for column in columns:
        name, (value,) = give_way(column.name, column.name, left), column.body
        style = style_of(column.name, value)
        pad = " " * (left - display_width(name)) + GAP
        for piece in pieces(value, width - left - len(GAP)):
            parts.append(paint(name, BOLD) + pad + paint(piece, style))
            name, pad = "", " " * left + GAP
    return "".join(f"{part.rstrip()}\n" for part in parts)


def pieces(text: str, width: int) -> list[str]:
    """Return a text in pieces of at most `width` columns, broken between words if possible."""
    pieces, words = [""], text.split(" ")
    while words:
        word = words.pop(0)
        joined = f"{pieces[-1]} {word}" if pieces[-1] else word
        if display_width(joined) <= width:
            pieces[-1] = joined
        elif pieces[-1]:
            pieces.append("")
            words.insert(0, word)
        else:
            fits = next(n for n in range(len(word), 0, -1) if display_width(word[:n]) <= width)
            pieces[-1] = word[:fits]
            pieces.append("")
            words.insert(0, word[fits:])
    return pieces
