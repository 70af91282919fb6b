"""Commands whose jitted calls are traced, with a fake JAX: which call, and the end there."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from places import ROOT

from bufdb.capture import hooked
from bufdb.capture.call_list import listed
from bufdb.capture.catching import Call
from bufdb.capture.runner import NotCompiledError, Watch
from bufdb.capture.script import NoCallError, Script, at_same, largest
from bufdb.capture.words import python_at, with_python
from bufdb.errors import TooSlowError, UsageError

VERSION = r"[\d.]*"
FAKE = {
    "jax/__init__.py": """
from jax._src import pjit
def jit(function):
    return pjit._cpp_pjit(function, pjit.Info(function))
""",
    "jax/tree_util.py": "def tree_leaves(tree): return list(tree[0])\n",
    "jax/_src/__init__.py": "",
    "jax/_src/stages.py": "class Compiled:\n    def __call__(self): pass\n",
    "jax/_src/core.py": "def trace_state_clean(): return True\n",
    "jax/_src/pjit.py": """
from types import SimpleNamespace as Space
class Info:
    donate_argnums, donate_argnames, static_argnums, static_argnames = (0,), (), (), ("train",)
    def __init__(self, function):
        self.fun_sourceinfo = f"{function.__name__} at {function.__code__.co_filename}:1"
from functools import cache
def _infer_params(function, info, args, kwargs):
    return Space(params=traced(function), consts=[]), []
@cache
def traced(function):
    names = ["transpose(jvp())"] if "grad" in function.__name__ else ["jit(f)"]
    source = [Space(source_info=Space(name_stack=name), params={}) for name in names]
    aval = Space(shape=(4, 2), dtype=Space(itemsize=4))
    closed = Space(jaxpr=Space(eqns=source), in_avals=[aval, aval], out_avals=[aval])
    return {"jaxpr": closed, "donated_invars": (True, False), "in_shardings": (), "name": "f"}
def _get_fastpath_data(): pass
def _cpp_pjit(function, info):
    def call(*args, **kwargs):
        _infer_params(function, info, args, kwargs)
        return function(*args, **kwargs)
    return call
""",
}
TRAIN = """
import argparse, atexit, sys
import jax
from part import name
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2)

def main():
    steps = parser.parse_args().steps
    print(name, __name__, sys.argv)
    atexit.register(lambda: print("at exit"))

    def init(key, shape): return key
    def train_grad(state, batch, train=False): print("trained"); return state
    def unused(x): pass
    init, train_grad, unused = jax.jit(init), jax.jit(train_grad), jax.jit(unused)
    state = init(0, 1)
    try:
        for _ in range(steps):
            state = train_grad(state, 1)
            open("after", "w").close()
    except BaseException:
        open("after", "w").close()
    finally:
        open("after", "w").close()

