-- Values that wait for the backward pass, by function that is called around them.
CREATE OR REPLACE VIEW advised_call_values AS
WITH idle AS (
  SELECT
    idle_values.module_id, idle_values.color, idle_values.value_id, idle_values.held_bytes,
    idle_values.shape, instructions.op_name, instructions.stack_frame_id, frames.own_frame_id,
    frames.tree_ordinal
  FROM answered_idle_values AS idle_values
  JOIN answered_functions AS functions
    ON functions.module_id = idle_values.module_id
    AND functions.color = idle_values.color
  JOIN instructions
    ON instructions.module_id = idle_values.module_id
    AND instructions.instruction_name = idle_values.instruction_name
  JOIN stack_frames AS frames
    ON frames.module_id = instructions.module_id
    AND frames.stack_frame_id = instructions.stack_frame_id
  WHERE idle_values.is_forward
    AND NOT idle_values.is_stack
    AND idle_values.next_use_time IS NOT NULL
    -- The CPU compiler merges what is computed twice outside of loops.
    AND functions.platform <> 'cpu'
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
)
SELECT
  calls.module_id, calls.color, calls.value_id, calls.held_bytes, calls.name,
  calls.parent_frame_id,
  CASE
    -- Equal values of one line are rounds of a Python loop, except the parts of a split.
    WHEN calls.is_direct AND NOT calls.op_name GLOB '*/split'
      THEN count(*) OVER (
        PARTITION BY
          calls.module_id, calls.color, calls.name, calls.stack_frame_id, calls.op_name, calls.shape
      )
    ELSE 1
  END AS repeat_count
FROM calls
WHERE calls.place = 1;
COMMENT ON VIEW advised_call_values IS
  'One row per value waiting for the backward pass (answered_idle_values) that the forward pass makes outside of loops, and function of user code in the call stack of its instruction: what one jax.checkpoint of the function would not keep. No rows on the CPU, whose compiler merges what is computed twice outside of loops. Key: module_id, color, value_id, name.';
COMMENT ON COLUMN advised_call_values.name IS 'The function and its file without directories, so functions with the same names are merged (stack_frames.function_name, source_file).';
COMMENT ON COLUMN advised_call_values.parent_frame_id IS 'The frame that calls the function, the outermost in a recursion: stack_frames.parent_frame_id; NULL if none does.';
COMMENT ON COLUMN advised_call_values.repeat_count IS 'Number of values with the same line (of the function itself), operation and shape: rounds of an unrolled Python loop; 1 for other lines.';
