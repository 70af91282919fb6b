-- Measured times of what would compute the values of a line at the peak again.
CREATE OR REPLACE VIEW advised_times AS
-- What is executed to compute the values of a line again, each instruction once.
WITH makers AS (
  SELECT
    items.module_id, items.color, items.kind, items.name,
    made.instruction_name,
    max(CASE WHEN made.is_low THEN 1 ELSE 0 END) AS low_count
  FROM advised_items AS items
  JOIN recompute_instructions AS made
    ON made.module_id = items.module_id
    AND made.value_id = items.value_id
  WHERE items.kind IN ('residual', 'recompute', 'offload')
  GROUP BY
    items.module_id, items.color, items.kind, items.name,
    made.instruction_name
),
times AS (
  SELECT
    makers.module_id, makers.color, makers.kind, makers.name,
    CASE
      WHEN sum(makers.low_count) > 0
        AND count(CASE WHEN makers.low_count = 1 THEN run_times.run_ns END)
          = sum(makers.low_count)
        THEN CAST(sum(CASE WHEN makers.low_count = 1 THEN run_times.run_ns END) AS BIGINT)
    END AS low_recompute_ns,
    CASE
      WHEN count(run_times.run_ns) = count(*) THEN CAST(sum(run_times.run_ns) AS BIGINT)
    END AS recompute_ns
  FROM makers
  LEFT JOIN run_times
    ON run_times.module_id = makers.module_id
    AND run_times.instruction_name = makers.instruction_name
  GROUP BY makers.module_id, makers.color, makers.kind, makers.name
)
SELECT module_id, color, kind, name, low_recompute_ns, recompute_ns
FROM times
WHERE low_recompute_ns IS NOT NULL OR recompute_ns IS NOT NULL;
COMMENT ON VIEW advised_times IS
  'One row per line of advised_lines of kind residual, recompute or offload whose recomputation was timed: the instructions that make its values (recompute_instructions), each once, in one run (run_times). Key: module_id, color, kind, name.';
COMMENT ON COLUMN advised_times.module_id IS 'advised_lines.module_id.';
COMMENT ON COLUMN advised_times.color IS 'advised_lines.color.';
COMMENT ON COLUMN advised_times.kind IS 'advised_lines.kind.';
COMMENT ON COLUMN advised_times.name IS 'advised_lines.name.';
COMMENT ON COLUMN advised_times.low_recompute_ns IS 'Time of those at the lower bound of savings (recompute_instructions.is_low) [nanoseconds]; NULL if one was not timed.';
COMMENT ON COLUMN advised_times.recompute_ns IS 'Time of all [nanoseconds]; NULL if one was not timed.';
