"""The second reader: what holds for every sample dump, and each line form by itself."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from itertools import product
from textwrap import dedent
from typing import Any

import pytest
from second_reader import read_module, read_shape, tuple_elements, unescape
from shared_dumps import SETS, all_modules, dumps, needs_dumps, read_files

Tables = dict[str, list[dict[str, Any]]]


def read_set(name: str) -> list[tuple[str, Tables]]:
    return [(key, read_module(read_files(files))) for _, key, files in dumps(name)]


def by(rows: list[dict[str, Any]], column: str) -> dict[Any, dict[str, Any]]:
    return {row[column]: row for row in rows}


def human(number: int) -> str:
    sign, number = ("-", -number) if number < 0 else ("", number)
    for unit in ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"):
        if unit == "" and number < 1024:
            return f"{sign}{number}B"
        if unit and number < 1024 * 1024:
            return f"{sign}{number / 1024:.{1 if unit == 'Ki' else 2}f}{unit}B"
        if unit:
            number //= 1024
    return f"{sign}{number / 1024:.2f}EiB"


# What holds for every dump. The numbers are those of section 8 of the format's description.


def holds_1_allocations_in_order(tables: Tables) -> None:
    indices = [row["allocation_index"] for row in tables["allocations"]]
    assert indices == list(range(len(indices)))
    ids = defaultdict(list)
    for value in tables["values"]:
        ids[value["allocation_index"]].append(value["value_id"])
    assert all(numbers == sorted(numbers) for numbers in ids.values())


def holds_2_values_unique(tables: Tables) -> None:
    ids = [value["value_id"] for value in tables["values"]]
    assert len(ids) == len(set(ids))
    definitions = {(v["instruction_name"], v["shape_index"]) for v in tables["values"]}
    assert len(definitions) == len(ids)


def holds_3_used_values(tables: Tables) -> None:
    if not tables["modules"][0]["has_used_values"]:
        assert not tables["positions"] + tables["uses"]
        return
    values = by(tables["values"], "value_id")
    ids = list(dict.fromkeys(row["value_id"] for row in tables["positions"]))
    assert sorted(ids) == sorted(values)
    if tables["modules"][0]["reported_total_bytes"] is not None:  # else in 2019's blocks
        assert ids == sorted(ids)
    for row in tables["positions"]:
        value = values[row["value_id"]]
        place = (row["instruction_name"], row["shape_index"])
        if row["is_defining"]:
            assert place == (value["instruction_name"], value["shape_index"])
    assert {row["value_id"] for row in tables["uses"]} <= set(values)


def holds_4_slices_inside(tables: Tables) -> None:
    allocations = by(tables["allocations"], "allocation_index")
    reached: Counter[int] = Counter()
    for value in tables["values"]:
        allocation = allocations[value["allocation_index"]]
        end = value["offset_bytes"] + value["size_bytes"]
        assert 0 <= value["offset_bytes"] <= end <= allocation["size_bytes"]
        assert allocation["kind"] == "temp" or value["offset_bytes"] == 0
        reached[value["allocation_index"]] = max(reached[value["allocation_index"]], end)
    for index, end in reached.items():
        assert end == allocations[index]["size_bytes"]


def holds_5_total(tables: Tables) -> None:
    total = tables["modules"][0]["reported_total_bytes"]
    if total is not None:
        sum_bytes = sum(row["size_bytes"] for row in tables["allocations"])
        assert (sum_bytes - total) % 2**64 == 0


def holds_6_roles(tables: Tables) -> None:
    for row in tables["allocations"]:
        flags = (
            row["parameter_number"] is not None,
            row["is_maybe_live_out"],
            row["is_constant"],
            row["is_thread_local"],
            row["is_preallocated_temp"],
        )
        assert sum(flags) == 1 or flags == (True, True, False, False, False)
        assert row["is_preallocated_temp"] == (row["kind"] == "temp")
        assert row["other_attributes"] is None
    outputs = [row for row in tables["allocations"] if row["output_shape"] is not None]
    assert len(outputs) == 1 or tables["modules"][0]["reported_total_bytes"] is None


def holds_7_instruction_shapes(tables: Tables) -> None:
    rows = by(tables["instructions"], "instruction_name")
    assert len(rows) == len(tables["instructions"])
    for value in tables["values"]:
        described = rows[value["instruction_name"]]
        if described["text"] is None:
            continue
        assert described["opcode"] is not None
        shape = described["shape"]
        for number in value["shape_index"].strip("{}").split(","):
            shape = list(tuple_elements(shape))[int(number)] if number else shape
        assert shape == value["shape"]


def holds_8_schedule(tables: Tables) -> None:
    length = tables["modules"][0]["schedule_length"]
    order = {
        row["program_order"]: row
        for row in tables["instructions"]
        if row["program_order"] is not None
    }
    assert sorted(order) == list(range(length or 0))
    rows = by(tables["instructions"], "instruction_name")
    for row in tables["live_ranges"]:
        assert 0 <= row["start_time"] <= row["end_time"] <= length
        if rows[row["instruction_name"]]["opcode"] != "parameter":
            assert order[row["start_time"]]["instruction_name"] == row["instruction_name"]


def holds_9_live_ranges(tables: Tables) -> None:
    ranges = tables["live_ranges"]
    ids = [row["value_id"] for row in ranges]
    assert None not in ids
    assert ids == sorted(set(ids))
    assert len({(row["instruction_name"], row["shape_index"]) for row in ranges}) == len(ranges)
    if not tables["modules"][0]["has_live_ranges"]:
        assert not ranges
        return
    kinds = by(tables["allocations"], "allocation_index")
    for value in tables["values"]:
        kind = kinds[value["allocation_index"]]["kind"]
        if value["value_id"] in set(ids):
            assert kind != "thread_local"
        else:
            assert kind in ("thread_local", "constant")


def holds_11_peak(tables: Tables) -> None:
    module = tables["modules"][0]
    instant, listed = module["reported_peak_time"], tables["peak_contributors"]
    if instant is None:
        assert not listed
        return
    values = by(tables["values"], "value_id")
    shapes = {row["instruction_name"]: row["shape"] for row in tables["instructions"]}
    whole = {name: read_shape(shape)["logical_bytes"] for name, shape in shapes.items() if shape}
    change: Counter[int] = Counter()
    for row in tables["live_ranges"]:
        change[row["start_time"]] += whole[row["instruction_name"]]
        change[row["end_time"] + 2] -= whole[row["instruction_name"]]
    best, best_instant, total = 0, 0, 0
    for time in sorted(change):
        total += change[time]
        if total > best:
            best, best_instant = total, time
    assert instant == best_instant
    live = [
        row["value_id"]
        for row in tables["live_ranges"]
        if row["start_time"] <= instant <= row["end_time"]
    ]
    if all(row["shape_index"] is not None for row in listed):
        sizes = {number: values[number]["logical_bytes"] for number in live}
    else:
        sizes = {number: whole[values[number]["instruction_name"]] for number in live}
    if listed and listed[0]["cumulative_bytes"] is not None:
        live.sort(key=lambda number: v3_key(values[number]))
        assert [row["cumulative_bytes"] for row in listed] == [
            sum(sizes[number] for number in live[: place + 1]) for place in range(len(live))
        ]
    assert [row["value_id"] for row in listed] == live
    assert [row["logical_bytes"] for row in listed] == [sizes[number] for number in live]
    assert [row["instruction_name"] for row in listed] == [
        values[number]["instruction_name"] for number in live
    ]


def v3_key(value: dict[str, Any]) -> Any:
    index = [int(number) for number in value["shape_index"].strip("{}").split(",") if number]
    return -value["logical_bytes"], value["instruction_name"], index


def holds_11_tree(tables: Tables) -> None:
    nodes = tables["peak_stack_nodes"]
    total = tables["modules"][0]["reported_peak_tree_bytes"]
    if total is None:
        assert not nodes
        return
    assert total == sum(row["logical_bytes"] for row in tables["peak_contributors"])
    assert [node["depth"] for node in nodes].count(0) == (total > 0)
    remaining = total
    children = defaultdict(list)
    for node in nodes:
        remaining -= node["current_bytes"]
        assert node["remaining_bytes"] == remaining
        assert node["total_bytes"] > 0
        children[node["parent_ordinal"]].append(node)
        if node["depth"]:
            assert nodes[node["parent_ordinal"]]["depth"] == node["depth"] - 1
    assert remaining == 0
    assert not nodes or nodes[0]["total_bytes"] == total
    for node in nodes:
        below = children[node["node_ordinal"]]
        assert node["total_bytes"] == node["current_bytes"] + sum(n["total_bytes"] for n in below)
        keys = [(-n["total_bytes"], n["label"]) for n in below]
        assert keys == sorted(keys)


def holds_shapes(tables: Tables) -> None:
    assert len({row["shape"] for row in tables["shapes"]}) == len(tables["shapes"])
    for row in tables["shapes"]:
        assert row["dtype"] is not None
        assert row["logical_bytes"] is not None
    spaces = by(tables["shapes"], "shape")
    for value in tables["values"]:
        assert value["logical_bytes"] == spaces[value["shape"]]["logical_bytes"]
        assert spaces[value["shape"]]["memory_space"] in (None, value["color"])


def holds_occupancy(tables: Tables) -> None:
    temps: Counter[int] = Counter()
    for row in tables["allocations"]:
        temps[row["color"]] += row["size_bytes"] if row["kind"] == "temp" else 0
    if tables["modules"][0]["has_live_ranges"]:
        assert {row["color"] for row in tables["occupied_peaks"]} == set(temps)
    for peak in tables["occupied_peaks"]:
        steps = [row for row in tables["occupancy_steps"] if row["color"] == peak["color"]]
        sizes = [row["occupied_temp_bytes"] for row in steps]
        assert max(sizes, default=0) == peak["occupied_temp_bytes"] <= temps[peak["color"]]
        assert peak["occupied_temp_bytes"] <= peak["naive_live_bytes"]
        assert all(before != after for before, after in zip([0, *sizes], sizes, strict=False))
        times = [row["start_time"] for row in steps]
        assert times == sorted(set(times))


def holds_frames(tables: Tables) -> None:
    frames = by(tables["stack_frames"], "stack_frame_id")
    for frame in frames.values():
        assert None not in (frame["source_file"], frame["function_name"], frame["source_line"])
        above = frames.get(frame["parent_frame_id"])
        assert frame["depth"] == (above["depth"] + 1 if above else 0)
        assert (above is None) == (frame["parent_frame_id"] is None)
    for row in tables["instructions"]:
        if frames and row["stack_frame_id"] is not None:
            frame = frames[row["stack_frame_id"]]
            assert row["source_line"] == frame["source_line"]


INVARIANTS = [function for name, function in list(globals().items()) if name.startswith("holds_")]


@needs_dumps
@pytest.mark.sample(4)
@pytest.mark.parametrize("name", SETS)
def test_every_dump(name: str) -> None:
    """Check everything about a set's dumps in one test, because reading a set takes seconds."""
    read = read_set(name)
    failed = []
    for holds, (key, tables) in product(INVARIANTS, read):
        try:
            holds(tables)
        except (AssertionError, KeyError, IndexError) as error:
            failed.append(f"{holds.__name__}: {key}: {error!r}"[:300])
    assert not failed
    is_late = name.endswith(("0.10.2", "0.12.0"))
    expected = "A" if name.startswith("tf-") else "C" if is_late else "B"
    assert {tables["modules"][0]["format_era"] for _, tables in read} == {expected}
    every_line_gives_a_row(name, read)


