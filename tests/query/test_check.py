"""The invariants: the demo dumps violate none, and each finds what it is for."""

import random
import re
import shutil

import corrupt
import duckdb
import pytest
from places import DEMO, ROOT
from shared_dumps import DUMPS, needs_dumps
from small_db import Module, in_bulk, insert

from bufdb import cli, resources
from bufdb.database import runs
from bufdb.errors import BufdbError
from bufdb.ingest.ingest import ingest
from bufdb.query import check

ONE = "(SELECT min(module_id) FROM modules WHERE function_name = 'train_step' AND {})"
NEW = ONE.format("run_name = 'cpu_b8'")
TPU = ONE.format("run_name = 'tpu_b8'")
OLD = ONE.format("run_name = 'cpu_b8_old'")
DAMAGED = "(SELECT module_id FROM modules WHERE function_name = 'train_step')"
TEMP = f"""module_id = {NEW} AND allocation_index IN (
  SELECT allocation_index FROM allocations WHERE module_id = {NEW} AND kind = 'temp'
)"""

BREAKING = [
    ("allocation-indices", f"DELETE FROM allocations WHERE module_id = {NEW} AND kind = 'output'"),
    ("allocation-kinds", f"UPDATE allocations SET kind = 'output' WHERE module_id = {NEW}"),
    ("allocation-kinds", f"UPDATE allocations SET is_constant = TRUE WHERE module_id = {NEW}"),
    ("allocation-kinds", f"UPDATE allocations SET output_shape = NULL WHERE module_id = {NEW}"),
    ("allocation-kinds", "UPDATE allocations SET output_shape = output_shape || 'x'"
     f" WHERE module_id = {NEW} AND output_shape IS NOT NULL"),
    ("colors", f"UPDATE allocations SET color = 1 WHERE module_id = {NEW} AND kind = 'constant'"),
    ("compiler-options", "UPDATE compiler_options SET option_value = 'fals' WHERE option_value ="
     f" 'false' AND module_id = {NEW}"),
    ("compiler-options", "UPDATE compiler_options SET option_value = ''"),
    ("compiler-options", "UPDATE compiler_options SET option_name = ''"),
    *[("entry-parameters", f"UPDATE entry_parameters SET {c} WHERE parameter_number = 1") for c in (
        "parameter_number = 2", "shape = 'f32[]'", "text = text || 'x'", "text = text[:-2]",
        "text = replace(text, shape, 'f32[3]'), shape = 'f32[3]'",
        "text = replace(text, 'op_name=\"', 'op_name=\"x')")],
    ("file-lines", f"UPDATE files SET line_count = 3, read_line_count = 1, known_line_count = 1,"
     f" unread_line_count = 0 WHERE module_id = {NEW}"),
    ("file-lines", f"UPDATE files SET line_count = 3, read_line_count = 1, known_line_count = 1,"
     f" unread_line_count = 1 WHERE module_id = {NEW}"),
    ("file-lines", f"INSERT INTO diagnostics SELECT 'cpu_b8', module_id, 'data_loss',"
     f" 'unreadable_line', path, 1, 'x' FROM files WHERE module_id = {NEW};"
     f" UPDATE files SET line_count = 3, read_line_count = 3, known_line_count = 0,"
     f" unread_line_count = 0 WHERE module_id = {NEW}"),
    ("instruction-shapes", f"UPDATE instructions SET shape = 'f32[]' WHERE module_id = {NEW}"),
    ("keys", f'INSERT INTO "values" FROM "values" WHERE module_id = {NEW}'),
    ("instruction-texts", f"UPDATE instructions SET opcode = 'add' WHERE module_id = {NEW}"),
    ("instruction-texts", "UPDATE instructions SET source_line = source_line + 1"
     f" WHERE module_id = {NEW} AND stack_frame_id IS NOT NULL"),
    ("instruction-texts", f"UPDATE instructions SET op_name = NULL WHERE module_id = {NEW}"),
    *[("instruction-texts", f"UPDATE instructions SET {c} WHERE module_id = {NEW}") for c in (
        "text = NULL", "shape = NULL, text = NULL", "fusion_kind = 'kLoop'", "fusion_kind = NULL",
        "text = text[:-2]")],
    *[("executions", f"UPDATE instruction_executions SET {c}") for c in (
        "unknown_reason = 'x'", "execution_count = execution_count + 1", "execution_count = NULL",
        "execution_count = 1, spared_bytes = 0", "spared_bytes = -1", "spared_bytes = 1e12")],
    ("executions", "UPDATE instruction_costs SET execution_count = 7"),
    ("executions", "UPDATE instruction_executions SET spared_bytes = 1 WHERE spared_bytes = 0"),
    ("executions", "DELETE FROM instruction_executions"),
    ("keys", "INSERT INTO run_labels FROM run_labels WHERE run_name = 'cpu_b8'"),
    ("keys", "UPDATE input_output_aliases SET parameter_number = 1, parameter_index = '{}'"),
    ("keys", f"INSERT INTO uses FROM uses WHERE module_id = {NEW}"),
    *[("live-arrays", f"INSERT INTO {sql}") for sql in (
        "live_profiles BY NAME SELECT 'x' AS run_name, 'p' AS profile_name, 0 AS program_count",
        "live_programs VALUES ('cpu_b8', 'p', 0, 'f', FALSE, 0, 0, 0, 0, 0)",
        "live_frames VALUES ('cpu_b8', 'p', 2, 1, NULL, 1, 'a.py', 'f', 1)",
        "live_arrays BY NAME SELECT 'cpu_b8' AS run_name, 'cpu_b8.prof' AS profile_name,"
        " 'gpu:7' AS device, 's8[1]' AS shape, 1 AS total_bytes, 1 AS array_count,"
        " 2 AS argument_bytes, 1 AS argument_count",
        "allocator_statistics VALUES ('x', 'p', 'cpu:0', 'bytes_limit', 1, 0)",
        "allocator_statistics VALUES ('cpu_b8', 'p', 'cpu:0', 'bytes_limit', 1, -1)")],
    *[("live-arrays", sql) for sql in (
        "DELETE FROM live_programs WHERE program_ordinal = 5",
        "DELETE FROM live_programs WHERE program_ordinal = 1",
        "UPDATE live_programs SET program_name = 'jit_f' WHERE is_failed",
        "UPDATE live_profiles SET failed_program_name = NULL",
        "UPDATE live_profiles SET shapes_unknown_reason = 'x'",
        "UPDATE live_arrays SET shape = NULL WHERE total_bytes = 2000000",
        "UPDATE live_arrays SET array_count = -1, argument_count = 0",
        "UPDATE live_arrays SET holder_name = NULL",
        "UPDATE live_arrays SET source = source || '0'",
        "UPDATE live_arrays SET python_function_name = NULL",
        "UPDATE live_frames SET own_frame_id = NULL WHERE own_frame_id = stack_frame_id",
        "UPDATE live_profiles SET snapshot_ordinal = NULL WHERE moment = 'snapshot'",
        "UPDATE live_profiles SET moment = 'end' WHERE moment = 'snapshot'",
        "UPDATE live_profiles SET elapsed_seconds = -1",
        "UPDATE live_profiles SET mark = 'x' WHERE moment = 'failure'",
        "UPDATE live_profiles SET elapsed_seconds = 900 - elapsed_seconds",
        "UPDATE live_totals SET fullest_bytes = fullest_bytes + 1", "DELETE FROM live_totals",
        "INSERT INTO live_totals BY NAME SELECT 'cpu_b8' AS run_name, 'p' AS profile_name")],
    ("references", "UPDATE instruction_times SET instruction_name = instruction_name || 'x'"),
    ("keys", "INSERT INTO live_profiles FROM live_profiles"),
    ("keys", "INSERT INTO live_totals FROM live_totals"),
    ("keys", "INSERT INTO live_arrays FROM live_arrays WHERE shape = 'f32[1000,500]'"),
    ("live-ranges", f"UPDATE live_ranges SET end_time = end_time + 1 WHERE module_id = {NEW}"),
    ("live-ranges", f"UPDATE live_ranges SET start_time = start_time - 1 WHERE module_id = {NEW}"),
    ("live-ranges", f"UPDATE live_ranges SET start_time = start_time + 1 WHERE module_id = {NEW}"),
    ("live-ranges", "UPDATE live_ranges SET start_time = start_time + 1 WHERE start_time > 0"
     f" AND module_id = {TPU}"),
    ("lookups", "UPDATE memory_spaces SET memory_space_name = 'x' WHERE platform = 'cpu'"),
    ("lookups", "DELETE FROM op_categories WHERE rule_order = 90"),
    ("lookups", "UPDATE role_rules SET role = NULL WHERE rule_order = 140"),
    ("lookups", "INSERT INTO op_categories FROM op_categories WHERE rule_order = 90"),
    ("lookups", "INSERT INTO schema_info FROM schema_info"),
    ("lookups", "UPDATE schema_info SET views_hash = views_hash[:-2]"),
    ("memory-sums", f"UPDATE memory_sums SET fixed_bytes = 3 WHERE module_id = {NEW}"),
    ("memory-sums", f"UPDATE memory_sums SET alias_bytes = -1 WHERE module_id = {NEW}"),
    ("memory-sums", f"UPDATE memory_sums SET thread_local_bytes = NULL WHERE module_id = {NEW}"),
    ("memory-sums", f"DELETE FROM memory_sums WHERE module_id = {NEW}"),
    ("memory-sums", f"INSERT INTO memory_sums SELECT {NEW}, 7, 0, 0, 0, 0, 0, 0, 0, 0"),
    ("keys", f"INSERT INTO memory_sums FROM memory_sums WHERE module_id = {NEW}"),
    ("module-facts", f"UPDATE modules SET platform = 'gpu' WHERE module_id = {NEW}"),
    ("module-facts", f"UPDATE modules SET has_used_values = FALSE WHERE module_id = {NEW}"),
    ("module-facts", f"DELETE FROM files WHERE module_id = {NEW}"),
    *[("module-facts", f"UPDATE modules SET {c} WHERE module_id = {NEW}") for c in (
        "replica_count = 0", "entry_computation_layout = NULL")],
    ("module-facts", f"UPDATE files SET file_kind = 'hlo' WHERE module_id = {NEW}"),
    ("module-facts", f"UPDATE input_output_aliases SET parameter_number = 99"
     f" WHERE module_id = {NEW}"),
    ("operands", f"UPDATE uses SET operand_number = operand_number + 1 WHERE module_id = {NEW}"),
    ("operands", "UPDATE uses SET instruction_name = (SELECT max(instruction_name) FROM"
     f" instructions WHERE opcode = 'fusion' AND module_id = {NEW}) WHERE module_id = {NEW}"),
    ("ordinals", f"DELETE FROM uses WHERE module_id = {NEW} AND use_ordinal = 0"),
    ("ordinals", f"UPDATE positions SET is_defining = FALSE WHERE module_id = {NEW}"),
    ("ordinals", f"UPDATE peak_stack_nodes SET depth = 1 WHERE module_id = {NEW}"),
    ("ordinals", f"UPDATE stack_frames SET own_frame_id = NULL WHERE module_id = {NEW}"),
    ("ordinals", "UPDATE stack_frames SET own_frame_id = (SELECT max(stack_frame_id) FROM"
     f" stack_frames WHERE module_id = {NEW}) WHERE module_id = {NEW}"),
    ("ordinals", f"UPDATE stack_frames SET tree_ordinal = 0 WHERE module_id = {NEW}"),
    ("ordinals", "UPDATE stack_frames SET tree_ordinal = last_tree_ordinal - tree_ordinal,"
     f" last_tree_ordinal = tree_ordinal WHERE module_id = {NEW}"),
    ("ordinals", "UPDATE stack_frames SET last_tree_ordinal = last_tree_ordinal + 1"
     f" WHERE module_id = {NEW} AND depth = 2"),
    ("occupancy", f"UPDATE occupied_peaks SET peak_time = 1 WHERE module_id = {NEW}"),
    ("occupancy", f"UPDATE occupancy_steps SET occupied_temp_bytes = 5 WHERE module_id = {NEW}"),
    ("occupancy", f"DELETE FROM occupied_peaks WHERE module_id = {NEW}"),
    ("occupancy", f"UPDATE occupied_peaks SET naive_live_bytes = 3 WHERE module_id = {NEW}"),
    ("occupancy", f"UPDATE modules SET peak_unknown_reason = 'x' WHERE module_id = {NEW}"),
    ("occupancy", f"DELETE FROM occupancy_steps WHERE module_id = {NEW} AND start_time = ("
     f"SELECT min(start_time) FROM occupancy_steps WHERE module_id = {NEW})"),
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
    *[("peak-tree", f"UPDATE peak_stack_nodes SET label = label || 'x' WHERE module_id = {NEW}"
       f" AND current_bytes {c} 0 AND depth > 0") for c in (">", "=")],
    ("peak-values", f"UPDATE live_ranges SET end_time = start_time WHERE module_id = {NEW}"),
    ("peak-values", f"UPDATE peak_values SET value_id = NULL WHERE module_id = {NEW}"),
    ("peak-values", f"UPDATE peak_values SET allocation_kind = 'output' WHERE module_id = {NEW}"),
    ("peak-values", "UPDATE peak_values SET held_bytes = held_bytes + 1"
     f" WHERE module_id = {NEW} AND allocation_kind = 'temp'"),
    ("peak-values", f"DELETE FROM peak_values WHERE module_id = {NEW}"),
    ("peak-values", f"INSERT INTO peak_values FROM peak_values WHERE module_id = {NEW}"),
    ("value-users", f"UPDATE value_users SET step_count = 3 WHERE module_id = {NEW}"),
    ("value-users", f"DELETE FROM value_users WHERE module_id = {NEW}"),
    ("value-users", f"UPDATE uses SET instruction_name = 'x' WHERE module_id = {NEW}"),
    ("peak-savings", f"UPDATE peak_savings SET saving_bytes = saving_bytes + 1"
     f" WHERE module_id = {NEW}"),
    ("peak-savings", f"UPDATE peak_savings SET half_saving_bytes = 2 * saving_bytes + 1"
     f" WHERE module_id = {NEW}"),
    ("peak-savings", f"UPDATE peak_savings SET saving_bytes = 0, peak_bytes_without ="
     f" peak_bytes_without + saving_bytes WHERE module_id = {NEW} AND saving_bytes > 0"),
    ("peak-savings", f"UPDATE peak_savings SET peak_time_without = 1 WHERE module_id = {NEW}"),
    ("peak-savings", f"DELETE FROM peak_savings WHERE module_id = {NEW}"),
    ("peak-savings", f"INSERT INTO peak_savings BY NAME SELECT * REPLACE ('line' AS what,"
     f" 'x' AS name, NULL AS value_id, held_bytes + 1 AS saving_bytes) FROM peak_savings"
     f" WHERE module_id = {NEW}"),
    ("peak-savings", f"UPDATE peak_savings SET backward_bytes = held_bytes + 1"
     f" WHERE module_id = {NEW}"),
    ("peak-savings", f"UPDATE peak_savings SET low_saving_bytes = saving_bytes + 1,"
     f" low_unknown_reason = NULL, saving_form = 'wrap', kept_bytes = 0 WHERE module_id = {NEW}"),
    ("peak-savings", f"UPDATE peak_savings SET low_unknown_reason = NULL"
     f" WHERE module_id = {NEW}"),
    ("peak-savings", f"UPDATE peak_values SET held_bytes = held_bytes + 1 WHERE module_id = {NEW}"),
    ("peaks", f"DELETE FROM peaks WHERE module_id = {NEW}"),
    ("peaks", f"DELETE FROM peaks WHERE module_id = {NEW} AND peak_ordinal = 2"),
    ("peaks", f"UPDATE peaks SET peak_time = peak_time + 1 WHERE module_id = {NEW}"
     " AND peak_ordinal > 1"),
    ("peaks", f"UPDATE peaks SET valley_bytes = valley_bytes + 1 WHERE module_id = {NEW}"),
    ("peaks", f"UPDATE peaks SET valley_bytes = NULL WHERE module_id = {NEW}"),
    ("peaks", f"UPDATE peaks SET peak_ordinal = 9 WHERE module_id = {NEW} AND peak_ordinal = 2"),
    ("keys", f"INSERT INTO peaks FROM peaks WHERE module_id = {NEW}"),
    ("keys", f"INSERT INTO peak_savings FROM peak_savings WHERE module_id = {NEW}"),
    ("peak-within-total", "UPDATE occupied_peaks SET occupied_temp_bytes = 99999999"
     f" WHERE module_id = {NEW}"),
    ("reported-sums", f"INSERT INTO reported_sums VALUES ({NEW}, 0, 1)"),
    ("reported-sums", f"INSERT INTO reported_sums VALUES ({NEW}, NULL, 1)"),
    ("keys", f"INSERT INTO reported_sums VALUES ({NEW}, NULL, 1), ({NEW}, NULL, 1)"),
    ("references", f'UPDATE "values" SET allocation_index = NULL WHERE module_id = {NEW}'),
    ("references", f'UPDATE "values" SET allocation_index = 900 WHERE module_id = {NEW}'),
    ("references", f'UPDATE "values" SET instruction_name = \'x\' WHERE module_id = {NEW}'),
    ("references", f"UPDATE uses SET value_id = -1 WHERE module_id = {NEW}"),
    ("references", f"UPDATE uses SET instruction_name = 'x' WHERE module_id = {NEW}"),
    ("references", f"UPDATE peak_contributors SET value_id = NULL WHERE module_id = {NEW}"),
    ("references", f"DELETE FROM modules WHERE module_id = {NEW}"),
    ("references", "DELETE FROM runs WHERE run_name = 'cpu_b8'"),
    ("references", "DELETE FROM shapes WHERE shape = 'f32[]'"),
    ("row-counts", f"DELETE FROM compiler_options WHERE module_id = {NEW}"),
    ("row-counts", f"INSERT INTO uses FROM uses WHERE module_id = {NEW} LIMIT 1"),
    ("row-counts", f"DELETE FROM row_counts WHERE module_id = {NEW}"),
    ("row-counts", "INSERT INTO row_counts FROM row_counts"),
    ("schedule", f"UPDATE modules SET schedule_length = 3 WHERE module_id = {NEW}"),
    ("schedule", f"UPDATE instructions SET program_order = 3 WHERE module_id = {NEW}"
     " AND program_order = 4"),
    ("shardings", "INSERT INTO entry_parameters SELECT module_id, parameter_number, 'f32[4]',"
     " '%x = f32[4] parameter(0), sharding={replicated}' FROM allocations WHERE kind = 'parameter';"
     " UPDATE instructions SET text = text || ', sharding={devices=[2]<=[2]}'"
     " WHERE opcode = 'parameter' AND text NOT LIKE '%sharding=%'"),
    ("keys", f"INSERT INTO entry_parameters SELECT {NEW}, 0, '', '' FROM range(2)"),
    *[("shape-indexes", f"UPDATE {c} || 'x' WHERE module_id = {NEW}") for c in (
        '"values" SET shape_index = shape_index', "uses SET operand_index = operand_index",
        "peak_contributors SET shape_index = shape_index")],
    ("shapes", "INSERT INTO shapes FROM shapes WHERE shape = 'f32[]'"),
    ("shapes", "UPDATE shapes SET element_count = 3 WHERE is_tuple"),
    ("shapes", "UPDATE shapes SET memory_space = 3 WHERE dtype = 'f32'"),
    ("shapes", "UPDATE shapes SET dimensions = [2] WHERE shape = 'f32[]'"),
    ("shapes", f'UPDATE "values" SET logical_bytes = 3 WHERE module_id = {NEW}'),
    *[("signatures", f"UPDATE modules SET {c} WHERE module_id = {NEW}") for c in (
        "entry_hash = entry_hash + 1", "entry_hash = NULL", "shapes_name = 'x'")],
    *[("source-places", f"UPDATE {c} WHERE module_id = {NEW}") for c in (
        "stack_frames SET source_column = 1000", "instructions SET source_end_line = 1")],
    *[("times", f"UPDATE instruction_times SET {c}") for c in (
        "self_ns = total_ns + 1", "total_ns = total_ns + 1 WHERE execution_count = 1",
        "largest_ns = 0", "run_count = 0")],
    ("total", f"UPDATE allocations SET size_bytes = size_bytes + 1 WHERE module_id = {NEW}"
     " AND allocation_index = 0"),
    ("used-values", f"DELETE FROM positions WHERE module_id = {NEW} AND position_ordinal = 0"),
    ("used-values", f"UPDATE positions SET shape_index = '{{7}}' WHERE module_id = {NEW}"),
    ("keys", f"INSERT INTO value_origins FROM value_origins WHERE module_id = {NEW}"),
    ("recompute-parts", f"DELETE FROM recompute_parts WHERE module_id = {NEW}"),
    ("recompute-parts", f"UPDATE recompute_parts SET part_kind = 'again' WHERE module_id = {NEW}"),
    ("keys", f"INSERT INTO recompute_parts FROM recompute_parts WHERE module_id = {NEW}"),
    ("keys", f"INSERT INTO recompute_costs FROM recompute_costs WHERE module_id = {NEW}"),
    *[("recompute-costs", f"UPDATE recompute_costs SET {c} WHERE module_id = {NEW}") for c in (
        "operation_count = -1", "operation_count = operation_count + 1", "value_id = 0")],
    *[("value-origins", f"UPDATE value_origins SET {c} WHERE module_id = {NEW}") for c in (
        "value_id = -1", "origin_kind = 'x'", "written_by = NULL", "origin_kind = 'carry'",
        "instruction_name = NULL, origin_kind = 'slice'", "opcode = NULL",
        "loop_instruction_name = 'x'", "trip_count = trip_count + 1", "trip_count = NULL",
        "stack_frame_id = -1", "slice_count = slice_count + 1", "slice_shape = 'f32[3]{0}'",
        "slice_bytes = slice_bytes + 1", "slice_bytes = NULL", "slice_count = 2, slice_bytes = 4",
        "source_line = NULL", "source_line = source_line + 1", "source_file = 'x'",
    )],
    *[("value-origins", f"UPDATE value_origins SET {c} WHERE module_id = {NEW} AND value_id ="
       f" (SELECT min(value_id) FROM value_origins WHERE module_id = {NEW} AND {where})")
      for c, where in (
        ("opcode = 'x'", "instruction_name IN (SELECT instruction_name FROM instructions)"),
        ("op_name = 'x'", "instruction_name IN (SELECT instruction_name FROM value_origins"
         f" WHERE module_id = {NEW} GROUP BY ALL HAVING count(*) > 1)"),
        ("is_layer_input = NOT is_layer_input", "written_by IN (SELECT written_by FROM"
         f" value_origins WHERE is_exact AND module_id = {NEW} GROUP BY ALL HAVING count(*) > 1)"),
    )],
    ("value-origins", f"UPDATE modules SET has_hlo_text = FALSE WHERE module_id = {NEW}"),
    ("value-bounds", f'UPDATE "values" SET offset_bytes = offset_bytes - 64 WHERE {TEMP}'),
    ("value-bounds", f'UPDATE "values" SET offset_bytes = 64 WHERE module_id = {NEW}'),
    ("value-bounds", 'UPDATE "values" SET offset_bytes = offset_bytes - 1 WHERE offset_bytes > 64'
     f" AND module_id = {NEW}"),
    ("value-bounds", f'UPDATE "values" SET offset_bytes = NULL WHERE module_id = {NEW}'),
    ("value-bounds", f"UPDATE allocations SET size_bytes = size_bytes + 1 WHERE module_id = {NEW}"),
    ("values-without-live-range", f"DELETE FROM live_ranges WHERE module_id = {NEW}"
     " AND start_time > 50"),
    ("values-without-live-range", f"UPDATE allocations SET kind = 'thread_local' WHERE {TEMP}"),
]  # fmt: skip


