"""Watching a process, as far as it takes no JAX: tests with it are in test_jax_watch.py."""

import sys

from bufdb.capture.watched import Watch


def test_what_cannot_be_written_is_reported_and_hides_no_error(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "jax", None)
    Watch(tmp_path, 1).failed(RuntimeError("RESOURCE_EXHAUSTED: Out of memory"))
    assert capsys.readouterr().err.startswith("bufdb: what the process holds is not written: ")
    assert not [*tmp_path.iterdir()]
