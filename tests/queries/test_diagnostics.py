from small_db import Module, answer, insert


def test_nothing_in_an_empty_database(con):
    assert answer(con, "diagnostics") == []


def found(con, severity, **cells):
    insert(con, "diagnostics", run_name="r", severity=severity, code="c", **cells)


def test_worst_first_then_by_place(con):
    Module(con, 1, platform="cpu")
    found(con, "info", message="i")
    found(con, "notice", message="n", module_id=1)
    found(con, "data_loss", message="second", path="x.txt", line_number=10)
    found(con, "data_loss", message="first", path="x.txt", line_number=9)
    found(con, "data_loss", message="of a module", module_id=1, path="y.txt")
    found(con, "error", message="e", path="z.txt")
    rows = [(row[0], row[3], row[4], row[5], row[6]) for row in answer(con, "diagnostics")]
    assert rows == [
        ("error", None, "z.txt", None, "e"),
        ("data_loss", "m1", "y.txt", None, "of a module"),
        ("data_loss", None, "x.txt", 9, "first"),
        ("data_loss", None, "x.txt", 10, "second"),
        ("notice", "m1", None, None, "n"),
        ("info", None, None, None, "i"),
    ]
    assert [row[6] for row in answer(con, "diagnostics", top_n=1)] == ["e"]
    assert [row[6] for row in answer(con, "diagnostics", severity="info")] == ["i"]
    assert len(answer(con, "diagnostics", platform="cpu", function="f")) == 2
    assert answer(con, "diagnostics", run="other*") == []