CASES = ROOT.parent / "shared" / "cases"
needs_cases = pytest.mark.skipif(not CASES.is_dir(), reason="there is no ../shared/cases")
SOUND = [
    "tpu7x_check_peak_savings", "gpu_async_computation_peak_tree", "tpu7x_custom_call_start",
    "dot_of_tuple_element",
]  # fmt: skip


def names(con):
    """The invariants that are violated."""
    return [violation.check.name for violation in check.violations(con)]


def sql(name):
    """The query of an invariant."""
    return (resources.check_folder() / f"{name.replace('-', '_')}.sql").read_text(encoding="utf-8")


def only(*kept):
    """Options of the command that leave only these invariants: all of them take half a second."""
    return [f"--skip={query.name}" for query in check.checks() if query.name not in kept]


@pytest.mark.slow
def test_the_demo_dumps_violate_none(demo_db):
    with duckdb.connect(str(demo_db), read_only=True) as con:
        assert names(con) == []


@pytest.mark.slow
@needs_cases
def test_sound_dumps_violate_none(tmp_path):
    for case in SOUND:
        ingest(str(tmp_path / "a.duckdb"), [CASES / case], run=case)
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        assert names(con) == []


@pytest.mark.slow
def test_an_empty_database_violates_none(con):
    assert names(con) == []


