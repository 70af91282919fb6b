import duckdb
import pytest
from small_db import Module, derive, insert, shape
from small_db import answer as answer_of
from tables import holds


def answer(con, query, **params):
    """Rows without base_function_name, added bytes and the new run, which have their own tests."""
    return [
        (row["function_name"], *row[2:10], *row[12:16], *row[17:])
        for row in answer_of(con, query, **params)
    ]


def added(con, **params):
    """Return (base, new, parts of these added by XLA, part) of each group."""
    rows = answer_of(con, "diff-peak", base="a", new="b", **params)
    return [(*row[4:6], *row[10:12], row["part"]) for row in rows]


@pytest.mark.slow
def test_nothing_without_two_sides(con):
    assert answer(con, "diff-peak") == []


def module(con, module_id, run, values, **cells):
    """A module whose temps, live together, have the sizes and details given."""
    made = Module(con, module_id, run, "f", **cells)
    made.allocation(0, "temp", sum(size for size, _ in values) + 1)
    offset = 0
    for value_id, (size, details) in enumerate(values):
        made.value(value_id, 0, offset, size, **details)
        offset += size
    made.close()
    return made


def op(path, /, **details):
    return {"op_name": f"jit(f)/{path}", **details}


def parts(con, base="a", new="b", **params):
    """(change, base, new, delta, kind, part) of each group."""
    rows = answer(con, "diff-peak", base=base, new=new, **params)
    return [(*row[2:7], row[13]) for row in rows]


@pytest.mark.slow
def test_groups_that_appear_vanish_grow_shrink_and_stay(con):
    module(con, 1, "a", [(10, op("gone")), (20, op("less")), (5, op("more")), (7, op("same"))])
    module(con, 2, "b", [(40, op("more")), (2, op("less")), (7, op("same")), (3, op("added"))])
    holds(con, "diff-peak", """
        change   | base_bytes | new_bytes | delta_bytes | allocation_kind | part
        grew     | 5          | 40        | 35          | temp            | more
        shrank   | 20         | 2         | -18         | temp            | less
        vanished | 10         | 0         | -10         | temp            | gone
        appeared | 0          | 3         | 3           | temp            | added
    """, base="a", new="b")  # fmt: skip
    holds(con, "diff-peak", """
        change   | base_bytes | new_bytes | delta_bytes | allocation_kind | part
        grew     | 5          | 40        | 35          | temp            | more
        shrank   | 20         | 2         | -18         | temp            | less
        vanished | 10         | 0         | -10         | temp            | gone
        appeared | 0          | 3         | 3           | temp            | added
        same     | 7          | 7         | 0           | temp            | same
    """, base="a", new="b", unchanged="true")  # fmt: skip
    holds(con, "diff-peak", """
        change | base_bytes | new_bytes | delta_bytes | allocation_kind | part
        grew   | 5          | 40        | 35          | temp            | more
    """, base="a", new="b", top_n=1)  # fmt: skip
    assert parts(con, function="g") == parts(con, color=1) == []


@pytest.mark.slow
def test_a_pair_that_is_asked_for_is_found_by_both_names(con):
    module(con, 1, "a", [(1, {})])
    module(con, 2, "b", [(2, {})])
    con.execute("UPDATE modules SET function_name = 'g' WHERE run_name = 'b'")
    for function in ("f", "g"):
        rows = answer_of(con, "diff-peak", base="a", new="b", pair="f=g", function=function)
        assert [row[:2] for row in rows] == [("g", "f")]


def test_counts_shapes_and_lines_are_of_the_largest_values(con):
    own = {"source_file": "/home/me/t.py"}
    small, large = shape(con, "f32[2]{0}"), shape(con, "f32[3,4]{1,0}")
    module(con, 1, "a", [(8, op("x", shape=small, source_line=3, **own))])
    values = [(8, op("x", shape=small, source_line=4, **own))]
    module(con, 2, "b", [*values, (48, op("x", shape=large, source_line=5, **own))])
    holds(con, "diff-peak", """
        function_name | color | change | base_bytes | new_bytes | delta_bytes | allocation_kind
        f             | 0     | grew   | 8          | 56        | 48          | temp

        base_value_count | new_value_count | base_shape | new_shape | base_source | new_source
        1                | 2               | f32[2]     | f32[3,4]  | t.py:3      | t.py:5

        part
        x
    """, base="a", new="b")  # fmt: skip


