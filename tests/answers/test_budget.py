"""Budgets: the file, the judgement, and the command with its exit codes."""

import json
import shutil
from fractions import Fraction
from pathlib import Path

import duckdb
import pytest
from small_db import Module, in_bulk, insert

from bufdb import cli
from bufdb.answers.budget import _picture, exit_code, judge
from bufdb.answers.budget_file import Budget, Limit, learned, parse, parse_limit
from bufdb.database import store
from bufdb.errors import UsageError
from bufdb.query import figures
from bufdb.query.figures import MemoryFigures

MIB = 1 << 20


def figure(function="f", value=100, color=0, **cells):
    key = f"{function}/{value}/{color}"
    fields = {
        "module_id": hash(key),
        "module_key": key,
        "function": function,
        "platform": "tpu",
        "color": color,
        "memory_space": {0: "hbm", 1: "vmem", None: None}.get(color),
        "values": dict.fromkeys(figures.METRICS, value),
        "is_device_memory": color == 0,
    }
    return MemoryFigures(**(fields | cells))


def entry(limit, function="*", metric="peak", **cells):
    return Budget(function, metric, parse_limit(limit), **cells)


def judged(budgets, run, base=()):
    """(status, function, value, limit, reason) of each verdict; base is what run starts from."""
    pairs = {new.place: old for new, old in zip(run, base, strict=False)}
    return [
        (v.status, v.figure and v.figure.function, v.value, v.limit, v.reason)
        for v in judge(budgets, run, pairs)
    ]


# -- limits -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        (0, 0),
        (123456, 123456),
        ("512 B", 512),
        ("16 GiB", 16 << 30),
        ("1.5MiB", 3 << 19),
        ("2 kB", 2000),
        ("2 KB", 2000),
        ("1 TB", 10**12),
        (" 8 EiB ", 1 << 63),
    ],
)
def test_an_absolute_limit(value, amount):
    limit = parse_limit(value)
    assert (limit.bytes_for(None), limit.is_relative) == (amount, False)


@pytest.mark.parametrize(
    ("text", "base", "amount"),
    [
        ("+2%", 100, 102),
        ("+2%", 149, 151),
        ("+2.5 %", 1000, 1025),
        ("-10%", 95, 85),
        ("+0%", 95, 95),
        ("+10 MiB", 5, 10 * MIB + 5),
        ("-1 KiB", 2000, 976),
        ("+1%", 3 * 2**62, 3 * 2**62 + 3 * 2**62 // 100),
        ("+2%", None, None),
    ],
)
def test_a_relative_limit_is_exact_and_rounded_down(text, base, amount):
    assert parse_limit(text).bytes_for(base) == amount


@pytest.mark.parametrize(
    "value", ["16", "16 gib", "GiB", "2%", "", True, -1, 1.5, None, [], "1e3 B"]
)
def test_no_limit(value):
    with pytest.raises(ValueError, match="expected "):
        parse_limit(value)


# -- the file ---------------------------------------------------------------------------------


def test_a_file_with_all_keys():
    text = """
base = "main"
[[budget]]
function = "train_*"
metric = "temp"
limit = "+2%"
color = 1
platform = "gpu"
allow_new = true
# the next
[[budget]]
function = "eval"
limit = 7
memory_space = "hbm"
"""
    budget_file = parse(text, "b.toml")
    assert budget_file.base == "main"
    assert budget_file.budgets == (
        Budget(
            "train_*",
            "temp",
            Limit("+2%", Fraction(2), True, True),
            color=1,
            platform="gpu",
            allow_new=True,
            where="b.toml:3",
        ),
        Budget("eval", "need", Limit("7", Fraction(7)), color="hbm", where="b.toml:11"),
    )


GOOD = '[[budget]]\nfunction = "f"\nlimit = 1\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "b.toml:1: budget: expected entries under [[budget]], found none"),
        ("budget = 1", "b.toml:1: budget: expected entries"),
        ("\nbase = 1\n" + GOOD, "b.toml:2: base: expected the name of a run, found '1'"),
        ("x y", "b.toml:1: not TOML: "),
        ("a = 1\n\nb = [", "b.toml:3: not TOML: "),
        (GOOD + "\nlimits = 2\n", "b.toml:5: limits: expected one of "),
        ("bass = 'a'\n" + GOOD, "found 'bass'; did you mean 'base'?"),
        (GOOD + GOOD.replace("limit = 1", ""), "b.toml:4: expected a key 'limit' in this entry"),
        ('[[budget]]\nlimit = "1 MiB"', "b.toml:1: expected a key 'function'"),
        ('[[budget]]\nlimit = 1\nfunction = ""', "b.toml:3: function: expected text, found ''"),
        (GOOD + 'metric = "peek"', "b.toml:4: metric: expected one of need, peak, temp, "),
        (GOOD + "color = -1", "b.toml:4: color: expected a number from 0, a name or all, found"),
        (GOOD + 'color = 0\nmemory_space = "hbm"', "b.toml:4: color: expected memory_space or"),
        (GOOD + "allow_new = 1", "b.toml:4: allow_new: expected true or false"),
        (GOOD.replace("1", '"2%"'), "b.toml:3: limit: expected a sign before a percentage"),
        (GOOD + GOOD.replace("1", '"16"'), "b.toml:6: limit: expected bytes such as 123456 or"),
        ('budget = [{function = "f", limit = "x"}]', "b.toml:1: limit: expected bytes"),
    ],
)
def test_what_is_wrong_in_a_file_and_where(text, message):
    with pytest.raises(UsageError) as error:
        parse(text, "b.toml")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


