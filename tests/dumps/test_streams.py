"""Compressed streams: each read once, and bounded."""

import gzip
import importlib.util
import io
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pytest
from places import DEMO

from bufdb.dumps import streams
from bufdb.dumps.discover import discover

DUMP = "module_0000.jit_init.cpu_after_optimizations-buffer-assignment.txt"
ALLOCATIONS = (DEMO / "cpu_b8" / DUMP).read_bytes()
zst = pytest.mark.skipif(
    importlib.util.find_spec("zstandard") is None, reason="this Python has no zstandard"
)


def test_members_of_a_stream_follow_each_other():
    text = os.urandom(50_000) + b"x" * 100_000 + os.urandom(50_001)
    packed = gzip.compress(text[:70_000]) + gzip.compress(text[70_000:]) + b"\0" * 512
    assert b"".join(streams.gzip(lambda: io.BytesIO(packed))) == text


# Ids of their own: gzip writes the time, and processes that run tests must find the same ones.
@pytest.mark.parametrize(
    "content",
    [b"", b"no gzip", gzip.compress(b"x" * 999)[:-9], zlib.compress(b"")],
    ids=["empty", "text", "cut", "zlib"],
)
def test_what_is_no_gzip_stream_is_damaged(content):
    with pytest.raises(OSError, match="damaged"):
        list(streams.gzip(lambda: io.BytesIO(content)))


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