def test_every_invariant_has_a_case():
    assert {name for name, _ in BREAKING} == {query.name for query in check.checks()}


ELEMENTS = """BufferAssignment:
allocation 0: size 8, maybe-live-out:
 value: <0 pair{1} @0> (size=8,offset=0): f32[2]{0}

Total bytes used: 8

Used values:
<0 pair{1} @0>
 positions:
  pair {1}
  bitcast {}
 uses:
  bitcast, operand 0 {}
 from instruction: %pair = (f32[2]{0}, f32[2]{0}) custom-call(%p)


HloLiveRange (max 2):
  InstructionSequence:
    0:pair
    1:bitcast
  BufferLiveRange:
    pair{1}:0-2
"""


@pytest.mark.slow
@pytest.mark.parametrize(("element", "found_count"), [(1, 0), (0, 1)])
def test_an_operand_may_be_an_element(tmp_path, element, found_count):
    """From jaxlib 0.11 on; `bitcast` has its row from the HLO text."""
    name = "module_0001.jit_f.cpu_after_optimizations"
    (tmp_path / f"{name}-buffer-assignment.txt").write_text(ELEMENTS)
    (tmp_path / f"{name}.txt").write_text(
        "HloModule jit_f\n\nENTRY %main (p: f32[2]) -> f32[1,2] {\n"
        "  %p = f32[2]{0} parameter(0)\n"
        "  %pair = (f32[2]{0}, f32[2]{0}) custom-call(%p)\n"
        f"  ROOT %bitcast = f32[1,2]{{1,0}} bitcast(%pair#{element})\n}}\n"
    )
    ingest(str(tmp_path / "a.duckdb"), [tmp_path], run="r")
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        assert len(con.execute(sql("operands")).fetchall()) == found_count


