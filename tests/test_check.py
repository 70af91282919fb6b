"""The invariants: none is violated by the demo dumps, and each notices what it is there for."""

import random
import shutil

import duckdb
import pytest
from small_db import Module

from bufdb import check, cli, resources

ONE = "(SELECT min(module_id) FROM modules WHERE function_name = 'train_step' AND {})"
NEW = ONE.format("run_name = 'cpu_b8'")
OLD = ONE.format("run_name = 'cpu_b8_old'")
TEMP = f"""module_id = {NEW} AND allocation_index IN (
  SELECT allocation_index FROM allocations WHERE module_id = {NEW} AND kind = 'temp'
)"""

BREAKING = [
    ("allocation-indices", f"DELETE FROM allocations WHERE module_id = {NEW} AND kind = 'output'"),
    ("allocation-kinds", f"UPDATE allocations SET kind = 'output' WHERE module_id = {NEW}"),
    ("allocation-kinds", f"UPDATE allocations SET is_constant = TRUE WHERE module_id = {NEW}"),
    ("allocation-kinds", f"UPDATE allocations SET output_shape = NULL WHERE module_id = {NEW}"),
    ("colors", f"UPDATE allocations SET color = 1 WHERE module_id = {NEW} AND kind = 'constant'"),
    ("instruction-shapes", f"UPDATE instructions SET shape = 'f32[]' WHERE module_id = {NEW}"),
    ("keys", f'INSERT INTO "values" FROM "values" WHERE module_id = {NEW}'),
    ("keys", f"INSERT INTO uses FROM uses WHERE module_id = {NEW}"),
    ("live-ranges", f"UPDATE live_ranges SET end_time = end_time + 1 WHERE module_id = {NEW}"),
    ("live-ranges", f"UPDATE live_ranges SET start_time = start_time - 1 WHERE module_id = {NEW}"),
    ("live-ranges", f"UPDATE live_ranges SET start_time = start_time + 1 WHERE module_id = {NEW}"),
    ("occupancy", f"UPDATE occupied_peaks SET peak_time = 1 WHERE module_id = {NEW}"),
    ("occupancy", f"UPDATE occupancy_steps SET occupied_temp_bytes = 5 WHERE module_id = {NEW}"),
    ("occupancy", f"DELETE FROM occupied_peaks WHERE module_id = {NEW}"),
    ("overlap", f'UPDATE "values" SET offset_bytes = 0 WHERE {TEMP}'),
    ("overlap", f"UPDATE live_ranges SET end_time = 160 WHERE module_id = {NEW}"),
    ("parameters", f"UPDATE allocations SET parameter_number = 1 WHERE module_id = {NEW}"
     " AND parameter_number = 2"),
    ("peak-instant", f"UPDATE modules SET reported_peak_time = 3 WHERE module_id = {NEW}"),
    ("peak-listing", f"UPDATE modules SET reported_peak_time = 3 WHERE module_id = {NEW}"),
    ("peak-listing", f"UPDATE modules SET reported_peak_time = 3 WHERE module_id = {OLD}"),
    ("peak-listing", f"DELETE FROM peak_contributors WHERE module_id = {OLD}"
     " AND contributor_ordinal = 3"),
    ("peak-listing", f"UPDATE peak_contributors SET cumulative_bytes = 3 WHERE module_id = {NEW}"),
    ("peak-listing", f"UPDATE peak_contributors SET logical_bytes = 3 WHERE module_id = {OLD}"),
    ("peak-listing", f"UPDATE peak_contributors SET contributor_ordinal = -contributor_ordinal"
     f" WHERE module_id = {NEW}"),
    ("peak-tree", f"UPDATE modules SET reported_peak_tree_bytes = 3 WHERE module_id = {NEW}"),
    ("peak-tree", f"UPDATE peak_stack_nodes SET current_bytes = 3 WHERE module_id = {NEW}"),
    ("peak-tree", f"DELETE FROM peak_stack_nodes WHERE module_id = {NEW}"),
    ("peak-values", f"UPDATE live_ranges SET end_time = start_time WHERE module_id = {NEW}"),
    ("peak-within-total", "UPDATE occupied_peaks SET occupied_temp_bytes = 99999999"
     f" WHERE module_id = {NEW}"),
    ("references", f'UPDATE "values" SET allocation_index = 900 WHERE module_id = {NEW}'),
    ("references", f'UPDATE "values" SET instruction_name = \'x\' WHERE module_id = {NEW}'),
    ("references", f"UPDATE uses SET value_id = -1 WHERE module_id = {NEW}"),
    ("references", f"DELETE FROM modules WHERE module_id = {NEW}"),
    ("references", "DELETE FROM runs WHERE run_name = 'cpu_b8'"),
    ("references", "DELETE FROM shapes WHERE shape = 'f32[]'"),
    ("schedule", f"UPDATE modules SET schedule_length = 3 WHERE module_id = {NEW}"),
    ("schedule", f"UPDATE instructions SET program_order = 3 WHERE module_id = {NEW}"
     " AND program_order = 4"),
    ("total", f"UPDATE allocations SET size_bytes = size_bytes + 1 WHERE module_id = {NEW}"
     " AND allocation_index = 0"),
    ("used-values", f"DELETE FROM positions WHERE module_id = {NEW} AND position_ordinal = 0"),
    ("used-values", f"UPDATE positions SET shape_index = '{{7}}' WHERE module_id = {NEW}"),
    ("value-bounds", f'UPDATE "values" SET offset_bytes = offset_bytes - 64 WHERE {TEMP}'),
    ("value-bounds", f'UPDATE "values" SET offset_bytes = 64 WHERE module_id = {NEW}'),
    ("value-bounds", f"UPDATE allocations SET size_bytes = size_bytes + 1 WHERE module_id = {NEW}"),
    ("values-without-live-range", f"DELETE FROM live_ranges WHERE module_id = {NEW}"
     " AND start_time > 50"),
    ("values-without-live-range", f"UPDATE allocations SET kind = 'thread_local' WHERE {TEMP}"),
]  # fmt: skip