def every_line_gives_a_row(name: str, read: list[tuple[str, Tables]]) -> None:
    for (_, key, files), (_, tables) in zip(dumps(name), read, strict=True):
        text = "".join(path.read_text("utf-8") for kind, path in files.items() if kind in KINDS)
        counted = {
            "allocations": r"^allocation \d",
            "values": r"^ value: <|^  \d+ .*, positions:$",
            "uses": r"^  [\w.-]+, operand \d+",
            "live_ranges": r"^    [\w.-]+\{[\d,]*\}:\d+-\d+$",
            "peak_contributors": r"^    [\w.-]+(\{[\d,]*\})?: \d+ bytes",
            "peak_stack_nodes": r"remaining: [\d ]+ bytes\)$",
        }
        for table, pattern in counted.items():
            assert len(tables[table]) == len(re.findall(pattern, text, re.M)), (key, table)
        for total in re.finditer(r"^Total bytes used: (-?\d+) \((.*)\)$", text, re.M):
            assert human(int(total[1])) == total[2]


KINDS = ("buffer_assignment", "values", "live_range")


@needs_dumps
def test_every_set_has_modules() -> None:
    counts = Counter(name for name, _, _ in all_modules())
    assert counts["seeds"] == 5
    assert len(counts) == 12
    assert counts["tf-1.15"] == 3
    assert counts["tf-2.4"] == 4
    kinds = Counter(kind for _, _, files in all_modules() for kind in files)
    others = {"hlo", "before_optimizations", "debug_options", "memory_report"}
    assert set(kinds) == {*KINDS, *others}
    assert kinds["buffer_assignment"] == sum(counts.values())
    assert kinds["values"] == kinds["live_range"]


