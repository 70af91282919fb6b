"""Flame graphs and traces, read back by readers that know nothing of bufdb."""

import gzip
import itertools
import json
import pickle
import pickletools
import shutil
from collections import Counter, defaultdict

import duckdb
import pytest
from export_reading import played
from small_db import Module, insert

from bufdb.errors import BufdbError
from bufdb.export import perfetto, pprof, shown, torch_snapshot, wire
from bufdb.export.shown import Function
from bufdb.export.values import Frame, Held, HloValue, values

PEAKS = {"cpu_b8": 8905504, "cpu_b16": 16447936, "gpu_b8": 8692396}
"""Peaks of train_step in the first memory space (README of schema/)."""


@pytest.fixture
def export(call, demo_db, tmp_path):
    """Write a file and read it; return its bytes and the notes."""

    def run(form, *words, db=demo_db):
        path = tmp_path / form
        code, out, err = call("export", "--format", form, "--db", db, "-o", path, *words)
        assert (code, out) == (0, ""), err
        return path.read_bytes(), err

    return run


def test_wire_numbers_are_those_of_the_description():
    """protobuf.dev/programming-guides/encoding: 150 in field 1, "testing" in field 2."""
    assert wire.integer(1, 150) == bytes.fromhex("089601")
    assert wire.text(2, "testing") == bytes.fromhex("120774657374696e67")
    assert wire.packed(6, [3, 270, 86942]) == bytes.fromhex("3206038e029ea705")
    assert wire.varint(-2) == bytes.fromhex("feffffffffffffffff01")


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1])
def test_what_does_not_fit_is_refused(number):
    with pytest.raises(BufdbError, match="does not fit into 64 bits"):
        wire.varint(number)


def test_a_frame_has_a_label_for_one_line():
    assert Frame("f", "/a/b.py", 3).label == "b.py:3 f"
    assert Frame("", "/a/b.py").label == "b.py:?"
    assert Frame("(temp)").label == "(temp)"


# -- flame graphs ----------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("run", PEAKS)
def test_collapsed_stacks_are_peak_by_stack_and_sum_to_the_peak(export, call, demo_db, run):
    data, _ = export("collapsed", "--run", run, "--function", "train_step")
    sums = {}
    for line in data.decode().splitlines():
        stack, size = line.rsplit(" ", 1)
        sums[stack] = int(size)
    assert sum(sums.values()) == PEAKS[run]
    answer = call(
        "query", "peak-by-stack", "--db", demo_db, "--format", "json", "--run", run,
        "--function", "train_step", "-p", "top_n", 1000, "-p", "color", 0,
    )[1]  # fmt: skip
    assert Counter(sums.values()) == Counter(row["held_bytes"] for row in _merged(answer, sums))


def _merged(answer, sums):
    """Return rows of peak-by-stack; the file separates those without a stack by argument."""
    rows = json.loads(answer)
    kinds = {row["call_stack"] for row in rows if row["call_stack"].startswith("(")}
    apart = [
        {"held_bytes": size} for stack, size in sums.items() if stack.partition(";")[0] in kinds
    ]
    with_stack = [row for row in rows if row["call_stack"] not in kinds]
    for kind in kinds:
        total = sum(row["held_bytes"] for row in rows if row["call_stack"] == kind)
        sizes = [size for stack, size in sums.items() if stack.partition(";")[0] == kind]
        assert sum(sizes) == total
    return with_stack + apart


@pytest.mark.slow
def test_an_argument_is_below_its_kind(export):
    data, _ = export("collapsed", "--run", "cpu_b8", "--function", "train_step")
    assert "\n(donated_parameter);state/params/embed" in data.decode()


@pytest.mark.slow
def test_one_function_is_in_a_sum_and_a_note_names_the_others(export):
    assert (
        "train_step (cpu_b16, host) is written, which has the largest need; not "
        in (export("collapsed")[1])
    )
    assert export("collapsed", "--run", "cpu_b8", "--function", "init")[1] == ""


@pytest.mark.slow
def test_speedscope_has_a_profile_per_function_and_space(export, demo):
    document = json.loads(export("speedscope")[0])
    peaks = demo.execute("SELECT peak_bytes FROM asked_functions WHERE peak_bytes IS NOT NULL")
    assert sorted(profile["endValue"] for profile in document["profiles"]) == sorted(
        peak for (peak,) in peaks.fetchall()
    )
    for profile in document["profiles"]:
        assert sum(profile["weights"]) == profile["endValue"]