VALUE = {"opcode": "dot", "source_file": "/x/t.py", "source_line": 7}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "part"),
    [
        ("op", "Net/layer_*/dot_general"),
        ("source", "t.py:7"),
        ("shape", "bf16[2,3]"),
        ("dtype", "bf16"),
        ("opcode", "dot"),
        ("category", "backward"),
        ("stack", "t.py:7"),
        ("all", "bf16[2,3] dot jit(f)/transpose(jvp(Net))/layer_11/dot_general t.py:7"),
    ],
)
def test_keys(con, key, part):
    name = "transpose(jvp(Net))/layer_11/dot_general"
    value = op(name, shape=shape(con, "bf16[2,3]{1,0}"), **VALUE)
    module(con, 1, "a", [(12, value)])
    module(con, 2, "b", [])
    assert parts(con, by=key) == [("vanished", 12, 0, -12, "temp", part)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "part"), [("op", "(fusion)"), ("opcode", "fusion"), ("source", "(temp)")]
)
def test_a_value_of_which_nothing_is_known(con, key, part):
    module(con, 1, "a", [])
    module(con, 2, "b", [(12, {"opcode": "fusion"})])
    assert parts(con, by=key)[0][-1] == part


@pytest.mark.slow
def test_an_unknown_key_is_told(con):
    module(con, 1, "a", [(1, {})])
    with pytest.raises(duckdb.Error, match="key_name is op, source"):
        con.execute("FROM diff_peak('a', 'a', 'colour')").fetchall()


@pytest.mark.slow
def test_stacks_are_of_the_users_frames(con):
    frames = {1: ("/x/main.py", "main", None), 2: ("/x/t.py", "loss", 1),
              3: ("/lib/python3.11/f.py", "g", 2)}  # fmt: skip
    for module_id, run in ((1, "a"), (2, "b")):
        for frame, (path, function, parent) in frames.items():
            insert(con, "stack_frames", module_id=module_id, stack_frame_id=frame, source_line=9,
                   source_file=path, function_name=function, parent_frame_id=parent,
                   own_frame_id=2 if frame > 1 else 1)  # fmt: skip
        module(con, module_id, run, [(module_id, {"stack_frame_id": 3})])
    holds(con, "diff-peak", """
        change | base_bytes | new_bytes | delta_bytes | allocation_kind
        grew   | 1          | 2         | 1           | temp

        part
        t.py:9 loss < main.py:9 main
    """, base="a", new="b", by="stack")  # fmt: skip
    assert parts(con, by="source")[0][-1] == "t.py:9"


@pytest.mark.slow
def test_rounds_of_the_same_frames_are_one(con):
    for module_id, run, stack in ((1, "a", "mababx"), (2, "b", "mabababx")):
        for frame, label in enumerate(stack, 1):
            insert(con, "stack_frames", module_id=module_id, stack_frame_id=frame, source_line=1,
                   source_file=f"/x/{label}.py", function_name=label, own_frame_id=frame,
                   parent_frame_id=frame - 1 if frame > 1 else None)  # fmt: skip
        module(con, module_id, run, [(module_id, {"stack_frame_id": len(stack)})])
    stack = " < ".join(f"{label}.py:1 {label}" for label in "xbam")
    holds(con, "diff-peak", """
        change | base_bytes | new_bytes | delta_bytes | allocation_kind
        grew   | 1          | 2         | 1           | temp

        part
        x.py:1 x < b.py:1 b < a.py:1 a < m.py:1 m
    """, base="a", new="b", by="stack")  # fmt: skip