@needs_dumps
def test_seeds() -> None:
    columns = (
        "allocations",
        "values",
        "positions",
        "uses",
        "live_ranges",
        "peak_contributors",
    )
    counts = {key[:3]: [len(rows[name]) for name in columns] for key, rows in read_set("seeds")}
    assert counts == {
        "000": [5, 5, 5, 4, 5, 5],
        "001": [10, 65, 92, 70, 65, 18],
        "002": [7, 15, 23, 22, 15, 8],
        "003": [7, 7, 9, 10, 7, 7],
        "004": [8, 9, 11, 10, 9, 7],
    }


# Line forms


def read(text: str, **more: str) -> Tables:
    files = {"buffer_assignment": dedent(text)[1:], **more}
    return read_module({kind: content.encode() for kind, content in files.items()})


def head(line: str) -> dict[str, Any]:
    return read_module({"buffer_assignment": f"BufferAssignment:\n{line}\n".encode()})[
        "allocations"
    ][0]


def test_color_and_page_default() -> None:
    row = head("allocation 3: size 12, preallocated-temp:")
    assert (row["allocation_index"], row["size_bytes"]) == (3, 12)
    assert (row["color"], row["page"], row["kind"]) == (0, None, "temp")


def test_head_with_everything() -> None:
    row = head(
        "allocation 0: 0x7f3a, size 24, color 1, page 2, parameter 3, shape |(f32[2], s32[])| "
        "at ShapeIndex {0,1}, output shape is |f32[<=2,?]|, maybe-live-out:"
    )
    assert row == {
        "allocation_index": 0,
        "size_bytes": 24,
        "color": 1,
        "page": 2,
        "kind": "donated_parameter",
        "is_constant": False,
        "is_thread_local": False,
        "is_maybe_live_out": True,
        "is_preallocated_temp": False,
        "parameter_number": 3,
        "parameter_shape": "(f32[2], s32[])",
        "parameter_shape_index": "{0,1}",
        "output_shape": "f32[<=2,?]",
        "other_attributes": None,
    }


