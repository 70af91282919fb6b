"""Damaged protos: nothing crashes, nothing goes round for ever, nothing is quietly wrong."""

import random
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest_into, rows
from proto_rows import PROTOS, needs_protobuf

from bufdb.proto import reader
from bufdb.proto.reader import UnreadableProto, fields, hlo_proto
from bufdb.proto.sections import Sections, read

pytestmark = needs_protobuf
SAMPLES = {
    "tpu": PROTOS / "tpu/module_0032.jit_nested.cl_1003875606.after_optimizations.hlo.pb",
    "gpu": PROTOS / "gpu/module_2653.jit_decode.sm_9.0a_gpu_after_optimizations.hlo.pb",
}
MIB = 1 << 20


def extent(sections: Sections) -> int:
    """Return about how many bytes were reported."""
    strings = sum(map(len, sections.strings)) + sum(map(len, sections.descriptions.values()))
    columns = (
        c for tables in sections.tables.values() for t in tables.values() for c in t.values()
    )
    return len(sections.hlo or b"") + strings + sum(column.nbytes for column in columns)


def damaged(data: bytes, number: int) -> bytes:
    """Return data with bytes changed, lost or doubled; a number always gives the same damage."""
    chance = random.Random(number)
    changed = bytearray(data)
    for _ in range(chance.choice((1, 1, 3, 10))):
        at = chance.randrange(len(changed))
        match chance.randrange(4):
            case 0:
                changed[at] = chance.randrange(256)
            case 1:
                changed[at] ^= 1 << chance.randrange(8)
            case 2:
                del changed[at : at + chance.randrange(1, 20)]
            case _:
                changed[at:at] = changed[at : at + chance.randrange(1, 20)]
    return bytes(changed)


@pytest.mark.sample(5)
@pytest.mark.parametrize("chunk", range(20))
@pytest.mark.parametrize("platform", SAMPLES)
def test_a_damaged_proto_is_read_or_refused(platform: str, chunk: int) -> None:
    data = SAMPLES[platform].read_bytes()
    whole = extent(read(data))
    for number in range(chunk * 20, chunk * 20 + 20):
        try:
            sections = read(damaged(data, number))
        except UnreadableProto as error:
            assert "\n" not in str(error)
            continue
        assert extent(sections) < 2 * whole + MIB, number


@pytest.mark.parametrize("damage", ["value", "allocation", "color", "parameter"])
def test_numbers_that_count_are_not_below_0(damage: str) -> None:
    proto = reader.read(SAMPLES["gpu"].read_bytes())
    assignment = proto.buffer_assignment
    number = assignment.logical_buffers[0].id
    for a in assignment.buffer_allocations:
        for one in a.assigned:
            if damage == "value" and one.logical_buffer_id == number:
                one.logical_buffer_id = -1
    if damage == "value":
        assignment.logical_buffers[0].id = -1
    elif damage == "parameter":
        parameter = next(a for a in assignment.buffer_allocations if a.parameter_number == 1)
        parameter.parameter_number = -1
    else:
        name = "index" if damage == "allocation" else "color"
        setattr(assignment.buffer_allocations[0], name, -1)
    with pytest.raises(UnreadableProto, match=f"a.? {damage.replace('color', 'allocation')} .* 0"):
        read(proto.SerializeToString())


def test_a_size_of_more_than_64_bits_is_refused() -> None:
    from bufdb.proto.hlo_fields_pb2 import HloComputationProto

    proto = reader.read(SAMPLES["gpu"].read_bytes())
    computations = proto.hlo_module.computations
    for number, data in enumerate(computations):
        computation = HloComputationProto.FromString(data)
        for x in computation.instructions:
            shape = reader.shape_of(x.shape)
            shape.dimensions[:] = [2**40] * len(shape.dimensions)
            x.shape = shape.SerializeToString()
        computations[number] = computation.SerializeToString()
    with pytest.raises(UnreadableProto, match="more than 64 bits"):
        read(proto.SerializeToString())


