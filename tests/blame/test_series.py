"""`bufdb blame BASE NEW`: jumps between runs that are there, their parts, exit codes."""

import json

import pytest


@pytest.fixture
def blame(call, demo_db):
    return lambda *given: call("blame", *given, "--db", str(demo_db))


def test_a_jump_is_named_with_its_largest_part(blame):
    code, out, err = blame("cpu_b8_remat", "cpu_b8")
    assert code == 1, err
    assert "train_step: need 6.10 MiB at cpu_b8_remat, 8.49 MiB at cpu_b8" in out
    assert (
        "+1.53 MiB saved convert_element_type train.py:66 f32[8,100,500], a temp of its own" in out
    )
    assert "bufdb diff 'cpu_b8_remat' 'cpu_b8'" in out


def test_json_holds_what_the_text_says(blame):
    code, out, _ = blame("cpu_b8_remat", "cpu_b8", "--format", "json")
    assert code == 1
    found = {one["function"]: one for one in json.loads(out)["series"]}
    (jump,) = found["train_step"]["jumps"]
    first, second = found["train_step"]["steps"]
    assert jump["delta_bytes"] == second["need_bytes"] - first["need_bytes"] > 2 << 20
    assert jump["parts"][0]["source"] == "train.py:66"
    assert found["init"]["jumps"] == []


def test_without_a_jump_the_answer_says_so(blame):
    code, out, _ = blame("cpu_b8", "cpu_b8")
    assert code == 0
    assert "train_step: no jump: 8.49 MiB" in out


def test_less_than_the_threshold_is_no_jump(blame):
    assert blame("cpu_b8_remat", "cpu_b8", "--over", "1000")[0] == 0


def test_what_shrinks_is_a_jump_too(blame):
    code, out, _ = blame("cpu_b8", "cpu_b8_remat")
    assert code == 1
    assert "cpu_b8_remat: -2.4" in out


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["cpu_b8"], "or two runs"),
        (["cpu_b8", "cpu_b9"], "no run and no label"),
        (["a.py:f", "--jax", "0.7.1", "--flag", "a=1,2"], "one at a time"),
        (["a.py:f", "--flag", "a"], "NAME=V,V"),
        (["a.py:f", "--flag", "a=1,"], "NAME=V,V"),
        (["a.py:f", "--flag", "a=1", "--flag", "a="], "NAME=V,V"),
        (["a.py:f", "--flag", "a=1", "--flag", "b=1"], "--flag: a and b: one at a time"),
        (["a.py:f", "--python", "p", "--with", "flax"], "--with is for"),
        (["a.py:f", "b.py:f", "--flag", "a=1"], "wants one FILE.py:FUNCTION"),
    ],
)
def test_wrong_usage_is_one_line(blame, given, said):
    code, _, err = blame(*given)
    assert code == 2
    assert said in err and len(err.splitlines()) == 1