# -- judgement --------------------------------------------------------------------------------


def test_a_limit_is_inclusive():
    assert judged([entry(100)], [figure()]) == [("within", "f", 100, 100, None)]
    assert judged([entry(99)], [figure()]) == [("over", "f", 100, 99, None)]


def test_worst_first():
    run = [figure("a", 1), figure("b", 9), figure("c", None)]
    assert [row[:2] for row in judged([entry(5)], run)] == [
        ("over", "b"),
        ("not judged", "c"),
        ("within", "a"),
    ]


def test_what_fits_no_module_does_not_pass():
    run = [figure("train_step"), figure("init")]
    assert judged([entry(999, "train_stop")], run) == [
        ("not judged", None, None, None, "fits no module; did you mean 'train_step'?")
    ]
    assert judged([entry(999, platform="gpu")], run)[0][4] == "fits no module"
    assert judged([entry(999, color="hmb")], run)[0][4] == (
        "no memory space hmb in the modules that match; there is hbm"
    )
    assert judged([entry(999, color=3)], run)[0][0] == "not judged"
    assert judged([entry(999)], []) == [("not judged", None, None, None, "fits no module")]


def test_memory_space_by_name_by_number_and_by_default():
    run = [figure(value=10), figure(value=20, color=1)]
    assert [v.value for v in judge([entry(99)], run)] == [10]
    assert [v.value for v in judge([entry(99, color=1)], run)] == [20]
    assert [v.value for v in judge([entry(99, color="vmem")], run)] == [20]
    assert [v.value for v in judge([entry(99, color="all")], run)] == [10, 20]


@pytest.mark.parametrize(("text", "values"), [("1", [20]), ('"1"', [20]), ('"vmem"', [20]),
                                              ('"all"', [10, 20])])  # fmt: skip
@pytest.mark.parametrize("key", ["color", "memory_space"])
def test_a_file_names_memory_spaces_as_the_commands_do(key, text, values):
    budget_file = parse(f"{GOOD}{key} = {text}", "b.toml")
    run = [figure(value=10), figure(value=20, color=1)]
    assert [v.value for v in judge(budget_file.budgets, run)] == values


def test_unknown_figures_do_not_pass():
    no_ranges = figure(values={"peak": None, "temp": 5}, unknown_reason="no live ranges")
    assert judged([entry(99)], [no_ranges])[0][::4] == (
        "not judged",
        "peak is unknown: no live ranges",
    )
    assert judged([entry(99, metric="temp")], [no_ranges])[0][0] == "within"
    assert judged([entry(99)], [figure(color=None, unknown_reason="no allocations")])[0][::4] == (
        "not judged",
        "peak is unknown: no allocations",
    )


