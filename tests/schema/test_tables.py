"""The tables: what their comments promise holds over the demo dumps."""

import re

import duckdb
import pytest

from bufdb import resources
from bufdb.database import definitions, store
from bufdb.database.runs import LIVE_TABLES

TABLES = list(definitions.tables())
FINDINGS = "diagnostics"
"""The only table with module_id that has no key: two findings may be alike."""
EMPTY = {FINDINGS, "reported_sums", "allocator_statistics", "scheduled_limits", "kernels"}
"""The demo dumps have nothing to find, no memory-usage reports, no logs, no kernels; a CPU has no
statistics."""
VALUE, INSTRUCTION = ("module_id", "value_id"), ("module_id", "instruction_name")
REFERENCES = [
    ("run_labels", ("run_name",), "runs"),
    ("live_profiles", ("run_name",), "runs"),
    *((table, ("run_name", "profile_name"), "live_profiles") for table in LIVE_TABLES[1:-2]),
    *((table, ("run_name",), "runs") for table in LIVE_TABLES[-2:]),
    ("modules", ("run_name",), "runs"),
    ("diagnostics", ("run_name",), "runs"),
    ("values", ("module_id", "allocation_index"), "allocations"),
    ("values", INSTRUCTION, "instructions"),
    ("values", ("shape",), "shapes"),
    ("positions", VALUE, "values"),
    ("positions", INSTRUCTION, "instructions"),
    ("uses", VALUE, "values"),
    ("live_ranges", VALUE, "values"),
    ("live_ranges", INSTRUCTION, "instructions"),
    ("peak_contributors", VALUE, "values"),
    ("peak_stack_nodes", ("module_id", "parent_ordinal"), "peak_stack_nodes"),
    ("stack_frames", ("module_id", "parent_frame_id"), "stack_frames"),
    ("stack_frames", ("module_id", "own_frame_id"), "stack_frames"),
    ("instructions", ("module_id", "stack_frame_id"), "stack_frames"),
    ("memory_sums", ("module_id", "color"), "allocations"),
    ("occupied_peaks", ("module_id", "color"), "memory_sums"),
    ("occupancy_steps", ("module_id", "color"), "occupied_peaks"),
    ("peak_values", ("module_id", "color"), "occupied_peaks"),
    ("peak_values", ("module_id", "allocation_index"), "allocations"),
    ("peak_values", VALUE, "values"),
    ("value_users", VALUE, "values"),
    ("value_users", ("module_id", "user_value_id"), "values"),
    ("peaks", ("module_id", "color"), "occupied_peaks"),
    ("peak_savings", ("module_id", "color"), "occupied_peaks"),
    ("peak_savings", VALUE, "peak_values"),
    ("value_origins", VALUE, "values"),
    ("recompute_costs", VALUE, "values"),
    ("value_origins", ("module_id", "stack_frame_id"), "stack_frames"),
]
RENAMED = {"parent_ordinal": "node_ordinal", "parent_frame_id": "stack_frame_id",
           "own_frame_id": "stack_frame_id", "user_value_id": "value_id"}  # fmt: skip


def columns_of(con, table):
    rows = con.execute("SELECT column_name FROM duckdb_columns() WHERE table_name = ?", [table])
    return [name for (name,) in rows.fetchall()]


def keys_of(con, table):
    """The keys that a table's comment states."""
    (comment,) = con.execute(
        "SELECT comment FROM duckdb_tables() WHERE table_name = ?", [table]
    ).fetchone()
    match = re.search(r"Key: ([^.]+)\.", comment)
    return [key.split(", ") for key in match[1].split("; also ")] if match else []


def test_every_table_is_of_a_file_of_its_name(con):
    names = con.execute("SELECT table_name FROM duckdb_tables() ORDER BY ALL").fetchall()
    assert [name for (name,) in names] == sorted(TABLES)


def test_every_table_with_rows_of_modules_states_its_key(con):
    without = [table for table in TABLES if not keys_of(con, table)]
    assert without == [FINDINGS, "schema_info"]


@pytest.mark.parametrize("table", TABLES)
def test_keys_name_columns_and_are_unique(demo, table):
    for key in keys_of(demo, table):
        assert set(key) <= set(columns_of(demo, table))
        names = ", ".join(key)
        duplicates = demo.execute(
            f'SELECT {names}, count(*) FROM "{table}" GROUP BY {names} HAVING count(*) > 1 LIMIT 3'
        )
        assert duplicates.fetchall() == [], names


@pytest.mark.parametrize("table", TABLES)
def test_the_demo_dumps_have_rows_in_every_table(demo, table):
    (count,) = demo.execute(f'SELECT count(*) FROM "{table}"').fetchone()
    assert (count > 0) == (table not in EMPTY)


