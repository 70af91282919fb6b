"""Bytes and times of dump files."""

import errno

import pytest

from bufdb.dumps import load
from bufdb.dumps.batch import _tree_start
from bufdb.dumps.files import BUFFER_KINDS, DumpFile, ModuleFiles
from bufdb.dumps.load import ABOVE_BYTES, BELOW_BYTES, dumped_at, read_span, whole_lines, windows


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\nthree")
    return DumpFile(path, path.name, "hlo")


KIND = BUFFER_KINDS[0]


def test_a_file_that_became_shorter_is_an_error(file):
    assert read_span(file, 4, 13) == b"two\nthree"
    with pytest.raises(OSError, match="shrank while it was read") as error:
        read_span(file, 4, 14)
    assert error.value.errno == errno.ESTALE


@pytest.mark.parametrize("size", [1, 5, 100])
def test_text_comes_in_whole_lines_and_the_last_as_it_is(file, size):
    parts = list(whole_lines(file, 0, 13, size))
    assert b"".join(text for _, text in parts) == b"one\ntwo\nthree"
    assert [place for place, _ in parts] == [0, *(n for n in (4, 8) if n in dict(parts))]
    assert all(text.endswith(b"\n") for _, text in parts[:-1])
    assert parts[-1][1].endswith(b"three")


@pytest.mark.parametrize("size", [1, 5, 100])
@pytest.mark.parametrize("start", [0, 4])
def test_windows_hold_whole_lines_and_their_surroundings(file, start, size):
    whole = file.path.read_bytes()
    pieces = list(windows(file, start, 13, size))
    assert [(one.at, one.data[slice(*one.span)]) for one in pieces] == [
        (at, text) for at, text in whole_lines(file, start, 13, size)
    ]
    for one in pieces:
        begin, end = one.at - one.span[0], one.at - one.span[0] + len(one.data)
        assert whole[begin:end] == one.data
        assert begin == max(0, one.at - ABOVE_BYTES)
        assert end >= min(13, one.at + one.span[1] - one.span[0] + BELOW_BYTES)


def test_a_window_ends_with_its_lines_though_the_file_goes_on(file):
    (only,) = windows(file, 0, 4, 100)
    assert only.span == (0, 4)
    assert only.data == b"one\ntwo\nthree"
    with pytest.raises(OSError, match="shrank while it was read"):
        list(windows(file, 4, 14, 100))
    with pytest.raises(OSError, match="shrank while it was read"):
        list(whole_lines(file, 4, 14, 100))


def test_the_time_stamp_of_a_name_goes_before_that_of_the_files(file):
    stem = "1625000000500000.module_0002.f.sm_8.0_gpu_after_optimizations"
    assert dumped_at(ModuleFiles(stem, {"hlo": file})) == 1625000000.5
    module = ModuleFiles("module_0002.f.sm_8.0_gpu_after_optimizations", {"hlo": file})
    assert dumped_at(module) == file.path.stat().st_mtime


def test_the_tree_begins_where_a_line_begins_with_its_title():
    title = b"  Stack trace breakdown for peak usage: 8 bytes\n"
    assert [_tree_start(title), _tree_start(b"a\n" + title)] == [0, 2]
    assert _tree_start(b"a" + title + b"b\n" + title) == len(title) + 3
    assert [_tree_start(b"a" + title), _tree_start(b"")] == [-1, -1]


def test_a_large_text_that_is_to_be_rewritten_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(load, "MOST_REWRITTEN_BYTES", 1000)
    path = tmp_path / "pasted.txt"
    path.write_text("Dear all,\n\nBufferAssignment:\n" + "allocation 0: size 8, output:\n" * 100)
    module = ModuleFiles("pasted", {KIND: DumpFile(path, "pasted.txt", KIND)})
    assert load.load(module).texts
    with pytest.raises(OSError, match="not text as XLA writes it"):
        load.load(module, block_bytes=1000)


def test_a_line_longer_than_any_of_a_dump_is_an_error(file, monkeypatch):
    monkeypatch.setattr(load, "MOST_LINE_BYTES", 4)
    assert len(list(whole_lines(file, 0, 8, 2))) == 2
    file.path.write_bytes(b"x" * 100)
    with pytest.raises(OSError, match="it has a line of more than") as error:
        list(whole_lines(file, 0, 100, 2))
    assert error.value.errno == errno.EFBIG
