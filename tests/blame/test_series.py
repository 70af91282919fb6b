"""`bufdb blame BASE NEW`: jumps between runs that are there, their parts, exit codes."""

import json
import shlex
import shutil

import pytest
from places import DEMO

from bufdb.blame.series import Jump, Series, Step, exit_code


@pytest.fixture
def blame(call, demo_db):
    return lambda *words: call("blame", *words, "--db", str(demo_db))


@pytest.mark.slow
def test_a_jump_is_named_with_its_largest_part(blame):
    code, out, err = blame("cpu_b8_remat", "cpu_b8")
    assert code == 1, err
    assert "train_step: need 6.10 MiB at cpu_b8_remat, 8.49 MiB at cpu_b8" in out
    assert (
        "+1.53 MiB saved convert_element_type train.py:66 f32[8,100,500], a temp of its own" in out
    )
    assert "bufdb diff cpu_b8_remat cpu_b8\n" in out


@pytest.mark.slow
def test_json_holds_what_the_text_says(blame):
    code, out, _ = blame("cpu_b8_remat", "cpu_b8", "--format", "json")
    assert code == 1
    series_by_function = {one["function"]: one for one in json.loads(out)["series"]}
    (jump,) = series_by_function["train_step"]["jumps"]
    first, second = series_by_function["train_step"]["steps"]
    assert jump["delta_bytes"] == second["need_bytes"] - first["need_bytes"] > 2 << 20
    assert jump["parts"][0]["source"] == "train.py:66"
    assert series_by_function["init"]["jumps"] == []


@pytest.fixture
def several(call, tmp_path):
    """Two runs with two programs of one function; one of these changes."""
    db = str(tmp_path / "several.duckdb")
    for run, changed in (("it's old", "cpu_b8"), ("new", "cpu_b8_remat")):
        for place, name in (("a", changed), ("b", "cpu_b16")):
            (tmp_path / run / place).mkdir(parents=True)
            for file in (DEMO / name).glob("*jit_train_step*"):
                shutil.copy(file, tmp_path / run / place)
        assert call("ingest", str(tmp_path / run), "--run", run, "--db", db)[0] == 0
    return lambda *words: call("blame", *words, "--db", db)


@pytest.mark.slow
def test_programs_of_one_function_are_apart(several):
    code, out, _ = several("it's old", "new")
    assert code == 1
    assert (
        "train_step [module_0002 → module_0002]: need 8.49 MiB at it's old, 6.10 MiB at new" in out
    )
    assert "train_step [module_0002 → module_0002]: no jump: 15.7 MiB from it's old to new" in out


@pytest.mark.slow
def test_functions_that_one_run_has_are_named(call, tmp_path):
    db = str(tmp_path / "a.duckdb")
    assert call("ingest", str(DEMO / "cpu_b8"), "--run", "all", "--db", db)[0] == 0
    (tmp_path / "some").mkdir()
    for file in (DEMO / "cpu_b8").glob("*jit_init*"):
        shutil.copy(file, tmp_path / "some")
    assert call("ingest", str(tmp_path / "some"), "--run", "some", "--db", db)[0] == 0
    code, out, _ = call("blame", "all", "some", "--db", db)
    assert code == 0
    assert out.splitlines()[1:] == ["only in all: train_step, eval_step"]
    assert out.startswith("init: no jump: ")


@pytest.mark.slow
def test_a_run_is_one_word_of_the_command(several):
    _, out, _ = several("it's old", "new")
    (line,) = [line for line in out.splitlines() if "all parts: " in line]
    assert shlex.split(line.partition(": ")[2]) == ["bufdb", "diff", "it's old", "new"]


@pytest.mark.slow
def test_without_a_jump_the_answer_says_so(blame):
    code, out, _ = blame("cpu_b8", "cpu_b8")
    assert code == 0
    assert "train_step: no jump: 8.49 MiB" in out


@pytest.mark.slow
def test_less_than_the_threshold_is_no_jump(blame):
    assert blame("cpu_b8_remat", "cpu_b8", "--over", "1000")[0] == 0


@pytest.mark.slow
def test_what_shrinks_is_a_jump_too(blame):
    code, out, _ = blame("cpu_b8", "cpu_b8_remat")
    assert code == 1
    assert "cpu_b8_remat: -2.4" in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["cpu_b8"], "or two runs"),
        (["cpu_b8", "cpu_b16", "--bisect", "--target", "v5e-8"], "--target and --bisect: only to"),
        (["cpu_b8", "cpu_b9"], "no run 'cpu_b9'"),
        (["a.py:f", "--jax", "0.7.1", "--flag", "a=1,2"], "one at a time"),
        (["a.py:f", "--flag", "a"], "NAME=V,V"),
        (["a.py:f", "--flag", "a=1,"], "NAME=V,V"),
        (["a.py:f", "--flag", "a=1", "--flag", "a="], "NAME=V,V"),
        (["a.py:f", "--flag", "a=1", "--flag", "b=1"], "--flag: a and b: one at a time"),
        (["a.py:f", "--python", "p", "--with", "flax"], "--with is for"),
        (["a.py:f", "b.py:f", "--flag", "a=1"], "wants one FILE.py:FUNCTION"),
    ],
)
def test_wrong_usage_is_one_line(blame, options, message):
    code, _, err = blame(*options)
    assert code == 2
    assert message in err and len(err.splitlines()) == 1


@pytest.mark.slow
def test_what_takes_too_long_ends_as_timeout_does(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("one", "other"):
        (tmp_path / name).write_text("#!/bin/sh\nexec sleep 60\n")
        (tmp_path / name).chmod(0o755)
    options = ("a.py:f", "--python", "./one", "--python", "./other", "--timeout", "0.1")
    # A database of its own: it waits for readers of the shared one.
    code, out, err = call("blame", *options, "--db", "own.duckdb")
    assert (code, out) == (124, "")
    stopped = "python ./one: stopped after 0.1 s (--timeout), while starting a.py:f with python"
    assert err.splitlines()[0].startswith(f"bufdb: {stopped}")
    assert f"error: 0 of 2 could be compiled: {stopped}" in err.splitlines()[-1]


@pytest.mark.parametrize(
    ("needs", "has_jump", "code"),
    [((1, 1), False, 0), ((1, None), False, 124), ((1, 2, None), True, 1), ((1, 2), True, 1)],
)
def test_a_jump_is_the_answer_even_if_stopped(needs, has_jump, code):
    steps = tuple(Step(f"v{need}", "r", need, is_too_slow=need is None) for need in needs)
    jump = Jump("v1", "v2", "r1", "r2", 1, 2, 1, 2)
    series = Series("f", steps, (jump,) if has_jump else ())
    assert exit_code([series]) == code
