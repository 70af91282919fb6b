from datetime import datetime

import pytest
from small_db import Module, answer, insert
from tables import holds

DAY = datetime(2026, 1, 1)
NOTHING = (None, None, None, None)
"""Platforms, eras, partitions and options of a run without modules."""
FACTS = ("cpu", "C", None, None)


def test_nothing_in_an_empty_database(con):
    holds(con, "runs", "run_name")


@pytest.mark.slow
def test_runs_in_order_of_their_dumps_with_labels_and_figures(con):
    insert(con, "runs", run_name="late", dumped_at=datetime(2026, 2, 1), source_path="p")
    insert(con, "runs", run_name="early", dumped_at=DAY)
    insert(con, "runs", run_name="never")
    insert(con, "run_labels", run_name="late", label="remat", label_value="full")
    insert(con, "run_labels", run_name="late", label="batch", label_value="16")
    captured = {"label": "command", "label_value": "c", "is_metadata": True}
    insert(con, "run_labels", run_name="late", **captured)
    for module_id, function, size in ((1, "f", 10), (2, "f", 30), (3, "g", 20)):
        module = Module(con, module_id, "late", function, platform="cpu")
        module.allocation(0, "output", size)
        module.allocation(1, "temp", 1, color=1)
        module.close()
    late = ("late", "batch=16 remat=full", datetime(2026, 2, 1), DAY)
    assert answer(con, "runs") == [
        ("early", None, DAY, DAY, 0, 0, *NOTHING, None, None, None, 0, "", None, 0),
        (*late, 3, 2, *FACTS, 30, 30, 0, 0, "p", "command=c", 0),
        ("never", None, None, DAY, 0, 0, *NOTHING, None, None, None, 0, "", None, 0),
    ]
    Module(con, 4, "late", "h", platform="cpu")
    holds(con, "runs", """
        run_name | labels              | dumped_at           | ingested_at         | module_count
        late     | batch=16 remat=full | 2026-02-01 00:00:00 | 2026-01-01 00:00:00 | 4

        function_count | platforms | format_eras | max_partition_count | compiler_options
        3              | cpu       | C           | NULL                | NULL

        max_peak_bytes | max_need_bytes | max_temp_bytes | problem_count | source_path | metadata
        NULL           | NULL           | 0              | 0             | p           | command=c

        file_content_bytes | unknown_count | unknown_reason
        0                  | 1             | the dump has no allocations
    """, run="late")  # fmt: skip
    con.execute("DELETE FROM modules WHERE module_id = 4")
    holds(con, "runs", """
        run_name | labels              | dumped_at           | ingested_at         | module_count
        late     | batch=16 remat=full | 2026-02-01 00:00:00 | 2026-01-01 00:00:00 | 1

        function_count | platforms | format_eras | max_partition_count | compiler_options
        1              | cpu       | C           | NULL                | NULL

        max_peak_bytes | max_need_bytes | max_temp_bytes | problem_count | source_path | metadata
        20             | 20             | 0              | 0             | p           | command=c
    """, function="g")  # fmt: skip
    late = (*late, 3, 2, *FACTS, 0, 1, 1, 0, "p", "command=c")
    holds(con, "runs", """
        run_name | labels              | dumped_at           | ingested_at         | module_count
        late     | batch=16 remat=full | 2026-02-01 00:00:00 | 2026-01-01 00:00:00 | 3

        function_count | platforms | format_eras | max_partition_count | compiler_options
        2              | cpu       | C           | NULL                | NULL

        max_peak_bytes | max_need_bytes | max_temp_bytes | problem_count | source_path | metadata
        0              | 1              | 1              | 0             | p           | command=c
    """, color=1, platform="cpu")  # fmt: skip
    holds(con, "runs", """
        run_name
        early
    """, run="[en]*", top_n=1)  # fmt: skip


def test_ties_go_by_name(con):
    for name in ("b", "a"):
        insert(con, "runs", run_name=name)
    holds(con, "runs", """
        run_name
        a
        b
    """)  # fmt: skip


def test_options_that_all_modules_share_and_problems(con):
    insert(con, "runs", run_name="r")
    for module_id in (1, 2, 3):
        Module(con, module_id, "r", "f").close()
    for module_id, name, value in ((1, "a", "1"), (2, "a", "1"), (1, "b", "2"), (2, "b", "3")):
        insert(con, "compiler_options", module_id=module_id, option_name=name, option_value=value)
    for module_id in (1, 2):
        row = {"option_name": "xla_dump_to", "option_value": "/d"}
        insert(con, "compiler_options", module_id=module_id, **row)
    for severity in ("notice", "data_loss", "error"):
        insert(con, "diagnostics", run_name="r", severity=severity, code="c", message="m")
    (row,) = answer(con, "runs")
    # Module 3 has no file of options, which says nothing against it.
    assert row["compiler_options"] == "a=1"
    assert row["problem_count"] == 2


def test_equal_files_count_in_each_run_that_has_them(con):
    for module_id, run in ((1, "a"), (2, "a"), (3, "b")):
        Module(con, module_id, run, "f").close()
        insert(con, "files", module_id=module_id, file_kind="hlo", content_hash="both")
    insert(con, "files", module_id=3, file_kind="hlo", content_hash="alone")
    for content_hash, ordinal, size in (("both", 0, 10), ("both", 1, 5), ("alone", 0, 1)):
        part = {"content_hash": content_hash, "part_ordinal": ordinal, "compressed": b""}
        insert(con, "file_contents", **part, compressed_bytes=size)
    assert {row["run_name"]: row["file_content_bytes"] for row in answer(con, "runs")} == {
        "a": 15,
        "b": 16,
    }
