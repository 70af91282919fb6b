"""Profiles are read as their format says, and what is damaged is refused."""

from contextlib import suppress

import pytest
from places import DEMO
from xplane_writer import Event, Line, Plane, number, space, text

from bufdb.proto import xplane
from bufdb.proto.reader import UnreadableProto, unpacked
from bufdb.proto.xplane import Program

STEP = Program("jit_step", 7)
FILE = DEMO.parent / "profiles" / "cpu_b8.xplane.pb.gz"


def times(planes):
    """Return executions, total and self time [ps] by device and name."""
    profile = xplane.read(space(planes))
    return {
        (key.device, key.instruction_name): (one.execution_count, one.total_ps, one.self_ps)
        for key, one in profile.times.items()
    }


def thunk(name, start, duration, **stats):
    statistics = {"hlo_op": name, "hlo_module": "jit_step", "program_id": 7, **stats}
    return Event(name, start, duration, statistics)


def test_a_thread_of_a_cpu_nests_what_a_loop_runs():
    line = Line("thread", [
        Event("Python", 0, 900),
        thunk("while.1", 0, 100, run_id=1), thunk("dot.1", 10, 30), thunk("dot.1", 50, 20),
        thunk("add.1", 200, 5, run_id=2),
    ])  # fmt: skip
    profile = xplane.read(space([Plane("/host:CPU", [line])]))
    assert times([Plane("/host:CPU", [line])]) == {
        ("CPU:0", "while.1"): (1, 100, 50),
        ("CPU:0", "dot.1"): (2, 50, 50),
        ("CPU:0", "add.1"): (1, 5, 5),
    }
    assert {key.program for key in profile.times} == {STEP}
    assert profile.run_counts == {(STEP, "CPU:0"): 2}
    (dot,) = (one for key, one in profile.times.items() if key.instruction_name == "dot.1")
    assert (dot.least_ps, dot.largest_ps) == (20, 30)


def test_devices_of_a_cpu_are_apart_and_threads_of_one_are_not():
    lines = [
        Line("a", [thunk("dot.1", 0, 10, device_ordinal=0, run_id=1)]),
        Line("b", [thunk("dot.1", 0, 7, device_ordinal=0, run_id=1)]),
        Line("c", [thunk("dot.1", 0, 20, device_ordinal=3, run_id=1)]),
    ]
    assert times([Plane("/host:CPU", lines)]) == {
        ("CPU:0", "dot.1"): (2, 17, 17),
        ("CPU:3", "dot.1"): (1, 20, 20),
    }


LONG = "%fusion.1 = f32[8]{0} fusion(f32[8]{0} %p), kind=kLoop"


def tpu(*more):
    """A TPU: instructions by the names of their metadata, programs by what ran then."""
    ops = Line("XLA Ops", [
        Event(LONG, 10, 30, display_name="fusion.1"),
        Event("%while.2 = (s32[]) while((s32[]) %t)", 50, 40),
        Event(LONG, 60, 25, display_name="fusion.1"),
        Event(LONG, 210, 5, display_name="fusion.1"),
    ])  # fmt: skip
    modules = Line("XLA Modules", [
        Event("jit_step(7)", 0, 100, {"run_id": 1}), Event("jit_other(8)", 200, 100),
    ])  # fmt: skip
    steps = Line("Steps", [Event("1", 0, 300)])
    return Plane("/device:TPU:0", [modules, steps, ops, *more])


def test_a_tpu_times_instructions_by_the_program_that_ran():
    profile = xplane.read(space([tpu()]))
    assert {
        (key.program, key.instruction_name, one.execution_count, one.self_ps)
        for key, one in profile.times.items()
    } == {
        (STEP, "fusion.1", 2, 55),
        (STEP, "while.2", 1, 15),
        (Program("jit_other", 8), "fusion.1", 1, 5),
    }
    assert profile.run_counts == {(STEP, "TPU:0"): 1, (Program("jit_other", 8), "TPU:0"): 1}


def test_asynchronous_instructions_of_a_tpu_are_apart():
    line = Line("Async XLA Ops", [Event("copy-start.1", 20, 70), Event("copy-start.1", 30, 10)])
    profile = xplane.read(space([tpu(line)]))
    assert [
        (key.instruction_name, one.execution_count, one.self_ps)
        for key, one in profile.times.items() if key.is_overlapped
    ] == [("copy-start.1", 2, 80)]  # fmt: skip


