"""Names read back from the database are those that ingest used."""

import contextlib
import random

import damage
import numpy as np
import pytest
import second_savings
from ingesting import ingest_into
from places import DEMO
from shared_dumps import LOOPS, needs_loops
from what_if_cases import Case, ask

from bufdb.errors import BufdbError, UsageError
from bufdb.what_if import temps
from bufdb.what_if.model import Model
from bufdb.what_if.module_choice import choose
from bufdb.what_if.removal import Reduction, answer

SPACES = (
    "SELECT run_name, module_key, color FROM memory_figures "
    "WHERE peak_bytes IS NOT NULL ORDER BY ALL"
)
STORED = (
    "SELECT what, name, value_id, held_bytes, peak_bytes_without, peak_time_without "
    "FROM peak_savings WHERE module_id = ? AND color = ?"
)


def rows_of(held, what, name, value_id):
    if what == "value":
        (row,) = np.flatnonzero(held.value_id == value_id)
        return np.flatnonzero(held.buffer == held.buffer[row])
    labels = held.labels[what]
    return np.flatnonzero(labels.of_row == labels.names.index(name))


def differences(con):
    """Rows of peak_savings that are computed otherwise here, and the number of all rows."""
    differing, count = [], 0
    for run, key, color in con.execute(SPACES).fetchall():
        choice = choose(con, key, run, color)
        held = temps.load(con, choice)
        stored = con.execute(STORED, [choice.module_id, color]).fetchall()
        sets = [rows_of(held, *row[:3]) for row in stored]
        model = Model(held, choice.fixed_bytes, choice.schedule_length)
        for row, rows, height in zip(stored, sets, model.without(sets), strict=True):
            actual = (int(held.held_bytes[rows].sum()), height.peak_bytes, height.peak_time)
            count += 1
            if actual != row[3:]:
                differing.append((run, key, *row, actual))
    return differing, count


@pytest.mark.slow
def test_one_name_saves_what_peak_savings_says(demo):
    differing, count = differences(demo)
    assert differing == []
    assert count > 300


@needs_loops
@pytest.mark.sample(0, 2)
@pytest.mark.parametrize("first", [0, 1])
def test_one_name_saves_what_peak_savings_says_of_loops(con, first):
    folders = sorted((LOOPS / "dumps").glob("*"))[first::2]
    ingest_into(con, folders)
    differing, count = differences(con)
    assert differing == []
    spaces = con.execute(SPACES).fetchall()
    assert len({run for run, *_ in spaces}) == len(folders) and count >= len(spaces)


@pytest.mark.sample(0, 4)
@pytest.mark.parametrize("first", [0, 3, 6, 9])
def test_damaged_dumps_are_as_ingest_had_them_and_raise_nothing(con, tmp_path, first):
    samples = damage.samples()
    for number in range(first, 400, 10):
        folder = tmp_path / f"d{number}"
        folder.mkdir()
        files, _ = damage.damage(samples[number % len(samples)], number)
        for name, content in files.items():
            (folder / name).write_bytes(content)
    ingest_into(con, tmp_path, "r")
    differing, count = differences(con)
    assert differing == []
    assert count > 0
    for run, key, color in con.execute(SPACES).fetchall():
        choice = choose(con, key, run, color)
        for reduction in (
            Reduction(until=0),
            Reduction(until=0, by="value"),
            Reduction(without=["op:*"]),
        ):
            with contextlib.suppress(UsageError):  # nothing temporary
                answer(con, choice, reduction)


@pytest.mark.sample(3)
@pytest.mark.parametrize("run", sorted(path.name for path in DEMO.iterdir() if path.is_dir()))
def test_several_names_leave_the_union_of_the_rest(demo, run):
    source = random.Random(run)
    for _, key, color in [row for row in demo.execute(SPACES).fetchall() if row[0] == run]:
        choice = choose(demo, key, run, color)
        held = temps.load(demo, choice)
        if not len(held.value_id):
            continue
        values = [
            {
                "value_id": number,
                "live": (int(held.ranges.start[row]), int(held.ranges.end[row])),
                "allocation_index": int(held.ranges.allocation[row]),
                "offset_bytes": int(held.ranges.offset[row]),
                "size_bytes": int(held.ranges.size[row]),
            }
            for row, number in enumerate(held.value_id.tolist())
        ]
        instants = second_savings.Instants(values)
        labels = held.labels["source_line"]
        sets = [
            np.flatnonzero(np.isin(labels.of_row, source.sample(range(len(labels.names)), some)))
            for some in range(1, min(6, len(labels.names)))
        ]
        heights = Model(held, choice.fixed_bytes, choice.schedule_length).without(sets)
        for rows, height in zip(sets, heights, strict=True):
            left, time = instants.highest_without(set(held.value_id[rows].tolist()), 0)
            assert (height.peak_bytes - choice.fixed_bytes, height.peak_time) == (left, time)


def test_what_xla_made_is_named_for_its_use(con):
    case = Case(con)
    case.temp(1, 9, (1, 2), "/m/a.py:1", op_name="jit(f)/dot", program_order=1)
    case.temp(2, 5, (5, 6), name="copy", opcode="copy", program_order=5)
    case.temp(3, 2, (6, 7), "/m/a.py:2", name="mul", op_name="jit(f)/mul", program_order=6)
    case.use(2, "mul")
    case.close()
    held = temps.load(con, choose(con, "*", None, None))
    assert held.labels["source_line"].names == ["/m/a.py:1", "for /m/a.py:2", "/m/a.py:2"]
    assert held.labels["op"].names == ["dot", "for mul", "mul"]


def test_values_that_do_not_give_the_stored_peak_are_refused(con):
    case = Case(con)
    case.temp(1, 9, (1, 2))
    case.close()
    con.execute("UPDATE live_ranges SET end_time = 0")
    with pytest.raises(BufdbError, match="have a peak of 0 bytes at 0, stored is 9 at 1"):
        ask(con, "value:v1")
