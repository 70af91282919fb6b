-- How long it takes to compute again what a buffer, a line or an op holds.
CREATE OR REPLACE VIEW recompute_times AS
WITH named AS (
  SELECT
    "values".module_id, "values".value_id, allocations.color, value_sources.source_line,
    value_sources.stripped_op_path,
    stacks.written_by IS NOT NULL AS is_stack
  FROM "values"
  JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
    AND allocations.kind = 'temp'
  JOIN value_sources
    ON value_sources.module_id = "values".module_id
    AND value_sources.value_id = "values".value_id
  LEFT JOIN value_origins AS made
    ON made.module_id = "values".module_id
    AND made.value_id = "values".value_id
  LEFT JOIN (SELECT DISTINCT module_id, written_by FROM recompute_parts) AS stacks
    ON stacks.module_id = made.module_id
    AND stacks.written_by = made.written_by
  WHERE "values".module_id IN (SELECT instruction_times.module_id FROM instruction_times)
),
sets AS (
  SELECT
    named.module_id, named.color, 'value' AS what, CAST(NULL AS VARCHAR) AS name,
    named.value_id, named.value_id AS member_id, named.source_line, named.is_stack
  FROM named
  UNION ALL
  SELECT
    named.module_id, named.color, kinds.what,
    CASE kinds.what WHEN 'op' THEN named.stripped_op_path ELSE named.source_line END AS name,
    CAST(NULL AS BIGINT) AS value_id, named.value_id AS member_id, named.source_line,
    named.is_stack
  FROM named
  CROSS JOIN (VALUES ('source_line'), ('op')) AS kinds (what)
),
marked AS (
  SELECT
    sets.module_id, sets.color, sets.what, sets.name, sets.value_id, sets.member_id,
    sets.source_line, sets.is_stack,
    max(CASE WHEN sets.is_stack THEN 1 ELSE 0 END) OVER (
      PARTITION BY sets.module_id, sets.color, sets.what, sets.name, sets.source_line
    ) AS stack_count
  FROM sets
),
executed AS (
  SELECT
    sets.module_id, sets.color, sets.what, sets.name, sets.value_id, makers.instruction_name,
    max(CASE WHEN makers.is_low THEN 1 ELSE 0 END) AS low_count
  FROM marked AS sets
  JOIN recompute_instructions AS makers
    ON makers.module_id = sets.module_id
    AND makers.value_id = sets.member_id
  -- The others of a line with stacks are operands of these, and computed with them.
  WHERE sets.is_stack
    OR sets.stack_count = 0
    OR sets.name IS NULL
    OR sets.source_line IS NULL
  GROUP BY
    sets.module_id, sets.color, sets.what, sets.name, sets.value_id, makers.instruction_name
)
SELECT
  executed.module_id, executed.color, executed.what, executed.name, executed.value_id,
  CASE
    WHEN count(CASE WHEN executed.low_count = 1 THEN 1 END) > 0
      AND count(CASE WHEN executed.low_count = 1 THEN run_times.run_ns END)
        = count(CASE WHEN executed.low_count = 1 THEN 1 END)
      THEN CAST(sum(CASE WHEN executed.low_count = 1 THEN run_times.run_ns END) AS BIGINT)
  END AS low_recompute_ns,
  CASE
    WHEN count(run_times.run_ns) = count(*) THEN CAST(sum(run_times.run_ns) AS BIGINT)
  END AS recompute_ns
FROM executed
LEFT JOIN run_times
  ON run_times.module_id = executed.module_id
  AND run_times.instruction_name = executed.instruction_name
GROUP BY executed.module_id, executed.color, executed.what, executed.name, executed.value_id;
COMMENT ON VIEW recompute_times IS
  'One row per value, source line and op with temp memory, in modules that a profile has timed: how long one run takes today for the instructions that compute it, each counted once. What computing it again costs if those take as long again: of a fusion the whole, so mostly a little too much. Key: module_id, color, what, name, value_id.';
COMMENT ON COLUMN recompute_times.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN recompute_times.color IS 'Memory space: allocations.color.';
COMMENT ON COLUMN recompute_times.what IS 'value, source_line or op: peak_savings.what.';
COMMENT ON COLUMN recompute_times.name IS 'peak_savings.name; NULL for a value.';
COMMENT ON COLUMN recompute_times.value_id IS 'values.value_id; NULL for a line and an op.';
COMMENT ON COLUMN recompute_times.low_recompute_ns IS
  'Measured time in a run of what is computed again at the low end [nanoseconds]; NULL if a part was not timed, and where there is no low end.';
COMMENT ON COLUMN recompute_times.recompute_ns IS
  'The same at the high end, of what no loop stacks at all [nanoseconds]; NULL if a part was not timed.';
