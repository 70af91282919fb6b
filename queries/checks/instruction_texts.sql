-- title: Instructions agree with their text
-- group: store
--
-- Format section 7. Metadata are compared if the text has one "metadata={" and no escapes; a
-- missing source location is that of the stack frame (section 7.1), and a missing stack frame may be
-- that of the proto, or that of a call, whose op_name an op without a frame has, too. If the dump
-- gives only the name, opcode, shape and text are all NULL, and a text closes the quotes and
-- brackets that it opens; an out-of-memory message may have less.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH texts AS (
  SELECT
    instructions.module_id, instructions.instruction_name, instructions.opcode,
    instructions.fusion_kind, instructions.shape, instructions.op_type, instructions.op_name,
    instructions.source_file, instructions.source_line, instructions.source_end_line,
    instructions.source_column, instructions.source_end_column, instructions.stack_frame_id,
    regexp_extract(
      instructions.text,
      '^%?([^ ]*) = (\(.*?\)|[^( ][^ ]*) ([^ (]*)\(',
      ['read_name', 'read_shape', 'read_opcode']
    ) AS read,
    nullif(
      regexp_extract(instructions.text, '^[^"]*?\), kind=(\w+)(?:[, }]|$)', 1), ''
    ) AS read_kind,
    CASE
      WHEN contains(instructions.text, '\') THEN NULL
      WHEN len(string_split(instructions.text, ', metadata={')) = 2
        AND len(string_split(instructions.text, 'metadata={')) = 2
        THEN split_part(instructions.text, ', metadata={', 2)
      WHEN NOT contains(instructions.text, 'metadata={') THEN ''
    END AS metadata
  FROM instructions
  WHERE instructions.text IS NOT NULL
),
-- A backend_config may follow the metadata; its fields have other names.
numbered AS (
  SELECT
    texts.module_id, texts.instruction_name, texts.metadata,
    regexp_replace(texts.metadata, '"[^"]*"', '', 'g') AS numbers
  FROM texts
),
read_texts AS (
  SELECT
    numbered.module_id, numbered.instruction_name, numbered.metadata,
    nullif(regexp_extract(numbered.metadata, '(?:^| )op_type="([^"]*)"', 1), '') AS op_type,
    nullif(regexp_extract(numbered.metadata, '(?:^| )op_name="([^"]*)"', 1), '') AS op_name,
    nullif(regexp_extract(numbered.metadata, '(?:^| )source_file="([^"]*)"', 1), '') AS source_file,
    try_cast(regexp_extract(numbered.numbers, '(?:^| )source_line=([0-9]+)[ }]', 1) AS BIGINT)
      AS source_line,
    try_cast(regexp_extract(numbered.numbers, '(?:^| )source_end_line=([0-9]+)[ }]', 1) AS BIGINT)
      AS source_end_line,
    try_cast(regexp_extract(numbered.numbers, '(?:^| )source_column=([0-9]+)[ }]', 1) AS BIGINT)
      AS source_column,
    try_cast(
      regexp_extract(numbered.numbers, '(?:^| )source_end_column=([0-9]+)[ }]', 1) AS BIGINT
    ) AS source_end_column,
    try_cast(regexp_extract(numbered.numbers, '(?:^| )stack_frame_id=([0-9]+)[ }]', 1) AS BIGINT)
      AS stack_frame_id
  FROM numbered
)
SELECT
  texts.module_id,
  texts.instruction_name || ': ' || concat_ws(
    ', ',
    CASE WHEN texts.read.read_name <> texts.instruction_name THEN 'its text has another name' END,
    CASE WHEN texts.read.read_opcode IS DISTINCT FROM texts.opcode
      THEN 'opcode ' || coalesce(texts.opcode, 'NULL') END,
    CASE WHEN texts.read.read_shape IS DISTINCT FROM texts.shape
      THEN 'shape ' || coalesce(left(texts.shape, 60), 'NULL') END,
    CASE WHEN texts.opcode = 'fusion' AND texts.fusion_kind IS DISTINCT FROM texts.read_kind
      THEN 'kind ' || coalesce(texts.fusion_kind, 'NULL') END
  ) || ', its text says otherwise' AS finding
FROM texts
WHERE texts.read.read_name <> texts.instruction_name
  OR texts.read.read_opcode IS DISTINCT FROM texts.opcode
  OR texts.read.read_shape IS DISTINCT FROM texts.shape
  OR (texts.opcode = 'fusion' AND texts.fusion_kind IS DISTINCT FROM texts.read_kind)
UNION ALL
SELECT
  instructions.module_id,
  instructions.instruction_name || ': opcode ' || coalesce(instructions.opcode, 'NULL') || ', shape '
    || coalesce(left(instructions.shape, 60), 'NULL') || ', kind '
    || coalesce(instructions.fusion_kind, 'NULL') || ' with '
    || CASE WHEN instructions.text IS NULL THEN 'no' ELSE 'a' END || ' text' AS finding
FROM instructions
JOIN modules ON modules.module_id = instructions.module_id
WHERE modules.format_era NOT IN ('L', 'M')
  AND (
    (instructions.opcode IS NULL) <> (instructions.shape IS NULL)
    OR (instructions.opcode IS NULL) <> (instructions.text IS NULL)
    OR (instructions.fusion_kind IS NOT NULL AND instructions.opcode IS DISTINCT FROM 'fusion')
  )
UNION ALL
SELECT
  bare.module_id,
  bare.instruction_name || ': its text breaks off' AS finding
FROM (
  SELECT
    instructions.module_id, instructions.instruction_name,
    regexp_replace(instructions.text, '"(?:[^"\\]|\\.)*"', '', 'g') AS text
  FROM instructions
  JOIN modules ON modules.module_id = instructions.module_id
  WHERE instructions.text IS NOT NULL
    AND modules.format_era NOT IN ('L', 'M')
) AS bare
WHERE contains(bare.text, '"')
  OR len(replace(bare.text, '{', '')) <> len(replace(bare.text, '}', ''))
  OR len(replace(bare.text, '(', '')) <> len(replace(bare.text, ')', ''))
UNION ALL
SELECT
  texts.module_id,
  texts.instruction_name || ': its metadata are not those of its text' AS finding
FROM texts
JOIN read_texts
  ON read_texts.module_id = texts.module_id
  AND read_texts.instruction_name = texts.instruction_name
LEFT JOIN stack_frames
  ON stack_frames.module_id = texts.module_id
  AND stack_frames.stack_frame_id = coalesce(read_texts.stack_frame_id, texts.stack_frame_id)
  AND read_texts.source_file IS NULL
WHERE texts.metadata IS NOT NULL
  AND (
    texts.op_type IS DISTINCT FROM read_texts.op_type
    OR (
      texts.op_name IS DISTINCT FROM read_texts.op_name
      AND (
        coalesce(read_texts.stack_frame_id, 0) > 0
        OR read_texts.source_file IS NOT NULL
        OR contains(coalesce(read_texts.op_name, ''), '/')
        OR NOT ends_with(
          coalesce('/' || texts.op_name, ''),
          CASE WHEN texts.op_name IS NULL THEN '' ELSE coalesce(read_texts.op_name, '') END
        )
      )
    )
    OR (
      read_texts.stack_frame_id IS NOT NULL
      AND texts.stack_frame_id IS DISTINCT FROM read_texts.stack_frame_id
    )
    OR texts.source_file IS DISTINCT FROM CASE
      WHEN read_texts.source_file IS NULL THEN stack_frames.source_file
      ELSE read_texts.source_file
    END
    OR texts.source_line IS DISTINCT FROM CASE
      WHEN stack_frames.stack_frame_id IS NULL THEN read_texts.source_line
      ELSE stack_frames.source_line
    END
    OR texts.source_end_line IS DISTINCT FROM CASE
      WHEN stack_frames.stack_frame_id IS NULL THEN read_texts.source_end_line
      ELSE stack_frames.source_end_line
    END
    OR texts.source_column IS DISTINCT FROM CASE
      WHEN stack_frames.stack_frame_id IS NULL THEN read_texts.source_column
      ELSE stack_frames.source_column
    END
    OR texts.source_end_column IS DISTINCT FROM CASE
      WHEN stack_frames.stack_frame_id IS NULL THEN read_texts.source_end_column
      ELSE stack_frames.source_end_column
    END
  )
ORDER BY module_id, finding;
