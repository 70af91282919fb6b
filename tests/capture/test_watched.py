"""Watching a process, as far as it takes no JAX: tests with it are in test_jax_watch.py."""

import json
import os
import sys
from types import SimpleNamespace

from bufdb.capture.ending import note_ended
from bufdb.capture.watched import Watch
from bufdb.dumps.discover import discover


def test_what_cannot_be_written_is_reported_and_hides_no_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jax", None)
    Watch(tmp_path, 1).failed(RuntimeError("RESOURCE_EXHAUSTED: Out of memory"))
    assert capsys.readouterr().err.startswith("bufdb: what the process holds is not written: ")
    assert not [*tmp_path.iterdir()]


def test_the_first_failure_is_kept_and_no_end_replaces_it(tmp_path, monkeypatch):
    profiler = SimpleNamespace(device_memory_profile=lambda: b"profile")
    jax = SimpleNamespace(live_arrays=list, profiler=profiler, local_devices=list)
    monkeypatch.setitem(sys.modules, "jax", jax)
    watch = Watch(tmp_path / "process-1")
    watch.failed(RuntimeError("RESOURCE_EXHAUSTED: allocating 7 bytes"))
    watch.failed(RuntimeError("RESOURCE_EXHAUSTED: allocating 9 bytes"))
    watch.end()
    names = sorted(path.name for path in (tmp_path / "process-1").iterdir())
    assert names == ["memory.prof", "memory.watch.json"]
    written = json.loads((tmp_path / "process-1" / "memory.watch.json").read_text())
    assert (written["moment"], written["requested_bytes"]) == ("failure", 7)


def test_how_a_process_ended_without_a_profile_is_noted(tmp_path):
    def begin(name, pid, ended=None):
        (tmp_path / name).mkdir()
        text = json.dumps({"ended": ended, "pid": pid})
        (tmp_path / name / "memory.watch.json").write_text(text)

    begin("process-1", 1 << 30)
    begin("process-2", (1 << 30) + 1, "os._exit(3)")
    begin("process-3", (1 << 30) + 2)
    begin("process-4", (1 << 30) + 3)
    begin("process-5", os.getpid())
    (tmp_path / f".ended-{(1 << 30) + 2}").write_text("11")
    note_ended(tmp_path, {1 << 30: 9})
    odd = []
    assert discover(tmp_path, odd, []) == []
    assert [(one.name, one.severity, one.code, one.message) for one in odd] == [
        (
            f"process-{n}/memory.watch.json",
            "notice",
            "no_memory_profile",
            f"{how}: no memory profile",
        )
        for n, how in enumerate(
            [
                "ended by signal 9",
                "ended by os._exit(3)",
                "ended by signal 11",
                "ended by a signal or a crash",
                "still running when the command ended",
            ],
            1,
        )
    ]