main()
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory with train.py, and a fake JAX on the path."""
    for name, text in FAKE.items():
        (tmp_path / "fake" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fake" / name).write_text(text)
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "part.py").write_text("name = 'as written'\n")
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path)
    places = [str(tmp_path / "fake"), str(ROOT)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(places))
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    return tmp_path


def calls(folder, *words, timeout_s=None, **fields):
    """Return the calls of a command of this Python, and what it printed."""
    printed = []
    watch = Watch.from_now(timeout_s, relay=printed.append)
    script = Script((sys.executable, *words), **fields)
    listing = listed(script, folder / "work", watch)
    return listing, b"".join(printed).decode()


def test_nothing_runs_after_the_first_gradient(folder):
    listing, printed = calls(folder, "train.py", "--steps", "3")
    assert printed.strip() == "as written __main__ ['train.py', '--steps', '3']"
    assert not (folder / "after").exists()
    first, last = listing.calls
    assert (first.name, first.number, first.has_gradient) == ("main.<locals>.init", 1, False)
    assert last == Call(
        number=2,
        name="main.<locals>.train_grad",
        function_place=f"{folder}/train.py:14",
        call_place=f"{folder}/train.py:20",
        has_gradient=True,
        argument_bytes=64,
        result_bytes=32,
        constant_bytes=0,
        donated_bytes=32,
        donated=("state",),
        static=("train",),
        shardings=(),
        mesh="",
    )
    assert "call 2 of 2 so far, the first that takes a gradient" in listing.note
    assert "not called by then: main.<locals>.unused (train.py:15)" in listing.note


def test_a_module_runs_as_with_python_m(folder):
    listing, printed = calls(folder, "-m", "train", "--steps", "1")
    assert len(listing.calls) == 2
    assert printed.startswith("as written __main__ [") and "'--steps', '1']" in printed
    assert not (folder / "after").exists()


@pytest.mark.parametrize("fields", [{"name": "in?t"}, {"number": 1}, {"name": "main.*.init"}])
def test_a_call_is_chosen_by_name_or_number(folder, fields):
    listing, printed = calls(folder, "train.py", **fields)
    assert [call.short_name for call in listing.calls] == ["init"]
    assert "trained" not in printed and "gradient" not in listing.note


def test_the_same_call_is_known_by_name_and_occurrence(folder):
    text = TRAIN.replace("state = init(0, 1)", "init(0, 1); init(0, 2); state = init(0, 3)")
    pjit = folder / "fake" / "jax" / "_src" / "pjit.py"
    pjit.write_text(pjit.read_text().replace("traced(function)", "traced(function, *args)"))
    (folder / "train.py").write_text(text)
    listing, _ = calls(folder, "train.py", name="init", occurrence=2)
    (*_, second) = listing.calls
    assert (second.number, second.occurrence) == (2, 2)
    same = at_same(Script(("x",), number=7), second)
    assert (same.name, same.number, same.occurrence) == ("main.<locals>.init", None, 2)
    with pytest.raises(NoCallError, match="without call 9 of 'init'"):
        calls(folder, "train.py", name="init", occurrence=9)


def test_to_its_end_a_command_runs_as_without_bufdb(folder):
    listing, printed = calls(folder, "train.py", is_to_end=True)
    assert len(listing.calls) == 2  # the second step has the shapes of the first
    assert printed.splitlines()[1:] == ["trained", "trained", "at exit"]
    assert (folder / "after").exists()
    assert "ran to its end" in listing.note


def test_texts_replace_those_of_files_and_of_the_script(folder):
    texts = {
        str(folder / "part.py"): "name = 'replaced'\n",
        str(folder / "train.py"): TRAIN.replace("print(name,", "print('new', name, __file__,"),
    }
    _, printed = calls(folder, "train.py", "--steps", "1", texts=texts)
    file = folder / "train.py"
    assert printed.strip() == f"new replaced {file} __main__ ['train.py', '--steps', '1']"
    _, printed = calls(folder, "-m", "train", texts=texts)
    assert printed.startswith("new replaced")
    assert not (folder / "after").exists()


def test_one_round_of_steps_is_executed_for_the_largest(folder):
    printed = []
    watch = Watch(relay=printed.append)
    script = Script.chosen((sys.executable, "train.py", "--steps", "9"), "largest")
    same = script.settled(folder / "work", watch, os.environ)
    assert (same.name, same.occurrence) == ("main.<locals>.train_grad", 1)
    assert same.round_end == "until one was made again"
    assert b"".join(printed).splitlines()[1:] == [b"trained"]
    assert same.settled(folder / "work", watch, os.environ) is same
    once = Script.chosen((sys.executable, "train.py", "--steps", "1"), "largest")
    same = once.settled(folder / "work", watch, os.environ)
    assert same.round_end == "to the command's end"
    (folder / "train.py").write_text("import jax\njax.jit(lambda x: x)(1)\n")
    with pytest.raises(NoCallError, match="without a call that takes a gradient"):
        script.settled(folder / "work", watch, os.environ)


def test_a_command_without_the_call_names_those_it_made(folder):
    with pytest.raises(NoCallError, match=r"without call 7; .*: init, train_grad"):
        calls(folder, "train.py", number=7)
    script = Script((sys.executable, "train.py"), name="trian_grad")
    watch = Watch(relay=lambda data: None)
    with (
        script.child(folder / "work", "bufdb.capture.catching", "x", watch, os.environ) as child,
        pytest.raises(NoCallError, match="did you mean 'train_grad'"),
    ):
        script.first(child, {})


def test_a_command_without_jax_is_refused(folder):
    with pytest.raises(NoCallError, match="without a Python that imports JAX"):
        calls(folder, "-c", "print(1)")


@pytest.mark.parametrize("before", [["-I"], ["-uS"], ["-W", "error", "-E"], ["-Im"]])
def test_a_python_whose_calls_are_not_seen_does_not_run(folder, before):
    words = [*before, "train" if "m" in before[0] else "train.py"]
    with pytest.raises(UsageError, match=f"python{VERSION} -[ISE] does not import sitecustomize"):
        calls(folder, *words)
    assert not (folder / "after").exists()
    around = Script(("env", "PYTHONPATH=.", sys.executable, "train.py"))
    with pytest.raises(UsageError, match=r"PYTHONPATH=\. is for bufdb's own environment"):
        listed(around, folder / "work", Watch())


@pytest.mark.parametrize(
    ("words", "at"),
    [
        (["python", "a.py", "python"], 0),
        (["/opt/x/bin/python3.12", "-m", "a"], 0),
        (["env", "A=1", "python3", "a.py"], 2),
        (["uv", "run", "python", "a.py"], 2),
        (["sh", "run.sh", "python"], None),
        (["pythonic", "a.py"], None),
        ([], None),
    ],
)
def test_the_python_in_the_words_of_a_command(words, at):
    assert python_at(words) == at
    other = None if at is None else (*words[:at], "other", *words[at + 1 :])
    assert with_python(words, "other") == other


def test_a_failure_before_a_call_shows_its_lines(folder):
    (folder / "train.py").write_text("import jax\nraise ValueError('no data')\n")
    with pytest.raises(NotCompiledError, match="ended with code 1 before a call") as caught:
        calls(folder, "train.py")
    assert caught.value.lines[-1] == "ValueError: no data"
    with pytest.raises(NotCompiledError, match="no command pythom"):
        listed(Script(("pythom", "x.py")), folder / "work", Watch())


def test_calls_until_a_failure_or_the_limit_are_listed(folder):
    text = TRAIN.replace("state = init(0, 1)", "init(0, 1); time.sleep(60)")
    (folder / "train.py").write_text("import time\n" + text)
    listing, _ = calls(folder, "train.py", timeout_s=5)
    assert [call.short_name for call in listing.calls] == ["init"]
    assert isinstance(listing.error, TooSlowError)
    (folder / "train.py").write_text(text)  # no time
    listing, _ = calls(folder, "train.py")
    assert "ended with code 1 before a call" in str(listing.error) and len(listing.calls) == 1
    listing, _ = calls(folder, "train.py", is_to_end=True)  # where gradients are no end
    assert str(listing.error).endswith("ended with code 1") and len(listing.calls) == 1


def test_a_call_of_another_process_is_found(folder):
    (folder / "run.sh").write_text(f"echo first\n{sys.executable} train.py\ntouch after\n")
    printed = []
    watch = Watch(relay=printed.append)
    listing = listed(Script(("sh", "run.sh")), folder / "work", watch)
    assert len(listing.calls) == 2 and b"first" in b"".join(printed)
    assert not (folder / "after").exists()


@pytest.mark.slow
def test_a_command_ends_with_bufdb(folder):
    text = "import jax, os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    (folder / "train.py").write_text(text)
    command = [sys.executable, "-m", "bufdb", "calls", "--", sys.executable, "train.py"]
    with subprocess.Popen(command) as process:
        while not (Path("pid").exists() and Path("pid").read_text()):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    pid = int(Path("pid").read_text())
    for _ in range(200):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("the command runs on")


@pytest.mark.parametrize(
    ("words", "at"),
    [
        (["python", "a.py", "-m"], 1),
        (["python", "-u", "-X", "dev", "-W", "error", "a.py"], 6),
        (["python", "-Xdev", "--check-hash-based-pycs", "a.py"], 3),
        (["python", "-Xfrozen_modules=off", "-Wdefault::DeprecationWarning", "a.py"], 3),
        (["python", "-uX", "dev", "a.py", "-c"], 3),
        (["python", "-um", "a"], None),
        (["python", "-c", "1"], None),
        (["python", "-"], None),
        (["python"], None),
    ],
)
def test_the_script_in_the_words_of_a_command(words, at):
    assert hooked.script(words) == at


def test_the_largest_call_counts_arguments_and_results():
    def call(number, size):
        sizes = dict.fromkeys(("result_bytes", "constant_bytes", "donated_bytes"), 0)
        texts = dict.fromkeys(("name", "function_place", "call_place", "mesh"), "")
        lists = dict.fromkeys(("donated", "static", "shardings"), ())
        return Call(
            number=number, argument_bytes=size, has_gradient=False, **sizes, **texts, **lists
        )

    assert largest([call(1, 5), call(2, 9), call(3, 9)]).number == 2
