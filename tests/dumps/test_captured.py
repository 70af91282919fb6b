"""Logs of any size: what is in them is found though no more than a window is in memory."""

import pytest
from oom_messages import GPU, TPU

from bufdb.dumps import captured
from bufdb.dumps.files import open_file
from bufdb.dumps.load import read_span

NOISE = "2026-11-25 10:00:00.123 INFO step loss=0.1234\n" * 200
NAME = "module_0001.jit_f.cpu_after_optimizations-buffer-assignment.txt"
FRAMED = f"*** Begin {NAME} ***\nBufferAssignment:\nallocation 0: size 4\n\n*** End {NAME} ***\n"
LOGS = {
    "message": NOISE + GPU + NOISE,
    "several": NOISE + GPU + 6000 * "x\n" + TPU + NOISE,
    "frames": NOISE + FRAMED + NOISE + FRAMED.replace("0001", "0002"),
    "begun": NOISE + FRAMED[: FRAMED.index("*** End")],
    "nothing": NOISE * 3,
    "endless": "word " * 20_000,
}


def parts_of(path):
    parts = list(captured.parts_of(path, "a.log"))
    return [(part.name, part.kind, read_span(part, 0, part.size())) for part in parts]


@pytest.mark.parametrize("log", LOGS)
def test_a_log_in_windows_holds_what_it_holds_as_a_whole(tmp_path, monkeypatch, log):
    path = tmp_path / "a.log"
    path.write_text(LOGS[log])
    whole = parts_of(path)
    assert bool(whole) == (log not in ("nothing", "endless"))
    monkeypatch.setattr(captured, "WINDOW_BYTES", 10_000)
    for piece in (97, 4096):
        monkeypatch.setattr(captured, "_PIECE_BYTES", piece)
        monkeypatch.setattr(captured, "_OVERLAP_BYTES", 200)
        assert parts_of(path) == whole


def test_no_more_than_a_window_of_a_log_is_read_at_once(tmp_path, monkeypatch):
    path = tmp_path / "a.log"
    path.write_text(LOGS["message"] + NOISE * 10)
    sizes = []

    class Read:
        def __init__(self, place):
            self.file = open_file(place)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            self.file.close()

        def read(self, size):
            sizes.append(size)
            return self.file.read(size)

    monkeypatch.setattr(captured, "open_file", Read)
    monkeypatch.setattr(captured, "WINDOW_BYTES", 10_000)
    monkeypatch.setattr(captured, "_PIECE_BYTES", 5_000)
    assert len(parts_of(path)) == 1
    assert max(sizes) <= 10_001


def test_a_large_log_in_utf_16_is_an_error(tmp_path, monkeypatch):
    path = tmp_path / "a.log"
    path.write_text(LOGS["message"], encoding="utf-16")
    assert len(parts_of(path)) == 1
    monkeypatch.setattr(captured, "WINDOW_BYTES", 10_000)
    with pytest.raises(OSError, match="large text in UTF-16"):
        parts_of(path)