def test_parameter_without_shape() -> None:
    row = head("allocation 1: 0x7f3a8c09bbb0, size 8, parameter 2 at ShapeIndex {}:")
    assert (row["parameter_number"], row["parameter_shape_index"]) == (2, "{}")
    assert row["parameter_shape"] is None


def test_unknown_attributes_are_kept() -> None:
    row = head("allocation 1: size 8, lane 4, constant, note (a, b):")
    assert (row["kind"], row["other_attributes"]) == ("constant", "lane 4, note (a, b)")


def test_unknown_shape() -> None:
    row = head("allocation 1: size 8, parameter 0, shape |<unknown shape>| at ShapeIndex {1}:")
    assert row["parameter_shape"] == "<unknown shape>"


def test_value_line() -> None:
    tables = read("""
        BufferAssignment:
        allocation 0: size 32, preallocated-temp:
         value: <326 arg_tuple.3{} (phi) @1> (size=16,offset=16): (u32[2]{0}, /*index=1*/u8[])
         value: <7 fusion @0> (size=8,offset=0): s4[3,5]{1,0:E(4)}
         reused by buffers of a different color:
          value: <7 fusion @0> (color=0)
        """)
    assert tables["values"] == [
        {
            "value_id": 326,
            "allocation_index": 0,
            "offset_bytes": 16,
            "size_bytes": 16,
            "color": 1,
            "instruction_name": "arg_tuple.3",
            "shape_index": "{}",
            "is_phi": True,
            "shape": "(u32[2]{0}, /*index=1*/u8[])",
            "logical_bytes": 16,
        },
        {
            "value_id": 7,
            "allocation_index": 0,
            "offset_bytes": 0,
            "size_bytes": 8,
            "color": 0,
            "instruction_name": "fusion",
            "shape_index": "{}",
            "is_phi": False,
            "shape": "s4[3,5]{1,0:E(4)}",
            "logical_bytes": 8,
        },
    ]
    assert tables["modules"][0]["format_era"] == "C"
    assert [row["text"] for row in tables["instructions"]] == [None, None]


