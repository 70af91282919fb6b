"""Pictures in characters: nothing too wide, too low or too high, and sums that hold."""

import io
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bufdb.render.text import display_width
from bufdb.show import drawing, screen
from bufdb.show.drawing import FIXED, OTHER, UNKNOWN, Cell, Groups, Look
from bufdb.show.picture import Column, Part

UNCOLOURED, PLAIN, COLOURED = Look(), Look(is_plain=True), Look(is_coloured=True)


def pictured(columns, fixed=0, arena=16):
    """A picture as far as it is drawn; the last column is the chosen instant."""
    return SimpleNamespace(
        subject=SimpleNamespace(fixed_bytes=fixed),
        instant=columns[-1],
        columns=columns,
        arena_bytes=arena,
        walls=[],
    )


def column(*parts, fixed=0, time=0):
    """A column of parts (begin, end, group)."""
    column_parts = [Part(*part) for part in parts]
    return Column(
        time, fixed + sum(part.end_bytes - part.begin_bytes for part in column_parts), column_parts
    )


def text(lines, look=UNCOLOURED):
    return [drawing.line(line, look) for line in lines]


# -- the curve -------------------------------------------------------------------------------------


@given(st.integers(0, 2**70))
def test_ticks_are_powers_of_two_and_few(most):
    scale = drawing.Scale(most)
    assert scale.tick_bytes & (scale.tick_bytes - 1) == 0
    assert most <= scale.top_bytes < max(2, 2 * most)
    assert drawing.LEAST_ROWS <= scale.row_count <= 12
    labels = [scale.label(row) for row in range(scale.row_count)]
    assert labels[-1] and 1 <= sum(map(bool, labels)) <= 5
    assert max(map(len, labels)) <= drawing.GUTTER - 2
    assert scale.eighths(scale.top_bytes) == 8 * scale.row_count
    assert scale.eighths(0) == 0 and scale.eighths(1) >= 1


SIZES = st.lists(
    st.tuples(st.sampled_from(drawing.INKS), st.integers(1, 2**40)),
    max_size=9, unique_by=lambda pair: pair[0],
)  # fmt: skip


@given(SIZES, st.integers(0, 2**42), st.sampled_from([UNCOLOURED, PLAIN, COLOURED]))
def test_a_column_is_as_high_as_its_bytes(sizes, more, look):
    total = sum(size for _, size in sizes)
    scale = drawing.Scale(total + more)
    cells = drawing._column(sizes, scale, look)
    heights = [
        8 if cell.back is not None or cell.text in "█░#-" else " ▁▂▃▄▅▆▇".find(cell.text)
        for cell in cells
    ]
    drawn = sum(heights) if look is not PLAIN else None
    assert len(cells) == scale.row_count
    assert drawn is None or drawn == scale.eighths(total)
    filled = [cell != drawing.BLANK for cell in cells]
    assert filled == sorted(filled, reverse=True) and any(filled) == bool(total)
    if look is COLOURED:
        assert {cell.front for cell in cells} <= {None, *(ink for ink, _ in sizes)}


def test_groups_are_one_above_the_other():
    shown = column((0, 8, "x"), (8, 12, "y"), (12, 14, None), fixed=2)
    picture = pictured([shown], fixed=2)
    groups = Groups(picture)
    assert groups.inks == {"x": "a", "y": "b", UNKNOWN: "c"}
    assert groups.bytes_of(shown) == [(FIXED, 2), ("a", 8), ("b", 4), ("c", 2)]
    cells = drawing._column(groups.bytes_of(shown), drawing.Scale(16), COLOURED)
    assert [cell.front for cell in cells] == [FIXED, "a", "a", "a", "a", "b", "b", "c"]
    assert {cell.text for cell in cells} == {"█"}


def test_a_cell_of_two_groups_has_both_colours():
    edges = [(FIXED, 3), ("a", 8)]
    assert drawing._cell(edges, 0, COLOURED) == Cell("▃", FIXED, "a")
    assert drawing._cell(edges, 0, UNCOLOURED) == Cell("█")
    assert drawing._cell([(FIXED, 8)], 0, UNCOLOURED) == Cell("░")
    assert drawing._cell([(FIXED, 3), ("a", 5)], 0, COLOURED) == Cell("▅", FIXED)


