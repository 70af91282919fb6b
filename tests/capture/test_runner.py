"""Children that import the user's code: whatever it does, there is an answer or an error."""

import os
import signal
import subprocess
import sys
import time

import pytest
from places import ROOT
from running import is_running

from bufdb.capture import worker
from bufdb.capture.runner import (
    Child,
    Died,
    NotCompiledError,
    Terminated,
    Watch,
    end_of,
    failure_lines,
    signals_heeded,
    without_tiles,
)
from bufdb.errors import TooSlowError, UsageError

WORKER = ROOT / "bufdb" / "capture" / "worker.py"
CHILD = f"""
import importlib.util, os, signal, subprocess, sys, threading, time
from pathlib import Path
spec = importlib.util.spec_from_file_location("w", {str(WORKER)!r})
worker = sys.modules["w"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(worker)

class WrongCall(Exception):
    is_worded, exit_code = True, 2

def answer(request):
    with worker.step("running " + request["do"][:9]):
        exec(request["do"], globals())
    return {{"count": request.get("count", 0) + 1}}

worker.end(worker.serve(Path(sys.argv[1]), answer))
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Start a child without bufdb, whose requests are Python; return it, and what it printed."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)  # C's output, too, waits in buffers

    def started(python=sys.executable, **how):
        printed = []
        command = [python, "-S", "-c", CHILD, str(tmp_path)]
        watch = Watch.from_now(how.pop("timeout_s", 60), relay=printed.append, **how)
        return Child(command, tmp_path, "lm.py:step", watch, dict(os.environ)), printed

    return started


def wait_for(condition):
    """Return a condition's value as soon as it is true, within half a minute."""
    for _ in range(300):
        if value := condition():
            return value
        time.sleep(0.1)
    raise AssertionError("it did not come about")


@pytest.mark.parametrize(
    ("do", "printed"),
    [
        ("pass", b""),
        ("""print('{"answer": {"count": 5}}')""", b'{"answer": {"count": 5}}\n'),
        ("print('partial', end='')", b"partial\n"),
        ("print(end='x' * 3_000_000 + '\\n')", b"x" * 3_000_000 + b"\n"),
        ("os.write(1, b'\\xff\\x00\\xfe\\n')", b"\xff\x00\xfe\n"),
        ("os.write(2, b'\\xff' * 3_000_000)", b""),
        ("os.close(1)", b""),
        ("sys.stdout.close()", b""),
        ("print('early'); sys.stdout = None; sys.stderr = 5", b"early\n"),
        ("os.close(0); assert sys.stdin.read() == ''", None),
        ("assert sys.stdin.read() == ''", b""),
        ("if os.fork() == 0: os._exit(9)", b""),
        ("os.fork()", b""),
        ("if os.fork() == 0: raise SystemExit(3)", b""),
        ("import atexit; atexit.register(lambda: print('at the end'))", b"at the end\n"),
        ("left_open = os.fdopen(os.dup(1), 'w'); left_open.write('kept')", b"kept\n"),
        ("left_open = os.fdopen(os.dup(1), 'wb'); left_open.write(b'kept')", b"kept\n"),
        ("import ctypes; ctypes.CDLL(None).printf(b'from C')", b"from C\n"),
        (
            "threading.Thread(target=lambda: (threading.main_thread().join(), print('later')))"
            ".start()",
            b"later\n",
        ),
    ],
)
def test_output_of_any_kind_leaves_the_answer_alone(start, do, printed):
    child, output = start()
    with child:
        if printed is None:
            with pytest.raises(NotCompiledError):
                child.ask({"do": do})
        else:
            assert child.ask({"do": do}) == {"count": 1}
        assert child.ask({"do": "pass", "count": 7}) == {"count": 8}
    assert b"".join(output) == (printed or b"")


