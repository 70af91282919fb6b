from small_db import Module, answer, insert


def test_nothing_in_an_empty_database(con):
    assert answer(con, "peak-by-source-line") == []


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
    assert answer(con, "peak-by-source-line") == [
        ("r", "step", 0, 100, 40, 0.4, 2, "(parameter)"),
        ("r", "step", 0, 100, 40, 0.4, 2, "model.py:7"),
        ("r", "step", 0, 100, 20, 0.2, 1, "model.py:3"),
    ]


def test_frame_leaf_keeps_library_lines_apart(con):
    one_module(con)
    rows = [(row[4], row[7]) for row in answer(con, "peak-by-source-line", frame="leaf")]
    assert rows == [
        (40, "(parameter)"),
        (30, "/lib/python3.11/site-packages/nn.py:90"),
        (20, "model.py:3"),
        (10, "model.py:7"),
    ]
    assert len(answer(con, "peak-by-source-line", frame="leaf", top_n=3)) == 3


def test_functions_in_order_of_their_peak_then_run(con):
    for module_id, run_name, size in ((1, "b", 10), (2, "a", 10), (3, "c", 11)):
        module = Module(con, module_id, run_name=run_name)
        module.allocation(0, "output", size)
        module.close()
    assert [row[0] for row in answer(con, "peak-by-source-line")] == ["c", "a", "b"]
    assert [row[0] for row in answer(con, "peak-by-source-line", top_functions=1)] == ["c"]
    assert [row[0] for row in answer(con, "peak-by-source-line", run="[ab]")] == ["a", "b"]