def test_more_than_seven_groups_are_others():
    parts = [(place, place + 1, f"g{place:02}") for place in range(12)]
    groups = Groups(pictured([column(*parts)]))
    assert groups.bytes_of(column(*parts))[-1] == (OTHER, 5)
    assert [groups.ink(f"g{place:02}") for place in (0, 6, 7)] == ["a", "g", OTHER]


@pytest.mark.parametrize("last", [0, 1, 9, 157, 12_345, 10**18])
@pytest.mark.parametrize("width", [48, 49, 68, 148])
def test_the_steps_are_below_their_columns(last, width):
    axis, named = drawing.steps(last, width, is_plain=False)
    assert len(axis) == drawing.GUTTER + width
    numbers = [
        (match.start(), int(match[0]))
        for match in re.finditer(r"[0-9]+", named)
        if match.start() >= drawing.GUTTER
    ]
    assert numbers[0] == (drawing.GUTTER, 0) and len(named) <= drawing.GUTTER + width
    assert len(numbers) == axis.count("┬") and (last < 2 or len(numbers) > 1)
    for (start, number), mark in zip(numbers, re.finditer("┬", axis), strict=True):
        assert start <= mark.start() <= start + len(str(number))


# -- the map ---------------------------------------------------------------------------------------

PARTS = st.lists(
    st.tuples(st.integers(0, 5), st.integers(1, 9), st.sampled_from("xyz")), max_size=9
)