@pytest.mark.parametrize(
    ("do", "message"),
    [
        ("raise ValueError('no such layer\\nit has two')", "ValueError: no such layer"),
        ("raise SystemExit", "SystemExit"),
        ("sys.exit(3)", "SystemExit: 3"),
        ("sys.exit('no data')", "SystemExit: no data"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("os.kill(os.getpid(), signal.SIGINT); time.sleep(9)", "KeyboardInterrupt"),
        ("import absent", "ModuleNotFoundError: No module named 'absent'"),
        ("raise type('Own', (BaseException,), {})('x')", "Own: x"),
        ("raise RuntimeError('b\\udcff')", "RuntimeError: b\udcff"),
    ],
)
def test_what_the_users_code_raises_is_an_error_with_its_step(start, do, message):
    child, _ = start()
    with child:
        with pytest.raises(NotCompiledError) as caught:
            child.ask({"do": do})
        assert str(caught.value).startswith(f"running {do[:9]} failed: {message} (<string>:1)")
        assert '  File "<string>", line 1, in <module>' in caught.value.lines
        assert child.ask({"do": "pass"}) == {"count": 1}


def test_a_wrong_request_is_a_usage_error(start):
    child, _ = start()
    with child, pytest.raises(UsageError, match=r"^step takes one$"):
        child.ask({"do": "raise WrongCall('step takes one')"})


@pytest.mark.parametrize(
    ("do", "ended", "lines"),
    [
        ("os.kill(os.getpid(), 9)", "was ended by SIGKILL, perhaps for lack of memory", ()),
        ("os.kill(os.getpid(), 11)", "was ended by SIGSEGV", ()),
        ("os._exit(0)", "ended with code 0", ()),
        ("os.write(2, b'no \\xff disk\\n'); os._exit(3)", "ended with code 3", ("no � disk",)),
        (
            "os.write(2, b'a\\nF0000 Check failed: x\\n' + 40 * b'  @ f\\n'); os.abort()",
            "was ended by SIGABRT",
            ("F0000 Check failed: x", "  @ f", "  @ f", "  @ f"),
        ),
    ],
)
def test_a_process_that_dies_says_how_and_its_last_lines(start, do, ended, lines):
    child, output = start()
    with child:
        with pytest.raises(Died) as caught:
            child.ask({"do": f"print('before', flush=True); {do}"})
        assert str(caught.value) == f"lm.py:step: its process {ended} while running print('be"
        assert caught.value.lines == lines
        first = lines[0] if lines else "no message"
        assert caught.value.refusal == f"its process {ended}: {first}"
    assert b"".join(output) == b"before\n"


def test_what_is_known_stays_when_it_dies(start):
    child, _ = start()
    with child:
        with pytest.raises(Died):
            child.ask({"do": "worker.known({'device': 'TPU v5e'}); os.abort()"})
        assert child.known == {"device": "TPU v5e"}


def test_bufdbs_own_exceptions_end_the_process(start):
    """A fault of bufdb, outside of any step, has its whole traceback."""
    child, _ = start()
    with child, pytest.raises(Died) as caught:
        child.ask({"no": "do"})
    assert caught.value.lines[0].startswith("Traceback ")
    assert caught.value.lines[-1] == "KeyError: 'do'"


def test_a_child_that_cannot_be_started_is_one_line(start):
    with pytest.raises(NotCompiledError, match=r"^cannot start \./absent: No such file"):
        start("./absent")


def test_the_time_is_bounded_and_the_step_named(start):
    child, _ = start(timeout_s=1)
    began = time.monotonic()
    with child, pytest.raises(TooSlowError, match=r"^stopped after 1 s \(--timeout\), while runn"):
        child.ask({"do": "signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(60)"})
    assert time.monotonic() - began < 20


@pytest.mark.parametrize("end", ["idle", "busy", "dead"])
def test_what_it_has_started_ends_with_it(start, tmp_path, end):
    grandchild = "pid = subprocess.Popen(['sleep', '60']).pid; open('pid', 'w').write(str(pid))"
    place = f"os.chdir({str(tmp_path)!r}); {grandchild}"
    last = {"idle": "pass", "busy": "time.sleep(60)", "dead": "os._exit(1)"}[end]
    child, _ = start(timeout_s=60 if end != "busy" else 3)
    with child:
        if end == "idle":
            child.ask({"do": place})
        else:
            with pytest.raises(TooSlowError if end == "busy" else Died):
                child.ask({"do": f"{place}; {last}"})
    wait_for(lambda: not is_running((tmp_path / "pid").read_text()))


def test_a_thread_that_goes_on_keeps_nothing_waiting(start):
    child, _ = start()
    began = time.monotonic()
    with child:
        child.ask({"do": "threading.Thread(target=lambda: time.sleep(60)).start()"})
    assert time.monotonic() - began < 20


def test_steps_are_observed(start):
    seen = []
    child, _ = start(observer=lambda step, seconds: seen.append(step))
    with child:
        child.ask({"do": "time.sleep(0.5)"})
    assert seen[0] == "starting lm.py:step" and seen[-1] == "running time.slee"


def test_a_killed_parent_leaves_neither_processes_nor_files(tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    (tmp_path / "pids").touch()
    do = (
        f"file = open({str(tmp_path / 'pids')!r}, 'w'); "
        "print(os.getpid(), subprocess.Popen(['sleep', '60']).pid, file=file, flush=True); "
        "time.sleep(60)"
    )
    parent = f"""
import os
from pathlib import Path
from bufdb.capture.runner import Child, Watch
command = [{sys.executable!r}, "-S", "-c", {CHILD!r}, {str(folder)!r}]
with Child(command, Path({str(folder)!r}), "f", Watch(), dict(os.environ)) as child:
    child.ask({{"do": {do!r}}})
"""
    with subprocess.Popen([sys.executable, "-c", parent]) as process:
        pids = wait_for(lambda: (tmp_path / "pids").read_text().split())
        process.send_signal(signal.SIGKILL)
    wait_for(lambda: not any(map(is_running, pids)))
    wait_for(lambda: not folder.exists())


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_a_signal_to_the_parent_ends_the_child(start, name):
    pids = []
    child, _ = start(observer=lambda *_: pids and os.kill(os.getpid(), getattr(signal, name)))
    # Of a test in the background SIGINT is ignored.
    handlers = {signal.SIGTERM: lambda *_: None, signal.SIGHUP: lambda *_: None}
    handlers[signal.SIGINT] = signal.default_int_handler
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        with pytest.raises((KeyboardInterrupt, Terminated)), signals_heeded(), child:
            pids.append(child._process.pid)
            child.ask({"do": "time.sleep(60)"})
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    assert not is_running(pids[0])


def test_ends_in_words():
    assert end_of(3) == "its process ended with code 3"
    assert end_of(-6) == "its process was ended by SIGABRT"
    assert end_of(-40) == "its process was ended by signal 40"
    assert failure_lines(["", "a", " ", "b"]) == ["a", "b"]


def test_a_product_without_a_kernel_says_what_to_do():
    message = (
        "compiling vit.py:step for gpu:h100 failed: JaxRuntimeError: INTERNAL: Couldn't find "
        "output tile sizes that satisfy hlo: %dot.90 = f32[25088,384]{1,0} dot(%bitcast.719, "
    )
    lines = ["\\tSymbolic tile with", "Suspected Python Code Location:", "  /a/vit.py:22:11 [f]"]
    assert without_tiles(message, lines) == (
        "compiling vit.py:step for gpu:h100 failed: XLA has no Triton kernel for %dot.90 = "
        "f32[25088,384] (vit.py:22); set XLA_FLAGS=--xla_gpu_enable_triton_gemm=false, which "
        "leaves products to cuBLAS"
    )
    assert without_tiles("compiling f failed: ValueError: x (a.py:1)", lines) is None


def test_without_a_parent_steps_are_not_sent():
    message = r"^tracing f failed: ValueError: x \(test_runner\.py:"
    with pytest.raises(worker.Failed, match=message), worker.step("tracing f"):
        raise ValueError("x")