def test_a_dump_read_in_part_can_fail_but_not_pass():
    broken = figure(problem_count=1)
    status, *_, reason = judged([entry(100)], [broken])[0]
    assert (status, reason.startswith("part of the dump was not")) == ("not judged", True)
    assert judged([entry(99)], [broken])[0][0] == "over"
    status, *_, reason = judged([entry("+0%")], [figure()], [broken])[0]
    assert (status, "of the base run" in reason) == ("not judged", True)
    verdicts = judge([entry(100)], [figure()], unread=["x.txt: cannot be read"])
    assert [v.status for v in verdicts] == ["not judged", "within"]


def test_relative_to_the_same_function():
    run = [figure("a", 103), figure("b", 102)]
    base = [figure("a", 100), figure("b", 100)]
    assert judged([entry("+2%")], run, base) == [
        ("over", "a", 103, 102, None),
        ("within", "b", 102, 102, None),
    ]


def test_what_the_base_does_not_have():
    assert judged([entry("+2%")], [figure()]) == [
        ("not judged", "f", 100, None, "not in the base run")
    ]
    assert judged([entry("+2%", allow_new=True)], [figure()], [])[0][0] == "within"
    base = figure(value=None, unknown_reason="no live ranges")
    assert judged([entry("+2%")], [figure()], [base])[0][::4] == (
        "not judged",
        "peak of the base run is unknown: no live ranges",
    )


@pytest.mark.parametrize(
    ("values", "code"), [((1,), 0), ((1, 9), 1), ((1, None), 4), ((1, None, 9), 1)]
)
def test_exit_code(values, code):
    run = [figure(str(n), value) for n, value in enumerate(values)]
    assert exit_code(judge([entry(5)], run)) == code


# -- what a relative limit starts from -----------------------------------------------------------


def module(con, number, run, size, shape="f32[8]", platform="tpu", color=0):
    made = Module(con, number, run, "f", platform=platform)
    made.allocation(0, "output", size, output_shape=shape, color=color)
    made.close()
    return number


def started_from(con):
    """Module of run new and the one of base that it starts from, by memory space."""
    return {place: f.module_id for place, f in figures.of_base(con, "base", "new").items()}


def test_compilations_pair_by_signature_then_by_size(con):
    for number, size, shape in ((1, 7, "old"), (2, 5, "t"), (3, 40, "s")):
        module(con, number, "base", size, shape)
    for number, size, shape in ((4, 50, "s"), (5, 11, "new"), (6, 5, "t")):
        module(con, number, "new", size, shape)
    assert started_from(con) == {(4, 0): 3, (5, 0): 1, (6, 0): 2}


def test_modules_are_paired_whole_not_by_the_metric_judged(con):
    # By temps alone it would be the other way round.
    for number, run, size, temp in (
        (1, "base", 900, 10), (2, "base", 300, 20), (3, "new", 900, 20), (4, "new", 300, 10),
    ):  # fmt: skip
        made = Module(con, number, run, "f", platform="tpu")
        made.allocation(0, "output", size, output_shape=f"f32[{number}]")
        made.allocation(1, "temp", temp)
        made.close()
    assert started_from(con) == {(3, 0): 1, (4, 0): 2}


def test_two_platforms_and_two_memory_spaces_are_never_compared(con):
    module(con, 1, "base", 8, platform="tpu")
    module(con, 2, "new", 8, platform="gpu")
    assert started_from(con) == {}
    module(con, 3, "base", 8, platform="gpu", color=1)
    assert started_from(con) == {(2, 1): 3}


# -- the command ------------------------------------------------------------------------------


pytestmark = pytest.mark.usefixtures("empty_folder")


