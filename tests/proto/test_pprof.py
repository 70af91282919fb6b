"""Memory profiles are read as their format says; what is foreign or damaged is refused."""

import pytest
from pprof_writer import Sample, field, profile
from xplane_writer import number, varint

from bufdb.proto import pprof
from bufdb.proto.pprof import Alive, Frame, Held
from bufdb.proto.reader import UnreadableProto

INNER, OUTER = ("/lib/a.py", "put", 3), ("/home/user/b.py", "<module>", 9)
STACK = (Frame(*OUTER), Frame(*INNER))
DATA = profile([Sample(64, [INNER, OUTER])])


@pytest.mark.parametrize("is_packed", [True, False])
def test_arrays_are_gathered_by_device_and_stack_callers_first(is_packed):
    samples = [
        Sample(64, [INNER, OUTER]),
        Sample(8, [INNER, OUTER], "cpu:1", count=2),
        Sample(36, [INNER, OUTER]),
        Sample(5),
        Sample(700, [OUTER], kind="executable"),
    ]
    memory_profile = pprof.read(profile(samples, is_packed=is_packed))
    assert memory_profile.arrays == {
        Alive("cpu:0", STACK): Held(2, 100),
        Alive("cpu:1", STACK): Held(2, 8),
        Alive("cpu:0", ()): Held(1, 5),
    }
    assert (memory_profile.code_bytes, memory_profile.program_count) == (700, 1)


@pytest.mark.parametrize(("count", "size"), [(1, -1), (3, -3), (3, -1)])
def test_programs_of_unknown_size_have_minus_one_each(count, size):
    samples = [
        Sample(5),
        Sample(700, kind="executable"),
        Sample(size, count=count, kind="executable"),
    ]
    memory_profile = pprof.read(profile(samples))
    assert memory_profile.arrays == {Alive("cpu:0", ()): Held(1, 5)}
    assert (
        memory_profile.code_bytes,
        memory_profile.program_count,
        memory_profile.unsized_count,
    ) == (700, 1 + count, count)


@pytest.mark.parametrize(
    "sample",
    [
        Sample(-1),
        Sample(-2, kind="executable"),
        Sample(-7, count=3, kind="executable"),
        Sample(0, count=-1, kind="executable"),
        Sample(1, count=-1, kind="executable"),
        Sample(-(1 << 63), kind="executable"),
        Sample(0, count=-1),
    ],
)
def test_other_negative_figures_are_damage(sample):
    with pytest.raises(UnreadableProto, match="it is damaged"):
        pprof.read(profile([Sample(5), sample]))


def test_nothing_alive_is_a_profile_too():
    assert pprof.read(profile([])).arrays == {}
    assert pprof.is_profile(profile([]))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"hello, world", "not a memory profile of JAX"),
        (b"\x00" * 9, "not a memory profile of JAX"),
        (profile([], ["samples", "cpu"]), "its samples are of samples, cpu"),
        (profile([], ["space"]), "its samples are of space"),
        (profile([Sample(1, kind="heap")]), "a sample is of heap"),
        (DATA[:-1], "it is damaged"),
        (DATA[:20], "or was cut off"),
        (DATA.replace(b"buffer", b"buffet"), "a sample is of buffet"),
    ],
)
def test_anything_else_is_refused(data, why):
    with pytest.raises(UnreadableProto, match=why):
        pprof.read(data)


def test_any_cut_or_changed_byte_is_refused_or_read():
    refused = 0
    for at in range(len(DATA)):
        for damaged in (DATA[:at], DATA[:at] + bytes([DATA[at] ^ 0x55]) + DATA[at + 1 :]):
            try:
                memory_profile = pprof.read(damaged)
            except UnreadableProto:
                refused += 1
            else:
                assert all(held.array_count >= 0 for held in memory_profile.arrays.values())
    assert refused > len(DATA)


def number_of(location, line_count):
    """A location with many lines, and the number that samples have of it."""
    lines = field(4, number(1, 1) + number(2, 1)) * line_count
    return field(4, number(1, location) + lines)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("data", "why"),
    [
        (DATA + field(6, b"") * 1_000_001, "more than 1,000,000 parts"),
        (DATA + number_of(9, 1000) + field(2, field(1, varint(9) * 3000)), "frames"),
        (DATA + number_of(9, 1) + field(2, field(1, varint(8))), "location 8 is missing"),
        (DATA + field(4, number(1, 9) + field(4, number(1, 1 << 60))), "function .* is missing"),
        (DATA + field(5, number(1, 1) + number(2, 1 << 40)), "text .* is missing"),
        (profile([Sample((1 << 63) - 1, [INNER])] * 2), "more bytes than"),
        (profile([Sample(1, kind="executable", count=1 << 62)] * 2), "more bytes than"),
        (profile([Sample((1 << 60) + 1, [INNER])]), "more bytes than"),
    ],
)
def test_what_no_process_has_is_refused(data, why):
    with pytest.raises(UnreadableProto, match=why):
        pprof.read(data)
