"""Several processes of one captured command: folders of their own, and nothing is lost."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from places import DEMO, ROOT

from bufdb.capture import processes

CASES = ROOT.parent / "shared" / "cases" / "several-processes"
WAIT_SECONDS = 300
FAKE = f"""
import glob, multiprocessing, os, re, shutil, subprocess, sys

def dump():
    "What a process dumps when it uses JAX: all under the same names."
    try: import jaxlib
    except ImportError: pass
    (folder,) = re.findall("--xla_dump_to=(\\\\S+)", os.environ["XLA_FLAGS"])
    for file in glob.glob({str(DEMO)!r} + "/cpu_b8/*jit_init*"):
        os.makedirs(folder, exist_ok=True)
        shutil.copy(file, folder)

def main():
"""


@pytest.fixture(autouse=True)
def _here(monkeypatch, tmp_path, empty_folder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def capture(*command, watch=False, **options):
    arguments = ["--watch"] if watch else []
    line = [sys.executable, "-m", "bufdb", "capture", "--run", "r", *arguments, "--", *command]
    return subprocess.run(
        line, capture_output=True, text=True, timeout=WAIT_SECONDS, check=False, **options
    )


def rows(sql):
    with duckdb.connect("bufdb.duckdb", read_only=True) as con:
        return con.execute(sql).fetchall()


def fake(body):
    """A command that dumps without a compiler."""
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    Path("train.py").write_text(f"{FAKE}{lines}\nif __name__ == '__main__': main()\n")
    return [sys.executable, "train.py"]


SUBPROCESS = "if len(sys.argv) < 3: subprocess.run([sys.executable, *sys.argv, 'x'])\ndump()"
NO_FLAGS = SUBPROCESS.replace(
    "'x']", "'x'], env={**os.environ, 'XLA_FLAGS': '--xla_force_host_platform_device_count=2'}"
)
EXEC = "dump()\nif len(sys.argv) < 4: os.execv(sys.executable, [sys.executable, *sys.argv, 'x'])"
POOL = """context = multiprocessing.get_context("{}")
made = [context.Process(target=dump) for _ in range(2)]
for one in made: one.start()
for one in made: one.join()
dump()"""
FORK = "if not os.fork(): os.fork()\ndump()\ntry: os.wait()\nexcept OSError: pass"


@pytest.mark.slow  # eight commands
@pytest.mark.parametrize(
    ("body", "count"),
    [
        ("dump()", 1),
        (SUBPROCESS, 3),
        (NO_FLAGS, 3),
        (EXEC, 4),
        *((POOL.format(kind), 3) for kind in ("spawn", "fork", "forkserver")),
        (FORK, 3),
    ],
)
def test_each_process_has_a_folder_however_it_began(call, empty_db, body, count):
    shutil.copy(empty_db, "bufdb.duckdb")
    word = "x" if body in (SUBPROCESS, NO_FLAGS) else "y"
    code, _, err = call("capture", "--run", "r", "--", *fake(body), word)
    assert code == 0, err
    keys = rows("SELECT DISTINCT module_key FROM modules ORDER BY 1")
    names = [""] if count == 1 else [f"process-{n}/" for n in range(1, 5)][: len(keys)]
    assert len(keys) == (2 if body in (SUBPROCESS, NO_FLAGS) else 3 if body == EXEC else count)
    assert [key.rpartition("module_")[0] for (key,) in keys] == names
    assert len({key.rpartition("/")[2] for (key,) in keys}) == 1
    labels = rows("SELECT label FROM run_labels WHERE label LIKE 'process-%' ORDER BY 1")
    assert [label for (label,) in labels] == [name[:-1] for name in names if name]
    assert not [*Path().glob("**/.process.json")]


def test_flags_of_the_program_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XLA_FLAGS", "--a=1 --xla_dump_to=/elsewhere --b='x y'")
    own = processes.OwnFolder(tmp_path)
    assert os.environ["XLA_FLAGS"] == "--a=1 --xla_dump_to=/elsewhere --b='x y'"
    monkeypatch.setenv("XLA_FLAGS", f"--a=1 --xla_dump_to={tmp_path}/process-1-2 --b='x y'")
    first = own.path
    own.begin()
    flags = os.environ["XLA_FLAGS"]
    assert flags == f"--a=1 --b='x y' --xla_dump_to={own.path} --xla_dump_hlo_as_text"
    assert own.path != first and own.path.parent == tmp_path
    Path("flags").write_text("--c=1\n")
    monkeypatch.setenv("XLA_FLAGS", "flags")
    own.switch_on()
    assert os.environ["XLA_FLAGS"].startswith("--c=1 --xla_dump_to=")


def test_folders_are_numbered_in_the_order_of_the_processes(tmp_path):
    for began, pid in ((20, 7), (9, 8), (30, 9)):
        folder = tmp_path / f"process-{began}-{pid}"
        folder.mkdir()
        about = json.dumps({"pid": pid, "command": f"train.py {pid}"})
        (folder / ".process.json").write_text(about)
        if pid != 9:
            (folder / "module_0001.txt").write_text(str(pid))
    named = processes.gather(tmp_path)
    assert named == {"process-1": "pid 8: train.py 8", "process-2": "pid 7: train.py 7"}
    assert (tmp_path / "process-1" / "module_0001.txt").read_text() == "8"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["process-1", "process-2"]


def test_files_of_a_single_process_are_not_in_a_folder(tmp_path):
    (tmp_path / "process-5-5").mkdir()
    (tmp_path / "process-5-5" / "module_0001.txt").write_text("")
    assert processes.gather(tmp_path) == {}
    assert [path.name for path in tmp_path.iterdir()] == ["module_0001.txt"]


# -- with JAX ----------------------------------------------------------------------------------

CHILD = """
import multiprocessing, os, signal, sys, time
how = sys.argv[1]
def work(n):
    import jax, jax.numpy as jnp
    global step, kept  # a program that is not loaded at the end has no need that is known
    step = jax.jit(lambda w: jnp.tanh(w @ w))
    kept = step(jnp.ones((n, n))).block_until_ready()
    if n == 96: os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    if how in ("spawn", "fork", "killed"):
        context = multiprocessing.get_context("fork" if how == "fork" else "spawn")
        size = 96 if how == "killed" else 128
        made = [context.Process(target=work, args=(size,)) for _ in range(1)]
        for one in made: one.start()
        for one in made: one.join()
    work(64)
    if how == "exit": os._exit(3)
    if how == "terminated":
        import jax, jax.numpy as jnp, threading
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        # The main thread does not return to Python before the signal.
        jax.lax.fori_loop(0, 10**9, lambda i, x: x @ x, jnp.ones((64, 64))).block_until_ready()
