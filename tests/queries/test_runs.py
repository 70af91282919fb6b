from datetime import datetime

from small_db import Module, answer, insert

DAY = datetime(2026, 1, 1)


def test_nothing_in_an_empty_database(con):
    assert answer(con, "runs") == []


def test_runs_in_order_of_their_dumps_with_labels_and_figures(con):
    insert(con, "runs", run_name="late", dumped_at=datetime(2026, 2, 1), source_path="p")
    insert(con, "runs", run_name="early", dumped_at=DAY)
    insert(con, "runs", run_name="never")
    insert(con, "run_labels", run_name="late", label="remat", label_value="full")
    insert(con, "run_labels", run_name="late", label="batch", label_value="16")
    for module_id, function, size in ((1, "f", 10), (2, "f", 30), (3, "g", 20)):
        module = Module(con, module_id, "late", function, platform="cpu")
        module.allocation(0, "output", size)
        module.allocation(1, "temp", 1, color=1)
        module.close()
    late = ("late", "batch=16 remat=full", datetime(2026, 2, 1), DAY)
    assert answer(con, "runs") == [
        ("early", None, DAY, DAY, 0, 0, None, None, ""),
        (*late, 3, 2, 30, 1, "p"),
        ("never", None, None, DAY, 0, 0, None, None, ""),
    ]
    Module(con, 4, "late", "h", platform="cpu")
    assert answer(con, "runs", run="late") == [
        (*late, 4, 3, None, 1, "p", 1, "the dump has no allocations")
    ]
    con.execute("DELETE FROM modules WHERE module_id = 4")
    assert answer(con, "runs", function="g") == [(*late, 1, 1, 20, 1, "p")]
    assert answer(con, "runs", color=1, platform="cpu") == [(*late, 3, 2, 0, 1, "p")]
    assert [row[0] for row in answer(con, "runs", run="[en]*", top_n=1)] == ["early"]


def test_ties_go_by_name(con):
    for name in ("b", "a"):
        insert(con, "runs", run_name=name)
    assert [row[0] for row in answer(con, "runs")] == ["a", "b"]
