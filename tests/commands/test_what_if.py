"""`bufdb what-if`, from its options to its text."""

import csv
import io
import json
import shutil
import sys
from fractions import Fraction

import duckdb
import pytest
import what_if_cases as cases
from small_db import shape
from what_if_cases import Case

from bufdb.commands import what_if as command
from bufdb.what_if.what_if import MEANING, WhatIf


@pytest.fixture
def ask(call, demo_db):
    return lambda *words: call("what-if", "train_step", "--db", demo_db, *words)


@pytest.mark.slow
def test_text_says_what_is_saved_what_caps_it_and_what_it_means(ask):
    code, out, err = ask("--run", "gpu_b8", "--without", "line:train.py:66")
    assert (code, err) == (0, "")
    head, *table, instant, policy, meaning = out.splitlines()
    assert head == (
        "train_step (gpu_b8, device): peak 8.29 MiB → 6.76 MiB, saves 1.34 MiB to 1.53 MiB (18.4%)"
        "; needs 8.29 MiB → 6.84 MiB"
    )
    assert table[-2].split()[0] == "together"
    assert instant == (
        "The peak then is at 85: gemm_fusion_dot.16, dot_general, /home/user/model/train.py:65; "
        "today it is at 85."
    )
    line = "/home/user/model/train.py:66"
    assert policy == (
        "The low end is jax.checkpoint around just the expression; what a first policy saves is "
        f"known only from a trace of the changed program: {line}."
    )
    assert meaning == MEANING


@pytest.mark.slow
def test_a_memory_space_has_a_number_and_a_name(ask):
    options = ("--run", "tpu_b8", "--without", "op:*", "--color")
    assert ask(*options, "vmem") == ask(*options, "1")
    code, _, err = ask(*options, "vmm")
    assert code == 2
    assert "what-if: no memory space 'vmm'; did you mean 'vmem'?" in err


@pytest.mark.slow
def test_one_name_has_one_row_in_a_table_and_its_sum_in_csv(ask):
    options = ("--run", "gpu_b8", "--without", "line:saved train.py:66")
    assert "together" not in ask(*options)[1]
    rows = list(csv.DictReader(io.StringIO(ask(*options, "--format", "csv")[1])))
    assert [row["what"] for row in rows] == ["source_line", "together"]
    assert rows[0]["saving_bytes"] == rows[1]["saving_bytes"] == "1600000"
    assert rows[0]["name"] == "saved /home/user/model/train.py:66"


@pytest.mark.slow
def test_rows_for_programs_are_exact(ask):
    options = (
        "--run",
        "gpu_b8",
        "--without",
        "op:dot_general",
        "--keep",
        "0.5",
        "--format",
        "json",
    )
    for row in json.loads(ask(*options)[1]):
        assert row["saving_bytes"] + row["peak_bytes_without"] == row["peak_bytes"] == 8692396
    assert row["next_peak_source"].startswith("/home/user/model/train.py:")


@pytest.mark.slow
def test_a_share_is_said_as_the_ratio_that_is_computed(ask):
    options = ("--run", "gpu_b8", "--without", "line:train.py:66")
    for keep, ratio in (("0.3333333333333333", "1/3"), ("0.1250", "1/8"), ("5e-1", "1/2")):
        assert ask(*options, "--keep", keep) == ask(*options, "--keep", ratio)
        head = ask(*options, "--keep", keep)[1].splitlines()[0]
        assert f", {ratio} of the bytes kept" in head.partition("; needs")[0]
    assert ask(*options, "--keep", "1e-300") == ask(*options)


@pytest.mark.slow
def test_inputs_of_a_layer_are_named(call, empty_db, tmp_path):
    database = shutil.copy(empty_db, tmp_path / "a.duckdb")
    with duckdb.connect(database) as con:
        case = Case(con, function_name="train_step")
        case.temp(1, 5, (1, 3))
        case.temp(2, 4, (1, 3))
        case.origin(1, "/m/a.py:1", is_layer_input=True)
        case.origin(2, "/m/a.py:2")
        case.close()
    out = call("what-if", "train_step", "--db", database, "--without", "line:saved *")[1]
    line = "A scan saves the inputs of its layer, whatever the checkpoint policy: saved /m/a.py:1."
    assert line in out.splitlines()
    out = call("what-if", "train_step", "--db", database, "--without", "line:a.py:2")[1]
    assert "A scan saves" not in out


@pytest.mark.slow
def test_what_is_bf16_already_is_named_where_a_share_stays(call, empty_db, tmp_path):
    database = shutil.copy(empty_db, tmp_path / "a.duckdb")
    with duckdb.connect(database) as con:
        case = Case(con, function_name="train_step")
        case.temp(1, 8, (1, 3), "/m/a.py:1", shape=shape(con, "bf16[4]{0}"))
        case.temp(2, 4, (1, 3), "/m/a.py:1", shape=shape(con, "f32[1]{0}"))
        case.temp(3, 4, (1, 3), "/m/a.py:2", shape=shape(con, "f32[1]{0}"), name="third")
        case.close()
    options = ("what-if", "train_step", "--db", database, "--without", "line:a.py:*")
    line = "Two bytes an element already, so bf16 saves nothing: /m/a.py:1."
    assert line in call(*options, "--keep", "0.5")[1].splitlines()
    assert "bf16" not in call(*options)[1]
    rows = json.loads(call(*options, "--format", "json")[1])
    assert [row["dtype"] for row in rows] == ["bf16", "f32", "bf16"]