@pytest.mark.slow
@pytest.mark.parametrize(
    ("operand", "found_count"),
    [("x.1", 0), ("f32[3,1]{1,0} x.1", 0), ("/*index=0*/x.1", 0), ("y.1", 1)],
)
def test_an_operand_may_have_no_percent_sign(tmp_path, operand, found_count):
    """As in HLO texts of jaxlib 0.4.35, which repeat the name after a computation's end."""
    name = "module_0001.jit_f.cpu_after_optimizations"
    (tmp_path / f"{name}-buffer-assignment.txt").write_text(
        ELEMENTS.replace("pair{1}", "x.1")
        .replace("pair {1}", "x.1")
        .replace("0:pair", "0:x.1")
        .replace("%pair = (f32[2]{0}, f32[2]{0}) custom-call(%p)", "%x.1 = f32[2]{0} parameter(0)")
    )
    (tmp_path / f"{name}.txt").write_text(
        "HloModule jit_f\n\nENTRY main.3 {\n  x.1 = f32[2]{0} parameter(0)\n"
        f"  ROOT bitcast = f32[1,2]{{1,0}} bitcast({operand})\n}} // main.3\n\n"
    )
    ingest(str(tmp_path / "a.duckdb"), [tmp_path], run="r")
    with duckdb.connect(str(tmp_path / "a.duckdb")) as con:
        assert len(con.execute(sql("operands")).fetchall()) == found_count
        codes = con.execute("SELECT code FROM diagnostics").fetchall()
        assert ("truncated_hlo_text",) not in codes


