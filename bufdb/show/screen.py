"""`bufdb show`: pictures, tables and the tree of one module, fitted to a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bufdb.query.result import Result
from bufdb.query.subject import Subject
from bufdb.render import formats, table
from bufdb.render.table import bar
from bufdb.render.text import BOLD, DIM, YELLOW, display_width, escape_control, human_bytes, painted
from bufdb.show import drawing
from bufdb.show.drawing import FIXED, LETTERS, OTHER, Groups, Look
from bufdb.show.picture import Picture, place_of

# -- Bytes at an instant as a tree: by scope of the operation, by file and line, by call stack -----
#
# Invariant: the children of a node and its own bytes add up to it, because rows left out are
# summed up in a line too; the root is the sum of all.

BAR = 12
LEAST_SHARE = 0.005
"""Minimum share of the total for a node to have a line of its own."""
MOST_CHILDREN = 12
MOST_DEPTH = 10
_HEAD = 10 + 2 + 6 + 2 + BAR + 2
_RELATION = re.compile(r"(saved|for|copy of|slice of) (.+)", re.DOTALL)
_MADE = {"saved": "(saved by a loop)", "for": "(made by XLA for it)"}
_LINE = re.compile(r"(.+)(:[0-9]+)", re.DOTALL)
_JOINTS = {"op": "/", "line": "", "stack": " > "}
"""Separator between the names of a node and its child, by kind of tree."""
_COLUMNS = {"op": "op_name", "line": "source", "stack": "name"}
"""The table column whose rule shortens a name, by kind of tree."""


@dataclass
class Node:
    """Bytes, and their composition."""

    name: str
    size_bytes: int = 0
    """Total bytes."""
    own_bytes: int = 0
    """Bytes that no child has."""
    children: dict[str, Node] = field(default_factory=dict)


def tree(root: str, rows: Iterable[tuple[str, int]], kind: str) -> Node:
    """Return a tree of labels, from the saved query of its kind, with their bytes."""
    top = Node(root)
    for label, size in rows:
        node = top
        node.size_bytes += size
        for name in path(label, kind):
            node = node.children.setdefault(name, Node(name))
            node.size_bytes += size
        node.own_bytes += size
    return top


def path(label: str, kind: str) -> list[str]:
    """Return the names of the nodes on the path to the bytes of a label, the outermost first.

    A relation to the label becomes a node below it: what the line itself makes, what a loop saves
    of it, what XLA makes for it.
    """
    relation = _RELATION.fullmatch(label)
    below = []
    if relation is not None:
        label = relation[2]
        below = [_MADE.get(relation[1], f"({relation[1]} it)")]
    if kind == "stack":
        return [*reversed(label.split(" < ")), *below]
    if kind == "line":
        line = _LINE.fullmatch(label)
        return [*(line.groups() if line is not None else [label]), *below]
    return [*label.split("/"), *below]


def tree_lines(root: Node, kind: str, width: int, *, is_plain: bool = False) -> list[str]:
    """Return a line per node: bytes, share of the total, bar, name; the most bytes first."""
    lines = []
    # Not recursive: a name in a damaged dump may have any number of parts.
    waiting = [(root, 0, "", "")]
    while waiting:
        node, depth, before, guide = waiting.pop()
        label = escape_control(node.name) or "(no name)"
        children: list[Node] = []
        if node.children:
            node, names = _folded(node, kind)
            label = escape_control(names)
            if node.children and depth < MOST_DEPTH:
                children = list(_shown(node, root.size_bytes))
        room = width - _HEAD - display_width(before + guide)
        shown = table.give_way(_COLUMNS[kind], label, max(table.SMALLEST, room))
        ratio = node.size_bytes / root.size_bytes if root.size_bytes else 0.0
        drawn = bar(ratio, BAR, is_plain=is_plain)
        head = f"{human_bytes(node.size_bytes):>10}  {ratio:>6.1%}  {drawn:<{BAR}}  "
        lines.append(head + before + guide + shown)
        inner = before + {"├ ": "│ ", "|-": "| ", "": ""}.get(guide, "  ")
        guides = ("|-", "`-") if is_plain else ("├ ", "└ ")
        for place in reversed(range(len(children))):
            is_last = place == len(children) - 1
            waiting.append((children[place], depth + 1, inner, guides[is_last]))
    return lines


def _folded(node: Node, kind: str) -> tuple[Node, str]:
    """Merge a node with descendants that are only children, and join their names."""
    names = node.name
    while len(node.children) == 1 and not node.own_bytes:
        (node,) = node.children.values()
        names += (" " if node.name.startswith("(") else _JOINTS[kind]) + node.name
    return node, names


def _shown(node: Node, all_bytes: int) -> Iterator[Node]:
    """Yield the largest children of a node, its own bytes, and the rest as one node."""
    nodes = list(node.children.values())
    if node.own_bytes:
        nodes.append(Node("(itself)", node.own_bytes, node.own_bytes))
    nodes.sort(key=lambda item: (-item.size_bytes, item.name))
    count = sum(item.size_bytes >= LEAST_SHARE * all_bytes for item in nodes[:MOST_CHILDREN])
    if count == len(nodes) - 1:
        count += 1
    yield from nodes[:count]
    rest = nodes[count:]
    if rest:
        size = sum(item.size_bytes for item in rest)
        yield Node(f"({len(rest)} more)", size, size)


# --------------------------------------------------------------------------------------------------
# The output of `bufdb show` for a module: curve, map, and what holds the chosen instant.

NARROWEST = 60
WIDEST = 160
"""Maximum columns of a picture, also in a wider terminal."""
WHOLE_BARS = 76
"""Minimum columns at which bars have their full width."""
TOP = 10
"""Number of values listed."""
_PEAKS = 5
"""Number of distinct peaks named."""
_HELD = ("held_bytes", "saving_bytes", "shape", "instruction_name", "source")
_SIZED = ("size_bytes", "value_count", "allocation_kind", "shape", "instruction_name", "source")
_NO_BREAK = "\xa0"
_PLAIN = str.maketrans({"·": "-", "…": "~", "█": "#"})


def width_of(columns: int) -> int:
    """Return the width of a picture in a terminal with so many columns."""
    return min(WIDEST, max(NARROWEST, columns))


class Screen:
    """Lines of text of limited width."""

    def __init__(self, columns: int, look: Look) -> None:
        self.width, self.look = width_of(columns), look
        self.lines: list[str] = []

    @property
    def column_count(self) -> int:
        """Columns that are left for the program."""
        return self.width - drawing.GUTTER

    def text(self) -> str:
        """Return all lines, in ASCII characters if the terminal has no others."""
        text = "".join(f"{line.rstrip()}\n" for line in self.lines)
        if self.look.is_plain:
            text = text.translate(_PLAIN).encode("ascii", "backslashreplace").decode()
        return text

    def add(self, *lines: str) -> None:
        """Add lines in which every name is already escaped."""
        self.lines += lines

    def draw(self, picture: Picture) -> None:
        """Add the head, the curve, the map and the legend."""
        self._head(picture.subject)
        self._instant(picture)
        groups = Groups(picture)
        scale = drawing.Scale(drawing.highest([*picture.columns, picture.instant]))
        self.add("", self._marks(picture))
        plain = self.look.is_plain
        for row, line in enumerate(drawing.curve_rows(picture, groups, scale, self.look)):
            label = scale.label(scale.row_count - 1 - row)
            self.add(drawing.gutter(label, is_plain=plain) + drawing.line(line, self.look))
        self.add(*drawing.steps(picture.last, len(picture.columns), is_plain=plain))
        self._map(picture, groups)
        self._legend(picture, groups)

    def sizes(self, subject: Subject) -> None:
        """Add what is known of a module whose peak, or its instant, is unknown."""
        self._head(subject)
        why = f"unknown peak: {escape_control(subject.unknown_reason or '')}"
        if subject.peak_bytes is not None:
            why = f"the peak: {human_bytes(subject.peak_bytes)}; an out-of-memory message has "
            why += "no instants, so there is no curve and no map"
        self.add(*(self._paint(line, YELLOW) for line in self._wrapped(why)))
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
        self.add("", self._paint("sizes of its allocations", BOLD))
        for label, size in rows:
            if size is not None:
                drawn = table.bar(size / most if most else 0.0, is_plain=self.look.is_plain)
                self.add(f"{human_bytes(size):>10}  {drawn:<{table.BAR_WIDTH}}  {label}")

    def table(self, title: str, result: Result, names: Iterable[str], more: str) -> None:
        """Add a table of some columns of an answer, and the command that gives all of it."""
        places = [
            place for name in names for place, (known, _) in enumerate(result.columns)
            if known == name
        ]  # fmt: skip
        columns = [result.columns[place] for place in places]
        rows = [tuple(row[place] for place in places) for row in result.rows]
        answer = result._replace(columns=columns, rows=rows)
        text, _ = formats.render(
            answer, "table", self.width, has_titles=True, is_coloured=self.look.is_coloured
        )
        self.add("", self._paint(title, BOLD), *text.splitlines())
        self.add(self._paint(more, DIM))

    def values(self, picture: Picture, result: Result, more: str) -> None:
        """Add the largest values at the instant."""
        self.table(f"largest values at step {picture.instant.time}", result, _HELD, more)

    def sized(self, subject: Subject, result: Result, more: str) -> None:
        """Add the largest values: whenever they are live, or at a peak of an unknown instant."""
        if subject.peak_bytes is None:
            self.table("largest values, equal ones together", result, _SIZED, more)
        else:
            self.table("largest values at the peak", result, _HELD, more)

    def tree(self, picture: Picture, kind: str, rows: Iterable[tuple[str, int]]) -> None:
        """Add the bytes at the instant as a tree."""
        root = tree(picture.subject.function_name, rows, kind)
        title = f"bytes at step {picture.instant.time} by {_TREES[kind]}"
        self.add("", self._paint(title, BOLD))
        self.add(*tree_lines(root, kind, self.width, is_plain=self.look.is_plain))

    # -- parts -----------------------------------------------------------------------------

    def _head(self, subject: Subject) -> None:
        name = escape_control(subject.function_name)
        rest = f" of run {escape_control(subject.run_name)}"
        if subject.memory_space:
            rest += f", {escape_control(subject.memory_space)} memory"
        room = max(table.SMALLEST, self.width - display_width(rest))
        self.add(self._paint(table.give_way("name", name, room), BOLD) + rest)
        key = table.give_way("module_key", escape_control(subject.module_key), self.width)
        self.add(self._paint(key, DIM))
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
        self.add(table.give_way("instruction_name", text, self.width))
        if len(picture.peaks) > 1:
            named = [
                f"{number} at {time} ({human_bytes(size)})"
                for number, time, size in picture.peaks[:_PEAKS]
            ]
            self.add(*self._listed("peaks:", named))

    def _marks(self, picture: Picture) -> str:
        """Return a line that marks the chosen instant and the numbers of the peaks."""
        marks = [" "] * len(picture.columns)
        for number, time, _ in reversed(picture.peaks[:_PEAKS]):
            marks[place_of(time, picture.last, len(marks))] = str(number)
        marks[picture.place] = "v" if self.look.is_plain else "▼"
        return " " * drawing.GUTTER + "".join(marks)

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
            text += ", since no line is known"
        if picture.unseen_count:
            what = "value" if picture.unseen_count == 1 else "values"
            text += f" (not drawn: {picture.unseen_count} {what} live only between columns)"
        self.add(*self._wrapped(text))
        lines = drawing.block_rows(picture, groups, self.look)
        walls = drawing.wall_rows(picture)
        for row, line in enumerate(lines):
            below = len(lines) - 1 - row
            edge = drawing.gutter(size if row == 0 else "", is_plain=plain)
            if row and below in walls:
                edge = edge[:-1] + ("+" if plain else "├")
            self.add(edge + drawing.line(line, self.look))
        rule, corner, mark = ("-", "+", "^") if plain else ("─", "└", "▲")
        foot = [rule] * len(picture.columns)
        foot[picture.place] = mark
        self.add(f"{'0 B':>{drawing.GUTTER - 2}} {corner}{''.join(foot)}")

    def _legend(self, picture: Picture, groups: Groups) -> None:
        """Add the meaning of the colors, with bytes that add up to those at the instant."""
        self.add("", self._paint(f"what holds step {picture.instant.time}", BOLD))
        total = picture.instant.occupied_bytes
        room = table.BAR_WIDTH if self.width >= WHOLE_BARS else table.BAR_WIDTH // 2
        names = {letter: name for name, letter in groups.inks.items()}
        names[FIXED] = "arguments, outputs, constants"
        names[OTHER] = f"{len(groups.names) - len(groups.inks)} others"
        for ink, size in _ordered(groups.bytes_of(picture.instant)):
            ratio = size / total if total else 0.0
            drawn = table.bar(ratio, room, is_plain=self.look.is_plain)
            pad = " " * (room - len(drawn))
            if self.look.is_coloured:
                drawn = painted(drawn, self.look.style(ink))
            head = f"{human_bytes(size):>10}  {ratio:>6.1%}  "
            swatch = self.look.swatch(ink)
            left = self.width - len(head) - room - (7 if self.look.is_coloured else 5)
            column = "op_name" if picture.by == "op" else "source"
            label = table.give_way(column, escape_control(names[ink]), left)
            self.add(f"{head}{drawn}{pad}  {swatch}  {label}")

    def _paint(self, text: str, style: str) -> str:
        return painted(text, style) if self.look.is_coloured else text

    def _listed(self, head: str, items: list[str]) -> list[str]:
        """Return a list as lines, broken only between items unless an item is too long."""
        listed = ", ".join(item.replace(" ", _NO_BREAK) for item in items)
        return [line.replace(_NO_BREAK, " ") for line in self._wrapped(f"{head} {listed}")]

    def _wrapped(self, text: str) -> list[str]:
        return table.pieces(text, self.width)


_TREES = {"op": "scope of the operation", "line": "file and line", "stack": "call stack"}


def _ordered(sizes: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Return groups from the largest on, then the others, then the fixed bytes."""
    order = (*LETTERS, OTHER, FIXED)
    return sorted(sizes, key=lambda pair: order.index(pair[0]))
