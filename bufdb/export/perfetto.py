"""A trace for ui.perfetto.dev: occupied bytes as counters, values as slices, over program order.

The messages are those of protos/perfetto/trace in google/perfetto (TracePacket, TrackDescriptor,
TrackEvent). A step of the program is a microsecond of the trace: the values that are live at step
135 are the slices at 135 µs. A counter has the bytes of memory_steps; slices are values with their
full size, which share bytes, so that their sum is larger.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from bufdb.database.engine import duckdb
from bufdb.errors import BufdbError
from bufdb.export import wire
from bufdb.export.shown import Function
from bufdb.export.values import HloValue, values

STEPS = """
SELECT start_time, occupied_bytes
FROM memory_steps
WHERE module_id = $module_id
  AND color = $color
ORDER BY start_time
"""
STEP_NS = 1000
_LATEST = 2**62 // STEP_NS
_PACKET = 1
_TIMESTAMP, _SEQUENCE_ID, _TRACK_EVENT, _FLAGS, _TRACK_DESCRIPTOR = 8, 10, 11, 13, 60
"""Fields of TracePacket."""
_STATE_CLEARED = 1
_SEQUENCE = 1
_BEGIN, _END, _COUNTER = 1, 2, 4
"""TrackEvent.Type."""
_BYTES = 3
"""CounterDescriptor.Unit.UNIT_SIZE_BYTES."""


def trace(
    con: duckdb.DuckDBPyConnection, functions: Sequence[Function], *, all_frames: bool = False
) -> bytes:
    """Return a trace with a process for each module, and in it tracks for each memory space.

    Raises:
        BufdbError: sizes or steps of the program do not fit into the format.
    """
    tracks = count(1)
    processes: dict[int, int] = {}
    parts = [_packet(wire.integer(_FLAGS, _STATE_CLEARED))]
    for function in functions:
        if function.schedule_length > _LATEST:
            raise BufdbError(f"{function.title}: its schedule is too long for a trace")
        if function.module_id not in processes:
            processes[function.module_id] = next(tracks)
            name = f"{function.function_name} ({function.run_name})"
            number = len(processes)
            process = wire.integer(1, number) + wire.text(6, name)
            parts.append(_track(processes[function.module_id], wire.message(3, process)))
        parent = processes[function.module_id]
        parts += _counter(con, function, parent, next(tracks))
        parts += _slices(function, values(con, function, all_frames=all_frames), parent, tracks)
    return b"".join(parts)


def _counter(
    con: duckdb.DuckDBPyConnection, function: Function, parent: int, track: int
) -> Iterator[bytes]:
    name = wire.text(2, f"occupied bytes, {function.memory_space}")
    unit = wire.message(8, wire.integer(3, _BYTES))
    yield _track(track, name + wire.integer(5, parent) + unit)
    parameters = {"module_id": function.module_id, "color": function.color}
    rows = con.execute(STEPS, parameters).fetchall()
    last = [(function.schedule_length + 1, size) for _, size in rows[-1:]]
    for time, size in [*rows, *last]:
        body = wire.integer(9, _COUNTER) + wire.integer(11, track) + wire.integer(30, size)
        yield _event(time, body)


def _slices(
    function: Function, hlo_values: Iterable[HloValue], parent: int, tracks: Iterator[int]
) -> Iterator[bytes]:
    """Yield slices on as many tracks as values are live at once: no overlaps within a track."""
    free: list[tuple[int, int, int]] = []
    lanes = 0
    for start, end, value in _live(hlo_values, function.schedule_length):
        if free and free[0][0] <= start:
            _, lane, track = heapq.heappop(free)
        else:
            lane, track = lanes, next(tracks)
            lanes += 1
            # Numbered, because Perfetto merges tracks of the same name.
            name = wire.text(2, f"values, {function.memory_space} {lanes}")
            yield _track(track, name + wire.integer(5, parent))
        heapq.heappush(free, (end, lane, track))
        body = wire.integer(9, _BEGIN) + wire.integer(11, track)
        name = wire.text(23, f"{value.name} {value.shape}")
        yield _event(start, body + name + b"".join(_facts(value)))
        yield _event(end, wire.integer(9, _END) + wire.integer(11, track))


def _live(hlo_values: Iterable[HloValue], schedule_length: int) -> list[tuple[int, int, HloValue]]:
    """Return (first instant, instant after the last, value) of values that take bytes."""
    live = [
        (value.start_time, min(value.end_time, schedule_length) + 1, value)
        for value in hlo_values
        if value.start_time is not None
        and value.end_time is not None
        and value.size_bytes > 0
        and value.allocation_kind != "thread_local"
        and 0 <= value.start_time <= min(value.end_time, schedule_length)
    ]
    return sorted(live, key=lambda item: (item[0], -item[2].size_bytes, item[2].value_id))


def _facts(value: HloValue) -> Iterator[bytes]:
    """Yield debug annotations: numbers, and texts that are known."""
    numbers = {
        "size_bytes": value.size_bytes,
        "allocation_index": value.allocation_index,
        "offset_bytes": value.offset_bytes,
        "value_id": value.value_id,
    }
    texts = {
        "allocation_kind": value.allocation_kind,
        "opcode": value.opcode,
        "op": value.op_path,
        "stack": " < ".join(frame.label for frame in value.frames),
    }
    for name, number in numbers.items():
        yield wire.message(4, wire.text(10, name) + wire.integer(4, number))
    for name, text in texts.items():
        if text:
            yield wire.message(4, wire.text(10, name) + wire.text(6, text))


def _track(number: int, body: bytes) -> bytes:
    return _packet(wire.message(_TRACK_DESCRIPTOR, wire.integer(1, number) + body))


def _event(time: int, body: bytes) -> bytes:
    stamp = wire.integer(_TIMESTAMP, time * STEP_NS)
    return _packet(stamp + wire.message(_TRACK_EVENT, body))


def _packet(body: bytes) -> bytes:
    return wire.message(_PACKET, body + wire.integer(_SEQUENCE_ID, _SEQUENCE))
