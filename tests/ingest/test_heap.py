"""The heap of a process that reads: of that process alone, and of glibc alone."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from bufdb.columnar import freed
from bufdb.ingest.workers import heap

GLIBC = pytest.mark.skipif(
    sys.platform != "linux" or freed._malloc_trim() is None, reason="the C library is not glibc"
)
ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
READ = """
import re
from pathlib import Path
from bufdb.ingest.workers import heap

def faults():
    return int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[7])

heap.prepare()
before = faults()
kept = [bytes(1 << 20) for _ in range(32)]
print(faults() - before)
del kept
maps = re.split(r"^(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
print(sum(int(re.search(r"^Size: *(\\d+)", one, re.MULTILINE)[1]) for one in maps if " hg" in one))
"""


@GLIBC
@pytest.mark.skipif(
    not ENABLED.exists() or "[never]" in ENABLED.read_text(), reason="no huge pages here"
)
def test_what_is_smaller_than_a_huge_page_lies_in_them():
    out = subprocess.run([sys.executable, "-c", READ], capture_output=True, text=True, check=True)
    faults, advised_kb = map(int, out.stdout.split())
    assert faults < (32 << 20) / 4096 / 4  # of those that there are page by page
    assert heap.HEAP_BYTES - heap._PAGE_BYTES <= advised_kb * 1024 <= heap.HEAP_BYTES


class Function:
    """One of a C library that has no memory to give."""

    def __init__(self):
        self.calls = []

    def __call__(self, *given):
        self.calls.append(given)


def library(*names):
    return type("Library", (), {name: Function() for name in names})()


@pytest.mark.parametrize("names", [["malloc", "free", "madvise"], ["mallopt"]])
def test_another_c_library_is_left_as_it_is(monkeypatch, names):
    libc = library(*names)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    heap.prepare()
    assert [getattr(libc, name).calls for name in names] == [[] for _ in names]


def test_where_no_memory_can_be_had_the_process_goes_on(monkeypatch):
    libc = library("mallopt", "malloc", "free", "madvise")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: libc)
    heap.prepare()
    assert libc.malloc.calls == [(heap.HEAP_BYTES,)]
    assert libc.mallopt.calls[-1] == (heap._M_MMAP_MAX, heap._MMAP_MAX)
    assert (libc.free.calls, libc.madvise.calls) == ([], [])
