"""Line forms of live ranges, printed peaks, their trees: text in, rows out (format section 6)."""

import pytest
from line_forms import PATH, problems, rows, section

from bufdb.read import live_ranges

START = """\
HloLiveRange (max 3):
  InstructionSequence:
    0:p.1
    1:add
    2:while.2
"""
RANGES = START + "  BufferLiveRange:\n    p.1{}:0-3\n"
TAIL = "(100.00%, total: 8 288 bytes, current: 4 bytes, remaining: 8 284 bytes)"


def read(text, findings=(), **parts):
    text_section = section(text, **parts)
    result = live_ranges.read(text_section)
    assert problems(text_section) == list(findings)
    return result


def unreadable(line, message):
    return "unreadable_line", PATH, line, message


def test_the_schedule():
    result = read(START)
    assert rows(result.sequence, "program_order instruction_name") == [
        (0, "p.1"), (1, "add"), (2, "while.2"),
    ]  # fmt: skip
    facts = result.facts[0]
    assert (facts.schedule_length, facts.peak_status, facts.peak_time) == (3, None, None)


def test_live_ranges_hold_both_ends_and_an_index():
    text = START + "  BufferLiveRange:\n    p.1{}:0-3\n    while.2{1,0}:2-2\n    add{}:-1--2\n"
    assert rows(read(text).ranges, "instruction_name shape_index start_time end_time") == [
        ("p.1", "{}", 0, 3),
        ("while.2", "{1,0}", 2, 2),
        ("add", "{}", -1, -2),
    ]


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("    p.1: 4 bytes\n    t: 16 bytes\n    t: 16 bytes\n",
         [(0, "p.1", None, 4, None), (1, "t", None, 16, None), (2, "t", None, 16, None)]),
        ("    p.1{}: 4 bytes\n    t{1,0}: 16 bytes\n",
         [(0, "p.1", "{}", 4, None), (1, "t", "{1,0}", 16, None)]),
        ("    t{0}: 16 bytes (cumulative: 16 bytes)\n    p{}: -4 bytes (cumulative: -12 bytes)\n",
         [(0, "t", "{0}", 16, 16), (1, "p", "{}", -4, -12)]),
        ("", []),
    ],
    ids=["v1", "v2", "v3", "empty"],
)  # fmt: skip
def test_three_forms_of_peak_lines(lines, expected):
    result = read(f"{RANGES}  Live ranges at 2 (peak):\n{lines}")
    names = "contributor_ordinal instruction_name shape_index logical_bytes cumulative_bytes"
    assert rows(result.peak, names) == expected
    assert (result.facts[0].peak_status, result.facts[0].peak_time) == ("printed", 2)


def test_an_undetermined_peak():
    result = read(
        RANGES + "  Peak memory could not be determined due to unbounded dynamic shape.\n"
    )
    assert (result.facts[0].peak_status, result.facts[0].peak_time) == ("undetermined", None)
    assert rows(result.ranges, "instruction_name") == ["p.1"]


def test_live_ranges_that_are_not_available():
    result = read("HloLiveRange not available (finalized or constructed from proto)")
    assert (result.facts[0].peak_status, result.facts[0].schedule_length) == ("unavailable", None)
    assert rows(result.sequence, "instruction_name") == []


# -- the tree ---------------------------------------------------------------------------------

NODES = "node_ordinal parent_ordinal depth label total_bytes current_bytes remaining_bytes"


def tree(*nodes, findings=()):
    text = RANGES + "  Live ranges at 2 (peak):\n    p.1{}: 4 bytes\n"
    text += "  Stack trace breakdown for peak usage: 8 288 bytes\n"
    result = read(text + "".join(f"{node}\n" for node in nodes), findings)
    assert result.facts[0].tree_bytes == 8288
    return rows(result.tree, NODES)