def test_value_of_april_2019() -> None:
    tables = read("""
        BufferAssignment:
        allocation 0: 0x7f556007eba0, size 4, maybe-live-out:
          name[0,1](#12 @0) [0,4]: f32[]
          other[](#13 @0) [0,2]: f16[]
        """)
    first, second = tables["values"]
    assert (first["instruction_name"], first["shape_index"]) == ("name", "{0,1}")
    assert (first["value_id"], first["offset_bytes"], first["size_bytes"]) == (12, 0, 4)
    assert (second["shape_index"], second["shape"]) == ("{}", "f16[]")
    assert tables["modules"][0]["format_era"] == "A"
    assert not tables["modules"][0]["has_used_values"]


def test_value_block_of_july_2019() -> None:
    tables = read("""
        BufferAssignment:
        allocation 0: 0x7f556007eba0, size 32768, maybe-live-out:
          28 PHI arg_tuple.11{1} @0, positions:
          arg_tuple.11 {1}
          get-tuple-element.5
         uses:
          reduce.19, operand 0
          while.39, operand 1 {1}
         [0,32768]: f32[64,128]{1,0}
          30 copy @0, positions:
          copy
         uses:
         [0,4]: f32[]
        """)
    assert [(v["value_id"], v["is_phi"], v["size_bytes"]) for v in tables["values"]] == [
        (28, True, 32768),
        (30, False, 4),
    ]
    assert [(p["value_id"], p["shape_index"], p["is_defining"]) for p in tables["positions"]] == [
        (28, "{1}", True),
        (28, "{}", False),
        (30, "{}", True),
    ]
    assert [
        (u["use_ordinal"], u["operand_number"], u["operand_index"]) for u in tables["uses"]
    ] == [
        (0, 0, "{}"),
        (1, 1, "{1}"),
    ]
    assert tables["modules"][0]["has_used_values"]
    assert tables["modules"][0]["reported_total_bytes"] is None


GLUED = """
    BufferAssignment:
    allocation 0: size 4, parameter 0, shape |f32[]| at ShapeIndex {}:
     value: <1 x @0> (size=4,offset=0): f32[]
    allocation 1: size 4, output shape is |f32[]|, maybe-live-out:
     value: <3 call{} @0> (size=8,offset=0): (f32[])

    Total bytes used: -8 (-8B)

    Used values:
    <1 x @0>
     positions:
      x
     uses:
      call, operand 0
     from instruction: %x = f32[] parameter(0), metadata={op_name="x"}<3 call{} @0>
     positions:
      call {}
     uses:
     from instruction: %call = (f32[]) custom-call(%x), backend_config={
    <1 x @0>
     positions:
      x
     uses:
    <9 y @0>
     positions:
    HloLiveRange (max 9):
    }

    HloLiveRange (max 2):
      InstructionSequence:
        0:x
        1:call
      BufferLiveRange:
        x{}:0-2
        call{}:1-2
        lost{}:1-1
      Live ranges at 1 (peak):
        x: 4 bytes
        call: 8 bytes
    """


def test_glued_headers_and_raw_newlines() -> None:
    tables = read(GLUED)
    described = by(tables["instructions"], "instruction_name")
    assert described["x"]["text"] == '%x = f32[] parameter(0), metadata={op_name="x"}'
    assert (described["x"]["opcode"], described["x"]["op_name"]) == ("parameter", "x")
    assert described["call"]["text"].startswith("%call = (f32[]) custom-call(%x)")
    assert described["call"]["text"].endswith("HloLiveRange (max 9):\n}")
    assert [row["value_id"] for row in tables["positions"]] == [1, 3]
    module = tables["modules"][0]
    assert (module["reported_total_bytes"], module["schedule_length"]) == (-8, 2)
    assert module["format_era"] == "B"


def test_live_ranges_and_first_peak_form() -> None:
    tables = read(GLUED)
    assert [
        (row["value_id"], row["instruction_name"], row["start_time"], row["end_time"])
        for row in tables["live_ranges"]
    ] == [(1, "x", 0, 2), (3, "call", 1, 2), (None, "lost", 1, 1)]
    assert [
        (row["value_id"], row["shape_index"], row["logical_bytes"], row["cumulative_bytes"])
        for row in tables["peak_contributors"]
    ] == [(1, None, 4, None), (3, None, 8, None)]
    assert tables["modules"][0]["reported_peak_status"] == "printed"


def test_peak_with_index_and_cumulative() -> None:
    text = dedent("""\
        HloLiveRange (max 1):
          InstructionSequence:
            0:t
          BufferLiveRange:
            t{1,0}:0-1
          Live ranges at 0 (peak):
            t{1,0}: 9 bytes
            t{}: 8 bytes (cumulative: 17 bytes)
        """)
    rows = read_module({"live_range": text.encode()})["peak_contributors"]
    assert [(r["shape_index"], r["logical_bytes"], r["cumulative_bytes"]) for r in rows] == [
        ("{1,0}", 9, None),
        ("{}", 8, 17),
    ]


