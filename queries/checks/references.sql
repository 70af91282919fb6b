-- title: Every reference points to a row
-- group: store
--
-- Values to their allocation, shape and instruction, positions, uses, live ranges and peak listing
-- to their value, all to their module, modules to their run. The names of a live range or a peak
-- line and of its value must agree, and a peak line refers to its value if that has a row. Times
-- are of instructions, or a diagnostic says that they are not. The user of a value is an
-- instruction of the module, or a position where only its name is printed. An out-of-memory message
-- has no allocations.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH lost AS (
  SELECT modules.module_id, 'run ' || modules.run_name AS what
  FROM modules
  WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.run_name = modules.run_name)
  UNION ALL
  SELECT
    "values".module_id,
    'allocation ' || coalesce("values".allocation_index::VARCHAR, 'NULL') || ' of value '
      || "values".value_id AS what
  FROM "values"
  ANTI JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
  WHERE NOT EXISTS (
      SELECT 1
      FROM modules
      WHERE modules.module_id = "values".module_id AND modules.format_era IN ('L', 'M')
    )
  UNION ALL
  SELECT "values".module_id, 'shape of value ' || "values".value_id AS what
  FROM "values"
  ANTI JOIN shapes ON shapes.shape = "values".shape
  UNION ALL
  SELECT
    "values".module_id,
    'instruction ' || "values".instruction_name || ' of value ' || "values".value_id AS what
  FROM "values"
  ANTI JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  UNION ALL
  SELECT
    instruction_times.module_id,
    'instruction ' || instruction_times.instruction_name || ' of a time' AS what
  FROM instruction_times
  ANTI JOIN instructions
    ON instructions.module_id = instruction_times.module_id
    AND instructions.instruction_name = instruction_times.instruction_name
  ANTI JOIN diagnostics
    ON diagnostics.module_id = instruction_times.module_id
    AND diagnostics.code = 'unknown_instruction'
  UNION ALL
  SELECT allocations.module_id, 'module of an allocation' AS what
  FROM allocations
  ANTI JOIN modules ON modules.module_id = allocations.module_id
  UNION ALL
  SELECT instructions.module_id, 'module of an instruction' AS what
  FROM instructions
  ANTI JOIN modules ON modules.module_id = instructions.module_id
  UNION ALL
  SELECT files.module_id, 'module of a file' AS what
  FROM files
  ANTI JOIN modules ON modules.module_id = files.module_id
  UNION ALL
  SELECT
    positions.module_id,
    'value ' || positions.value_id || ' of a position' AS what
  FROM positions
  ANTI JOIN "values"
    ON "values".module_id = positions.module_id
    AND "values".value_id = positions.value_id
  UNION ALL
  SELECT uses.module_id, 'value ' || uses.value_id || ' of a use' AS what
  FROM uses
  ANTI JOIN "values"
    ON "values".module_id = uses.module_id
    AND "values".value_id = uses.value_id
  UNION ALL
  SELECT live_ranges.module_id, 'value ' || live_ranges.value_id || ' of a live range' AS what
  FROM live_ranges
  ANTI JOIN "values"
    ON "values".module_id = live_ranges.module_id
    AND "values".value_id = live_ranges.value_id
    AND "values".instruction_name = live_ranges.instruction_name
    AND "values".shape_index = live_ranges.shape_index
  WHERE live_ranges.value_id IS NOT NULL
  UNION ALL
  SELECT
    peak_contributors.module_id,
    'value ' || peak_contributors.value_id || ' of the peak listing' AS what
  FROM peak_contributors
  ANTI JOIN "values"
    ON "values".module_id = peak_contributors.module_id
    AND "values".value_id = peak_contributors.value_id
    AND "values".instruction_name = peak_contributors.instruction_name
    AND "values".shape_index
      = coalesce(peak_contributors.shape_index, "values".shape_index)
  WHERE peak_contributors.value_id IS NOT NULL
  UNION ALL
  SELECT
    peak_contributors.module_id,
    'value_id of line ' || peak_contributors.contributor_ordinal || ' of the peak listing' AS what
  FROM peak_contributors
  SEMI JOIN "values"
    ON "values".module_id = peak_contributors.module_id
    AND "values".instruction_name = peak_contributors.instruction_name
    AND "values".shape_index = peak_contributors.shape_index
  WHERE peak_contributors.value_id IS NULL
  UNION ALL
  SELECT uses.module_id, 'instruction ' || uses.instruction_name || ' of a use' AS what
  FROM uses
  ANTI JOIN instructions
    ON instructions.module_id = uses.module_id
    AND instructions.instruction_name = uses.instruction_name
  ANTI JOIN positions
    ON positions.module_id = uses.module_id
    AND positions.instruction_name = uses.instruction_name
  UNION ALL
  SELECT
    stack_frames.module_id,
    'parent ' || stack_frames.parent_frame_id || ' of a stack frame' AS what
  FROM stack_frames
  ANTI JOIN stack_frames AS parents
    ON parents.module_id = stack_frames.module_id
    AND parents.stack_frame_id = stack_frames.parent_frame_id
  WHERE stack_frames.parent_frame_id IS NOT NULL
  UNION ALL
  SELECT occupied_peaks.module_id, 'allocations of memory space ' || occupied_peaks.color AS what
  FROM occupied_peaks
  ANTI JOIN allocations
    ON allocations.module_id = occupied_peaks.module_id
    AND allocations.color = occupied_peaks.color
  WHERE NOT EXISTS (
      SELECT 1
      FROM modules
      WHERE modules.module_id = occupied_peaks.module_id AND modules.format_era IN ('L', 'M')
    )
)
SELECT lost.module_id, 'no ' || lost.what AS finding
FROM lost
ORDER BY lost.module_id, lost.what;
