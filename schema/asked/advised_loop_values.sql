-- Stacks that wait for the backward pass, by the loop that makes them.
CREATE OR REPLACE VIEW advised_loop_values AS
WITH idle_stacks AS (
  SELECT
    idle_values.module_id, idle_values.color, idle_values.value_id, idle_values.kept_bytes,
    origins.loop_instruction_name
  FROM answered_idle_values AS idle_values
  JOIN value_origins AS origins
    ON origins.module_id = idle_values.module_id
    AND origins.value_id = idle_values.value_id
  WHERE idle_values.is_stack
    AND NOT idle_values.is_layer_input
),
loops AS (
  SELECT DISTINCT idle_stacks.module_id, idle_stacks.color, idle_stacks.loop_instruction_name
  FROM idle_stacks
),
-- What the loop returns is written in its body; outside of it is a separate value.
stacks AS (
  SELECT
    loops.module_id, loops.color, origins.value_id,
    coalesce(idle_stacks.kept_bytes, 0) AS kept_bytes,
    loops.loop_instruction_name, origins.slice_count
  FROM loops
  JOIN value_origin_details AS origins
    ON origins.module_id = loops.module_id
    AND origins.loop_instruction_name = loops.loop_instruction_name
    AND origins.origin_kind = 'stacked'
    AND origins.is_residual
    AND NOT origins.is_layer_input
  LEFT JOIN idle_stacks
    ON idle_stacks.module_id = loops.module_id
    AND idle_stacks.color = loops.color
    AND idle_stacks.value_id = origins.value_id
),
carries AS (
  SELECT loops.module_id, loops.loop_instruction_name, sum("values".size_bytes) AS size_bytes
  FROM loops
  JOIN "values"
    ON "values".module_id = loops.module_id
    AND "values".instruction_name = loops.loop_instruction_name
  JOIN value_origins AS origins
    ON origins.module_id = "values".module_id
    AND origins.value_id = "values".value_id
    AND origins.origin_kind = 'carry'
    AND origins.loop_instruction_name = loops.loop_instruction_name
  GROUP BY loops.module_id, loops.loop_instruction_name
),
named AS (
  SELECT
    loops.module_id, loops.loop_instruction_name,
    min(coalesce(details.own_source, details.library_source, details.op_name)) AS source
  FROM loops
  JOIN value_details AS details
    ON details.module_id = loops.module_id
    AND details.instruction_name = loops.loop_instruction_name
  GROUP BY loops.module_id, loops.loop_instruction_name
)
SELECT
  stacks.module_id, stacks.color, stacks.value_id, stacks.kept_bytes,
  'scan of ' || coalesce(named.source, stacks.loop_instruction_name) AS name,
  CAST(coalesce(carries.size_bytes, 0) * stacks.slice_count AS HUGEINT) AS carried_bytes
FROM stacks
LEFT JOIN carries
  ON carries.module_id = stacks.module_id
  AND carries.loop_instruction_name = stacks.loop_instruction_name
LEFT JOIN named
  ON named.module_id = stacks.module_id
  AND named.loop_instruction_name = stacks.loop_instruction_name;
COMMENT ON VIEW advised_loop_values IS
  'One row per stack waiting for the backward pass (answered_idle_values) that a loop makes and that is not an input of its rounds: what jax.checkpoint of the loop body (nn.remat of the layer that nn.scan repeats) would recompute. Key: module_id, color, value_id.';
COMMENT ON COLUMN advised_loop_values.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_loop_values.color IS 'answered_functions.color.';
COMMENT ON COLUMN advised_loop_values.kept_bytes IS 'The slice that a round recomputes (answered_idle_values.kept_bytes); 0 for values that are not in answered_idle_values [bytes].';
COMMENT ON COLUMN advised_loop_values.name IS '"scan of" and the line that calls the loop, or its instruction if the line is unknown.';
COMMENT ON COLUMN advised_loop_values.carried_bytes IS 'Carry of the loop, times its rounds [bytes]: upper bound of what is stacked if none of it is stacked today.';