@pytest.mark.parametrize(
    ("text", "status", "length"),
    [
        (
            "HloLiveRange (max 0):\n  InstructionSequence:\n  BufferLiveRange:\n"
            "  Peak memory could not be determined due to unbounded dynamic shape.\n",
            "undetermined",
            0,
        ),
        ("HloLiveRange not available (finalized or constructed from proto)", "unavailable", None),
        ("HloLiveRange (max 0):\n  InstructionSequence:\n  BufferLiveRange:\n", None, 0),
    ],
)
def test_peak_status(text: str, status: str | None, length: int | None) -> None:
    module = read_module({"live_range": text.encode()})["modules"][0]
    assert (module["reported_peak_status"], module["schedule_length"]) == (status, length)
    assert module["has_live_ranges"] == (length is not None)


def test_tree_with_raw_newline() -> None:
    text = (
        "HloLiveRange (max 0):\n"
        "  Stack trace breakdown for peak usage: 8 288 bytes\n"
        "    main (100.0%, total: 8 288 bytes, current: 0 bytes, remaining: 8 288 bytes)\n"
        "      ├── a\n    b (50%) (50.0%, total: 4 144 bytes, current: 0 bytes,"
        " remaining: 8 288 bytes)\n"
        "      │   └── c (50.0%, total: 4 144 bytes, current: 4 144 bytes,"
        " remaining: 4 144 bytes)\n"
        "      └── é (50.0%, total: 4 144 bytes, current: 4 144 bytes, remaining: 0 bytes)\n"
    )
    tables = read_module({"live_range": text.encode()})
    assert [(n["depth"], n["parent_ordinal"], n["label"]) for n in tables["peak_stack_nodes"]] == [
        (0, None, "main"),
        (1, 0, "a\n    b (50%)"),
        (2, 1, "c"),
        (1, 0, "é"),
    ]
    assert tables["modules"][0]["reported_peak_tree_bytes"] == 8288


def test_none_and_uses_not_initialized() -> None:
    tables = read(
        """
        BufferAssignment:
        allocation 0: size 4, maybe-live-out:
         value: <1 x @0> (size=4,offset=0): f32[]
         value: <2 y @0> (size=4,offset=0): f32[]
        """,
        values="\nTotal bytes used: 4 (4B)\n\nUsed values:\n<1 x @0>\n positions:\n  x\n uses:\n"
        "  (none)\n<2 y @0>\n positions:\n  y\n uses are not initialized yet.\n",
    )
    assert len(tables["positions"]) == 2
    assert tables["uses"] == []


def row_of(instruction: str, **more: str) -> dict[str, Any]:
    tables = read(
        """
        BufferAssignment:
        allocation 0: size 4, maybe-live-out:
         value: <1 x @0> (size=4,offset=0): f32[]
        """,
        values="\nTotal bytes used: 4 (4B)\n\nUsed values:\n<1 x @0>\n positions:\n  x\n uses:\n"
        f" from instruction: {instruction}\n",
        **more,
    )
    return tables["instructions"][0]


def test_metadata() -> None:
    row = row_of(
        "%x = f32[]{:S(1)} fusion(f32[] %a, /*index=5*/f32[] %b), kind=kLoop, "
        'sharding={replicated metadata={op_name="no"}}, frontend_attributes={k="v",j={"z":"q"}}, '
        'metadata={op_type="Mul" op_name="a \\"b\\" {\\303\\251} \\\'q\\\' \\\\ \\n" '
        'source_file="/m/a b.py" source_line=12 source_end_line=13 source_column=1 '
        'source_end_column=40 profile_type={1} deduplicated_name="d"}, '
        'backend_config={"metadata={":1}'
    )
    assert row["op_name"] == "a \"b\" {é} 'q' \\ \n"
    assert (row["opcode"], row["shape"], row["op_type"]) == ("fusion", "f32[]{:S(1)}", "Mul")
    assert [row[column] for column in SOURCE] == ["/m/a b.py", 12, 13, 1, 40]
    assert row["stack_frame_id"] is None


SOURCE = ("source_file", "source_line", "source_end_line", "source_column", "source_end_column")


def test_no_metadata() -> None:
    row = row_of('%x = f32[] add(%a, %b), sharding={replicated metadata={op_name="no"}}')
    assert row["opcode"] == "add"
    assert row["op_name"] is None


