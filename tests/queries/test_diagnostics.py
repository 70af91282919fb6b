from small_db import Module, answer, insert
from tables import holds


def test_nothing_in_an_empty_database(con):
    holds(con, "diagnostics", "severity")


def add_diagnostic(con, severity, **cells):
    insert(con, "diagnostics", run_name="r", severity=severity, code="c", **cells)


def test_worst_first_then_by_place(con):
    Module(con, 1, platform="cpu")
    add_diagnostic(con, "info", message="i")
    add_diagnostic(con, "notice", message="n", module_id=1)
    add_diagnostic(con, "data_loss", message="second", path="x.txt", line_number=10)
    add_diagnostic(con, "data_loss", message="first", path="x.txt", line_number=9)
    add_diagnostic(con, "data_loss", message="of a module", module_id=1, path="y.txt")
    add_diagnostic(con, "error", message="e", path="z.txt")
    holds(con, "diagnostics", """
        severity  | module_key | path  | line_number | message
        error     | NULL       | z.txt | NULL        | e
        data_loss | m1         | y.txt | NULL        | of a module
        data_loss | NULL       | x.txt | 9           | first
        data_loss | NULL       | x.txt | 10          | second
        notice    | m1         | NULL  | NULL        | n
        info      | NULL       | NULL  | NULL        | i
    """)  # fmt: skip
    holds(con, "diagnostics", """
        message
        e
    """, top_n=1)  # fmt: skip
    holds(con, "diagnostics", """
        message
        i
    """, severity="info")  # fmt: skip
    assert len(answer(con, "diagnostics", platform="cpu", function="f")) == 2
    holds(con, "diagnostics", "severity", run="other*")


def test_a_profile_name_of_two_processes_is_an_error(con):
    Module(con, 1)
    for name in ("memory.prof", "memory.prof", "rank-1/memory.prof"):
        insert(con, "live_profiles", run_name="r", profile_name=name, program_count=0)
    holds(con, "diagnostics", """
        severity | code                | path
        error    | shared_profile_name | memory.prof
    """)  # fmt: skip
    (row,) = answer(con, "diagnostics")
    assert row["message"].startswith("2 processes of the run have a profile of this name")
