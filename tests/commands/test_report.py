"""`bufdb report`: its options, its file, and what it says where there is nothing to show."""

import pytest
from places import ROOT
from report_making import Report
from small_db import Module, in_bulk

from bufdb.page import comparison, tables

COMMAND = "module_0002.jit_train_step"


@pytest.fixture(autouse=True)
def few_queries(monkeypatch):
    """Reduce the tables, which other tests cover and which take most of the time."""
    monkeypatch.setattr(tables, "NAMES", ("peak",))
    monkeypatch.setattr(comparison, "KEYS", ("op",))


@pytest.fixture
def made(call, demo_db, empty_folder):
    """Run the command on the demo dumps and read the page."""

    def run(*arguments, output="report.html"):
        code, out, err = call("report", "--db", demo_db, *arguments)
        assert (code, out, err) == (0, "", "")
        return Report((empty_folder / output).read_text(encoding="utf-8"))

    return run


@pytest.mark.slow
def test_it_writes_one_file_about_all_modules(made):
    page = made()
    assert len(page.modules) == 20
    assert page.head["command"] == "bufdb report"
    assert page.head["counts"]["run_count"] == 6
    assert page.head["diff"] is None


@pytest.mark.slow
def test_options_choose_modules_and_are_in_the_page(made):
    page = made(
        "--run", "cpu_b*", "--function", "train_*", "--module", f"*{COMMAND[-14:]}*",
        "--platform", "cpu", "--limit", "TPU v5e", "-o", "other.html", output="other.html",
    )  # fmt: skip
    assert {row["function"] for row in page.modules} == {"train_step"}
    assert {row["platform"] for row in page.modules} == {"cpu"}
    assert {row["limit_name"] for row in page.modules} == {"TPU v5e, of 16 GiB"}
    assert page.head["command"] == (
        "bufdb report --run 'cpu_b*' --function 'train_*' --module '*jit_train_step*' "
        "--platform cpu --limit 'TPU v5e'"
    )
    head, _ = page.slots[1]
    assert "--module '*jit_train_step*'" in head["command"]


@pytest.mark.slow
def test_it_compares_with_another_run(made):
    page = made("--diff", "cpu_b8", "--run", "cpu_b16", "--function", "train_step")
    assert [(row["run"], row["function"]) for row in page.modules] == [
        ("cpu_b16", "train_step"),
        ("cpu_b8", "train_step"),
    ]
    assert page.head["diff"]["pairs"] == [[1, 1, 0]]
    assert page.head["command"].endswith("--diff cpu_b8")


@pytest.mark.slow
def test_sides_may_be_labels_and_globs(made):
    page = made("--diff", "batch=16", "--run", "cpu_b8_re*")
    assert (page.head["diff"]["base"], page.head["diff"]["new"]) == ("batch=16", "cpu_b8_remat")
    assert {row["run"] for row in page.modules} == {"cpu_b16", "cpu_b8_remat"}
    page = made("--diff", "cpu_b16", "--run", "batch=8", "--platform", "cpu")
    assert page.head["diff"]["new"] == "batch=8"
    assert {row["platform"] for row in page.modules} == {"cpu"}
    names = [name for name, _ in page.head["diff"]["figures"]["columns"]]
    rows = page.head["diff"]["figures"]["rows"]
    assert {row[names.index("platform")] for row in rows} == {"cpu"}


def test_of_two_runs_the_other_is_the_new_side(call, empty_db, empty_folder, con):
    with in_bulk(con):
        for number, run in ((1, "old"), (2, "now")):
            module = Module(con, number, run_name=run, schedule_length=9)
            module.allocation(0, "temp", 4 * number)
            module.value(1, 0, 0, 4 * number)
            module.close()
    compared = comparison.compared(con, "old", {})
    assert (compared.base, compared.new) == ("old", "now")
    assert [row.delta_bytes for row in compared.figures if row.figure == "peak"] == [4]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--run", "nope"], 2, "no run 'nope'"),
        (["--function", "nope"], 1, "nothing to report: no rows: no function 'nope'"),
        (["--limit", "much"], 2, "--limit wants a size"),
        (["--diff", "cpu_b8"], 2, "--diff 'cpu_b8': with which run? --run names it"),
        (["--diff", "nope", "--run", "cpu_b8"], 2, "no run 'nope'"),
        (["--diff", "cpu_b8", "--run", "nope"], 2, "no run 'nope'"),
        (["--diff", "cpu_b8", "--run", "cpu_b*"], 2, "no run 'cpu_b*'"),
        (["-o", "missing/report.html"], 2, "cannot write missing/report.html"),
        (["--db", "missing.duckdb"], 3, "no database missing.duckdb"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(call, demo_db, empty_folder, arguments, code, message):
    exit_code, out, err = call("report", "--db", demo_db, *arguments)
    assert (exit_code, out) == (code, "")
    assert err.startswith(f"bufdb: error: {message}") and err.count("\n") == 1
    assert not (empty_folder / "report.html").exists()


@pytest.mark.slow
def test_a_message_has_sizes_and_tables_and_no_picture(call, tmp_path):
    db, page = tmp_path / "oom.duckdb", tmp_path / "oom.html"
    assert call("ingest", ROOT / "data" / "oom" / "tpu.log", "--db", db)[0] == 0
    assert call("report", "-o", page, "--db", db)[0] == 0
    report = Report(page.read_text(encoding="utf-8"))
    (module,) = report.modules
    assert module["peak_bytes"] > 18 << 30 and module["peak_time"] is None
    picture = report.picture()
    assert not any(picture.columns.values()) and len(picture.table("peak")) == 5