@pytest.fixture(scope="module")
def two_runs(empty_db, tmp_path_factory):
    path = shutil.copy(empty_db, tmp_path_factory.mktemp("two") / "runs.duckdb")
    with duckdb.connect(path) as con, in_bulk(con):
        for number, (run, size) in enumerate([("base", 2048), ("new", 3072)], 1):
            module = Module(con, number, run, "step", platform="tpu")
            module.allocation(0, "parameter", 512)
            module.allocation(1, "temp", size)
            module.value(1, 1, offset=0, size=size - 1024)
            module.close()
    return path


@pytest.fixture
def budget(call, two_runs):
    shutil.copy(two_runs, "bufdb.duckdb")

    def run(text, *arguments):
        Path("b.toml").write_text(text)
        return call("budget", "b.toml", *arguments)

    return run


def budget_text(limit, more=""):
    return f'[[budget]]\nfunction = "st*"\nlimit = {limit}\n{more}\n'


def test_every_metric(budget):
    expected = {
        "need": 3584,
        "peak": 2560,
        "temp": 3072,
        "arguments": 512,
        "outputs": 0,
        "constants": 0,
        "total": 3584,
        "fragmentation": 1024,
    }
    text = "".join(budget_text(10**6, f'metric = "{metric}"') for metric in figures.METRICS)
    code, out, _ = budget(text, "--run", "new", "--format", "json")
    assert code == 0
    assert {row["metric"]: row["value_bytes"] for row in json.loads(out)} == expected


def test_over_is_exit_code_1(budget):
    code, out, err = budget(budget_text('"+20%"'), "--base", "base", "--format", "json")
    assert (code, err) == (1, "bufdb: run new: 1 over\n")
    assert json.loads(out) == [
        {
            "status": "over",
            "function_name": "step",
            "metric": "need",
            "memory_space": "hbm",
            "value_bytes": 3584,
            "base_bytes": 2560,
            "limit_bytes": 3072,
            "headroom_bytes": -512,
            "headroom_ratio": -512 / 3072,
            "module_key": "m2",
            "budget": "+20% (b.toml:1)",
            "reason": None,
        }
    ]


@pytest.mark.slow
def test_holes_count_though_the_peak_is_within(budget):
    limit = 3000  # peak 2560, need 3584
    assert budget(budget_text(limit, 'metric = "peak"'), "--run", "new")[0] == 0
    assert budget(budget_text(limit), "--run", "new")[0] == 1


@pytest.mark.slow
def test_a_run_that_is_its_own_base_is_said_to_be(budget):
    code, _, err = budget(budget_text('"+1%"'), "--run", "new", "--base", "new")
    assert code == 0
    assert "run new is its own base: no limit relative to it can be exceeded" in err


def test_device_memory_is_judged_where_color_0_is_empty(con):
    made = Module(con, 1, "r", "f", platform="tpu")
    made.allocation(0, "output", 0)
    made.allocation(1, "output", 50, color=1)
    made.close()
    assert [v.value for v in judge([entry(99)], figures.of_run(con, "r"))] == [50]


@pytest.mark.slow
def test_markdown_for_a_pull_request(budget):
    text = 'base = "base"\n' + budget_text('"+1 KiB"', 'metric = "peak"')
    code, out, err = budget(text, "--format", "markdown", "-o", "report.md")
    assert (code, out, err) == (0, "", "bufdb: run new: 1 within\n")
    lines = Path("report.md").read_text().splitlines()
    assert lines[0] == "**Memory budget: 1 within** (run new, base base)"
    assert lines[1] == ""
    assert lines[2].startswith("| status | function_name | metric |")
    assert lines[4] == (
        "| within | step | peak | hbm | 2.50 KiB | 1.50 KiB | 2.50 KiB | 0 B | 0.0% | m2 "
        "| +1 KiB (b.toml:2) | - |"
    )
    assert lines[5:] == [
        "",
        "- step: peak 1.50 KiB → 2.50 KiB (+66.7%), largest: +1.00 KiB (temp)",
        "- step: peak 1.50 KiB ▁█ 2.50 KiB over 2 runs",
    ]


