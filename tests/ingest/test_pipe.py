"""Objects between two processes: whole, in order, and their end."""

import os
import threading

import pytest

from bufdb.ingest.workers.pipe import pair, wait


@pytest.fixture
def ends():
    both = pair()
    yield both
    for end in both:
        end.close()


def test_objects_arrive_both_ways_in_order(ends):
    ours, theirs = ends
    ours.send([1, "two"])
    ours.send(b"three")
    theirs.send(None)
    assert [theirs.receive(), theirs.receive(), ours.receive()] == [[1, "two"], b"three", None]


def test_what_is_longer_than_a_pipe_holds_arrives_whole(ends):
    ours, theirs = ends
    long = os.urandom(5 << 20)
    sender = threading.Thread(target=ours.send, args=[long])
    sender.start()
    assert theirs.receive() == long
    sender.join()


def test_an_end_that_is_gone_is_told_after_what_was_sent(ends):
    ours, theirs = ends
    theirs.send("last")
    theirs.close()
    theirs.close()
    assert ours.receive() == "last"
    with pytest.raises(EOFError):
        ours.receive()
    with pytest.raises(BrokenPipeError):
        ours.send("anything")


def test_waiting_gives_those_that_have_something_or_have_ended():
    pairs = [pair() for _ in range(3)]
    try:
        ours = [one for one, _ in pairs]
        pairs[1][1].send("something")
        assert wait(ours) == [ours[1]]
        pairs[2][1].close()
        assert wait(ours) == [ours[1], ours[2]]
    finally:
        for end in (end for both in pairs for end in both):
            end.close()
