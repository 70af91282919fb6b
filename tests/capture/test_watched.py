"""Arguments and failed calls, with arrays of a runtime that gives addresses or none."""

import gc
import weakref
from types import SimpleNamespace

import pytest

from bufdb.capture import watched
from bufdb.capture.watched import Call


class Array:
    """An array on one device, or on several."""

    def __init__(self, address, devices=("tpu:0",), size=8, is_sound=True):
        data = SimpleNamespace(nbytes=size, unsafe_buffer_pointer=lambda: self.address_of(address))
        self.addressable_shards = [SimpleNamespace(device=one, data=data) for one in devices]
        self.is_sound = is_sound
        self.traceback = None

    def address_of(self, address):
        assert self.is_sound, "XLA would end the process"
        if address is None:
            raise NotImplementedError("no addresses here")
        return address

    def is_deleted(self):
        return False

    def block_until_ready(self):
        if not self.is_sound:
            raise RuntimeError("RESOURCE_EXHAUSTED")


def arguments(arrays, given):
    call = Call(None, [weakref.ref(one) for one in given], [])
    found = watched._arguments([(one, one.is_sound) for one in arrays], call)
    return {one["device"]: (one["count"], one["bytes"]) for one in found}


@pytest.mark.parametrize("addresses", [(1, 2, 3), (None, None, None)])
def test_an_argument_is_known_with_and_without_addresses(addresses):
    arrays = [Array(one, ("tpu:0", "tpu:1")) for one in addresses]
    assert arguments(arrays, arrays[:2]) == {"tpu:0": (2, 16), "tpu:1": (2, 16)}


def test_memory_that_two_arrays_share_counts_once():
    first, other = Array(1), Array(1)
    assert arguments([other, first], [first]) == {"tpu:0": (1, 8)}


def test_an_array_without_a_value_is_never_asked_for_its_address():
    lost = Array(1, is_sound=False)
    assert arguments([lost, Array(2)], [lost]) == {}
    parts = watched._gathered(watched._parts([lost]))
    assert [(one["count"], one["bytes"]) for one in parts] == [(1, 8)]


def watch_of(tmp_path, *calls):
    watch = watched.Watch(tmp_path)
    for program, given, made in calls:
        refs = (list(map(weakref.ref, arrays)) for arrays in (given, made))
        watch._calls.append(Call(program, *refs))
    return watch


def test_of_calls_without_results_the_first_failed(tmp_path):
    good, lost, later = Array(1), Array(2, is_sound=False), Array(3, is_sound=False)
    calls = ("a", [good], [good]), ("b", [good], [lost]), ("c", [lost], [later])
    assert watch_of(tmp_path, *calls)._failed_call().program == "b"
    assert watch_of(tmp_path, calls[0], calls[2])._failed_call() is None


@pytest.mark.parametrize(("earlier", "program"), [("step", "step"), ("other", None)])
def test_a_loop_that_drops_its_state_failed_in_its_one_program(tmp_path, earlier, program):
    dropped, last = Array(1), Array(2, is_sound=False)
    watch = watch_of(tmp_path, (earlier, [], [dropped]), ("step", [dropped], [last]))
    del dropped
    gc.collect()
    found = watch._failed_call()
    assert (found and found.program) == program
