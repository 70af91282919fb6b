"""`bufdb blame -- COMMAND`: the call of a command in several ways, on the CPU."""

import sys

import pytest

pytest.importorskip("jax", reason="this Python has no jax")

TRAIN = """import os, sys
import jax, jax.numpy as jnp
if os.environ.get("WITHOUT"):
    import no_such_package

def main():
    @jax.jit
    def init(key):
        return jax.random.normal(key, (64, 64))

    @jax.jit
    def step(x):
        a = jnp.sort(x + 1.0, axis=0)
        b = jnp.sort(x + 1.0, axis=0)
        return a @ b

    step(jnp.ones((32, 32)))
    if "fast_math=true" not in os.environ.get("XLA_FLAGS", ""):
        step(init(jax.random.key(0)))
        open("after", "w").close()

main()
"""
FLAG = "xla_disable_hlo_passes=cse"
FAST = "xla_cpu_enable_fast_math=false,true"


@pytest.fixture
def blame(empty_folder, call, monkeypatch):
    (empty_folder / "train.py").write_text(TRAIN)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    return lambda *words: call("blame", *words)


def test_a_flag_is_named_for_the_call_of_a_command(blame, empty_folder):
    command = ["--", sys.executable, "train.py"]
    code, out, err = blame("--quick", "--call", "3", "--flag", FLAG, *command)
    assert code == 1, err
    first, *lines = out.splitlines()
    assert first == (
        "step: need 48.0 KiB at xla_disable_hlo_passes=default, "
        "64.0 KiB at xla_disable_hlo_passes=cse"
    )
    assert lines[1] == "  +16.0 KiB add train.py:14 f32[64,64], a temp of its own"
    assert err.count("call 3 of 3 so far: main.<locals>.step at train.py:19") == 1
    assert not (empty_folder / "after").exists()
    # The second call of step is the same one in each way, and is not made in one of them.
    code, _, err = blame("--call", "3", "--flag", FAST, *command)
    assert code == 1
    assert "fast_math=true: " in err and "it ended without call 2 of 'main.<locals>.step'" in err


@pytest.mark.slow
def test_a_way_that_cannot_run_the_command_says_what_to_do(blame, empty_folder, monkeypatch):
    wrapper = empty_folder / "bin" / "python"
    wrapper.parent.mkdir()
    wrapper.write_text(f'#!/bin/sh\nWITHOUT=1 exec {sys.executable} "$@"\n')
    wrapper.chmod(0o755)
    pythons = ["--python", sys.executable, "--python", wrapper, "--python", "./absent"]
    code, _, err = blame("--call", "init", *pythons, "--", "python", "train.py")
    assert code == 1
    assert f"python {wrapper}: " in err and "ended with code 1 before a call of " in err
    hint = f"No module named 'no_such_package'; install what has no_such_package for {wrapper}"
    assert hint in err and "python ./absent: no command ./absent" in err
    assert err.splitlines()[-1].startswith("bufdb: error: 1 of 3 could be compiled: ")


@pytest.mark.slow
def test_settings_of_jax_hold_at_the_call(blame):
    options = ["--quick", "--call", "init"]
    command = ["--", sys.executable, "train.py"]
    code, out, err = blame(*options, "--flag", "jax_enable_x64=false,true", *command)
    assert code == 1 and out.startswith("init: need "), err
    code, _, err = blame(*options, "--flag", "jax_no_such_setting=1", *command)
    assert code == 1 and "no attribute 'jax_no_such_setting'" in err


def test_a_command_that_cannot_be_blamed_is_one_line(blame, empty_folder):
    for words, expected in (
        (["--jax", "0.7.2", "--", "sh", "run.sh"], "--jax puts another Python into the command"),
        (["--", "python", "train.py"], "blame wants FILE.py:FUNCTION or -- COMMAND with --jax"),
        (["--flag", FLAG, "--args", "1", "--", "python", "a.py"], "--args is about FILE.py"),
        (["--flag", FLAG, "--"], "expected a command after --"),
        (["--flag", FLAG, "python", "a.py"], "--flag wants one FILE.py:FUNCTION, or --"),
        (["base", "new", "--call", "f"], "--call: only to compile"),
        (["--flag", FLAG, "--", "python", "-I", "train.py"], "leave -I out"),
        (["--flag", FLAG, "--", sys.executable, "-c", "1"], "without a Python that imports JAX"),
    ):
        code, out, err = blame(*words)
        assert (code, out) == (2, ""), err
        assert expected in err and err.splitlines()[-1].startswith("bufdb: error: ")