@pytest.mark.slow
def test_markdown_names_the_lines_that_grew(call, demo_db, tmp_path):
    file = tmp_path / "b.toml"
    file.write_text(budget_text('"1 GiB"').replace("st*", "train_*"), encoding="utf-8")
    words = ("budget", file, "--db", demo_db, "--run", "cpu_b8", "--format", "markdown")
    # An absolute limit is compared with a base run too; within a limit growth is shown as well.
    out = call(*words, "--base", "cpu_b8_remat")[1]
    trend = "- train_step: peak 15.7 MiB █▂▂▁ 6.10 MiB over 4 runs"
    assert out.splitlines()[-1] == trend
    assert out.splitlines()[-2] == (
        "- train_step: peak 6.10 MiB → 8.49 MiB (+39.3%), largest: +1.72 MiB saved train.py:65, "
        "+1.53 MiB saved train.py:66, +128 KiB train.py:77 and 3 more"
    )
    assert call(*words)[1].splitlines()[-3].startswith("| within | train_step ")
    file.write_text(budget_text(1).replace("st*", "train_*"), encoding="utf-8")
    hint = "- which lines grew: --base RUN compares with another run"
    assert call(*words)[1].splitlines()[-2:] == [hint, trend]


@pytest.mark.slow
def test_nothing_is_said_of_what_did_not_grow(call, demo_db, tmp_path):
    file = tmp_path / "b.toml"
    file.write_text(budget_text(1).replace("st*", "train_*"), encoding="utf-8")
    words = ("budget", file, "--db", demo_db, "--format", "markdown")
    out = call(*words, "--run", "cpu_b8_remat", "--base", "cpu_b8")[1]
    assert out.splitlines()[-3].startswith("| over | train_step ")


def test_a_base_that_no_limit_needs_may_be_missing(budget):
    text = 'base = "gone"\n' + budget_text('"5 KiB"')
    assert budget(text, "--run", "new")[0] == 0


def test_the_table_has_units(budget):
    code, out, _ = budget(budget_text('"5 KiB"', 'metric = "peak"'), "--run", "new")
    assert code == 0
    assert out.splitlines()[2].split()[:5] == ["within", "step", "peak", "hbm", "2.50"]
    assert "50.0%" in out


def test_not_judged_is_exit_code_4(budget):
    code, out, err = budget(budget_text(1).replace("st*", "stop"), "--run", "new")
    assert (code, err) == (4, "bufdb: run new: 1 not judged\n")
    assert "fits no module; did you mean 'step'?" in out