def test_speedscope_keeps_to_its_schema(export):
    """The types of src/lib/file-format-spec.ts in jlfwong/speedscope, for sampled profiles."""
    jsonschema = pytest.importorskip("jsonschema")
    document = json.loads(export("speedscope", "--function", "train_step")[0])
    jsonschema.validate(document, SPEEDSCOPE)
    count = len(document["shared"]["frames"])
    for profile in document["profiles"]:
        assert len(profile["samples"]) == len(profile["weights"])
        assert all(0 <= frame < count for stack in profile["samples"] for frame in stack)


_NUMBERS = {"type": "array", "items": {"type": "number"}}
SPEEDSCOPE = {
    "type": "object",
    "required": ["$schema", "shared", "profiles"],
    "properties": {
        "$schema": {"const": "https://www.speedscope.app/file-format-schema.json"},
        "name": {"type": "string"},
        "exporter": {"type": "string"},
        "activeProfileIndex": {"type": "number"},
        "shared": {
            "type": "object",
            "required": ["frames"],
            "properties": {
                "frames": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["name"],
                        "additionalProperties": False,
                        "properties": {
                            "name": {"type": "string"},
                            "file": {"type": "string"},
                            "line": {"type": "number"},
                            "col": {"type": "number"},
                        },
                    },
                }
            },
        },
        "profiles": {
            "type": "array",
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": [
                    "type",
                    "name",
                    "unit",
                    "startValue",
                    "endValue",
                    "samples",
                    "weights",
                ],
                "properties": {
                    "type": {"const": "sampled"},
                    "name": {"type": "string"},
                    "unit": {"const": "bytes"},
                    "startValue": {"type": "number"},
                    "endValue": {"type": "number"},
                    "samples": {"type": "array", "items": _NUMBERS},
                    "weights": _NUMBERS,
                },
            },
        },
    },
}


# -- pprof -----------------------------------------------------------------------------------------

PROFILE = {
    "Profile": "sample_type:1:*ValueType sample:2:*Sample mapping:3:*Mapping location:4:*Location "
    "function:5:*Function string_table:6:*string comment:13:*int64 default_sample_type:14:int64",
    "ValueType": "type:1:int64 unit:2:int64",
    "Sample": "location_id:1:*uint64 value:2:*int64 label:3:*Label",
    "Label": "key:1:int64 str:2:int64 num:3:int64 num_unit:4:int64",
    "Mapping": "id:1:uint64",
    "Location": "id:1:uint64 mapping_id:2:uint64 address:3:uint64 line:4:*Line",
    "Line": "function_id:1:uint64 line:2:int64",
    "Function": "id:1:uint64 name:2:int64 system_name:3:int64 filename:4:int64 start_line:5:int64",
}
"""proto/profile.proto of google/pprof: NAME:NUMBER:TYPE, * for repeated."""


def read_profile(data):
    """The profile, read by protobuf."""
    descriptor_pb2 = pytest.importorskip("google.protobuf.descriptor_pb2")
    from google.protobuf import descriptor_pool, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="p", syntax="proto3")
    for name, fields in PROFILE.items():
        message = file.message_type.add(name=name)
        for field in fields.split():
            field_name, number, kind = field.split(":")
            added = message.field.add(name=field_name, number=int(number))
            added.label = 3 if kind.startswith("*") else 1
            kind = kind.lstrip("*")
            added.type = {"int64": 3, "uint64": 4, "string": 9}.get(kind, 11)
            if added.type == 11:
                added.type_name = f".p.{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    profile = message_factory.GetMessageClass(pool.FindMessageTypeByName("p.Profile"))()
    profile.ParseFromString(gzip.decompress(data))
    return profile


@pytest.mark.slow
def test_a_profile_has_the_peak_in_the_types_of_jax(export):
    profile = read_profile(export("pprof", "--run", "cpu_b8", "--function", "train_step")[0])
    texts = profile.string_table
    assert texts[0] == ""
    assert [(texts[kind.type], texts[kind.unit]) for kind in profile.sample_type] == [
        ("allocations", "count"),
        ("space", "bytes"),
    ]
    assert texts[profile.default_sample_type] == "space"
    assert sum(sample.value[1] for sample in profile.sample) == PEAKS["cpu_b8"]
    title = "train_step (cpu_b8, host), peak 8905504 bytes at "
    assert texts[profile.comment[0]].startswith(title)


@pytest.mark.slow
def test_a_profile_refers_to_nothing_that_it_has_not(export):
    profile = read_profile(export("pprof", "--run", "gpu_b8")[0])
    functions = {function.id for function in profile.function}
    locations = {location.id for location in profile.location}
    assert 0 not in functions | locations
    assert {line.function_id for place in profile.location for line in place.line} == functions
    assert {number for sample in profile.sample for number in sample.location_id} == locations
    assert max(label.str for sample in profile.sample for label in sample.label) < len(
        profile.string_table
    )