@pytest.mark.parametrize(
    ("opcode", "shape", "label", "found_count"),
    [
        ("fusion-start", "((f32[1]), f32[1])", "wrapped_computation", 0),
        ("all-reduce-start", "((f32[1]), f32[1])", "async_computation", 0),
        ("custom-call-update", "((f32[1]), f32[1], (u32[]))", "async_computation", 0),
        ("all-reduce-start", "(f32[1], f32[1])", "async_computation", 1),  # of two arrays
        ("async-start", "((f32[1]), f32[1])", "async_computation", 1),  # names it: calls=
        ("async-start", "((f32[1]), f32[1])", "fused", 0),
        ("call", "f32[1]", "async_computation", 1),
    ],
)
def test_the_short_form_hides_its_computation(con, opcode, shape, label, found_count):
    insert(con, "modules", module_id=1, run_name="r", format_era="C", reported_peak_tree_bytes=4)
    insert(con, "instructions", module_id=1, instruction_name="x.1", opcode=opcode, shape=shape,
           text="%x.1 = f32[1]{0} x(), calls=%fused")  # fmt: skip
    insert(con, "instructions", module_id=1, instruction_name="add.1", opcode="add", text="%add.1")
    contributor = {"instruction_name": "add.1", "shape_index": "{}", "logical_bytes": 4}
    insert(con, "peak_contributors", module_id=1, **contributor)
    for number, name in enumerate(["main", "x.1", label, "y", "add.1"]):
        sizes = {"current_bytes": 4} if name == "add.1" else {"remaining_bytes": 4}
        place = {"node_ordinal": number, "parent_ordinal": number - 1 if number else None}
        insert(con, "peak_stack_nodes", module_id=1, label=name, total_bytes=4, **sizes, **place)
    findings = con.execute(sql("peak-tree")).fetchall()
    # What is deeper is named for something.
    expected = [f"node 2: nothing is named {label}"] * found_count + ["node 3: nothing is named y"]
    assert [text for _, text in findings] == expected