"""


@pytest.fixture
def child():
    pytest.importorskip("jax", reason="this Python has no jax")
    Path("child.py").write_text(CHILD)
    return lambda how: capture(sys.executable, "child.py", how, watch=True)


@pytest.mark.parametrize("how", ["spawn", pytest.param("fork", marks=pytest.mark.by_hand)])
def test_the_account_of_a_process_is_of_its_own_programs(child, how):
    done = child(how)
    assert done.returncode == 0, done.stderr
    sql = "SELECT peak_bytes FROM memory_figures WHERE function_name = '_lambda' ORDER BY 1"
    assert rows(sql) == [(2 * 64 * 64 * 4,), (2 * 128 * 128 * 4,)]
    query = [sys.executable, "-m", "bufdb", "query", "process", "--function", "_lambda"]
    text = subprocess.run([*query, "--format", "json"], capture_output=True, text=True).stdout
    plans = {row["profile_name"]: row["plan_bytes"] for row in json.loads(text)}
    assert sorted(plans.values()) == [2 * 64 * 64 * 4, 2 * 128 * 128 * 4]
    sql = """
      SELECT profile_name, argument_bytes + output_bytes - alias_bytes + temp_bytes
      FROM live_programs WHERE program_name = 'jit__lambda'
    """
    assert dict(rows(sql)) == plans


@pytest.mark.parametrize(
    ("how", "code", "why"),
    [
        ("exit", 3, "ended by os._exit(3): no memory profile"),
        pytest.param("killed", 0, "ended by signal 9: no memory profile", marks=pytest.mark.slow),
    ],
)
def test_a_process_that_leaves_no_time_for_a_profile(child, how, code, why):
    done = child(how)
    assert done.returncode == code
    assert why in done.stderr and "everything in the dumps was understood" not in done.stderr
    assert rows("SELECT severity, code, message FROM diagnostics") == [
        ("notice", "no_memory_profile", why)
    ]


def test_a_process_that_is_terminated_writes_its_profile(child):
    done = child("terminated")
    assert done.returncode == 128 + 15, done.stderr
    sql = "SELECT profile_name, moment FROM live_profiles"
    assert rows(sql) == [("memory.prof", "end")]
    sql = "SELECT right(source, 2) FROM live_lines WHERE total_bytes = 64 * 64 * 4"
    assert (":8",) in rows(sql)


FAILURE = """
import sys, threading, jax, jax.numpy as jnp
how = sys.argv[1]
step = jax.jit(lambda x: jnp.zeros((1 << 46,)) + x.sum())
x = jnp.ones((1024, 256))
cache = [jnp.full((1024, 256), float(i)) for i in range(3)]
if how == "ahead": step = step.lower(x).compile()
def run(): jax.block_until_ready(step(x))
if how == "thread":
    thread = threading.Thread(target=run)
    thread.start(), thread.join()
