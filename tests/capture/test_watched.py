"""Watching a process, as far as it takes no JAX: tests with it are in test_jax_watch.py."""

import json
import os
import sys
from types import SimpleNamespace

from bufdb.capture.watched import Watch


def test_what_cannot_be_written_is_reported_and_hides_no_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jax", None)
    Watch(tmp_path, 1).failed(RuntimeError("RESOURCE_EXHAUSTED: Out of memory"))
    assert capsys.readouterr().err.startswith("bufdb: what the process holds is not written: ")
    assert not [*tmp_path.iterdir()]


def test_processes_of_one_program_do_not_replace_what_another_wrote(tmp_path, monkeypatch):
    profiler = SimpleNamespace(device_memory_profile=lambda: b"profile")
    jax = SimpleNamespace(live_arrays=list, profiler=profiler, local_devices=list)
    monkeypatch.setitem(sys.modules, "jax", jax)
    failing, other = Watch(tmp_path), Watch(tmp_path)
    failing.failed(RuntimeError("RESOURCE_EXHAUSTED: allocating 7 bytes"))
    other.end()
    failing.failed(RuntimeError("RESOURCE_EXHAUSTED: allocating 9 bytes"))
    mine = f"memory-{os.getpid()}"
    names = [f"{name}{suffix}" for name in ("memory", mine) for suffix in (".prof", ".watch.json")]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)
    found = [json.loads((tmp_path / names[at]).read_text()) for at in (1, 3)]
    assert [one["moment"] for one in found] == ["failure", "end"]
    assert found[0]["requested_bytes"] == 9