@pytest.mark.parametrize(("opcode", "found_count"), [("async-start", 0), ("add", 1)])
def test_an_asynchronous_origin_may_have_another_opcode(con, opcode, found_count):
    made_by = {"module_id": 1, "instruction_name": "x.1"}
    insert(con, "instructions", **made_by, opcode="custom-call-start")
    insert(con, "value_origins", **made_by, origin_kind="carry", opcode=opcode)
    findings = con.execute(sql("value-origins")).fetchall()
    assert [text for _, text in findings if "not what" in text] == [
        "origin of value 0: not what instruction x.1 is"
    ] * found_count


@pytest.fixture(scope="module")
def demo_copy(demo_db, tmp_path_factory):
    """A copy of `demo_db`, in which no invariant's query finds a row, to be changed and undone."""
    path = shutil.copy(demo_db, tmp_path_factory.mktemp("copy") / "demo.duckdb")
    with duckdb.connect(str(path)) as con:
        assert [q.name for q in check.checks() if con.execute(sql(q.name)).fetchall()] == []
        yield con


@pytest.mark.sample(12)
@pytest.mark.parametrize(("name", "statement"), BREAKING)
def test_what_breaks_it_is_a_row_of_its_query(demo_copy, name, statement):
    query = sql(name)
    demo_copy.execute("BEGIN")
    try:
        demo_copy.execute(statement)
        assert demo_copy.execute(query).fetchall()
    finally:
        demo_copy.execute("ROLLBACK")


@pytest.mark.sample(15)
@pytest.mark.parametrize(("name", "statement"), list(dict(BREAKING).items()))
def test_what_breaks_it_is_found(demo_db, tmp_path, name, statement):
    path = shutil.copy(demo_db, tmp_path / "broken.duckdb")
    with duckdb.connect(str(path)) as con:
        con.execute(statement)
        queries = [query for query in check.checks() if query.name == name]
        (violation,) = check.violations(con, queries)
    assert not violation.is_explained
    assert violation.examples
    assert all(text for _, text in violation.examples)


def test_its_header_names_what_it_gives():
    for query in check.checks():
        assert [(c.name, c.type) for c in query.columns] == [
            ("module_id", "BIGINT"), ("finding", "VARCHAR")
        ]  # fmt: skip
        assert query.params == ()
        assert query.description


@pytest.mark.sample(6)
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
    assert bool(con.execute(sql("overlap")).fetchall()) == expected


def test_values_that_hand_over_at_an_instant_do_not_overlap(con):
    module = Module(con, 1)
    module.allocation(0, "temp", 100)
    for value_id, live in enumerate([(0, 3), (3, 3), (3, 7), (7, 9)]):
        module.value(value_id, 0, 0, 100, live)
    assert con.execute(sql("overlap")).fetchall() == []
    module.value(9, 0, 50, 1, (5, 5))
    assert con.execute(sql("overlap")).fetchall() == [
        (1, "allocation 0: values 2 (live 3-7) and 9 (live 5-5) share bytes")
    ]