elif how == "unseen":
    lost = step(x)
else:
    try: run()
    except Exception as error: print(type(error).__name__)
    if how == "twice":
        cache.clear()
        try: run()
        except Exception as error: print(type(error).__name__)
"""


@pytest.mark.slow
@pytest.mark.sample(0, 4)
@pytest.mark.parametrize("how", ["caught", "thread", "ahead", "twice"])
def test_a_failure_is_seen_where_it_is_raised(how):
    pytest.importorskip("jax", reason="this Python has no jax")
    Path("fail.py").write_text(FAILURE)
    done = capture(sys.executable, "fail.py", how, watch=True)
    assert done.returncode == 0, done.stderr
    sql = "SELECT moment, failed_program_name, arguments_unknown_reason FROM live_profiles"
    assert rows(sql) == [("failure", "jit__lambda", None)]
    sql = """
      SELECT right(source, 2), total_bytes - argument_bytes FROM live_lines
      WHERE total_bytes > argument_bytes
    """
    assert rows(sql) == [(":6", 3 << 20)]


def test_a_failure_that_was_not_raised_is_not_none():
    pytest.importorskip("jax", reason="this Python has no jax")
    Path("fail.py").write_text(FAILURE)
    capture(sys.executable, "fail.py", "unseen", watch=True)
    ((moment, message, why),) = rows(
        "SELECT moment, failure_message, arguments_unknown_reason FROM live_profiles"
    )
    assert moment == "end" and "RESOURCE_EXHAUSTED" in message
    assert why.startswith("a program failed, and its error was not raised")


# -- the cases ---------------------------------------------------------------------------------

needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="needs ../shared/cases")


@needs_cases
@pytest.mark.slow
def test_a_child_and_then_its_parent():
    pytest.importorskip("jax", reason="this Python has no jax")
    done = capture(sys.executable, str(CASES / "seq.py"))
    assert "highest peak: 8.00 MiB" in done.stderr
    sql = "SELECT peak_bytes FROM memory_figures WHERE function_name = '_lambda' ORDER BY 1"
    assert rows(sql) == [(1 << 19,), (1 << 23,)]


@needs_cases
@pytest.mark.slow
@pytest.mark.sample(0, 3)
@pytest.mark.parametrize("mode", ["jit", "aot", "eager", "thread", "caught"])
def test_bystanders_are_exact_however_it_fails(mode):
    pytest.importorskip("jax", reason="this Python has no jax")
    capture(sys.executable, str(CASES / "failure_modes.py"), mode, watch=True)
    sql = """
      SELECT total_bytes, argument_bytes FROM live_lines
      WHERE source LIKE '%failure_modes.py:9'
    """
    assert rows(sql) == [(40 << 20, 0)]