def test_a_program_may_be_named_by_its_id():
    fingerprint = (1 << 64) - 5
    event = Event(LONG, 0, 3, display_name="fusion.1", metadata_stats={"program_id": -5})
    planes = [
        Plane("/host:metadata", programs={fingerprint: "jit_step"}),
        Plane("/device:TPU:1", [Line("XLA Ops", [event])]),
    ]
    (key,) = xplane.read(space(planes)).times
    assert key.program == Program("jit_step", -5)


def kernel(name, start, duration, **stats):
    return Event("ampere_sgemm", start, duration, {
        "hlo_op": name, "hlo_module": "jit_step", "program_id": 7, **stats})  # fmt: skip


def test_kernels_of_one_execution_on_a_gpu_are_one():
    stream = Line("Stream #13(Compute)", [
        kernel("gemm.1", 0, 10, scope_range_id=5), kernel("gemm.1", 20, 10, scope_range_id=5),
        kernel("gemm.1", 50, 4, scope_range_id=6), kernel("add.1", 60, 1),
    ])  # fmt: skip
    again = Line("XLA Ops", [Event("gemm.1", 0, 30), Event("add.1", 60, 1)])
    host = Plane("/host:CPU", [Line("python", [thunk("gemm.1", 0, 1000)])])
    assert times([Plane("/device:GPU:0", [stream, again]), host]) == {
        ("GPU:0", "gemm.1"): (2, 34, 34),
        ("GPU:0", "add.1"): (1, 1, 1),
    }


def test_kernels_without_a_name_are_counted():
    stream = Line("Stream #13", [kernel("gemm.1", 0, 10), Event("graph", 20, 7), Event("g", 30, 3)])
    profile = xplane.read(space([Plane("/device:GPU:0", [stream])]))
    assert (profile.unnamed["GPU:0"].count, profile.unnamed["GPU:0"].total_ps) == (2, 10)


def test_a_truncated_file_is_refused_or_has_whole_planes():
    host = Line("t", [thunk("dot.1", 0, 10, program_id=1)])
    data = space([Plane("/host:CPU", [host]), tpu()])
    whole = xplane.read(data)
    for size in range(len(data)):
        try:
            profile = xplane.read(data[:size])
        except UnreadableProto:
            continue
        assert all(whole.times[key] == one for key, one in profile.times.items()), size


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"hello", "it is not a profile"),
        (b"\x12\x00", "it is not a profile"),
        (space([tpu()])[:-3], "it was cut off"),
        (b"\x08\x01" + space([tpu()]), "it is not a profile"),
    ],
)
def test_what_is_no_profile_says_so(data, why):
    with pytest.raises(UnreadableProto, match=why):
        xplane.read(data)


@pytest.mark.slow
def test_any_changed_byte_is_read_or_refused():
    data = unpacked(FILE.read_bytes())
    for at in range(0, len(data), 211):
        changed = data[:at] + bytes([data[at] ^ 0x85]) + data[at + 1 :]
        try:
            xplane.read(changed)
        except UnreadableProto:
            continue


@pytest.mark.parametrize("stat", [b"\x08", b"\x12\x03abc", b"\x15\x00\x00\x80\x3f"])
def test_a_damaged_stat_is_refused_or_left_out(stat):
    event = number(1, 1) + text(4, stat)
    data = text(1, text(2, "/host:CPU") + text(3, text(2, "thread") + text(4, event)))
    with suppress(UnreadableProto):
        xplane.read(data)


def test_the_profile_of_the_demo():
    profile = xplane.read(unpacked(FILE.read_bytes()))
    programs = {(*key.program, key.device) for key in profile.times}
    assert programs == {("jit_train_step", 2, "CPU:0"), ("jit_eval_step", 4, "CPU:0")}
    assert sorted(profile.run_counts.values()) == [1, 3]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "data",
    [
        text(1, b"") * 10_001,
        text(1, text(2, "/host:CPU") + text(3, b"") * 1_000_001),
        text(1, text(4, number(1, 1)) * 600_000) + text(1, text(5, number(1, 1)) * 600_000),
    ],
)
def test_too_many_planes_lines_or_names_are_refused(data):
    with pytest.raises(UnreadableProto, match="more than 1,000,000 parts"):
        xplane.read(data)


def test_times_beyond_any_clock_are_refused():
    most = (1 << 63) - 1
    host = Line("t", [thunk("dot.1", 0, most), thunk("dot.1", most, most)])
    with pytest.raises(UnreadableProto, match="longer than"):
        xplane.read(space([Plane("/host:CPU", [host])]))
