import pytest
from small_db import Module, insert, shape
from small_db import answer as answer_of
from tables import holds

FIGURES = (
    "peak", "arguments", "outputs", "aliased", "temps", "constants", "fragmentation", "padding",
)  # fmt: skip


def answer(con, query, **params):
    """Rows without base_function_name, which the tests of names look at."""
    return [(row["function_name"], *row[2:]) for row in answer_of(con, query, **params)]


def module(con, module_id, run, temp=0, function="f", signature="f32[4]", **cells):
    """A module with one parameter of 16 bytes and, if given, one live temp."""
    made = Module(con, module_id, run, function, **cells)
    made.allocation(
        0,
        "parameter",
        16,
        parameter_number=0,
        parameter_shape=signature,
        parameter_shape_index="{}",
    )
    made.allocation(1, "output", 8, output_shape="f32[2]")
    if temp:
        made.allocation(2, "temp", temp)
        made.value(1, 2, offset=0, size=temp)
    made.close()
    return made


def pairs(con, base="a", new="b"):
    """Return (function, rule, base module, new module) of each pair, in order."""
    rows = con.execute(
        "SELECT function_name, paired_by, base_module_id, new_module_id "
        f"FROM diff_pairs('{base}', '{new}') ORDER BY ALL"
    )
    return rows.fetchall()


@pytest.mark.slow
def test_nothing_without_two_sides(con):
    module(con, 1, "a")
    assert answer(con, "diff-modules") == []
    assert answer(con, "diff-modules", base="a") == []
    assert answer(con, "diff-modules", new="a") == []
    assert answer(con, "diff-modules", base="a", new="none")[0][1] == "only in base"


@pytest.mark.slow
def test_every_figure_of_both_sides(con):
    padded = shape(con, "f32[1]{0:T(256)}", 4)
    one = Module(con, 1, "a", "f")
    one.allocation(0, "parameter", 100)
    one.allocation(1, "donated_parameter", 20)
    one.allocation(2, "output", 30)
    one.allocation(3, "constant", 4)
    one.allocation(4, "temp", 64)
    one.value(1, 4, offset=0, size=40, shape=padded, logical=4)
    one.close()
    two = Module(con, 2, "b", "f")
    two.allocation(0, "parameter", 100)
    two.allocation(1, "output", 50)
    two.allocation(2, "temp", 64)
    two.value(1, 2, offset=0, size=50, shape=padded, logical=4)
    two.close()
    # The peaks: 100 + 20 + 30 + 4 + 40 and 100 + 50 + 50.
    holds(con, "diff-modules", """
        figure        | base_bytes | new_bytes | delta_bytes
        peak          | 194        | 200       | 6
        arguments     | 120        | 100       | -20
        outputs       | 50         | 50        | 0
        aliased       | 20         | 0         | -20
        temps         | 64         | 64        | 0
        constants     | 4          | 0         | -4
        fragmentation | 24         | 14        | -10
        padding       | 36         | 46        | 10
    """, base="a", new="b")  # fmt: skip
    rows = answer_of(con, "diff-modules", base="a", new="b")
    sides = ("base_run_name", "new_run_name", "base_module_key", "new_module_key")
    assert {tuple(row[name] for name in sides) for row in rows} == {("a", "b", "m1", "m2")}
    same = ("function_name", "paired_by", "color")
    assert {tuple(row[name] for name in same) for row in rows} == {("f", "name", 0)}
    assert rows[1]["delta_ratio"] == -20 / 120
    assert answer_of(con, "diff-modules", base="b", new="a")[3]["delta_ratio"] is None
    holds(con, "diff-modules", """
        figure
        temps
    """, base="a", new="b", figure="temps")  # fmt: skip


def test_without_live_ranges_the_peak_is_unknown(con):
    old = Module(con, 1, "a", "f", has_live_ranges=False)
    old.allocation(0, "temp", 64)
    module(con, 2, "b", temp=8)
    figures = {row[7]: row[8:] for row in answer(con, "diff-modules", base="a", new="b")}
    assert tuple(figures) == FIGURES
    reason = "base: the dump has no live ranges"
    assert figures["peak"] == (None, 32, None, None, reason)
    assert figures["fragmentation"] == (None, 0, None, None, reason)
    assert figures["padding"] == (None, 0, None, None, reason)
    assert figures["temps"] == (64, 8, -56, -56 / 64)


@pytest.mark.slow
def test_a_memory_space_that_one_side_does_not_use(con):
    for module_id, run, kept in ((1, "a", True), (2, "b", True), (3, "c", False)):
        made = Module(con, module_id, run, "f", has_live_ranges=kept)
        made.allocation(0, "output", 10)
        if run == "b":
            made.allocation(1, "temp", 8, color=1)
            made.value(1, 1, offset=0, size=8)
        if kept:
            made.close()
    rows = answer(con, "diff-modules", base="a", new="b", color=1)
    assert [row[7:11] for row in rows][:2] == [("peak", 0, 8, 8), ("arguments", 0, 0, 0)]
    rows = answer(con, "diff-modules", base="c", new="b", color=1)
    assert [row[8] for row in rows] == [None, 0, 0, 0, 0, 0, None, None]