@pytest.mark.slow
def test_a_profile_has_the_innermost_frame_first_and_labels(export):
    profile = read_profile(export("pprof", "--run", "cpu_b8", "--function", "train_step")[0])
    texts = profile.string_table
    functions = {function.id: function for function in profile.function}
    lines = {location.id: location.line[0] for location in profile.location}
    largest = max(profile.sample, key=lambda sample: sample.value[1])
    frames = [
        (texts[functions[lines[number].function_id].name], lines[number].line)
        for number in largest.location_id
    ]
    assert frames[:3] == [
        ("(saved by a loop)", 0),
        ("cross_entropy", 66),
        ("loss.<locals>.add_example", 73),
    ] or frames[:3] == [
        ("(saved by a loop)", 0),
        ("cross_entropy", 65),
        ("loss.<locals>.add_example", 73),
    ]
    labels = {texts[label.key]: texts[label.str] for label in largest.label}
    assert labels["kind"] == "temp"
    assert labels["shape"] == "f32[8,100,500]"


@pytest.mark.slow
def test_pprof_can_subtract_the_stacks_of_two_runs(export):
    stacks = []
    for run in ("cpu_b8", "cpu_b16"):
        data, _ = export("collapsed", "--run", run, "--function", "train_step")
        lines = data.decode().splitlines()
        stacks.append({line.rsplit(" ", 1)[0] for line in lines})
    assert len(stacks[0] & stacks[1]) > 0.8 * len(stacks[0])


# -- Perfetto --------------------------------------------------------------------------------------


def test_the_counter_of_a_trace_is_the_timeline(export, demo):
    """Read by the classes that Perfetto's own package has of its messages."""
    messages = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    trace = messages.Trace()
    options = ("--run", "tpu_b8", "--function", "train_step", "--color", "all")
    trace.ParseFromString(export("perfetto", *options)[0])
    names = {
        packet.track_descriptor.uuid: packet.track_descriptor.name
        for packet in trace.packet
        if packet.HasField("track_descriptor")
    }
    counters, open_slices, values = defaultdict(list), Counter(), Counter()
    for packet in trace.packet:
        event = packet.track_event
        if not packet.HasField("track_event"):
            continue
        assert event.track_uuid in names
        if event.type == event.TYPE_COUNTER:
            counters[names[event.track_uuid]].append((packet.timestamp, event.counter_value))
        else:
            open_slices[event.track_uuid] += 1 if event.type == event.TYPE_SLICE_BEGIN else -1
            values[names[event.track_uuid].split()[1]] += event.type == event.TYPE_SLICE_BEGIN
    assert not any(open_slices.values())
    expected = demo.execute(
        "SELECT memory_space_name, peak_bytes, list([start_time * 1000, occupied_bytes] "
        "ORDER BY start_time) FROM memory_figures JOIN memory_steps USING (module_id, color) "
        "WHERE run_name = 'tpu_b8' AND function_name = 'train_step' GROUP BY ALL"
    ).fetchall()
    assert len(expected) > 2
    for space, peak, steps in expected:
        points = counters[f"occupied bytes, {space}"]
        assert [list(point) for point in points[:-1]] == steps
        assert max(size for _, size in points) == peak
    count = demo.execute(
        "SELECT count(*) FROM value_details WHERE run_name = 'tpu_b8' AND size_bytes > 0 "
        "AND function_name = 'train_step' AND color = 1 AND start_time IS NOT NULL"
    ).fetchone()
    assert values["vmem"] == count[0] > 0


# -- PyTorch's memory viewer -----------------------------------------------------------------------

READ_BY_THE_VIEWER = """
APPENDS BINGET BININT BININT1 BININT2 EMPTY_DICT EMPTY_LIST FRAME LONG1 LONG_BINGET MARK MEMOIZE
PROTO SETITEMS SHORT_BINUNICODE STOP APPEND NEWFALSE BINUNICODE NEWTRUE NONE SETITEM
"""
"""Opcodes of pickle that torch/utils/viz/MemoryViz.js reads."""


