"""Figures of compilations: read once, as long as neither the dump nor the code is another."""

import pytest
from places import ROOT

from bufdb import user_cache
from bufdb.dumps.place import Bytes
from bufdb.fitting import figures
from bufdb.fitting.figures import Scratch
from bufdb.fitting.session import Dumped

DUMP = ROOT / "data" / "demo" / "cpu_b8"


@pytest.fixture
def read(tmp_path, monkeypatch):
    """The dumps that were read, with a cache."""
    monkeypatch.setenv(user_cache.VARIABLE, str(tmp_path / "cache"))
    dumps, original = [], Scratch._read

    def reading(self, dumped):
        dumps.append(dumped)
        return original(self, dumped)

    monkeypatch.setattr(Scratch, "_read", reading)
    return dumps


def dumped(**more):
    files = {path.name: path for path in sorted(DUMP.iterdir()) if path.is_file()}
    assert files
    return Dumped(files | more, None, 1.0)


def test_the_figures_of_a_dump_are_read_once(read):
    first = Scratch().figures(dumped())
    assert first.need_bytes and first.accessed_bytes
    assert Scratch().figures(dumped()) == first and len(read) == 1


def test_another_file_is_another_dump(read):
    Scratch().figures(dumped())
    Scratch().figures(dumped(note=Bytes("note", b"more")))
    assert len(read) == 2


def test_a_file_that_no_ingest_reads_changes_nothing(read):
    Scratch().figures(dumped())
    Scratch().figures(dumped(**{"module_0000.ir-with-opt.ll": Bytes("a.ll", b"more")}))
    assert len(read) == 1


def test_other_code_reads_again(read, monkeypatch):
    Scratch().figures(dumped())
    monkeypatch.setattr(figures, "code", lambda: "other")
    Scratch().figures(dumped())
    assert len(read) == 2


def test_without_a_cache_each_dump_is_read(read, monkeypatch):
    monkeypatch.setenv(user_cache.VARIABLE, user_cache.OFF)
    assert Scratch().figures(dumped()) == Scratch().figures(dumped())
    assert len(read) == 2
