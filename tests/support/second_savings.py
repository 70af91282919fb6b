"""Rows of `peaks` and `peak_savings` from rows of other tables, in plain Python.

Nothing here shares an idea with bufdb: the water sinks step by step, buffers are linked pair by
pair, and what is occupied without one of them is the union of all others at each instant at which
that could be the most.
"""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


def peaks(steps: list[Row], occupied_peaks: list[Row]) -> list[Row]:
    """Rows of peaks."""
    rows: list[Row] = []
    for occupied in occupied_peaks:
        color, most = occupied["color"], occupied["occupied_temp_bytes"]
        own_steps = [step for step in steps if step["color"] == color]
        hills = sunk([step["occupied_temp_bytes"] for step in own_steps], most)
        times = [(own_steps[place]["start_time"], *rest) for place, *rest in hills] or [
            (0, 0, None)
        ]
        rows += [
            {
                "color": color,
                "peak_ordinal": ordinal,
                "peak_time": time,
                "occupied_temp_bytes": height,
                "valley_bytes": valley,
            }
            for ordinal, (time, height, valley) in enumerate(times, 1)
        ]
    return rows


def sunk(heights: list[int], most: int) -> list[tuple[int, int, int | None]]:
    """(step, height, valley) of the hills, the highest first."""
    hill: dict[int, int] = {}  # by each end of a hill above water its top
    span: dict[int, int] = {}  # by each end of a hill the other
    hills: list[tuple[int, int, int | None]] = []
    tops = set()
    for step in sorted(range(len(heights)), key=lambda place: (-heights[place], place)):
        left, right = span.pop(step - 1, None), span.pop(step + 1, None)
        top = [hill[end] for end, is_there in ((step - 1, left), (step + 1, right))
               if is_there is not None]  # fmt: skip
        top.sort(key=lambda place: (-heights[place], place))
        for lower in top[1:]:
            tops.discard(lower)
            drop = heights[lower] - heights[step]
            if drop > 0 and 20 * drop >= most:
                hills.append((lower, heights[lower], heights[step]))
        begin, end = step if left is None else left, step if right is None else right
        span[begin], span[end] = end, begin
        hill[begin] = hill[end] = top[0] if top else step
        tops.add(hill[begin])
    hills += [(place, heights[place], None) for place in tops]
    return sorted(hills, key=lambda one: (-one[1], one[0]))


def peak_savings(tables: dict[str, list[Row]]) -> list[Row]:
    """Rows of peak_savings of single buffers, from the rows of the other tables of a module."""
    kinds = {row["allocation_index"]: row for row in tables["allocations"]}
    lives = {row["value_id"]: (row["start_time"], row["end_time"]) for row in tables["live_ranges"]}
    temps = [
        value | {"live": lives[value["value_id"]]}
        for value in tables["values"]
        if kinds[value["allocation_index"]]["kind"] == "temp"
        and value["size_bytes"] > 0
        and value["value_id"] in lives
    ]
    buffers = linked(temps, tables["positions"])
    fixed = {row["color"]: row["fixed_bytes"] for row in tables["memory_sums"]}
    rows = []
    for peak in tables["occupied_peaks"]:
        color, most = peak["color"], peak["occupied_temp_bytes"]
        own_values = [
            value for value in temps if kinds[value["allocation_index"]]["color"] == color
        ]
        at = Instants(own_values)
        for held in tables["peak_values"]:
            if held["color"] != color or held["allocation_kind"] != "temp":
                continue
            members = buffers[held["value_id"]]
            size = next(v["size_bytes"] for v in own_values if v["value_id"] == held["value_id"])
            left, time = at.highest_without(members, most - size)
            halved, _ = at.highest_without(members, most - size, 2)
            rows.append(
                {
                    "color": color,
                    "what": "value",
                    "name": None,
                    "value_id": held["value_id"],
                    "held_bytes": held["held_bytes"],
                    "saving_bytes": most - left,
                    "half_saving_bytes": most - halved,
                    "peak_bytes_without": fixed[color] + left,
                    "peak_time_without": time,
                }
            )
    return rows


class Instants:
    """Live values at each instant at which something begins or has ended."""

    def __init__(self, temps: list[Row]) -> None:
        times = sorted({t for v in temps for t in (v["live"][0], v["live"][1] + 1)} | {0})
        begins: dict[int, list[Row]] = {}
        ends: dict[int, list[Row]] = {}
        for value in temps:
            begins.setdefault(value["live"][0], []).append(value)
            ends.setdefault(value["live"][1] + 1, []).append(value)
        live: dict[int, Row] = {}
        self.instants: list[tuple[int, int, list[Row]]] = []
        for time in times:
            for value in ends.get(time, []):
                live.pop(value["value_id"], None)
            for value in begins.get(time, []):
                live[value["value_id"]] = value
            ordered = sorted(
                live.values(), key=lambda v: (v["allocation_index"], v["offset_bytes"])
            )
            self.instants.append((time, union(ordered), ordered))

    def highest_without(self, members: set[int], least: int, part: int = 1) -> tuple[int, int]:
        """The most bytes of others, and when first; no less than `least` can be occupied then.

        With `part` 2 only half of what the members alone have is away.
        """
        best, first = -1, 0
        for time, occupied, live in self.instants:
            if occupied < max(least, best):
                continue
            left = union([value for value in live if value["value_id"] not in members])
            left = occupied - (occupied - left) // part
            if left > best:
                best, first = left, time
        return (best, first) if best > 0 else (0, 0)


def union(ordered: list[Row]) -> int:
    """Bytes of values in order of allocation and offset; what several have counts once."""
    total, allocation, reached = 0, None, 0
    for value in ordered:
        begin, end = value["offset_bytes"], value["offset_bytes"] + value["size_bytes"]
        if value["allocation_index"] != allocation:
            allocation, reached = value["allocation_index"], begin
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def linked(temps: list[Row], positions: list[Row]) -> dict[int, set[int]]:
    """For each value those of its buffer."""
    further: dict[int, set[str]] = {}
    for row in positions:
        if row["position_ordinal"] > 0:
            further.setdefault(row["value_id"], set()).add(row["shape_index"])
    own = {row["value_id"]: row["shape_index"] for row in positions if row["position_ordinal"] == 0}
    slots: dict[tuple[int, int, int], list[Row]] = {}
    for value in temps:
        slot = value["allocation_index"], value["offset_bytes"], value["size_bytes"]
        slots.setdefault(slot, []).append(value)
    buffers = {value["value_id"]: {value["value_id"]} for value in temps}
    for values in slots.values():
        for phi in values:
            for value in values if phi["is_phi"] else []:
                name, (start, end) = value["value_id"], value["live"]
                touches = start <= phi["live"][1] + 1 and phi["live"][0] <= end + 1
                is_in = own.get(phi["value_id"]) in further.get(name, ())
                if touches and (value["is_phi"] or is_in):
                    whole = buffers[name] | buffers[phi["value_id"]]
                    for member in whole:
                        buffers[member] = whole
    return buffers
