-- title: Origins name loops, count their steps and fill their stacks
-- group: store
--
-- value_origins is computed when a module is stored, by a walk through the HLO text. Here it is
-- compared with the buffer files: a loop is a while in the schedule, whose text has the same
-- known_trip_count; the slices of a stack fill it, counted from the texts of both shapes, and their
-- bytes are those of its shape, both without padding. The instruction that made the data agrees
-- with the table instructions if that has it (metadata may be only in the buffer files), its line
-- is that of its stack frame, and it is the same for all values of one stack.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH origins AS (
  SELECT
    value_origins.module_id, value_origins.value_id, value_origins.origin_kind,
    value_origins.instruction_name, value_origins.opcode, value_origins.stack_frame_id,
    value_origins.loop_instruction_name, value_origins.trip_count, value_origins.written_by,
    value_origins.slice_shape, value_origins.slice_count, value_origins.slice_bytes,
    value_origins.is_layer_input,
    "values".value_id IS NOT NULL AS has_value,
    "values".shape, "values".logical_bytes, loops.opcode AS loop_opcode, loops.text AS loop_text,
    modules.has_hlo_text,
    stack_frames.stack_frame_id IS NOT NULL AS has_frame
  FROM value_origins
  LEFT JOIN modules ON modules.module_id = value_origins.module_id
  LEFT JOIN "values"
    ON "values".module_id = value_origins.module_id
    AND "values".value_id = value_origins.value_id
  LEFT JOIN instructions AS loops
    ON loops.module_id = value_origins.module_id
    AND loops.instruction_name = value_origins.loop_instruction_name
  LEFT JOIN stack_frames
    ON stack_frames.module_id = value_origins.module_id
    AND stack_frames.stack_frame_id = value_origins.stack_frame_id
),
counted AS (
  SELECT
    origins.module_id, origins.value_id, origins.origin_kind, origins.instruction_name,
    origins.opcode, origins.stack_frame_id, origins.loop_instruction_name, origins.trip_count,
    origins.written_by, origins.slice_shape, origins.slice_count, origins.slice_bytes,
    origins.is_layer_input, origins.has_value, origins.shape, origins.logical_bytes,
    origins.loop_opcode, origins.loop_text, origins.has_hlo_text, origins.has_frame,
    try_cast(
      regexp_extract(origins.loop_text, 'known_trip_count\\?":\{\\?"n\\?":\\?"([0-9]{1,18})\\?"', 1)
      AS BIGINT
    ) AS text_trip_count,
    list_product(
      list_transform(
        string_split(regexp_extract(slice_shape, '\[([0-9,]*)\]', 1), ','),
        lambda part: try_cast(part AS BIGINT)
      )
    ) * slice_count AS filled_elements,
    list_product(
      list_transform(
        string_split(regexp_extract(shape, '\[([0-9,]*)\]', 1), ','),
        lambda part: try_cast(part AS BIGINT)
      )
    ) AS stack_elements
  FROM origins
),
makers AS (
  SELECT
    value_origins.module_id,
    min(value_origins.value_id) AS value_id,
    coalesce(value_origins.instruction_name, 'nothing') AS what
  FROM value_origins
  WHERE value_origins.instruction_name IS NOT NULL
  GROUP BY value_origins.module_id, value_origins.instruction_name
  HAVING count(DISTINCT [
    value_origins.opcode, value_origins.op_name, value_origins.source_file,
    value_origins.source_line::VARCHAR, value_origins.stack_frame_id::VARCHAR
  ]) > 1
  UNION ALL
  SELECT
    value_origins.module_id,
    min(value_origins.value_id) AS value_id,
    'what ' || value_origins.written_by || ' writes' AS what
  FROM value_origins
  WHERE value_origins.written_by IS NOT NULL
    AND value_origins.is_exact
  GROUP BY value_origins.module_id, value_origins.written_by
  HAVING count(DISTINCT [
    value_origins.instruction_name, value_origins.loop_instruction_name, value_origins.slice_shape,
    value_origins.is_layer_input::VARCHAR
  ]) > 1
),
findings AS (
  SELECT module_id, value_id, 'no such value' AS what FROM counted WHERE NOT has_value
  UNION ALL
  SELECT module_id, value_id, 'the module has no HLO text' AS what
  FROM counted
  WHERE NOT coalesce(has_hlo_text, FALSE)
  UNION ALL
  SELECT module_id, value_id, 'unknown kind ' || origin_kind AS what
  FROM counted
  WHERE origin_kind NOT IN ('stacked', 'slice', 'carry', 'invariant', 'parameter')
  UNION ALL
  SELECT module_id, value_id, 'a stack without who writes it, or without its loop' AS what
  FROM counted
  WHERE origin_kind = 'stacked'
    AND (written_by IS NULL OR slice_shape IS NULL OR loop_instruction_name IS NULL)
  UNION ALL
  SELECT module_id, value_id, 'who writes a stack, of ' || origin_kind AS what
  FROM counted
  WHERE origin_kind NOT IN ('stacked', 'slice')
    AND (written_by IS NOT NULL OR slice_shape IS NOT NULL OR is_layer_input)
  UNION ALL
  SELECT module_id, value_id, 'slices in what is no stack, or without their size' AS what
  FROM counted
  WHERE (slice_count IS NOT NULL AND origin_kind <> 'stacked')
    OR (slice_count IS NULL) <> (slice_bytes IS NULL)
  UNION ALL
  SELECT module_id, value_id, 'no instruction that made it' AS what
  FROM counted
  WHERE (instruction_name IS NULL AND origin_kind <> 'stacked')
    OR (instruction_name IS NULL) <> (opcode IS NULL)
  UNION ALL
  SELECT
    module_id,
    value_id,
    'the loop ' || loop_instruction_name || ' is ' || coalesce(loop_opcode, 'nowhere') AS what
  FROM counted
  WHERE loop_instruction_name IS NOT NULL
    AND loop_opcode IS DISTINCT FROM 'while'
  UNION ALL
  SELECT
    module_id,
    value_id,
    'its loop runs ' || coalesce(trip_count::VARCHAR, 'an unknown number of') || ' times, by its text '
      || coalesce(text_trip_count::VARCHAR, 'not known how often') AS what
  FROM counted
  WHERE loop_text IS NOT NULL
    AND trip_count IS DISTINCT FROM text_trip_count
  UNION ALL
  SELECT module_id, value_id, 'stack frame ' || stack_frame_id || ' is in no table' AS what
  FROM counted
  WHERE stack_frame_id IS NOT NULL
    AND NOT has_frame
    AND EXISTS (SELECT 1 FROM stack_frames WHERE stack_frames.module_id = counted.module_id)
  UNION ALL
  SELECT
    module_id,
    value_id,
    slice_count || ' slices ' || slice_shape || ' of ' || slice_bytes || ' bytes do not fill '
      || shape || ' of ' || logical_bytes || ' bytes' AS what
  FROM counted
  WHERE filled_elements <> stack_elements
    OR slice_bytes * slice_count <> logical_bytes
  UNION ALL
  SELECT makers.module_id, makers.value_id, 'the rows of ' || makers.what || ' differ' AS what
  FROM makers
  UNION ALL
  SELECT
    value_origins.module_id, value_origins.value_id,
    'not what instruction ' || value_origins.instruction_name || ' is' AS what
  FROM value_origins
  JOIN instructions
    ON instructions.module_id = value_origins.module_id
    AND instructions.instruction_name = value_origins.instruction_name
  -- An asynchronous call may be printed as the instruction that it calls.
  WHERE (
      value_origins.opcode <> instructions.opcode
      AND NOT starts_with(value_origins.opcode, 'async-')
    )
    OR value_origins.op_name <> instructions.op_name
    OR value_origins.source_file <> instructions.source_file
    OR value_origins.source_line <> instructions.source_line
    OR value_origins.stack_frame_id <> instructions.stack_frame_id
  UNION ALL
  SELECT
    value_origins.module_id, value_origins.value_id,
    'another line than stack frame ' || value_origins.stack_frame_id AS what
  FROM value_origins
  JOIN stack_frames
    ON stack_frames.module_id = value_origins.module_id
    AND stack_frames.stack_frame_id = value_origins.stack_frame_id
  WHERE value_origins.source_file IS DISTINCT FROM stack_frames.source_file
    OR value_origins.source_line IS DISTINCT FROM stack_frames.source_line
)
SELECT
  findings.module_id,
  'origin of value ' || findings.value_id || ': ' || findings.what AS finding
FROM findings
ORDER BY findings.module_id, findings.value_id, finding;
