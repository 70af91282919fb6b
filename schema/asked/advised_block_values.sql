-- Values that wait for the backward pass, by function called several times or by loop.
CREATE OR REPLACE VIEW advised_block_values AS
WITH all_idle AS (
  SELECT
    idle_values.module_id, idle_values.color, idle_values.value_id, idle_values.held_bytes,
    idle_values.kept_bytes, idle_values.shape, idle_values.instruction_name, idle_values.is_stack,
    idle_values.is_layer_input, idle_values.is_forward, idle_values.next_use_time
  FROM answered_idle_values AS idle_values
),
idle AS (
  SELECT
    idle_values.module_id, idle_values.color, idle_values.value_id, idle_values.held_bytes,
    idle_values.shape, instructions.op_name, instructions.stack_frame_id, frames.own_frame_id,
    frames.tree_ordinal
  FROM all_idle AS idle_values
  JOIN instructions
    ON instructions.module_id = idle_values.module_id
    AND instructions.instruction_name = idle_values.instruction_name
  JOIN stack_frames AS frames
    ON frames.module_id = instructions.module_id
    AND frames.stack_frame_id = instructions.stack_frame_id
  WHERE idle_values.is_forward
    AND NOT idle_values.is_stack
    AND idle_values.next_use_time IS NOT NULL
),
calls AS (
  SELECT
    idle.module_id, idle.color, idle.value_id, idle.held_bytes, idle.shape, idle.op_name,
    idle.stack_frame_id,
    own_frames.function_name = outer_frames.function_name
      AND own_frames.source_file = outer_frames.source_file AS is_direct,
    outer_frames.function_name || ' (' || base_name(outer_frames.source_file) || ')' AS name,
    outer_frames.parent_frame_id,
    row_number() OVER (
      PARTITION BY
        idle.module_id, idle.color, idle.value_id, outer_frames.function_name,
        base_name(outer_frames.source_file)
      ORDER BY outer_frames.depth
    ) AS place
  FROM idle
  JOIN stack_frames AS outer_frames
    ON outer_frames.module_id = idle.module_id
    AND outer_frames.tree_ordinal <= idle.tree_ordinal
    AND outer_frames.last_tree_ordinal >= idle.tree_ordinal
    AND outer_frames.own_frame_id = outer_frames.stack_frame_id
  JOIN stack_frames AS own_frames
    ON own_frames.module_id = idle.module_id
    AND own_frames.stack_frame_id = idle.own_frame_id
  WHERE outer_frames.function_name IS NOT NULL
    AND NOT outer_frames.function_name GLOB '*<lambda>*'
    AND NOT outer_frames.function_name GLOB '<*'
),
idle_stacks AS (
  SELECT
    idle_values.module_id, idle_values.color, idle_values.value_id, idle_values.kept_bytes,
    origins.loop_instruction_name
  FROM all_idle AS idle_values
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
  calls.module_id, calls.color, calls.value_id,
  'block' AS kind,
  calls.held_bytes, calls.name, calls.parent_frame_id,
  CASE
    -- Equal values of one line are rounds of a Python loop, except the parts of a split.
    WHEN calls.is_direct AND NOT calls.op_name GLOB '*/split'
      THEN count(*) OVER (
        PARTITION BY
          calls.module_id, calls.color, calls.name, calls.stack_frame_id, calls.op_name, calls.shape
      )
    ELSE 1
  END AS repeat_count,
  CAST(0 AS HUGEINT) AS carried_bytes
FROM calls
WHERE calls.place = 1
UNION ALL
SELECT
  stacks.module_id, stacks.color, stacks.value_id,
  'scan',
  stacks.kept_bytes,
  'scan of ' || coalesce(named.source, stacks.loop_instruction_name),
  NULL,
  1,
  CAST(coalesce(carries.size_bytes, 0) * stacks.slice_count AS HUGEINT)
FROM stacks
LEFT JOIN carries
  ON carries.module_id = stacks.module_id
  AND carries.loop_instruction_name = stacks.loop_instruction_name
LEFT JOIN named
  ON named.module_id = stacks.module_id
  AND named.loop_instruction_name = stacks.loop_instruction_name;
COMMENT ON VIEW advised_block_values IS
  'Values waiting for the backward pass (answered_idle_values) that one jax.checkpoint would not keep. Kind block: one row per value that the forward pass makes outside of loops, and function of user code in the call stack of its instruction. Kind scan: one row per stack that a loop makes and that is not an input of its rounds: what jax.checkpoint of the loop body (nn.remat of the layer that nn.scan repeats) would recompute. Key: module_id, color, value_id, name.';
COMMENT ON COLUMN advised_block_values.kind IS 'block or scan.';
COMMENT ON COLUMN advised_block_values.held_bytes IS 'For a block, answered_idle_values.held_bytes; for a scan, the slice that a round recomputes (answered_idle_values.kept_bytes), 0 for values that are not in answered_idle_values [bytes].';
COMMENT ON COLUMN advised_block_values.name IS 'For a block, the function and its file without directories, so functions with the same names are merged (stack_frames.function_name, source_file); for a scan, "scan of" and the line that calls the loop, or its instruction if the line is unknown.';
COMMENT ON COLUMN advised_block_values.parent_frame_id IS 'The frame that calls the function, the outermost in a recursion: stack_frames.parent_frame_id; NULL if none does, and for a scan.';
COMMENT ON COLUMN advised_block_values.repeat_count IS 'Number of values with the same line (of the function itself), operation and shape: rounds of an unrolled Python loop; 1 for other lines.';
COMMENT ON COLUMN advised_block_values.carried_bytes IS 'Carry of the loop, times its rounds [bytes]: upper bound of what is stacked if none of it is stacked today; 0 for a block.';