def changed(opcode: bytes, **fields: list[int]) -> tuple[bytes, str]:
    """A proto whose first instruction of an opcode has other fields, and its name."""
    from bufdb.proto.hlo_fields_pb2 import HloComputationProto

    proto = reader.read(SAMPLES["tpu"].read_bytes())
    computations = proto.hlo_module.computations
    heads = list(reader.computations_of(list(computations)))
    for number, head in enumerate(heads):
        # What it does not know of a computation the message keeps.
        computation = HloComputationProto.FromString(computations[number])
        for x in () if head.is_fusion_computation else computation.instructions:
            if x.opcode == opcode:
                for name, value in fields.items():
                    getattr(x, name)[:] = value
                computations[number] = computation.SerializeToString()
                return proto.SerializeToString(), x.name.decode()
    raise LookupError(opcode)


@pytest.mark.parametrize(
    ("opcode", "fields"),
    [
        (b"get-tuple-element", {"operand_ids": []}),
        (b"tuple", {"operand_ids": []}),
        (b"copy-start", {"operand_ids": []}),
        (b"while", {"called_computation_ids": []}),
    ],
)
def test_what_is_not_understood_is_no_damage(opcode: bytes, fields: dict[str, list[int]]) -> None:
    data, name = changed(opcode, **fields)
    with pytest.raises(UnreadableProto) as error:
        read(data)
    assert f"bufdb does not understand %{name}, {opcode.decode()}, in it" in str(error.value)
    assert "damaged" not in str(error.value)


def test_an_id_that_leads_to_nothing_is_damage() -> None:
    data, _ = changed(b"copy-start", operand_ids=[987654321])
    with pytest.raises(UnreadableProto, match="it is damaged: 987654321 is missing"):
        read(data)


def test_damage_inside_an_assignment_leaves_other_modules_alone(
    con: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    data = SAMPLES["gpu"].read_bytes()
    parts = {number: data[start:stop] for number, _, start, stop in fields(data)}
    for number in range(12):
        broken = hlo_proto(parts[1], damaged(parts[3], number))
        name = f"module_{number:04d}.jit_f.cpu_after_optimizations.hlo.pb"
        (tmp_path / name).write_bytes(broken)
    (tmp_path / "module_9999.jit_g.cpu_after_optimizations.hlo.pb").write_bytes(data)
    ingest_into(con, tmp_path, "run")
    counted = "SELECT count(*) FROM live_ranges JOIN modules USING (module_id) WHERE {}"
    whole = rows(con, counted.format("module_name = 'jit_g'"))
    assert whole == [(35,)]
    # A module whose ranges may be wrong has no peak that could be taken for right.
    silent = (
        "SELECT module_name FROM modules WHERE peak_unknown_reason IS NULL AND module_id IN "
        "(SELECT module_id FROM diagnostics WHERE severity = 'error')"
    )
    assert rows(con, silent) == []


def test_no_schedule_gives_no_ranges(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    data = SAMPLES["gpu"].read_bytes()
    parts = {number: data[start:stop] for number, _, start, stop in fields(data)}
    kept = bytearray()
    at = 0
    for number, _, _, stop in fields(parts[1]):
        if number != 7:
            kept += parts[1][at:stop]
        at = stop
    path = tmp_path / "module_0000.jit_f.cpu_after_optimizations.hlo.pb"
    path.write_bytes(hlo_proto(bytes(kept), parts[3]))
    ingest_into(con, tmp_path, "run")
    about = "SELECT has_live_ranges, derived_from_proto, peak_unknown_reason FROM modules"
    parts_there = "allocations used_values hlo_text"
    assert rows(con, about) == [(False, parts_there, "the dump has no live ranges")]
    assert rows(con, "SELECT code FROM diagnostics") == [("missing_schedule",)]
    assert rows(con, 'SELECT count(*) > 30 FROM "values"') == [(True,)]


def test_a_truncated_proto_is_refused_whole(con: duckdb.DuckDBPyConnection, tmp_path: Path) -> None:
    data = SAMPLES["tpu"].read_bytes()
    for number, size in enumerate(range(1, len(data), len(data) // 7)):
        name = f"module_{number:04d}.jit_f.cpu_after_optimizations.hlo.pb"
        (tmp_path / name).write_bytes(data[:size])
    assert ingest_into(con, tmp_path, "run").module_count == 0
    reported = rows(con, "SELECT DISTINCT severity, code FROM diagnostics")
    assert reported == [("error", "unreadable_proto")]
