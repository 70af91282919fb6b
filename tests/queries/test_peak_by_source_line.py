from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "peak-by-source-line", "run_name")


def one_module(con):
    insert(con, "stack_frames", module_id=1, stack_frame_id=1, own_frame_id=2,
           source_file="/lib/python3.11/site-packages/nn.py", source_line=90)  # fmt: skip
    insert(con, "stack_frames", module_id=1, stack_frame_id=2, own_frame_id=2,
           source_file="model.py", source_line=7)  # fmt: skip
    library = {"source_file": "/lib/python3.11/site-packages/nn.py", "source_line": 90}
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 100)
    module.allocation(1, "parameter", 20)
    module.allocation(2, "parameter", 20)
    module.allocation(3, "constant", 0)
    module.value(1, 0, offset=0, size=30, stack_frame_id=1, **library)
    module.value(2, 0, offset=20, size=20, source_file="model.py", source_line=7)
    module.value(3, 0, offset=50, size=20, source_file="model.py", source_line=3)
    module.value(4, 1, offset=0, size=20)
    module.close()


def test_bytes_of_the_peak_by_the_innermost_line_of_the_user(con):
    one_module(con)
    holds(con, "peak-by-source-line", """
        run_name | function_name | color | peak_bytes | held_bytes | low_saving_bytes
        r        | step          | 0     | 100        | 40         | NULL
        r        | step          | 0     | 100        | 40         | NULL
        r        | step          | 0     | 100        | 20         | NULL

        saving_bytes | held_ratio | value_count | slice_count | slice_bytes | source
        NULL         | 0.4        | 2           | NULL        | NULL        | (parameter)
        NULL         | 0.4        | 2           | NULL        | NULL        | model.py:7
        NULL         | 0.2        | 1           | NULL        | NULL        | model.py:3
    """)  # fmt: skip


def test_frame_leaf_keeps_library_lines_apart(con):
    one_module(con)
    holds(con, "peak-by-source-line", """
        held_bytes | source
        40         | (parameter)
        30         | /lib/python3.11/site-packages/nn.py:90
        20         | model.py:3
        10         | model.py:7
    """, frame="leaf")  # fmt: skip
    assert len(answer(con, "peak-by-source-line", frame="leaf", top_n=3)) == 3


def test_functions_in_order_of_their_peak_then_run(con):
    for module_id, run_name, size in ((1, "b", 10), (2, "a", 10), (3, "c", 11)):
        module = Module(con, module_id, run_name=run_name)
        module.allocation(0, "output", size)
        module.close()
    holds(con, "peak-by-source-line", """
        run_name
        c
        a
        b
    """)  # fmt: skip
    holds(con, "peak-by-source-line", """
        run_name
        c
    """, top_functions=1)  # fmt: skip
    holds(con, "peak-by-source-line", """
        run_name
        a
        b
    """, run="[ab]")  # fmt: skip


def made_by_xla(con):
    """A line's own dot, and a copy, a loop's zeros, a copy for nothing that XLA made."""
    own = {"source_file": "train.py", "source_line": 77}
    library = {"source_file": "/lib/python3.11/site-packages/nn.py", "source_line": 90}
    module = Module(con, 1, function_name="step")
    module.allocation(0, "temp", 100)
    module.allocation(1, "constant", 10)
    module.value(1, 0, offset=0, size=30, name="dot", op_name="dot", program_order=5, **own)
    module.value(2, 0, offset=30, size=20, name="copy")
    module.value(3, 0, offset=50, size=10, name="zeros")
    module.value(4, 0, offset=60, size=8, name="while", op_name="while", opcode="while",
                 program_order=3, source_file="train.py", source_line=60)  # fmt: skip
    module.value(5, 0, offset=68, size=6, name="relu_input")
    module.value(6, 0, offset=74, size=4, name="relu", op_name="relu", program_order=7, **library)
    module.value(7, 0, offset=78, size=2, name="unused")
    module.value(8, 0, offset=80, size=1, name="no_line", op_name="x")
    module.value(9, 1, offset=0, size=10, name="constant")
    module.use(2, "relu")
    module.use(2, "dot")  # the first in program order
    module.use(3, "while")
    module.use(5, "relu")
    module.use(8, "dot")
    module.use(9, "dot")
    module.close()


def test_what_xla_made_is_named_for_its_first_named_use(con):
    made_by_xla(con)
    holds(con, "peak-by-source-line", """
        held_bytes | held_ratio          | value_count | slice_count | slice_bytes
        30         | 0.32967032967032966 | 1           | NULL        | NULL
        20         | 0.21978021978021978 | 1           | NULL        | NULL
        10         | 0.10989010989010989 | 1           | NULL        | NULL
        10         | 0.10989010989010989 | 1           | NULL        | NULL
        8          | 0.08791208791208792 | 1           | NULL        | NULL
        6          | 0.06593406593406594 | 1           | NULL        | NULL
        4          | 0.04395604395604396 | 1           | NULL        | NULL
        3          | 0.03296703296703297 | 2           | NULL        | NULL

        source
        train.py:77
        for train.py:77
        (constant)
        for train.py:60
        train.py:60
        for library nn.py:90
        library nn.py:90
        (temp)
    """)  # fmt: skip
    rows = answer(con, "peak-by-source-line", frame="leaf")
    assert (6, 6 / 91, 1, None, None, "for /lib/python3.11/site-packages/nn.py:90") in [
        (row["held_bytes"], *row[7:]) for row in rows
    ]


def test_unnamed_none_counts_it_by_kind_of_allocation(con):
    made_by_xla(con)
    holds(con, "peak-by-source-line", """
        held_bytes | held_ratio          | value_count | slice_count | slice_bytes
        39         | 0.42857142857142855 | 5           | NULL        | NULL
        30         | 0.32967032967032966 | 1           | NULL        | NULL
        10         | 0.10989010989010989 | 1           | NULL        | NULL
        8          | 0.08791208791208792 | 1           | NULL        | NULL
        4          | 0.04395604395604396 | 1           | NULL        | NULL

        source
        (temp)
        train.py:77
        (constant)
        train.py:60
        library nn.py:90
    """, unnamed="none")  # fmt: skip