def test_the_tree_is_recognized_by_its_branches():
    nodes = tree(
        f"    main {TAIL}",
        f"      ├── jit(f) {TAIL}",
        f"      │   ├── a (b) {TAIL}",
        f"      │   └── c {TAIL}",
        f"      │       └── d {TAIL}",
        f"      └── e {TAIL}",
        f"          └── f {TAIL}",
    )
    sizes = (8288, 4, 8284)
    assert nodes == [
        (0, None, 0, "main", *sizes),
        (1, 0, 1, "jit(f)", *sizes),
        (2, 1, 2, "a (b)", *sizes),
        (3, 1, 2, "c", *sizes),
        (4, 3, 3, "d", *sizes),
        (5, 0, 1, "e", *sizes),
        (6, 5, 2, "f", *sizes),
    ]


@pytest.mark.parametrize(
    "label",
    [
        "two\nlines",
        "  InstructionSequence:\n  BufferLiveRange:",
        "a\n\n    b",
        "x (3 bytes)\n└── y",
        "├── a",
        "ends with (10.00%, total: 1 bytes)",
        "naïve é",
        "",
    ],
)
def test_labels_are_raw_text(label):
    nodes = tree(f"    main {TAIL}", f"      └── {label} {TAIL}", f"          └── leaf {TAIL}")
    assert [row[:4] for row in nodes] == [(0, None, 0, "main"), (1, 0, 1, label), (2, 1, 2, "leaf")]


def test_the_root_may_begin_with_branches_and_blanks():
    assert [row[3] for row in tree(f"    ├── odd {TAIL}")] == ["├── odd"]


@pytest.mark.parametrize("percent", ["0.00", "-nan", "nan", "inf", "-12.50"])
def test_percentages_of_odd_totals(percent):
    assert len(tree(f"    main {TAIL.replace('100.00', percent)}")) == 1


def test_bytes_are_grouped_by_three():
    tail = "(0.1%, total: -9 223 372 036 854 775 bytes, current: 0 bytes, remaining: 1 000 bytes)"
    assert [row[4:] for row in tree(f"    main {tail}")] == [(-9223372036854775, 0, 1000)]


def test_a_node_without_its_byte_counts_is_reported():
    message = "expected ' (N%, total: …' at column 11, found '      └── cut off'"
    nodes = tree(f"    main {TAIL}", "      └── cut off", findings=[unreadable(12, message)])
    assert [row[3] for row in nodes] == ["main"]


# -- what cannot be read, and parts -----------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "line", "message"),
    [
        ("    1:add", "    x:add", 4, "expected a number at column 5, found '    x:add'"),
        ("    1:add", "    1:", 4, "expected a name at column 7, found '    1:'"),
        ("    1:add", "1:add", 4, "expected '    ' at column 1, found '1:add'"),
        (":0-3", ":0", 7, "expected '-' at column 12, found '    p.1{}:0'"),
        (":0-3", ":0-3 x", 7, "expected the end of the line at column 14, found "
         "'    p.1{}:0-3 x'"),
        ("p.1{}", "p.1", 7, "expected ':' at column 12, found '    p.1:0-3'"),
        ("p.1{}:0", "p.1{:0", 7, "expected '}' at column 9, found '    p.1{:0-3'"),
    ],
)  # fmt: skip
def test_an_unreadable_line_is_reported_alone(old, new, line, message):
    result = read(RANGES.replace(old, new), [unreadable(line + 5, message)], before=5)
    assert len(rows(result.sequence, "instruction_name")) + len(result.ranges["module"]) == 3


@pytest.mark.parametrize("line", ["HloLiveRange (max x):", f"HloLiveRange (max {10**19}):"])
def test_a_title_that_cannot_be_read_is_reported(line):
    message = f"expected 'HloLiveRange (max N):' or a title below it, found {line!r}"
    result = read(RANGES.replace("HloLiveRange (max 3):", line), [unreadable(1, message)])
    assert result.facts[0].schedule_length is None
    assert len(result.sequence["module"]) == 3


def test_a_section_can_go_on_in_the_middle_of_a_list():
    part = section("    5:a\n  BufferLiveRange:\n    a{}:0-1\n")
    result = live_ranges.read(part, live_ranges.SEQUENCE)
    assert rows(result.sequence, "program_order") == [5]
    assert rows(result.ranges, "instruction_name") == ["a"]
    assert result.last_kind == live_ranges.RANGES