@pytest.mark.parametrize(("table", "columns", "other"), REFERENCES)
def test_references_resolve(demo, table, columns, other):
    other_columns = [RENAMED.get(name, name) for name in columns]
    if columns[-1] == "stack_frame_id":
        # Of a module without an HLO text the tables are not there.
        table = "(SELECT * FROM instructions SEMI JOIN stack_frames USING (module_id))"
    else:
        table = f'"{table}"'
    joined = " AND ".join(f"a.{n} = b.{m}" for n, m in zip(columns, other_columns, strict=True))
    present = " AND ".join(f"a.{name} IS NOT NULL" for name in columns)
    names = ", ".join(f"a.{name}" for name in columns)
    lost = demo.execute(
        f'SELECT {names} FROM {table} AS a ANTI JOIN "{other}" AS b ON {joined} '
        f"WHERE {present} LIMIT 3"
    )
    assert lost.fetchall() == []


def test_every_module_table_refers_to_modules(demo):
    for table in TABLES:
        if "module_id" in columns_of(demo, table):
            lost = demo.execute(
                f'SELECT a.module_id FROM "{table}" AS a ANTI JOIN modules AS m USING (module_id) '
                "WHERE a.module_id IS NOT NULL LIMIT 3"
            )
            assert lost.fetchall() == [], table


@pytest.mark.parametrize(
    ("what", "sql"),
    [
        ("the allocations sum to the total",
         "SELECT module_id FROM allocations JOIN modules USING (module_id) "
         "GROUP BY module_id, reported_total_bytes HAVING sum(size_bytes) != reported_total_bytes"),
        ("values lie inside their allocation",
         'SELECT * FROM "values" AS v JOIN allocations AS a USING (module_id, allocation_index) '
         "WHERE v.offset_bytes < 0 OR v.offset_bytes + v.size_bytes > a.size_bytes"),
        ("the first position defines the value",
         'SELECT * FROM positions AS p JOIN "values" AS v USING (module_id, value_id) '
         "WHERE is_defining AND (p.instruction_name, p.shape_index) "
         "IS DISTINCT FROM (v.instruction_name, v.shape_index)"),
        ("live ranges lie inside the schedule",
         "SELECT * FROM live_ranges JOIN modules USING (module_id) "
         "WHERE NOT (0 <= start_time AND start_time <= end_time AND end_time <= schedule_length)"),
        ("the schedule is numbered without a gap",
         "SELECT module_id FROM instructions JOIN modules USING (module_id) "
         "GROUP BY module_id, schedule_length HAVING count(program_order) != schedule_length "
         "OR max(program_order) != schedule_length - 1"),
        ("the peak is the maximum of the steps",
         "SELECT module_id, color FROM occupied_peaks AS p "
         "LEFT JOIN occupancy_steps AS s USING (module_id, color) "
         "GROUP BY module_id, color, p.occupied_temp_bytes "
         "HAVING coalesce(max(s.occupied_temp_bytes), 0) != p.occupied_temp_bytes"),
        ("the tree's root holds what its title says",
         "SELECT * FROM peak_stack_nodes JOIN modules USING (module_id) "
         "WHERE node_ordinal = 0 AND total_bytes != reported_peak_tree_bytes"),
    ],
)  # fmt: skip
def test_what_every_dump_satisfies(demo, what, sql):
    assert demo.execute(sql).fetchall() == [], what


@pytest.mark.slow
def test_views_that_cannot_be_renewed_leave_the_file_as_it_was(tmp_path, monkeypatch):
    path = str(tmp_path / "t.duckdb")
    with store.open_writable(path) as con:
        con.execute("UPDATE schema_info SET views_hash = 'other'")
    broken = {"broken": "CREATE TABLE x (y INTEGER); SELECT * FROM nowhere"}
    views = definitions.views()
    with monkeypatch.context() as patch:
        patch.setattr(definitions, "views", lambda: {**views, **broken})
        with pytest.raises(duckdb.CatalogException, match="nowhere"):
            store.open_writable(path)
    with duckdb.connect(path) as con:
        assert con.execute("SELECT views_hash FROM schema_info").fetchall() == [("other",)]
        assert con.execute("SELECT 1 FROM duckdb_tables() WHERE table_name = 'x'").fetchall() == []
    store.open_writable(path).close()


@pytest.mark.parametrize("folder", [*definitions.TABLES, *definitions.VIEWS])
def test_a_file_of_the_schema_makes_one_object_of_its_name(folder):
    for file in resources.schema_files(folder):
        lines = file.read_text(encoding="utf-8").splitlines()
        made = [line for line in lines if line.startswith("CREATE ")]
        kind = {"macros": "OR REPLACE MACRO", "diff": "OR REPLACE MACRO", "tables": "TABLE"}.get(
            folder, "OR REPLACE VIEW"
        )
        assert len(made) == 1, file
        assert re.match(rf"CREATE {kind} {file.stem}\b", made[0]), file
        assert lines[0].startswith("-- "), file


def test_a_query_gets_the_views_that_it_needs():
    sql = "-- Not of memory_steps.\nSELECT * FROM module_peaks -- nor of copy_details"
    assert list(definitions.views(sql)) == ["memory_figures", "module_peaks"]
    assert definitions.views("SELECT 1") == {}


def test_views_come_after_what_they_name():
    order = list(definitions.views())
    for first, then in (
        ("op_path", "jit_path"),
        ("jit_path", "peak_value_details"),
        ("is_library_path", "value_details"),
        ("diff_pairs", "diff_modules"),
        ("diff_peak", "diff_temps"),
    ):
        assert order.index(first) < order.index(then)
