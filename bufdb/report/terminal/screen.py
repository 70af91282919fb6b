"""All that `bufdb show` says of a module: its curve, its map, and what holds the chosen instant."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bufdb.query.asked.subject import Subject
from bufdb.query.result import Result
from bufdb.report import bars, cells, colour, formats, table
from bufdb.report.terminal import axes, blocks, curve, paint, tree
from bufdb.report.terminal.groups import Groups
from bufdb.report.terminal.paint import FIXED, LETTERS, OTHER, Look
from bufdb.report.text import display_width, escape_control, human_bytes
from bufdb.summary.picture import Picture, place_of

NARROWEST = 60
WIDEST = 160
"""Columns of a picture: in a wider terminal it is no wider."""
WHOLE_BARS = 76
"""Columns from which on bars have their whole width."""
TOP = 10
"""Values listed."""
_PEAKS = 5
"""Distinct peaks that are named."""
_HELD = ("held_bytes", "saving_bytes", "shape", "instruction_name", "source")
_SIZED = ("size_bytes", "value_count", "allocation_kind", "shape", "instruction_name", "source")
_NO_BREAK = "\xa0"
_PLAIN = str.maketrans({"·": "-", "…": "~", "█": "#"})


def width_of(columns: int) -> int:
    """The width of a picture in a terminal with so many columns."""
    return min(WIDEST, max(NARROWEST, columns))


class Screen:
    """Lines of text, at most so wide."""

    def __init__(self, columns: int, look: Look) -> None:
        self.width, self.look = width_of(columns), look
        self.lines: list[str] = []

    @property
    def column_count(self) -> int:
        """Columns that are left to the program."""
        return self.width - axes.GUTTER

    def text(self) -> str:
        """All of it; of ASCII characters alone if the terminal has no others."""
        text = "".join(f"{line.rstrip()}\n" for line in self.lines)
        if self.look.is_plain:
            text = text.translate(_PLAIN).encode("ascii", "backslashreplace").decode()
        return text

    def add(self, *lines: str) -> None:
        """Add lines of which every name is escaped already."""
        self.lines += lines

    def draw(self, picture: Picture) -> None:
        """The head, the curve, the map and the legend."""
        self._head(picture.subject)
        self._instant(picture)
        groups = Groups(picture)
        scale = axes.Scale(curve.highest([*picture.columns, picture.instant]))
        self.add("", self._marks(picture))
        plain = self.look.is_plain
        for row, line in enumerate(curve.rows(picture, groups, scale, self.look)):
            label = scale.label(scale.row_count - 1 - row)
            self.add(axes.gutter(label, is_plain=plain) + paint.line(line, self.look))
        self.add(*axes.steps(picture.last, len(picture.columns), is_plain=plain))
        self._map(picture, groups)
        self._legend(picture, groups)

    def sizes(self, subject: Subject) -> None:
        """What is known of a module whose peak is not, or not when it is."""
        self._head(subject)
        why = f"unknown peak: {escape_control(subject.unknown_reason or '')}"
        if subject.peak_bytes is not None:
            why = f"the peak: {human_bytes(subject.peak_bytes)}; an out-of-memory message tells of "
            why += "no instant, so there is neither curve nor map"
        self.add(*(self._paint(line, colour.YELLOW) for line in self._wrapped(why)))
        if subject.color is None:
            return
        rows = [
            ("temp", subject.temp_bytes),
            ("arguments", subject.argument_bytes),
            ("outputs", subject.output_bytes),
            ("donated, in both", subject.alias_bytes or None),
            ("constants", subject.constant_bytes),
        ]
        most = max((size or 0 for _, size in rows), default=0)
        self.add("", self._paint("sizes of its allocations", colour.BOLD))
        for label, size in rows:
            if size is not None:
                drawn = bars.bar(size / most if most else 0.0, is_plain=self.look.is_plain)
                self.add(f"{human_bytes(size):>10}  {drawn:<{bars.WIDTH}}  {label}")

    def table(self, title: str, result: Result, names: Iterable[str], more: str) -> None:
        """Some columns of an answer, and the command that gives all of it."""
        places = [
            place for name in names for place, (known, _) in enumerate(result.columns)
            if known == name
        ]  # fmt: skip
        columns = [result.columns[place] for place in places]
        rows = [tuple(row[place] for place in places) for row in result.rows]
        answer = replace(result, columns=columns, rows=rows)
        text, _ = formats.render(
            answer, "table", self.width, has_titles=True, is_coloured=self.look.is_coloured
        )
        self.add("", self._paint(title, colour.BOLD), *text.splitlines())
        self.add(self._paint(more, colour.DIM))

    def values(self, picture: Picture, result: Result, more: str) -> None:
        """The largest values at the instant."""
        self.table(f"largest values at step {picture.instant.time}", result, _HELD, more)

    def sized(self, subject: Subject, result: Result, more: str) -> None:
        """The largest values: whenever they are live, or at a peak of an unknown instant."""
        if subject.peak_bytes is None:
            self.table("largest values, equal ones together", result, _SIZED, more)
        else:
            self.table("largest values at the peak", result, _HELD, more)

    def tree(self, picture: Picture, kind: str, rows: Iterable[tuple[str, int]]) -> None:
        """The bytes at the instant as a tree."""
        root = tree.tree(picture.subject.function_name, rows, kind)
        title = f"bytes at step {picture.instant.time} by {_TREES[kind]}"
        self.add("", self._paint(title, colour.BOLD))
        self.add(*tree.lines(root, kind, self.width, is_plain=self.look.is_plain))

    # -- parts -----------------------------------------------------------------------------

    def _head(self, subject: Subject) -> None:
        name = escape_control(subject.function_name)
        rest = f" of run {escape_control(subject.run_name)}"
        if subject.memory_space:
            rest += f", {escape_control(subject.memory_space)} memory"
        room = max(cells.SMALLEST, self.width - display_width(rest))
        self.add(self._paint(cells.give_way("name", name, room), colour.BOLD) + rest)
        key = cells.give_way("module_key", escape_control(subject.module_key), self.width)
        self.add(self._paint(key, colour.DIM))
        besides = [
            f"{human_bytes(other.peak_bytes)} {escape_control(other.memory_space)}"
            for other in subject.besides
            if other.peak_bytes is not None
        ]
        if besides:
            self.add(*self._listed("besides:", [*besides, "which --color shows"]))

    def _instant(self, picture: Picture) -> None:
        subject, instant = picture.subject, picture.instant
        numbers = [number for number, time, _ in picture.peaks if time == instant.time]
        what = f"peak {numbers[0]}: " if numbers and numbers[0] > 1 else ""
        what = "the peak: " if instant.time == subject.peak_time else what
        text = f"{what}{human_bytes(instant.occupied_bytes)} at step {instant.time}"
        text += f" of {picture.last}"
        if picture.instruction is not None:
            name, opcode = picture.instruction
            text += f", {escape_control(opcode)}" if opcode is not None else ""
            text += f" {escape_control(name)}"
        self.add(cells.give_way("instruction_name", text, self.width))
        if len(picture.peaks) > 1:
            named = [
                f"{number} at {time} ({human_bytes(size)})"
                for number, time, size in picture.peaks[:_PEAKS]
            ]
            self.add(*self._listed("peaks:", named))

    def _marks(self, picture: Picture) -> str:
        """The chosen instant, and the numbers of the peaks."""
        marks = [" "] * len(picture.columns)
        for number, time, _ in reversed(picture.peaks[:_PEAKS]):
            marks[place_of(time, picture.last, len(marks))] = str(number)
        marks[picture.place] = "v" if self.look.is_plain else "▼"
        return " " * axes.GUTTER + "".join(marks)

    def _map(self, picture: Picture, groups: Groups) -> None:
        if not any(column.parts for column in picture.columns):
            flat = "no temp buffers: all of it is held from the first step to the last"
            self.add(*self._wrapped(flat))
            return
        plain = self.look.is_plain
        size = human_bytes(picture.arena_bytes)
        count = len(picture.walls) + 1
        text = f"temp arena of {size}" + (f" in {count} allocations" if count > 1 else "")
        text += f" by {picture.by}"
        if picture.is_without_lines:
            text += ", for no line is known"
        if picture.unseen_count:
            what = "value" if picture.unseen_count == 1 else "values"
            text += f" (not drawn: {picture.unseen_count} {what} live only between columns)"
        self.add(*self._wrapped(text))
        lines = blocks.rows(picture, groups, self.look)
        walls = blocks.wall_rows(picture)
        for row, line in enumerate(lines):
            below = len(lines) - 1 - row
            edge = axes.gutter(size if row == 0 else "", is_plain=plain)
            if row and below in walls:
                edge = edge[:-1] + ("+" if plain else "├")
            self.add(edge + paint.line(line, self.look))
        rule, corner, mark = ("-", "+", "^") if plain else ("─", "└", "▲")
        foot = [rule] * len(picture.columns)
        foot[picture.place] = mark
        self.add(f"{'0 B':>{axes.GUTTER - 2}} {corner}{''.join(foot)}")

    def _legend(self, picture: Picture, groups: Groups) -> None:
        """What the colours mean, with the bytes at the instant: they add up to those of it."""
        self.add("", self._paint(f"what holds step {picture.instant.time}", colour.BOLD))
        total = picture.instant.occupied_bytes
        room = bars.WIDTH if self.width >= WHOLE_BARS else bars.WIDTH // 2
        names = {letter: name for name, letter in groups.inks.items()}
        names[FIXED] = "arguments, outputs, constants"
        names[OTHER] = f"{len(groups.names) - len(groups.inks)} others"
        for ink, size in _ordered(groups.bytes_of(picture.instant)):
            ratio = size / total if total else 0.0
            drawn = bars.bar(ratio, room, is_plain=self.look.is_plain)
            pad = " " * (room - len(drawn))
            if self.look.is_coloured:
                drawn = colour.painted(drawn, self.look.style(ink))
            head = f"{human_bytes(size):>10}  {ratio:>6.1%}  "
            swatch = self.look.swatch(ink)
            left = self.width - len(head) - room - (7 if self.look.is_coloured else 5)
            column = "op_name" if picture.by == "op" else "source"
            label = cells.give_way(column, escape_control(names[ink]), left)
            self.add(f"{head}{drawn}{pad}  {swatch}  {label}")

    def _paint(self, text: str, style: str) -> str:
        return colour.painted(text, style) if self.look.is_coloured else text

    def _listed(self, head: str, items: list[str]) -> list[str]:
        """A list of which no item is divided between two lines, unless it is too long for one."""
        listed = ", ".join(item.replace(" ", _NO_BREAK) for item in items)
        return [line.replace(_NO_BREAK, " ") for line in self._wrapped(f"{head} {listed}")]

    def _wrapped(self, text: str) -> list[str]:
        return table.pieces(text, self.width)


_TREES = {"op": "scope of the operation", "line": "file and line", "stack": "call stack"}


def _ordered(sizes: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Groups from the largest on, then the others, then what is fixed."""
    order = (*LETTERS, OTHER, FIXED)
    return sorted(sizes, key=lambda pair: order.index(pair[0]))
