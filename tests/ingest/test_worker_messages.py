"""What workers tell: columns through memory that is shared, as long as it has room."""

import os

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
