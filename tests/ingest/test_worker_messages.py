"""What workers tell: columns through memory that is shared, as long as it has room."""

import os
import subprocess
import sys

import numpy as np
import pytest

from bufdb.ingest.workers import messages, pipe


def test_a_segment_is_not_free_while_an_array_is_there():
    ours, theirs = pipe.pair()
    files = messages.segments(1)
    if not files:
        pytest.skip("no memory that can be shared")
    array = np.arange(1000)
    assert messages.send(theirs, [("add", (array,), {})], 0, files[0], is_last=True)
    received = messages.receive(ours, files)
    ((_, (copy,), _),) = list(received.events())
    assert copy.tolist() == array.tolist()
    assert not received.is_free()
    del copy
    assert received.is_free()
    for file in files:
        os.close(file)


@pytest.mark.parametrize("mode", ["r+b", "rb"])
def test_what_has_no_room_in_a_segment_goes_through_the_pipe(tmp_path, mode):
    path = tmp_path / "segment"
    path.touch()
    ours, theirs = pipe.pair()
    columns = np.arange(1000), np.arange(3)
    with path.open(mode) as file:
        is_held = messages.send(theirs, [("add", columns, {})], 0, file.fileno(), is_last=False)
        received = messages.receive(ours, [file.fileno()])
        assert is_held == (mode == "r+b") == (received.segment is not None)
        ((_, copies, _),) = received.events()
    assert [copy.tolist() for copy in copies] == [column.tolist() for column in columns]
    del copies
    assert received.is_free()


FREED = """
import os, time
from bufdb.ingest.workers import messages, pipe, worker
ours, theirs = pipe.pair()
files = messages.segments(1)
told = worker._Told(theirs, files)
for size in (worker.HUGE_BYTES - 1, 1):
    told.part(size)
    os.pwrite(files[0], bytes(5000), 0)
    told.free.get()
    ours.send(0)
    while told.free.empty():
        time.sleep(0.001)
    print(os.fstat(files[0]).st_size, flush=True)
os._exit(0)  # the process would end with its pipe
"""


@pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="no memory that can be shared")
def test_while_a_huge_module_is_read_free_segments_take_no_memory():
    out = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    assert out.stdout.split() == ["5000", "0"]