@pytest.mark.slow
def test_a_nameless_value_is_named_for_its_use(con):
    for module_id, run in ((1, "a"), (2, "b")):
        values = [
            (8 * module_id, {"name": "copy.1", "opcode": "copy"}),
            (1, {"name": "convert.2", "opcode": "convert", "program_order": 1}),
            (1, op("late", name="late", program_order=9)),
            (1, op("dot", name="dot", program_order=5, source_file="t.py", source_line=3)),
        ]
        made = module(con, module_id, run, values)
        made.use(0, "convert.2")
        made.use(1, "late")
        made.use(1, "dot")
    holds(con, "diff-peak", """
        change | base_bytes | new_bytes | delta_bytes | allocation_kind | part
        grew   | 10         | 18        | 8           | temp            | dot
    """, base="a", new="b")  # fmt: skip
    holds(con, "diff-peak", """
        base_bytes | new_bytes | base_added_bytes | new_added_bytes | part
        10         | 18        | 9                | 17              | dot
    """, base="a", new="b")  # fmt: skip
    holds(con, "diff-peak", """
        change | base_bytes | new_bytes | delta_bytes | allocation_kind | part
        grew   | 10         | 18        | 8           | temp            | t.py:3
    """, base="a", new="b", by="source")  # fmt: skip
    holds(con, "diff-peak", """
        change | base_bytes | new_bytes | delta_bytes | allocation_kind
        grew   | 8          | 16        | 8           | temp

        part
        copy for jit(f)/dot t.py:3
    """, base="a", new="b", by="all")  # fmt: skip


@pytest.mark.slow
def test_what_a_loop_carries_is_the_loops(con):
    values = [(8, {"name": "zeros"}), (1, op("while", name="w", opcode="while", program_order=4))]
    module(con, 1, "a", values).use(0, "w")
    module(con, 2, "b", [])
    holds(con, "diff-peak", """
        change   | base_bytes | new_bytes | delta_bytes | allocation_kind | part
        vanished | 9          | 0         | -9          | temp            | while
    """, base="a", new="b")  # fmt: skip


PARAMETER = {"parameter_number": 3, "parameter_shape_index": "{}"}


def state(con, module_id, run, donated, *, result="(f32[4], f32[4])", root="root", name="w"):
    """Make a module that returns two new parameters; if `donated`, the second reuses one."""
    made = Module(con, module_id, run, "f")
    made.allocation(0, "donated_parameter" if donated else "parameter", 16, **PARAMETER)
    made.value(0, 0, 0, 16, name="p", opcode="parameter", op_name=f"params['{name}']")
    made.allocation(1, "output", 20)
    made.value(1, 1, 0, 16, name="other", opcode="add", op_name="jit(f)/other")
    if not donated:
        made.allocation(2, "output", 16)
    # At the peak, the output's bytes hold another value.
    made.value(2, 0 if donated else 2, 0, 16, name="update", opcode="sub", op_name="jit(f)/sub")
    made.allocation(3, "output", 8, output_shape=result)
    made.value(3, 3, 0, 8, name=root, opcode="tuple", shape=result)
    for index, value in (("{0}", 1), ("{1}", 2)):
        insert(con, "positions", module_id=module_id, value_id=value, instruction_name="root",
               shape_index=index)  # fmt: skip
    made.close()


DONATED = ("donated", 32, 16, -16, "donated_parameter", "params/w")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "part"),
    [("op", "params/w"), ("opcode", "parameter"), ("source", "(donated_parameter)")],
)
def test_a_parameter_that_becomes_donated_is_one_change(con, key, part):
    state(con, 1, "a", donated=False)
    state(con, 2, "b", donated=True)
    assert parts(con, by=key) == [(*DONATED[:5], part)]
    back = ("not donated", 16, 32, 16, "donated_parameter", part)
    assert parts(con, "b", "a", by=key) == [back]


@pytest.mark.slow
def test_a_donation_is_with_its_output_only_if_that_is_known(con):
    """Pair it by the index in the result."""
    state(con, 1, "a", donated=False, root="other_root")
    state(con, 2, "b", donated=True)
    holds(con, "diff-peak", """
        change   | base_bytes | new_bytes | delta_bytes | allocation_kind   | part
        vanished | 16         | 0         | -16         | output            | sub
        donated  | 16         | 16        | 0           | donated_parameter | params/w
    """, base="a", new="b")  # fmt: skip