def test_first_telling_of_a_name_wins() -> None:
    tables = read(
        """
        BufferAssignment:
        allocation 0: size 4, maybe-live-out:
         value: <1 x{} @0> (size=8,offset=0): (f32[])
         value: <2 x{0} @0> (size=4,offset=0): f32[]
        """,
        values="\nTotal bytes used: 4 (4B)\n\nUsed values:\n"
        "<1 x{} @0>\n positions:\n  x {}\n uses:\n from instruction: %x = (f32[]) first()\n"
        "<2 x{0} @0>\n positions:\n  x {0}\n uses:\n from instruction: %x = (f32[]) second()\n",
    )
    assert [row["opcode"] for row in tables["instructions"]] == ["first"]


HLO_HEAD = """\
HloModule jit_f.3, is_scheduled=true, input_output_alias={ {0}: (2, {}, may-alias), \
{1,0}: (3, {1}, must-alias) }, entry_computation_layout={(f32[2]{0})->(f32[2]{0}, \
/*index=1*/s32[])}, replica_count=2, num_partitions=8
"""

HLO = HLO_HEAD + dedent("""
    FileNames
    1 "/usr/lib/python3.11/site-packages/flax/core.py"
    2 "/home/me/\\303\\251.py"

    FunctionNames
    1 "<module>"

    FileLocations
    1 {file_name_id=2 function_name_id=1 line=12 end_line=13 column=4 end_column=5}
    2 {file_name_id=1 function_name_id=1 line=7 end_line=7 column=0 end_column=0}

    StackFrames
    1 {file_location_id=1 parent_frame_id=0}
    2 {file_location_id=2 parent_frame_id=2}
    3 {file_location_id=2 parent_frame_id=1}

    %fused (p: f32[]) -> f32[] {
      ROOT %x.1 = f32[] parameter(0)
    }

    ENTRY %main (a: f32[]) -> f32[] {
      ROOT %x = f32[] add(f32[] %a, f32[] %a), metadata={op_type="Add" stack_frame_id=2}
    }
    """)


def test_hlo_head_and_frames() -> None:
    tables = read_module({"hlo": HLO.encode()})
    module = tables["modules"][0]
    assert module["hlo_module_name"] == "jit_f.3"
    assert module["entry_computation_layout"] == ("(f32[2]{0})->(f32[2]{0}, /*index=1*/s32[])")
    assert (module["replica_count"], module["partition_count"]) == (2, 8)
    assert [tuple(row.values()) for row in tables["input_output_aliases"]] == [
        ("{0}", 2, "{}", "may-alias"),
        ("{1,0}", 3, "{1}", "must-alias"),
    ]
    columns = ("stack_frame_id", "parent_frame_id", "own_frame_id", "depth", "source_line")
    assert [tuple(row[name] for name in columns) for row in tables["stack_frames"]] == [
        (1, None, 1, 0, 12),
        (2, 1, 1, 1, 7),
        (3, None, None, 0, 7),
    ]
    assert tables["stack_frames"][0]["source_file"] == "/home/me/é.py"


def test_source_from_the_frame() -> None:
    row = row_of('%x = f32[] add(%a, %a), metadata={op_name="n" stack_frame_id=1}', hlo=HLO)
    assert [row[column] for column in SOURCE] == ["/home/me/é.py", 12, 13, 4, 5]
    assert row["stack_frame_id"] == 1


@pytest.mark.parametrize("percent", ["%", ""])
def test_instructions_described_by_the_hlo_text(percent: str) -> None:
    tables = read(
        """
        BufferAssignment:
        allocation 0: size 4, maybe-live-out:
         value: <1 x @0> (size=4,offset=0): f32[]
         value: <2 y @0> (size=4,offset=0): f32[]
        """,
        hlo=HLO.replace("%", percent),
    )
    x, y = tables["instructions"]
    assert (x["opcode"], x["op_type"], x["stack_frame_id"]) == ("add", "Add", 2)
    assert x["text"].startswith(f"{percent}x = f32[] add(")
    assert x["source_line"] == 7
    assert (y["opcode"], y["text"]) == (None, None)


def test_debug_options() -> None:
    text = 'xla_dump_to: "/tmp/a: b"\nxla_detailed_logging: false\n'
    rows = read_module({"debug_options": text.encode()})["compiler_options"]
    assert [tuple(row.values()) for row in rows] == [
        (0, "xla_dump_to", '"/tmp/a: b"'),
        (1, "xla_detailed_logging", "false"),
    ]