def test_scratch_of_asynchronous_calls_may_share_bytes(con):
    """On SparseCore XLA gives it one place, while several of the calls are under way."""
    module = Module(con, 1, schedule_length=9)
    module.allocation(0, "temp", 100)
    module.value(0, 0, 0, 80, (0, 5), "a", shape_index="{2,0}", opcode="custom-call-start")
    module.value(1, 0, 0, 90, (1, 6), "b", shape_index="{2,0}", opcode="custom-call-update")
    module.value(2, 0, 0, 90, (2, 7), "c", shape_index="{12}", opcode="async-start")
    assert con.execute(sql("overlap")).fetchall() == []
    insert(con, "occupied_peaks", module_id=1, color=0, peak_time=1, occupied_temp_bytes=90,
           naive_live_bytes=260)  # fmt: skip
    for start, size in ((0, 80), (1, 90), (8, 0)):
        insert(con, "occupancy_steps", module_id=1, color=0, start_time=start,
               occupied_temp_bytes=size)  # fmt: skip
    assert con.execute(sql("occupancy")).fetchall() == []
    # Nothing else may: neither results nor the flags of copies.
    module.value(3, 0, 80, 20, (3, 4), "a2", shape_index="{1}", opcode="custom-call-start")
    module.value(4, 0, 99, 1, (3, 4), "d", shape_index="{2}", opcode="copy-start")
    findings = [finding for _, finding in con.execute(sql("overlap")).fetchall()]
    pairs = {tuple(sorted(re.findall(r"(\d+) \(live", finding))) for finding in findings}
    assert pairs == {("1", "3"), ("2", "3"), ("3", "4")}


@pytest.mark.parametrize(
    ("offset", "opcode", "is_fine"),
    [
        (0, "custom-call-update", True),
        (10, "custom-call-update", False),  # 10 of its bytes are its own
        (0, "copy-start", False),
    ],
)
def test_a_context_frees_only_bytes_of_its_own(con, offset, opcode, is_fine):
    module = Module(con, 1, schedule_length=9)
    module.allocation(0, "temp", 100)
    module.value(0, 0, 0, 80, (0, 5), "a", shape_index="{2,0}", opcode="custom-call-start")
    module.value(1, 0, offset, 90, (1, 6), "b", shape_index="{2,0}", opcode=opcode)
    module.close()
    for start, size in ((0, 80), (1, 90 + offset), (7, 0)):
        insert(con, "occupancy_steps", module_id=1, color=0, start_time=start,
               occupied_temp_bytes=size)  # fmt: skip
    module.saves(0, 0, 0, held_bytes=80, peak_time_without=1, peak_bytes_without=90 + offset,
                 low_unknown_reason="x")  # fmt: skip
    findings = [text for _, text in con.execute(sql("peak-savings")).fetchall()]
    assert (not [text for text in findings if "are occupied and it has" in text]) == is_fine


def test_sums_wrap_as_in_the_dump(con):
    module = Module(con, 1, reported_total_bytes=-(2**63) + 3)
    module.allocation(0, "temp", 2**62)
    module.allocation(1, "output", 2**62 + 1)
    assert con.execute(sql("total")).fetchall() != []
    module.allocation(2, "constant", 2)
    assert con.execute(sql("total")).fetchall() == []


@pytest.mark.slow
def test_examples_come_from_modules_without_diagnostics(con):
    with in_bulk(con):
        for number in range(1, 4):
            Module(con, number, reported_total_bytes=number).close()
        insert(con, "diagnostics", run_name="r", module_id=1, severity="error", code="x")
    total = [query for query in check.checks() if query.name == "total"]
    (violation,) = check.violations(con, total, part_rows=1)
    assert (violation.finding_count, violation.explained_count, violation.is_explained) == (
        3,
        1,
        False,
    )
    assert [module_id for module_id, _ in violation.examples] == [2, 3]
    con.execute("DELETE FROM modules WHERE module_id > 1")
    (violation,) = check.violations(con, total)
    assert violation.is_explained and [module_id for module_id, _ in violation.examples] == [1]


def test_what_cannot_be_looked_at_is_reported_in_one_line(fresh):
    con = fresh()
    con.execute("ALTER TABLE diagnostics DROP COLUMN severity")
    with pytest.raises(BufdbError, match=r"^check: Binder Error: .*severity[^\n]*$"):
        check.violations(con, [])