@pytest.mark.slow
def test_a_snapshot_holds_the_peak_at_the_peak(export, demo):
    data, err = export("torch-snapshot", "--run", "*_b8")
    snapshot = pickle.loads(data)
    rows = demo.execute(
        "SELECT function_name || ' (' || run_name || ', ' || memory_space_name || ')', "
        "peak_bytes, peak_time FROM asked_functions"
    ).fetchall()
    peaks = {name: (peak, time) for name, peak, time in rows}
    devices = [line.partition(": device ")[2] for line in err.splitlines()]
    assert len(devices) == len(snapshot["device_traces"]) > 5
    for device, line in enumerate(devices):
        number, _, name = line.partition(": ")
        assert int(number) == device
        sums, _ = played(snapshot, device)
        peak, time = peaks[name]
        assert max(sums.values(), default=0) == peak
        assert not peak or next(at for at, size in sums.items() if size == peak) == time


@pytest.mark.slow
def test_a_snapshot_follows_the_timeline_at_each_step(export, demo):
    snapshot = pickle.loads(export("torch-snapshot", "--run", "cpu_b8")[0])
    sums, _ = played(snapshot, 0)
    steps = demo.execute(
        "SELECT start_time, occupied_bytes FROM memory_steps JOIN asked_functions "
        "USING (module_id, color) WHERE run_name = 'cpu_b8' AND function_name = 'train_step'"
    ).fetchall()
    assert len(steps) > 50
    for time, size in steps:
        assert sums[max(at for at in sums if at <= time)] == size


@pytest.mark.slow
def test_blocks_fill_their_segments_and_are_what_is_left(export):
    snapshot = pickle.loads(export("torch-snapshot", "--run", "gpu_b8")[0])
    for device in range(len(snapshot["device_traces"])):
        _, held = played(snapshot, device)
        active = {}
        for segment in snapshot["segments"]:
            if segment["device"] != device:
                continue
            address = segment["address"]
            for block in segment["blocks"]:
                assert block["address"] == address
                if block["state"] == "active_allocated":
                    active[address] = block["size"]
                address += block["size"]
            assert address == segment["address"] + segment["total_size"]
        assert active == held


@pytest.mark.slow
def test_a_value_is_at_its_offset_and_freed_at_its_end(export, demo):
    snapshot = pickle.loads(export("torch-snapshot", "--run", "cpu_b8")[0])
    allocs = [
        event
        for event in snapshot["device_traces"][0]
        if event["frames"][0]["name"].startswith("maximum_bitcast_fusion ")
    ]
    assert [(event["action"], event["time_us"]) for event in allocs][-2:] == [
        ("free_requested", 136),
        ("free_completed", 136),
    ]
    assert allocs[0]["addr"] % 2**20 == 4019200 % 2**20
    assert allocs[0]["frames"][1]["line"] == 53


@pytest.mark.slow
def test_the_viewer_can_read_the_pickle(export):
    data, _ = export("torch-snapshot", "--run", "cpu_b8")
    assert {opcode.name for opcode, _, _ in pickletools.genops(data)} <= set(
        READ_BY_THE_VIEWER.split()
    )
    assert data[:2] == b"\x80\x04"


def test_pytorch_itself_reads_the_snapshot(export):
    viz = pytest.importorskip("torch.cuda._memory_viz")
    snapshot = pickle.loads(export("torch-snapshot", "--run", "cpu_b8")[0])
    assert f"segments: {len(snapshot['segments'])}\n" in viz.segsum(snapshot)
    assert viz.trace(snapshot).count("Device ") == len(snapshot["device_traces"])
    text = viz.memory(snapshot, format_flamegraph=str)
    assert ";active_allocated;" in text


# -- of values made up -----------------------------------------------------------------------------


def function(**facts):
    fields = {"run_name": "r", "function_name": "f", "memory_space": "host", "module_id": 1}
    fields |= {"module_key": "m", "color": 0, "peak_bytes": 8, "peak_time": 3, "schedule_length": 9}
    return Function(**{**fields, **facts})


def value(number, start, end):
    facts = (number, 0, "temp", 0, 8, start, end, f"v{number}", "f32[2]", "add", "", ())
    return HloValue(*facts)


def test_a_track_is_reused_after_its_value():
    track_values = [value(1, 0, 3), value(2, 2, 5), value(3, 4, 9), value(4, 6, 6)]
    packets = b"".join(perfetto._slices(function(), track_values, 1, itertools.count(2)))
    assert [packets.count(f"values, host {lane}".encode()) for lane in (1, 2, 3)] == [1, 1, 0]
    assert all(f"v{number} f32[2]".encode() in packets for number in (1, 2, 3, 4))


def test_a_program_too_long_for_a_trace_is_refused(con):
    with pytest.raises(BufdbError, match=r"f \(r, host\): its schedule is too long for a trace"):
        perfetto.trace(con, [function(schedule_length=2**60)])


