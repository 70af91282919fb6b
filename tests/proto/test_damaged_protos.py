"""Damaged protos: nothing crashes, nothing goes round for ever, nothing is quietly wrong."""

import random
from pathlib import Path

import duckdb
import pytest
from ingesting import ingest_into, rows
from proto_rows import PROTOS, needs_protobuf

from bufdb.proto.reader import UnreadableProto
from bufdb.proto.sections import texts
from bufdb.proto.wire import fields, hlo_proto

pytestmark = needs_protobuf
SAMPLES = {
    "tpu": PROTOS / "tpu/module_0032.jit_nested.cl_1003875606.after_optimizations.hlo.pb",
    "gpu": PROTOS / "gpu/module_2653.jit_decode.sm_9.0a_gpu_after_optimizations.hlo.pb",
}
MIB = 1 << 20


def damaged(data: bytes, number: int) -> bytes:
    """The same with some bytes changed, lost or doubled; a number is the same damage again."""
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
    whole = sum(map(len, texts(data).texts.values()))
    for number in range(chunk * 20, chunk * 20 + 20):
        try:
            found = texts(damaged(data, number))
        except UnreadableProto as error:
            assert "\n" not in str(error)
            continue
        assert sum(map(len, found.texts.values())) < 2 * whole + MIB, number


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
    told = rows(con, "SELECT DISTINCT severity, code FROM diagnostics")
    assert told == [("error", "unreadable_proto")]
