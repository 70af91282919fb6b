"""Dumps of earlier compilations: what is kept, what is trusted, and how much of it."""

import os

import pytest

from bufdb import user_cache
from bufdb.capture import before, cache

KEY, OTHER = "0" * 64, "1" * 64
FILES = {
    "module_0001.f.cpu_after_optimizations.txt": b"HloModule f\n",
    "module_0001.f.debug_options": b"a: 1\n",
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv(user_cache.VARIABLE, str(tmp_path / "cache"))
    folder = cache.folder()
    before._write(folder, KEY, entry())
    return folder


def entry(files=FILES, refusal="RESOURCE_EXHAUSTED"):
    return before._Entry(files, refusal, 1.5)


def path(place, key=KEY):
    return place / f"{key}.dump"


def test_what_is_put_is_what_was_kept(place, tmp_path):
    dump = tmp_path / "dump"
    dump.mkdir()
    assert before.seconds_before(dump) is None
    assert before._read(place, KEY).put(dump) == "RESOURCE_EXHAUSTED"
    assert {name: (dump / name).read_bytes() for name in FILES} == FILES
    assert before.seconds_before(dump) == 1.5
    assert before._read(place, OTHER) is None
    assert place.stat().st_mode & 0o777 == 0o700 and path(place).stat().st_mode & 0o777 == 0o600
    assert [file.name for file in place.iterdir()] == [path(place).name]


@pytest.mark.parametrize("at", [0, 40, -1])
def test_a_damaged_entry_is_removed(place, at):
    data = bytearray(path(place).read_bytes())
    data[at] ^= 1
    path(place).write_bytes(data)
    assert before._read(place, KEY) is None
    assert not path(place).exists()


@pytest.mark.parametrize("size", [0, 31, 32, 60])
def test_an_entry_that_was_cut_is_removed(place, size):
    os.truncate(path(place), size)
    assert before._read(place, KEY) is None
    assert not path(place).exists()


def test_an_entry_under_the_name_of_another_is_none(place):
    path(place).rename(path(place, OTHER))
    assert before._read(place, OTHER) is None


def test_what_others_may_write_is_not_used(place, tmp_path, monkeypatch):
    path(place).chmod(0o620)
    assert before._read(place, KEY) is None
    path(place).rename(tmp_path / "elsewhere")
    (tmp_path / "elsewhere").chmod(0o600)
    path(place).symlink_to(tmp_path / "elsewhere")
    assert before._read(place, KEY) is None
    place.chmod(0o770)
    assert cache.folder() is None
    place.chmod(0o700)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / place.name).symlink_to(place)
    monkeypatch.setenv(user_cache.VARIABLE, str(tmp_path / "other"))
    assert cache.folder() is None


@pytest.mark.parametrize("chosen", ["off", "/dev/null/x"])
def test_without_a_folder_nothing_is_kept(monkeypatch, chosen):
    monkeypatch.setenv(user_cache.VARIABLE, chosen)
    assert cache.folder() is None


def test_the_folder_is_in_the_cache_of_the_user(tmp_path, monkeypatch):
    monkeypatch.delenv(user_cache.VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "bufdb" / "compiled"


def test_what_was_used_longest_ago_makes_room(place, monkeypatch):
    monkeypatch.setattr(cache, "MOST_BYTES", 4 * path(place).stat().st_size)
    keys = [KEY, *(str(number) * 64 for number in range(1, 5))]
    for number, key in enumerate(keys[1:4], start=1):
        before._write(place, key, entry())
        os.utime(path(place, key), (number, number))
    before._read(place, KEY)  # used just now
    left = place / f"{KEY}-0.tmp"
    left.touch()
    os.utime(left, (1, 1))
    before._write(place, keys[4], entry())
    assert {*place.iterdir()} == {path(place, key) for key in keys if key != keys[1]}


def test_an_entry_of_a_quarter_of_all_is_not_kept(place, monkeypatch):
    monkeypatch.setattr(cache, "MOST_BYTES", 4 << 20)
    before._write(place, OTHER, entry({"a.txt": os.urandom(cache.MOST_BYTES // 4 + 1)}))
    assert not path(place, OTHER).exists()
    before._write(place, OTHER, entry({"a.txt": os.urandom(cache.MOST_BYTES // 4 - (64 << 10))}))
    assert path(place, OTHER).exists()


def test_files_that_no_ingest_reads_are_left_out(tmp_path):
    for name in (*FILES, "module_0001.f.ir-no-opt.ll", "module_0001.f.obj-file.o"):
        (tmp_path / name).write_bytes(f"--xla_dump_to={tmp_path}\nkept\n".encode())
    made = before._Entry.of(tmp_path, None, 1.0)
    assert made.files.keys() == FILES.keys()
    assert made.files["module_0001.f.debug_options"] == b"kept\n"
    read = before._Entry.from_bytes(made.as_bytes())
    assert (read.files, read.refusal, read.seconds) == (made.files, None, 1.0)
