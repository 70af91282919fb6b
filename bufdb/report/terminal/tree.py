"""Bytes at an instant as a tree: by scope of the operation, by file and line, by call stack.

Invariant: what is below a node and what it holds itself add up to it, whatever is left out of the
lines, for that is a line too; the root is the sum of all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from bufdb.report import cells
from bufdb.report.bars import bar
from bufdb.report.text import display_width, escape_control, human_bytes

BAR = 12
LEAST_SHARE = 0.005
"""Share of all that a node has to have for a line of its own."""
MOST_CHILDREN = 12
MOST_DEPTH = 10
_HEAD = 10 + 2 + 6 + 2 + BAR + 2
_RELATION = re.compile(r"(saved|for|copy of|slice of) (.+)", re.DOTALL)
_MADE = {"saved": "(saved by a loop)", "for": "(made by XLA for it)"}
_LINE = re.compile(r"(.+)(:[0-9]+)", re.DOTALL)
_JOINTS = {"op": "/", "line": "", "stack": " > "}
"""What stands between the names of nodes that are one below the other, by kind of tree."""
_COLUMNS = {"op": "op_name", "line": "source", "stack": "name"}
"""As which column a name gives way."""


@dataclass
class Node:
    """Bytes, and of what they are made up."""

    name: str
    size_bytes: int = 0
    """All of them."""
    own_bytes: int = 0
    """Those that no node below has."""
    children: dict[str, Node] = field(default_factory=dict)


def tree(root: str, rows: Iterable[tuple[str, int]], kind: str) -> Node:
    """A tree of labels, as the saved query of its kind has them, with their bytes."""
    found = Node(root)
    for label, size in rows:
        node = found
        node.size_bytes += size
        for name in path(label, kind):
            node = node.children.setdefault(name, Node(name))
            node.size_bytes += size
        node.own_bytes += size
    return found


def path(label: str, kind: str) -> list[str]:
    """The names of the nodes above which the bytes of a label lie, the outermost first.

    How they are related to it stands below it: what is made by the line itself, what a loop saves
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


def lines(root: Node, kind: str, width: int, *, is_plain: bool = False) -> list[str]:
    """A line for each node: bytes, share of all, bar, name; what has the most bytes first."""
    found = []
    # Not recursive: a name of a damaged dump may have any number of parts.
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
        shown = cells.give_way(_COLUMNS[kind], label, max(cells.SMALLEST, room))
        ratio = node.size_bytes / root.size_bytes if root.size_bytes else 0.0
        drawn = bar(ratio, BAR, is_plain=is_plain)
        head = f"{human_bytes(node.size_bytes):>10}  {ratio:>6.1%}  {drawn:<{BAR}}  "
        found.append(head + before + guide + shown)
        inner = before + {"├ ": "│ ", "|-": "| ", "": ""}.get(guide, "  ")
        guides = ("|-", "`-") if is_plain else ("├ ", "└ ")
        for place in reversed(range(len(children))):
            is_last = place == len(children) - 1
            waiting.append((children[place], depth + 1, inner, guides[is_last]))
    return found


def _folded(node: Node, kind: str) -> tuple[Node, str]:
    """A node and those above it that hold nothing else, in one, with their names."""
    names = node.name
    while len(node.children) == 1 and not node.own_bytes:
        (node,) = node.children.values()
        names += (" " if node.name.startswith("(") else _JOINTS[kind]) + node.name
    return node, names


def _shown(node: Node, all_bytes: int) -> Iterator[Node]:
    """The largest below a node, what it holds itself, and the rest in one."""
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
