"""Frames as call stacks name them, and the stacks that their places make."""

from small_db import derive, insert


def frame(con, number, parent, path, module_id=1, **cells):
    insert(con, "stack_frames", module_id=module_id, stack_frame_id=number, parent_frame_id=parent,
           source_file=path, **cells)  # fmt: skip


def stacks(con, cell):
    """Return that cell of the frames of each frame's stack, innermost first."""
    rows = con.execute(
        f"SELECT named.stack_frame_id, string_agg(callers.{cell}, ' ' ORDER BY callers.depth DESC) "
        "FROM named_frames AS named JOIN named_frames AS callers "
        "ON callers.module_id = named.module_id "
        "AND named.tree_ordinal BETWEEN callers.tree_ordinal AND callers.last_tree_ordinal "
        "WHERE named.module_id = 1 GROUP BY named.stack_frame_id"
    ).fetchall()
    return dict(rows)


def test_a_stack_is_a_frame_and_its_callers(con):
    insert(con, "modules", module_id=1, module_key="m1", format_era="C")
    insert(con, "modules", module_id=2, module_key="m2", format_era="C")
    frame(con, 1, None, "/me/train.py", source_line=9, function_name="<module>")
    frame(con, 2, 1, "/lib/python3.11/site-packages/nn.py", source_line=5)
    frame(con, 3, 2, "/me/model.py", function_name="make.<locals>.loss")
    frame(con, 4, 1, None)
    frame(con, 5, 7, "/me/other.py")  # the table lacks frame 7
    frame(con, 1, None, "/me/another.py", module_id=2)
    derive(con)
    assert stacks(con, "stack_frame_id") == {1: "1", 2: "2 1", 3: "3 2 1", 4: "4 1", 5: "5"}
    assert stacks(con, "is_own")[3] == "true false true"
    assert stacks(con, "label") == {
        1: "train.py:9 <module>",
        2: "nn.py:5 train.py:9 <module>",
        3: "model.py:? loss nn.py:5 train.py:9 <module>",
        4: "?:? train.py:9 <module>",
        5: "other.py:?",
    }


def test_the_line_of_another_call_is_not_used(con):
    """JAX kept it: `layer:4` is inside the call on line 5, which is its own frame."""
    insert(con, "modules", module_id=1, module_key="m1", format_era="C")
    frame(con, 1, None, "/me/model.py", source_line=5, own_frame_id=1)
    frame(con, 2, 1, "/me/model.py", source_line=4, own_frame_id=1)
    derive(con)
    assert stacks(con, "is_own")[2] == "false true"