@pytest.mark.slow
def test_an_unreadable_file_of_the_run_is_exit_code_4(budget):
    with store.open_writable("bufdb.duckdb") as con:
        insert(
            con,
            "diagnostics",
            run_name="new",
            severity="error",
            code="unreadable_file",
            path="x.txt",
            message="cannot be read",
        )
    code, out, _ = budget(budget_text(10**6), "--run", "new")
    assert code == 4
    assert "x.txt: cannot be read" in out


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        (budget_text(1), (), "which run? --run names it; there is base, new"),
        (budget_text(1), ("--run", "mew"), "no run 'mew'; did you mean 'new'?"),
        (budget_text('"+1%"'), ("--run", "new"), "b.toml:1: limit '+1%' starts from a base run;"),
        (budget_text('"+1%"'), ("--run", "new", "--base", "bas"), "no run 'bas'; did you mean"),
        (budget_text('"x"'), (), "b.toml:3: limit: expected bytes"),
        (budget_text(1), ("--run", "new", "-o", "no/r.md"), "cannot write no/r.md"),
    ],
)
def test_wrong_usage_is_exit_code_2(budget, text, arguments, message):
    code, out, err = budget(text, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert err.count("\n") == 1


def test_a_file_that_cannot_be_read(budget, capfdbinary):
    assert cli.run(["budget", "no.toml"]) == 2
    assert b"cannot read no.toml: No such file" in capfdbinary.readouterr().err
    Path("bin.toml").write_bytes(b"\xff\xfe")
    assert cli.run(["budget", "bin.toml"]) == 2
    assert b"cannot read bin.toml: it is not UTF-8 text" in capfdbinary.readouterr().err


def test_no_database_is_exit_code_3(budget):
    code, out, err = budget(budget_text(1), "--db", "no.duckdb")
    assert (code, out) == (3, "")
    assert "no database no.duckdb" in err


def test_a_failing_query_is_not_taken_for_a_budget_exceeded(budget, monkeypatch):
    def fail(*_):
        raise duckdb.IOException("IO Error: torn\nmore")

    monkeypatch.setattr(figures, "of_run", fail)
    code, _, err = budget(budget_text(1), "--run", "new")
    assert (code, err) == (3, "bufdb: error: cannot read the figures: IO Error: torn\n")


# -- over the demo dumps ----------------------------------------------------------------------


@pytest.mark.slow
def test_largest_contributors_by_metric(demo_db):
    with store.open_readable(str(demo_db)) as con:
        (step,) = [f for f in figures.of_run(con, "cpu_b8") if f.function == "train_step"]
        largest, count = figures.contributors(con, step, "peak", 3)
        assert [len(largest), count > 3] == [3, True]
        everything, _ = figures.contributors(con, step, "peak", 10**6)
        assert sum(c.held_bytes for c in everything) == step.values["peak"]
        arguments, _ = figures.contributors(con, step, "arguments", 10**6)
        assert sum(c.held_bytes for c in arguments) == step.values["arguments"]
        assert {c.kind for c in arguments} <= {"parameter", "donated_parameter"}


# -- limits learned from a run ---------------------------------------------------------------------

LEARNED = """\
# ours
base = "main"

[[budget]]
function = "step"  # the large one
limit = "1 KiB"    # as of May
[[budget]]
function = "s*"
metric = "temp"
limit = "+2%"
[[budget]]
limit = 5  # 5 B
function = "eval"
"""


def test_a_run_sets_limits_and_the_rest_stays():
    figures_of_run = [figure("step", 3000), figure("step", 2000), figure("eval", 2048),
                      figure("step", 9999, color=1)]  # fmt: skip
    text, notes = learned(parse(LEARNED, "a.toml"), LEARNED, figures_of_run, "new")
    new = LEARNED.replace('"1 KiB" ', "3000 ").replace("5  # 5 B", "2048  # 2.00 KiB")
    assert (text, notes) == (new, [])
    assert learned(parse(text, "a.toml"), text, figures_of_run, "new") == (text, [])


def test_functions_without_an_entry_get_one():
    unknown = figure("lost", 1)
    unknown = MemoryFigures(**{**vars(unknown), "values": dict.fromkeys(figures.METRICS)})
    text, notes = learned(None, "", [figure("f[0]", 2048), unknown], "a b")
    assert notes == ["lost: need is unknown: there is no entry for it"]
    (budget,) = parse(text, "a.toml").budgets
    assert (budget.function, budget.limit.amount) == ("f[[]0]", 2048)
    assert judged([budget], [figure("f[0]", 2048)])[0][0] == "within"
    assert judged([budget], [figure("f[0]", 2049)])[0][0] == "over"


def test_what_a_run_does_not_know_stays():
    text = '[[budget]]\nfunction = "gone"\nlimit = 7\n'
    new, notes = learned(parse(text, "a.toml"), text, [], "r")
    assert (new, notes) == (text, ["a.toml:1: fits no module: the limit stays"])


def test_written_limits_are_kept_by_their_run_to_the_byte(call, demo_db, tmp_path):
    file = tmp_path / "budget.toml"
    assert call("budget", file, "--run", "cpu_b8", "--write", "--db", demo_db)[0] == 0
    assert call("budget", file, "--run", "cpu_b8", "--db", demo_db)[0] == 0
    assert call("budget", file, "--run", "cpu_b16", "--db", demo_db)[0] == 1


def test_a_picture_is_between_the_least_and_the_most():
    assert _picture([10, 10]) == "10 B ▁▁ 10 B"
    assert _picture([0, 7, 3, 6]) == "0 B ▁█▄▇ 6 B"
    assert _picture([100, 100 << 20, 100]) == "100 B ▁█▁ 100 B"