def names(con):
    return [violation.check.name for violation in check.violations(con)]


def test_the_demo_dumps_violate_none(demo_db):
    with duckdb.connect(str(demo_db), read_only=True) as con:
        assert names(con) == []


def test_an_empty_database_violates_none(con):
    assert names(con) == []


def test_every_invariant_has_a_case():
    assert {name for name, _ in BREAKING} == {query.name for query in check.checks()}


@pytest.mark.parametrize(("name", "statement"), BREAKING)
def test_what_breaks_it_is_found(demo_db, tmp_path, name, statement):
    path = shutil.copy(demo_db, tmp_path / "broken.duckdb")
    with duckdb.connect(str(path)) as con:
        con.execute(statement)
        found = {violation.check.name: violation.findings for violation in check.violations(con)}
    assert name in found
    assert all(text for _, text in found[name])


def test_its_header_names_what_it_gives():
    for query in check.checks():
        assert [(c.name, c.type) for c in query.columns] == [
            ("module_id", "BIGINT"), ("finding", "VARCHAR")
        ]  # fmt: skip
        assert query.params == ()
        assert query.description


@pytest.mark.parametrize("seed", range(30))
def test_overlap_finds_what_comparing_all_pairs_finds(con, seed):
    chance = random.Random(seed)
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    boxes = []
    for value_id in range(chance.randint(2, 9)):
        start, offset = chance.randint(0, 20), chance.randint(0, 30)
        end, size = start + chance.choice([0, 1, 2, 9]), chance.randint(0, 9)
        module.value(value_id, 0, offset, size, (start, end))
        boxes.append((offset, offset + size, start, end))
    expected = any(
        a is not b and a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
        and a[0] < a[1] and b[0] < b[1]
        for a in boxes
        for b in boxes
    )  # fmt: skip
    query = (resources.check_folder() / "overlap.sql").read_text(encoding="utf-8")
    assert bool(con.execute(query).fetchall()) == expected


def test_values_that_hand_over_at_an_instant_do_not_overlap(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    for value_id, live in enumerate([(0, 3), (3, 3), (3, 7), (7, 9)]):
        module.value(value_id, 0, 0, 100, live)
    query = (resources.check_folder() / "overlap.sql").read_text(encoding="utf-8")
    assert con.execute(query).fetchall() == []
    module.value(9, 0, 50, 1, (5, 5))
    assert con.execute(query).fetchall() == [
        (1, "allocation 0: values 2 (live 3-7) and 9 (live 5-5) share bytes")
    ]


def test_sums_wrap_as_in_the_dump(con):
    module = Module(con, 1, reported_total_bytes=-(2**63) + 3)
    module.allocation(0, "temp", 2**62)
    module.allocation(1, "output", 2**62 + 1)
    assert "total" in names(con)
    module.allocation(2, "constant", 2)
    assert "total" not in names(con)


def test_the_command(demo_db, tmp_path, capfd):
    assert cli.run(["check", "--db", str(demo_db), "--format", "csv"]) == 0
    out, err = capfd.readouterr()
    assert out == "invariant,title,finding_count,module_count,examples\n"
    assert err == f"bufdb: {len(check.checks())} invariants hold for 15 modules\n"
    path = shutil.copy(demo_db, tmp_path / "broken.duckdb")
    with duckdb.connect(str(path)) as con:
        con.execute(f"UPDATE modules SET reported_total_bytes = 7 WHERE module_id = {NEW}")
    assert cli.run(["check", "--db", str(path), "--format", "csv"]) == 1
    out, err = capfd.readouterr()
    title = '"The allocations add up to ""Total bytes used"""'
    example = "cpu_b8/module_0002.jit_train_step.cpu_after_optimizations"
    assert out.splitlines()[1:] == [
        f'total,{title},1,1,"{example}: expected 7 bytes, found 8905988"'
    ]
    assert err == ""