@given(PARTS, st.integers(0, 20), st.integers(1, 16))
def test_a_row_of_the_map_is_the_group_with_most_of_its_bytes(gaps, more, rows):
    parts, end = [], 0
    for gap, size, group in gaps:
        parts.append((end + gap, end + gap + size, group))
        end += gap + size
    shown = column(*parts)
    groups = Groups(pictured([shown]))
    inks = drawing.block_inks(shown, groups, end + more, rows)
    height = max(1, -(-(end + more) // rows))
    for row, ink in enumerate(inks):
        cell = range(row * height, (row + 1) * height)
        held = [groups.ink(g) for b, e, g in parts for byte in range(b, e) if byte in cell]
        assert (ink is None) == (not held)
        assert ink is None or held.count(ink) == max(map(held.count, held))


def test_the_first_byte_is_at_the_bottom():
    picture = pictured([column((0, 8, "x")), column((0, 12, "x"), (12, 16, "y"), time=1)])
    groups = Groups(picture)
    assert text(drawing.block_rows(picture, groups, UNCOLOURED)) == [
        " b", " b", " a", " a", "aa", "aa", "aa", "aa",
    ]  # fmt: skip


def test_half_a_cell_has_a_colour_of_its_own():
    picture = pictured([column((0, 1, "x"), (1, 2, "y"), (3, 4, "y"))])
    (*_, second, first) = drawing.block_rows(picture, Groups(picture), COLOURED)
    assert (first, second) == ([Cell("▀", "a", "b")], [Cell("▀", "a")])


def test_a_cell_that_is_free_below_is_filled_above():
    picture = pictured([column((1, 2, "x"))])
    assert drawing.block_rows(picture, Groups(picture), COLOURED)[-1] == [Cell("▀", "a")]
    picture = pictured([column((0, 1, "x"))])
    assert drawing.block_rows(picture, Groups(picture), COLOURED)[-1] == [Cell("▄", "a")]


def test_coloured_and_plain_cells_are_whole():
    columns = [column((0, 2, "x"))] * 4
    picture = pictured(columns)
    shown = drawing.block_rows(picture, Groups(picture), Look(is_coloured=True, is_plain=True))
    assert shown[-1] == [Cell(" ", None, "a")] * 4  # and too narrow for its letter
    assert {cell for line in shown[:-1] for cell in line} == {Cell(" ", None, None)}


def test_a_wide_area_has_its_letter():
    columns = [column((0, 2, "x"))] * 9
    picture = pictured(columns)
    bottom = drawing.block_rows(picture, Groups(picture), COLOURED)[-1]
    assert [cell.text for cell in bottom] == [*"    ", "a", *"    "]
    line = drawing.line(bottom, COLOURED)
    assert line.startswith("\x1b[48;5;63m    \x1b[0m\x1b[38;5;231;48;5;63ma\x1b[0m")


def test_walls_between_allocations_are_reported():
    picture = pictured([column()])
    picture.walls = [4, 13]
    assert drawing.wall_rows(picture) == {2, 6}


# -- colors ----------------------------------------------------------------------------------------


def test_sixteen_colours_do_where_there_are_no_more():
    look = replace(COLOURED, has_256_colours=False)
    assert [look.style(ink) for ink in ("a", "f", FIXED)] == ["34", "96", "90"]
    assert look.style("b", "f") == "31;106"
    assert look.swatch("a") == "\x1b[97;44m a \x1b[0m"


class Terminal(io.StringIO):
    encoding = "UTF-8"

    def isatty(self):
        return True


def test_what_a_stream_can_show():
    terminal, pipe = Terminal(), io.TextIOWrapper(io.BytesIO(), encoding="latin-1")
    colours = {"TERM": "xterm-256color"}
    assert drawing.look_of(terminal, colours, is_plain=False) == Look(True, False, True)
    assert drawing.look_of(terminal, {"TERM": "linux"}, is_plain=True) == Look(True, True, False)
    assert not drawing.look_of(terminal, {**colours, "NO_COLOR": "1"}, is_plain=False).is_coloured
    assert drawing.look_of(pipe, colours, is_plain=False) == Look(False, True, True)
    assert drawing.look_of(None, {}, is_plain=False) == Look(False, False, False)


# -- the tree --------------------------------------------------------------------------------------


def test_paths_of_labels():
    assert screen.path("Net/dot", "op") == ["Net", "dot"]
    assert screen.path("saved Net/tanh", "op") == ["Net", "tanh", "(saved by a loop)"]
    assert screen.path("for /a/b.py:7", "line") == ["/a/b.py", ":7", "(made by XLA for it)"]
    assert screen.path("copy of params['w']", "line") == ["params['w']", "(copy of it)"]
    assert screen.path("(constant)", "line") == ["(constant)"]
    assert screen.path("b.py:2 g < a.py:1 f", "stack") == ["a.py:1 f", "b.py:2 g"]


def test_a_tree_in_lines():
    rows = [("Net/a/b", 600), ("Net/a/c", 200), ("Net/a", 100), ("(constant)", 100)]
    assert screen.tree_lines(screen.tree("f", rows, "op"), "op", 60) == [
        "    1000 B  100.0%  ████████████  f",
        "     900 B   90.0%  ██████████▊   ├ Net/a",
        "     600 B   60.0%  ███████▎      │ ├ b",
        "     200 B   20.0%  ██▍           │ ├ c",
        "     100 B   10.0%  █▎            │ └ (itself)",
        "     100 B   10.0%  █▎            └ (constant)",
    ]


def test_the_small_are_one_line():
    rows = [("a", 10_000), *((f"b{n:02}", n) for n in range(1, 9))]
    lines = screen.tree_lines(screen.tree("f", rows, "op"), "op", 60)
    assert [line.split()[-2:] for line in lines[1:]] == [["├", "a"], ["(8", "more)"]]


def test_one_small_node_is_shown():
    lines = screen.tree_lines(screen.tree("f", [("a", 10_000), ("b", 1)], "op"), "op", 60)
    assert [line.split()[-1] for line in lines] == ["f", "a", "b"]


LABELS = st.lists(
    st.tuples(
        st.text(st.sampled_from("ab/: <7\x1b漢\u202e\n"), max_size=30)
        | st.sampled_from(["saved a/b", "for a/b:7", "x < y < z", "/".join("a" * 3000)]),
        st.integers(0, 10**6),
    ),
    max_size=12,
)


@pytest.mark.slow
@given(LABELS, st.sampled_from(sorted(screen._JOINTS)), st.integers(60, 120), st.booleans())
def test_a_node_is_the_sum_of_what_is_below(rows, kind, width, is_plain):
    root = screen.tree("f", rows, kind)
    assert root.size_bytes == sum(size for _, size in rows)
    waiting = [root]
    while waiting:
        node = waiting.pop()
        below = sum(child.size_bytes for child in node.children.values())
        assert node.size_bytes == node.own_bytes + below
        if node.children:
            shown = list(screen._shown(node, root.size_bytes))
            assert sum(item.size_bytes for item in shown) == node.size_bytes
        waiting += node.children.values()
    lines = screen.tree_lines(root, kind, width, is_plain=is_plain)
    assert max(map(display_width, lines)) <= width
    assert not re.search("[\x00-\x1f\u202e]", "".join(lines))