@pytest.mark.parametrize(
    ("shape", "dtype", "dimensions", "layout", "space", "count", "size"),
    [
        ("f32[]", "f32", [], None, 0, 1, 4),
        ("s32[]{:T(128)S(6)}", "s32", [], "{:T(128)S(6)}", 6, 1, 4),
        ("bf16[16,<=32]{1,0:T(8,128)(2,1)}", "bf16", [16, 32], "{1,0:T(8,128)(2,1)}", 0, 512, 1024),
        ("f32[2,?]{1,0}", "f32", [2, None], "{1,0}", 0, None, None),
        ("s4[33]{0:E(4)}", "s4", [33], "{0:E(4)}", 0, 33, 17),
        ("u1[3]", "u1", [3], None, 0, 3, 3),
        ("pred[0,4]{1,0}", "pred", [0, 4], "{1,0}", 0, 0, 0),
        ("f32[4]{0:P(f32[2]{0:S(3)})}", "f32", [4], "{0:P(f32[2]{0:S(3)})}", 0, 4, 16),
        ("f64[1152921504606846976]{0}", "f64", [2**60], "{0}", 0, 2**60, None),
        ("token[]", "token", None, None, 0, 1, 0),
        ("opaque[]", "opaque", None, None, 0, 1, 8),
        ("()", "tuple", None, None, None, 0, 0),
        ("((f32[2]{0}, token[]), /*index=1*/s32[])", "tuple", None, None, None, 2, 16),
        ("b(f32[2]{0})", "f32", [2], "{0}", 0, 2, 8),
        ("f17[2]", None, None, None, None, None, None),
    ],
)
def test_shape(
    shape: str,
    dtype: str | None,
    dimensions: list[int | None] | None,
    layout: str | None,
    space: int | None,
    count: int | None,
    size: int | None,
) -> None:
    row = read_shape(shape)
    assert (row["dtype"], row["dimensions"], row["layout"]) == (dtype, dimensions, layout)
    assert (row["memory_space"], row["element_count"]) == (space, count)
    assert (row["logical_bytes"], row["is_tuple"]) == (size, dtype == "tuple")


def test_dimensions_text() -> None:
    assert read_shape("f32[16,<=32,?]")["dimensions_text"] == "16,<=32,?"
    assert read_shape("f32[]")["dimensions_text"] == ""
    assert read_shape("()")["dimensions_text"] is None


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        (r"a\303\251", "aé"),
        (r"\377", "\ufffd"),
        (r"\\303 \"\'", "\\303 \"'"),
        (r"\t\r\n", "\t\r\n"),
    ],
)
def test_unescape(text: str, plain: str) -> None:
    assert unescape(text) == plain


OCCUPANCY = """
    BufferAssignment:
    allocation 0: size 100, preallocated-temp:
     value: <1 a @0> (size=40,offset=0): u8[40]
     value: <2 b @0> (size=40,offset=20): u8[40]
     value: <3 c @0> (size=0,offset=100): u8[0]
    allocation 1: size 30, color 1, parameter 0, shape |u8[30]| at ShapeIndex {}:
     value: <4 p @1> (size=30,offset=0): u8[30]
    allocation 2: size 8, color 1, preallocated-temp:
     value: <5 d @0> (size=8,offset=0): u8[8]
    """


def test_occupancy() -> None:
    tables = read(
        OCCUPANCY,
        live_range="HloLiveRange (max 5):\n  InstructionSequence:\n  BufferLiveRange:\n"
        "    a{}:0-2\n    b{}:2-3\n    c{}:4-4\n    p{}:0-5\n    d{}:4-5\n",
    )
    assert tables["occupancy_steps"] == [
        {"color": 0, "start_time": 0, "occupied_temp_bytes": 40},
        {"color": 0, "start_time": 2, "occupied_temp_bytes": 60},
        {"color": 0, "start_time": 3, "occupied_temp_bytes": 40},
        {"color": 0, "start_time": 4, "occupied_temp_bytes": 0},
        {"color": 1, "start_time": 4, "occupied_temp_bytes": 8},
    ]
    assert [tuple(row.values()) for row in tables["occupied_peaks"]] == [
        (0, 2, 60, 80),
        (1, 4, 8, 38),
    ]


def test_no_occupancy_without_live_ranges() -> None:
    tables = read(OCCUPANCY)
    assert tables["occupied_peaks"] == tables["occupancy_steps"] == []