def test_bytes_of_no_value_have_their_allocation():
    held = [Held(None, "constant", 8)]
    data = gzip.decompress(pprof.profile(function(peak_time=None), held))
    assert b"(constant)" in data and b"f (r, host), peak 8 bytes" in data
    assert b"bytes at" not in data and b"instruction" not in data
    assert torch_snapshot._fixed([value(1, 0, 9)], 7, "constant") == (Frame("(constant)"),)


# -- odd dumps -------------------------------------------------------------------------------------

ODD = 'a;b\n"\\\x07 ünï \u2028'


@pytest.fixture
def odd_db(empty_db, tmp_path):
    """One module with an unknown peak, and one whose names are of any letters, with a circle."""
    path = tmp_path / "odd.duckdb"
    shutil.copy(empty_db, path)
    with duckdb.connect(str(path)) as con:
        Module(con, 2, function_name="unknown", has_live_ranges=False).close()
        module = Module(con, 1, function_name=ODD, schedule_length=9)
        module.allocation(0, "temp", 100)
        module.value(1, 0, 0, 64, (2, 5), op_name=ODD, stack_frame_id=1)
        for frame, parent in ((1, 2), (2, 1)):
            insert(con, "stack_frames", module_id=1, stack_frame_id=frame, parent_frame_id=parent,
                   source_file=ODD, function_name=ODD, source_line=2**62 + frame)  # fmt: skip
        module.close()
    return path


@pytest.mark.sample(3)
@pytest.mark.parametrize("form", ["speedscope", "collapsed", "pprof", "perfetto", "torch-snapshot"])
def test_odd_names_circles_and_unknown_peaks_are_safe(export, odd_db, form):
    data, err = export(form, db=odd_db)
    assert data
    assert "unknown (r): unknown peak: the dump has no live ranges" in err


@pytest.mark.slow
def test_odd_names_come_back_as_they_are(export, odd_db):
    document = json.loads(export("speedscope", db=odd_db)[0])
    assert {frame["name"] for frame in document["shared"]["frames"]} == {ODD}
    assert document["profiles"][0]["weights"] == [64]
    line = export("collapsed", db=odd_db)[0].decode()
    assert line.count("\n") == 1
    assert line.count(";") == 1
    snapshot = pickle.loads(export("torch-snapshot", db=odd_db)[0])
    assert snapshot["device_traces"][0][0]["frames"][1]["name"] == ODD


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--function", "unknown"], 1, "the dump has no live ranges"),
        (["--function", "nothing"], 1, "no module with function 'nothing'"),
        (["--color", "vmem"], 2, "no memory space 'vmem'"),
    ],
)
def test_nothing_to_show_is_said(call, odd_db, tmp_path, options, code, words):
    path = tmp_path / "out"
    exit_code, _, err = call("export", "--format", "pprof", "--db", odd_db, "-o", path, *options)
    assert (exit_code, words in err, path.exists()) == (code, True, False), err


def test_of_many_unknown_peaks_a_few_are_named(con):
    for number in range(1, 6):
        Module(con, number, function_name=f"f{number}", has_live_ranges=False)
    known = Module(con, 6)
    known.allocation(0, "output", 8)
    known.value(1, 0, 0, 8)
    known.close()
    chosen = shown.choose(con, {})
    assert [item.function_name for item in chosen.functions] == ["f"]
    first = "f1 (r): unknown peak: the dump has no live ranges"
    named = shown._MOST_NAMED
    assert (chosen.notes[0], len(chosen.notes)) == (first, named + 1)
    assert chosen.notes[-1] == f"{5 - named} more functions have an unknown peak"


def test_frames_of_libraries_are_there_where_they_are_asked_for(con):
    module = Module(con, 1)
    module.allocation(0, "output", 8)
    file = "/env/site-packages/flax/linen.py"
    module.value(1, 0, 0, 8, source_file=file, source_line=3)
    module.close()
    (one,) = shown.choose(con, {}).functions
    frames = [
        value.frames for wanted in (False, True) for value in values(con, one, all_frames=wanted)
    ]
    assert frames == [(Frame("(output)"),), (Frame("", file, 3),)]


@pytest.mark.slow
def test_functions_with_the_largest_needs_are_written(call, demo_db, tmp_path, monkeypatch):
    whole = shown.first
    monkeypatch.setattr(shown, "first", lambda chosen: whole(chosen, 2))
    path = tmp_path / "stacks.json"
    code, _, err = call("export", "--format", "speedscope", "--db", demo_db, "-o", path)
    assert code == 0
    assert "the 2 functions with the largest needs are written, " in err
    assert len(json.loads(path.read_text())["profiles"]) == 2