@pytest.mark.slow
def test_the_command(demo_db, tmp_path, capfd):
    some = only("lookups", "total")
    assert cli.run(["check", "--db", str(demo_db), "--format", "csv", *some]) == 0
    out, err = capfd.readouterr()
    assert out == "invariant,title,finding_count,module_count,explained_count,examples\n"
    assert err == "bufdb: 2 invariants hold for 15 modules\n"
    path = shutil.copy(demo_db, tmp_path / "broken.duckdb")
    with duckdb.connect(str(path)) as con:
        con.execute(f"UPDATE modules SET reported_total_bytes = 7 WHERE module_id = {NEW}")
    assert cli.run(["check", "--db", str(path), "--format", "csv"]) == 1
    out, err = capfd.readouterr()
    title = '"The allocations add up to ""Total bytes used"""'
    example = "cpu_b8/module_0002.jit_train_step.cpu_after_optimizations"
    assert out.splitlines()[-1] == (
        f'total,{title},1,1,0,"{example}: expected 7 bytes, found 8905988"'
    )
    assert err == ""
    with duckdb.connect(str(path)) as con:
        con.execute(
            "INSERT INTO diagnostics (run_name, module_id, severity, code, message) "
            f"SELECT 'cpu_b8', {NEW}, 'error', 'x', 'm'"
        )
    assert cli.run(["check", "--db", str(path), *only("lookups", "total")]) == 0
    assert capfd.readouterr().err == (
        "bufdb: 1 of 2 invariants hold for 15 modules; violations of the others are in modules "
        "with an ingest diagnostic\n"
    )
    assert cli.run(["check", "--db", str(path), "-q", *only("lookups")]) == 0
    assert capfd.readouterr() == ("", "")
    assert cli.run(["check", "--db", str(path), "--skip", "totle"]) == 2
    assert "did you mean 'total'?" in capfd.readouterr().err


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("total", "value-bounds", "keys"), marks=pytest.mark.slow, id="some"),
        pytest.param(None, marks=pytest.mark.by_hand, id="all"),
    ],
)
def test_the_size_of_a_part_changes_nothing(demo_db, tmp_path, names):
    queries = [query for query in check.checks() if names is None or query.name in names]
    path = shutil.copy(demo_db, tmp_path / "broken.duckdb")
    with duckdb.connect(str(path)) as con:
        con.execute("UPDATE allocations SET size_bytes = size_bytes + 1")
        whole = check.violations(con, queries)
        parts = check.violations(con, queries, part_rows=1)
    counts = [(v.check.name, v.finding_count, v.module_ids) for v in whole]
    assert counts == [(v.check.name, v.finding_count, v.module_ids) for v in parts]
    assert {"total", "value-bounds"} <= {n for n, _, _ in counts}


@pytest.mark.slow
def test_what_ingest_has_reported_is_distinguished(demo_db, tmp_path, capfd):
    dumps = tmp_path / "damaged"
    name = "module_0002.jit_train_step.cpu_after_optimizations"
    shutil.copytree(DEMO / "cpu_b8", dumps)
    path = dumps / f"{name}-buffer-assignment.txt"
    text = path.read_text().replace("allocation 0: size ", "allocation 0: size 1", 1)
    path.write_text(text)
    db = tmp_path / "damaged.duckdb"
    assert ingest(str(db), [dumps]).exit_code == 4
    with duckdb.connect(str(db)) as con:
        broken = check.violations(con)
        assert "total" in [violation.check.name for violation in broken]
        assert all(violation.is_explained for violation in broken)
    assert cli.run(["check", "--db", str(db), *only("total")]) == 0
    assert "in modules with an ingest diagnostic" in capfd.readouterr().err


@pytest.mark.slow
def test_a_changed_label_is_no_corruption(demo_db, tmp_path):
    path = shutil.copy(demo_db, tmp_path / "labels.duckdb")
    with duckdb.connect(str(path)) as con:
        runs.set_labels(con, "cpu_b8", {"x": "1", "batch": "9"})
        runs.remove_labels(con, "cpu_b8_old", ["batch"])
        runs.remove_runs(con, ["cpu_b16"])
        assert names(con) == []


class Schedule(Module):
    """A module whose values are in a schedule."""

    def __init__(self, con):
        super().__init__(con, 1, schedule_length=9)
        self.allocation(0, "temp", 0)
        self.count = 0

    def step(self, place, live, opcode, **cells):
        self.count += 1
        self.value(self.count, 0, 0, 0, live, program_order=place, opcode=opcode, **cells)


@pytest.mark.parametrize(
    ("live", "is_fine"),
    [
        ((4, 7), True),  # jaxlib to 0.11.1: its own place
        ((5, 7), True),  # jaxlib 0.12.0 on GPU, libtpu 0.0.52: the operation's start
        ((2, 7), True),  # newest XLA: the start of the computation around it
        ((0, 7), True),  # … and if that is the entry
        ((3, 7), False),
        ((6, 7), False),
        ((5, 5), False),  # does not live beyond the operation's start
        ((2, 4), False),
    ],
)
def test_where_a_value_in_an_asynchronous_computation_begins(con, live, is_fine):
    module = Schedule(con)
    module.step(2, (2, 8), "parameter")
    module.step(4, live, "fusion")
    module.step(5, (5, 7), "fusion-start")
    module.step(8, (8, 9), "add")
    assert (con.execute(sql("live-ranges")).fetchall() == []) == is_fine


def test_only_an_asynchronous_value_begins_elsewhere(con):
    module = Schedule(con)
    module.step(2, (2, 8), "parameter")
    module.step(4, (5, 7), "fusion")
    module.step(5, (5, 7), "copy-start")
    assert con.execute(sql("live-ranges")).fetchall() != []


@pytest.mark.parametrize(
    "count",
    [
        1,
        pytest.param(10, marks=pytest.mark.slow),
        pytest.param(200, marks=pytest.mark.by_hand),
    ],
)
def test_of_all_corruptions_few_are_missed(demo_db, tmp_path, count):
    path = shutil.copy(demo_db, tmp_path / "corrupt.duckdb")
    with duckdb.connect(str(path)) as con:
        outcome = corrupt.try_cases(con, seed=1, count=count)
    assert outcome.tried == count
    assert len(outcome.missed) <= count * 0.1, str(outcome)


@pytest.mark.slow
@needs_dumps
def test_of_corruptions_of_every_generation_few_are_missed(tmp_path):
    path = tmp_path / "generations.duckdb"
    for name in corrupt.GENERATIONS:
        ingest(str(path), [DUMPS / name])
    with duckdb.connect(str(path)) as con:
        assert names(con) == []
        outcome = corrupt.try_cases(con, seed=1, count=7)
    assert len(outcome.missed) <= 1, str(outcome)