@pytest.mark.slow
def test_order_grown_shrunk_one_sided_same(con):
    sizes = {"grew": (8, 9), "grew_most": (8, 90), "shrank": (90, 8), "same": (99, 99)}
    for number, (function, both) in enumerate(sizes.items()):
        for side, size in enumerate(both):
            module(con, 10 * number + side, "ab"[side], size, function)
    module(con, 50, "a", 200, "gone")
    module(con, 51, "b", 300, "added")
    holds(con, "diff-modules", """
        function_name | base_run_name | new_run_name | delta_bytes
        grew_most     | a             | b            | 82
        grew          | a             | b            | 1
        shrank        | a             | b            | -82
        added         | NULL          | b            | NULL
        gone          | a             | NULL         | NULL
        same          | a             | b            | 0
    """, base="a", new="b", figure="peak")  # fmt: skip
    names = [row[0] for row in answer(con, "diff-modules", base="a", new="b", function="gr*")]
    assert set(names) == {"grew", "grew_most"}
    assert len(answer(con, "diff-modules", base="a", new="b", top_n=3)) == 3


def test_same_shapes_pair_first(con):
    module(con, 1, "a", signature="f32[8]")
    module(con, 2, "a", signature="f32[16]")
    module(con, 3, "b", signature="f32[16]")
    module(con, 4, "b", signature="f32[32]")
    assert pairs(con) == [("f", "name", 1, 4), ("f", "signature", 2, 3)]


def test_comments_in_a_signature_do_not_matter(con):
    module(con, 1, "a", signature="(f32[8], /*index=5*/f32[8])")
    module(con, 2, "b", signature="(f32[8], f32[8])")
    assert pairs(con) == [("f", "signature", 1, 2)]


def test_several_of_one_signature_pair_by_size(con):
    module(con, 1, "a", temp=10)
    module(con, 2, "a", temp=30)
    module(con, 3, "b", temp=40)
    module(con, 4, "b", temp=20)
    module(con, 5, "b", temp=10)
    assert pairs(con) == [
        ("f", "only in new", None, 5),
        ("f", "signature, rank of size", 1, 4),
        ("f", "signature, rank of size", 2, 3),
    ]


def test_several_of_one_name_pair_by_size(con):
    module(con, 1, "a", temp=10, signature="f32[8]")
    module(con, 2, "a", temp=30, signature="f32[9]")
    module(con, 3, "b", temp=40, signature="f32[10]")
    module(con, 4, "b", temp=20, signature="f32[11]")
    assert pairs(con) == [("f", "name, rank of size", 1, 4), ("f", "name, rank of size", 2, 3)]


def test_equal_sizes_pair_in_order_of_compilation(con):
    for module_id, run, number in ((1, "a", 9), (2, "a", 10), (3, "b", 12), (4, "b", 11)):
        module(con, module_id, run, module_number=number)
    assert [row[2:] for row in pairs(con)] == [(1, 4), (2, 3)]


def test_a_module_without_a_function_pairs_by_its_path(con):
    module(con, 1, "a", function=None, module_key="seed")
    module(con, 2, "b", function=None, module_key="seed")
    assert pairs(con) == [("seed", "signature", 1, 2)]


def test_platforms_that_both_sides_have_stay_apart(con):
    module(con, 1, "a", temp=10, platform="cpu")
    module(con, 2, "a", temp=20, platform="gpu")
    module(con, 3, "b", temp=40, platform="cpu")
    module(con, 4, "b", temp=30, platform="gpu")
    assert [row[2:] for row in pairs(con)] == [(1, 3), (2, 4)]
    assert [row[2:] for row in pairs(con, "a", "a")] == [(1, 1), (2, 2)]


def test_a_platform_pairs_with_another_that_it_lacks(con):
    module(con, 1, "a", platform="cpu")
    module(con, 2, "b", platform="tpu")
    assert pairs(con) == [("f", "signature", 1, 2)]


def label(con, run, **labels):
    for name, value in labels.items():
        insert(con, "run_labels", run_name=run, label=name, label_value=value)


def test_labels_select_and_pair_runs(con):
    temps = {"a8": 10, "b8": 40, "a16": 50, "b16": 20}
    for module_id, (run, temp) in enumerate(temps.items()):
        module(con, module_id, run, temp=temp)
        label(con, run, batch=run[1:], remat=run[0])
    assert [row[2:] for row in pairs(con, "batch=8", "batch=16")] == [(0, 2), (1, 3)]
    assert {row[2:] for row in pairs(con, "remat=a", "b8")} == {(0, 1), (2, None)}


def test_a_run_is_meant_before_a_label(con):
    module(con, 1, "x=1")
    module(con, 2, "b")
    label(con, "b", x="1")
    assert con.execute("FROM selected_runs('x=1')").fetchall() == [("x=1",)]
    assert con.execute("FROM selected_runs('x')").fetchall() == []


@pytest.mark.parametrize("size", [2**62, 2**63 - 1])
def test_sizes_near_64_bits(con, size):
    for module_id, run in ((1, "a"), (2, "b")):
        made = Module(con, module_id, run)
        for index in range(1 if run == "a" else 3):
            made.allocation(index, "output", size)
        made.close()
    rows = answer(con, "diff-modules", base="a", new="b", figure="outputs")
    assert rows[0][8:] == (size, 3 * size, 2 * size, 2.0)