@pytest.mark.slow
def test_another_parameter_that_is_donated_is_no_change_of_one(con):
    state(con, 1, "a", donated=False, name="w")
    state(con, 2, "b", donated=True, name="v")
    assert ("appeared", 0, 16, 16, "donated_parameter", "params/v") in parts(con)
    assert ("vanished", 16, 0, -16, "parameter", "params/w") in parts(con)


@pytest.mark.slow
def test_parameters_of_one_name_are_not_told_apart(con):
    for module_id, run in ((1, "a"), (2, "b")):
        made = Module(con, module_id, run, "f")
        for number in range(2):
            kind = "donated_parameter" if run == "b" and number else "parameter"
            made.allocation(number, kind, 8, **PARAMETER | {"parameter_number": number})
            made.value(number, number, 0, 8, name=f"p{number}", opcode="parameter", op_name="x")
        made.close()
    holds(con, "diff-peak", """
        change   | base_bytes | new_bytes | delta_bytes | allocation_kind   | part
        appeared | 0          | 8         | 8           | donated_parameter | x
        shrank   | 16         | 8         | -8          | parameter         | x
    """, base="a", new="b")  # fmt: skip


@pytest.mark.slow
def test_parameters_without_a_name_go_by_their_number(con):
    for module_id, run in ((1, "a"), (2, "b")):
        made = Module(con, module_id, run, "f")
        made.allocation(0, "donated_parameter" if run == "b" else "parameter", 8, **PARAMETER)
        made.value(0, 0, 0, 8, name="p", opcode="parameter")
        made.close()
    holds(con, "diff-peak", """
        change  | base_bytes | new_bytes | delta_bytes | allocation_kind   | part
        donated | 8          | 8         | 0           | donated_parameter | (donated_parameter)
    """, base="a", new="b")  # fmt: skip


def arguments(con, module_id, run, *named):
    """A module whose arguments have these names and sizes."""
    made = Module(con, module_id, run, "f")
    for number, (name, size) in enumerate(named):
        made.allocation(number, "parameter", size, **PARAMETER | {"parameter_number": number})
        made.value(number, number, 0, size, name=f"p{number}", opcode="parameter", op_name=name,
                   shape=f"u8[{size}]{{0}}")  # fmt: skip
    made.close()


@pytest.mark.slow
def test_a_renamed_argument_is_one_part(con):
    """Versions of JAX name the same argument otherwise, or not at all."""
    arguments(con, 1, "a", (None, 8), (None, 4), ("u", 2), ("old", 6))
    arguments(con, 2, "b", ("x", 8), ("y", 4), ("u", 2), ("more", 7))
    for size in (2, 4, 6, 7, 8):
        shape(con, f"u8[{size}]{{0}}")
    holds(con, "diff-peak", """
        change   | base_bytes | new_bytes | base_value_count | part
        appeared | 0          | 7         | 0                | more
        vanished | 6          | 0         | 1                | old
        same     | 8          | 8         | 1                | x
        same     | 4          | 4         | 1                | y
        same     | 2          | 2         | 1                | u
    """, base="a", new="b", unchanged="true")  # fmt: skip


@pytest.mark.slow
def test_an_argument_that_moved_keeps_its_name(con):
    arguments(con, 1, "a", ("x", 8), ("y", 8))
    arguments(con, 2, "b", ("added", 8), ("x", 8))
    shape(con, "u8[8]{0}")
    assert [(row[0], row[-1]) for row in parts(con)] == [("appeared", "added"), ("vanished", "y")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "opcode", "path", "is_added"),
    [
        ("copy.3", "copy", "dot", True),
        ("copy-start.1", "copy-start", "dot", True),
        ("copy.4", "copy", "copy", False),
        ("copy.5", "copy", "transpose", False),
        ("dot.7.remat", "dot", "dot", True),
        ("dot.7.remat2", "dot", "dot", True),
        ("fusion.remat_compressed", "fusion", "dot", True),
        ("remat2.0.0", "tuple", "remat2", False),
        ("dot.7", "dot", "dot", False),
    ],
)
def test_what_xla_adds(con, name, opcode, path, is_added):
    module(con, 1, "a", [])
    module(con, 2, "b", [(8, op(path, name=name, opcode=opcode))])
    assert added(con) == [(0, 8, 0, 8 if is_added else 0, path)]