@pytest.mark.slow
def test_names_that_hold_nothing_at_the_peak_are_summed_up(ask, monkeypatch):
    monkeypatch.setattr("bufdb.what_if.what_if.MOST_NAMES", 1)
    options = ("--run", "gpu_b8", "--without", "op:*")
    out = ask(*options)[1]
    every = json.loads(ask(*options, "--format", "json")[1])
    idle = [row for row in every if not row["held_bytes"] and not row["saving_bytes"]]
    assert f"{len(idle) - 1} more hold nothing at the peak" in out
    assert sum(line.startswith(("op", "together")) for line in out.splitlines()) == (
        len(every) - len(idle) + 1
    )


@pytest.mark.slow
def test_until_it_fits_or_nothing_helps(ask):
    code, out, _ = ask("--run", "gpu_b8", "--until", "6 MiB")
    assert code == 0
    assert "; fits into 6.00 MiB, not at the low end\n" in out
    code, out, _ = ask("--run", "gpu_b8", "--until", "10B")
    assert code == 1
    assert "; still above 10 B\n" in out
    assert "\nNo line by itself lowers the peak further" in out
    code, out, _ = ask("--run", "gpu_b8", "--until", "1GiB", "--by", "op")
    assert code == 0
    assert "\nToday's need fits already.\n" in out


@pytest.mark.slow
def test_until_by_lines_says_of_what_no_line_is_known(call, empty_db, tmp_path):
    database = shutil.copy(empty_db, tmp_path / "a.duckdb")
    with duckdb.connect(database) as con:
        case = Case(con, function_name="train_step")
        case.temp(1, 5, (1, 3))
        case.temp(2, 4, (1, 2))
        case.close()
    options = ("what-if", "train_step", "--db", database, "--until", "1B")
    line = (
        "No line by itself lowers the peak further; 2 values live then have no line: --by value "
        "removes them."
    )
    assert line in call(*options)[1].splitlines()
    assert call(*options, "--by", "value")[0] == 0


@pytest.mark.slow
def test_markdown_has_lines_of_its_own(ask):
    out = ask("--run", "gpu_b8", "--without", "line:train.py:66", "--format", "markdown")[1]
    blocks = out.split("\n\n")
    assert [block.startswith("|") for block in blocks] == [False, True, False, False, False]


@pytest.mark.slow
def test_what_is_not_donated_is_noted(ask):
    code, out, err = ask("--run", "gpu_b8", "--donate", "tokens")
    assert (code, out.splitlines()[0]) == (
        0,
        "train_step (gpu_b8, device): peak 8.29 MiB → 8.29 MiB, saves 0 B (0.0%)",
    )
    assert err == "bufdb: not donated, since no remaining output has its size: 13 (tokens)\n"


@pytest.mark.slow
def test_other_modules_that_match_are_noted(call, demo_db):
    code, _, err = call("what-if", "*", "--run", "gpu_b8", "--until", "9MiB", "--db", demo_db)
    assert code == 0
    assert err.startswith("bufdb: 2 modules match; module_0664.jit_train_step")
    assert err.endswith("of run gpu_b8 has the largest need\n")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "what should be removed? name it with --without, --donate or --until"),
        (("--keep", "0.5"), "what should be removed?"),
        (("--without", "op:*", "--by", "op"), "--by needs --until with a size"),
        (("--without", "op:*", "--keep", "2"), "--keep wants a share from 0 to 1"),
        (("--without", "op:*", "--keep", "1/0"), "--keep wants a share from 0 to 1"),
        (("--without", "op:*", "--keep", "1e-999999999"), "--keep wants a share from 0 to 1"),
        (("--without", "op:*", "--keep", "1E+0_9999999"), "--keep wants a share from 0 to 1"),
        (("--without", "op:*", "--keep", "half"), "such as 0.5 or 1/8, got 'half'"),
        (("--without", "op:*", "--keep", ""), "such as 0.5 or 1/8, got ''"),
        (("--until", ""), "--until wants bytes such as 123456 or '16 GiB', got ''"),
        (("--until", "+2%"), "--until wants bytes such as 123456 or '16 GiB', got '+2%'"),
        (("--until", "16Gib"), "--until 16Gib: 16GiB or 16GB? It wants the unit"),
        (("--until", "16"), "--until 16: 16GiB or 16B? It wants the unit"),
        (("--without", "op:zzzz", "--run", "gpu_b8"), "no op 'zzzz' has temporary memory"),
    ],
)
def test_wrong_usage_says_what_is_wanted(ask, options, message):
    code, out, err = ask(*options)
    assert (code, out) == (2, "")
    assert message in err


def test_what_is_shortened_at_a_terminal_is_counted(con, monkeypatch, capsys):
    case = Case(con)
    for number, end in enumerate(("dot", "add")):
        case.temp(number, 9, (1, 3), op_name="jit(f)/" + "scope/" * 20 + end)
    case.close()
    answer = WhatIf(cases.ask(con, "op:*"), None, Fraction(0))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    command._write_text(answer, format_name="table", output=None, full=None)
    out, err = capsys.readouterr()
    assert max(map(len, out.splitlines()[1:-3])) <= 80 and "/scope/dot\n" in out
    assert err == "bufdb: 2 cells shortened to fit the terminal; --full shows all of them\n"
