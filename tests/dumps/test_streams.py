"""Compressed streams: each read once, bounded, and read from any position on."""

import gzip
import importlib.util
import io
import os
import subprocess
import sys
import weakref
import zlib
from pathlib import Path

import pytest
from places import DEMO

from bufdb.dumps import streams
from bufdb.dumps.discover import discover
from bufdb.dumps.place import Reader

DUMP = "module_0000.jit_init.cpu_after_optimizations-buffer-assignment.txt"
ALLOCATIONS = (DEMO / "cpu_b8" / DUMP).read_bytes()
zst = pytest.mark.skipif(
    importlib.util.find_spec("zstandard") is None, reason="this Python has no zstandard"
)


def test_a_stream_is_read_from_any_position(monkeypatch):
    monkeypatch.setattr(streams, "BLOCK_BYTES", 10_000)
    text = os.urandom(50_000) + b"x" * 100_000 + os.urandom(50_001)
    packed = gzip.compress(text[:70_000]) + gzip.compress(text[70_000:]) + b"\0" * 512
    stream = streams.gzip(lambda: io.BytesIO(packed), streams.Kept())
    assert stream.size() == len(text)
    for at in (0, 1, 9_999, 60_000, 70_000, 70_001, 199_999, 200_000, 200_001, 300_000):
        assert b"".join(stream.read_from(at)) == text[at:]
    reader = io.BufferedReader(Reader(stream.read_from, len(text)))
    reader.seek(150_000)
    assert reader.read(5) == text[150_000:150_005]
    reader.seek(3)
    assert reader.read() == text[3:]


# Ids of their own: gzip writes the time, and processes that run tests must find the same ones.
@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"x" * 999)[:-9], zlib.compress(b"")],
    ids=["empty", "text", "cut", "zlib"],
)
def test_what_is_no_gzip_stream_is_damaged(content):
    with pytest.raises(OSError, match="damaged"):
        streams.gzip(lambda: io.BytesIO(content), streams.Kept()).size()


# -- frames of Zstandard ---------------------------------------------------------------------------

MAGIC = (0xFD2FB528).to_bytes(4, "little")
ZEROS = b"".join(
    ((1 if last else 0) | 1 << 1 | 128 << 13).to_bytes(3, "little") + b"\0"
    for last in [False] * 63 + [True]
)
"""Blocks of a frame, 256 bytes for 8 MiB."""
SKIPPABLE = (0x184D2A50).to_bytes(4, "little") + (3).to_bytes(4, "little") + b"abc"
FRAMES = {
    "without its size": (MAGIC + bytes([0, 7 << 3]) + ZEROS, "more than 250 times"),
    "many": ((MAGIC + bytes([0, 7 << 3]) + ZEROS[-4:]) * 64, "more than 250 times"),
    "many that are skipped": ((SKIPPABLE + MAGIC + bytes([0, 7 << 3]) + ZEROS) * 3, "250 times"),
    "window of 128 MiB": (MAGIC + bytes([0, 17 << 3]) + ZEROS, "more than 250 times"),
    "window of 256 MiB": (MAGIC + bytes([0, 18 << 3]) + ZEROS, "a window of more than 128 MiB"),
    "window of 2 GiB": (MAGIC + bytes([0, 21 << 3]) + ZEROS, "a window of more than 128 MiB"),
    "one segment of 1 TiB": (
        MAGIC + b"\xe0" + (1 << 40).to_bytes(8, "little") + ZEROS,
        "a window of more than 128 MiB",
    ),
    "more said than there is": (
        MAGIC + bytes([0xC0, 7 << 3]) + (4 << 30).to_bytes(8, "little") + ZEROS[-4:],
        "it is damaged",
    ),
    "skipped without end": (SKIPPABLE[:4] + b"\xff" * 4 + b"abc", "ends too early"),
}


@zst
@pytest.mark.parametrize("kind", FRAMES)
@pytest.mark.parametrize("is_given", [True, False])
def test_frames_of_zstandard_are_bounded(tmp_path, monkeypatch, kind, is_given):
    monkeypatch.setattr(streams, "FREE_BYTES", 1 << 20)
    content, message = FRAMES[kind]
    path = tmp_path / f"{DUMP}.zst"
    path.write_bytes(content)
    problems = []
    discover(path if is_given else tmp_path, problems)
    assert [(odd.name, odd.severity) for odd in problems] == [(path.name, "error")]
    assert message in problems[0].message


def test_a_decompressor_ends_with_its_stream():
    class New:
        def __call__(self):
            return zlib.decompressobj(31)

    new = New()
    left = weakref.ref(new)
    packed = gzip.compress(ALLOCATIONS)
    stream = streams.Compressed(lambda: io.BytesIO(packed), new, zlib.error, 99, streams.Kept())
    del new
    assert stream.size() == len(ALLOCATIONS)
    assert left() is None
    assert b"".join(stream.read_from(0)) == ALLOCATIONS


PEAK = """
import sys
from pathlib import Path
from bufdb.dumps.discover import discover
discover(Path(sys.argv[1]), [])
# Not ru_maxrss, which has the peak of the process that started this one.
print(int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) >> 10)
"""


@zst
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system has no /proc")
def test_a_directory_of_many_windows_takes_one_of_them(tmp_path):
    content = MAGIC + bytes([0, 17 << 3]) + ZEROS[:4] * (1 << 10) + ZEROS[-4:]
    for number in range(10):
        (tmp_path / f"{number}-live-range.txt.zst").write_bytes(content)
    command = [sys.executable, "-c", PEAK, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout) < 500


@zst
def test_frames_that_are_skipped_carry_nothing(tmp_path):
    import zstandard

    parts = [zstandard.compress(ALLOCATIONS[:99]), zstandard.compress(ALLOCATIONS[99:])]
    (tmp_path / f"{DUMP}.zst").write_bytes(SKIPPABLE + SKIPPABLE.join(parts) + SKIPPABLE)
    (module,) = discover(tmp_path)
    assert module.files["buffer_assignment"].path.open().read() == ALLOCATIONS


def test_what_is_kept_of_streams_is_bounded(tmp_path, monkeypatch):
    """For text that only a large window compresses, blocks take many times the archive's size."""
    monkeypatch.setattr(streams, "FREE_KEPT_BYTES", 1 << 20)
    kept = streams.Kept()
    parts = [os.urandom(streams.BLOCK_BYTES) for _ in range(20)]
    kept.given = 1 << 17
    with pytest.raises(OSError, match="8 times its size"):
        for part in parts:
            kept.add(part)
    assert 15 << 16 <= kept.size <= 1 << 20
    kept.drop(0)
    assert kept.read(0, kept.add(b"text")) == b"text"