@pytest.mark.slow
def test_donated_parameters_keep_their_name(con):
    for module_id, run in ((1, "a"), (2, "b")):
        made = Module(con, module_id, run, "f")
        made.allocation(0, "donated_parameter", 16 * module_id)
        # The result that is written in place may come first in the list.
        made.value(1, 0, 0, 16 * module_id, op_name="jit(f)/add", opcode="fusion",
                   shape="f32[8]{0}")  # fmt: skip
        made.value(2, 0, 0, 16 * module_id, op_name="state['w'][0]", opcode="parameter",
                   shape="f32[2,2]{1,0}")  # fmt: skip
        made.close()
    shape(con, "f32[8]{0}")
    shape(con, "f32[2,2]{1,0}")
    rows = answer(con, "diff-peak", base="a", new="b")
    assert [row[9:] for row in rows] == [("f32[2,2]", "f32[2,2]", None, None, "state/w/*")]
    assert parts(con, by="opcode")[0][-1] == "parameter"
    assert parts(con, by="source")[0][-1] == "(donated_parameter)"


@pytest.mark.slow
def test_without_live_ranges_nothing_is_attributed(con):
    Module(con, 1, "a", "f", has_live_ranges=False).allocation(0, "temp", 64)
    module(con, 2, "b", [(8, op("x"))])
    holds(con, "diff-peak", """
        function_name | color | change  | base_bytes | new_bytes | delta_bytes | allocation_kind
        f             | 0     | unknown | NULL       | 8         | NULL        | NULL

        base_value_count | new_value_count | base_added_bytes | new_added_bytes | base_shape
        NULL             | NULL            | NULL             | NULL            | NULL

        new_shape | part      | unknown_reason
        NULL      | (unknown) | base: the dump has no live ranges
    """, base="a", new="b")  # fmt: skip
    assert con.execute(
        "SELECT part, base_bytes, new_bytes FROM diff_temps('a', 'b')"
    ).fetchall() == [("(not attributed)", 64, 9)]


@pytest.mark.slow
def test_a_memory_space_that_one_side_does_not_use(con):
    module(con, 1, "a", [])
    made = module(con, 2, "b", [])
    made.allocation(1, "temp", 8, color=1)
    made.value(9, 1, 0, 8, **op("x"))
    con.execute("DELETE FROM occupied_peaks WHERE module_id = 2")
    made.close()
    holds(con, "diff-peak", """
        change   | base_bytes | new_bytes | delta_bytes | allocation_kind | part
        appeared | 0          | 8         | 8           | temp            | x
    """, base="a", new="b", color=1)  # fmt: skip


@pytest.mark.slow
def test_unaccounted_bytes_are_a_part(con):
    module(con, 1, "a", [(8, op("x"))])
    module(con, 2, "b", [(8, op("x"))])
    con.execute("UPDATE occupied_peaks SET occupied_temp_bytes = 11 WHERE module_id = 2")
    holds(con, "diff-peak", """
        change | base_bytes | new_bytes | delta_bytes | allocation_kind | part
        grew   | 0          | 3         | 3           | NULL            | (not attributed)
    """, base="a", new="b")  # fmt: skip


@pytest.mark.slow
def test_temps_are_what_occupies_them_and_fragmentation(con):
    module(con, 1, "a", [(10, op("x")), (5, op("y"))])
    made = module(con, 2, "b", [(30, op("x")), (5, op("y"))])
    made.allocation(1, "temp", 7)
    derive(con)
    rows = con.execute(
        "SELECT change, part, base_bytes, new_bytes, delta_bytes FROM diff_temps('a', 'b')"
    ).fetchall()
    assert rows == [
        ("grew", "x", 10, 30, 20),
        ("grew", "(fragmentation)", 1, 8, 7),
        ("same", "y", 5, 5, 0),
    ]
    assert con.execute(
        "SELECT delta_bytes FROM diff_modules('a', 'b') WHERE figure = 'temps'"
    ).fetchall() == [(27,)]
