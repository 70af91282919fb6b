-- title: Keys are unique
-- group: store
--
-- Format section 8, rules 1, 2 and 9, and the keys that the schema states for its large tables,
-- which DuckDB does not enforce. An out-of-memory message lists several buffers of one instruction
-- without the part of its result that they are.
--
-- column module_id BIGINT: The module; NULL for a label or a diagnostic of a run.
-- column finding VARCHAR: What was expected, what was found.
WITH doubles AS (
  SELECT module_id, 'module' AS what FROM modules GROUP BY module_id HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'value ' || value_id AS what
  FROM "values"
  GROUP BY module_id, value_id
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'value ' || instruction_name || shape_index AS what
  FROM "values"
  WHERE module_id NOT IN (SELECT modules.module_id FROM modules WHERE format_era IN ('L', 'M'))
  GROUP BY module_id, instruction_name, shape_index
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'instruction ' || instruction_name AS what
  FROM instructions
  GROUP BY module_id, instruction_name
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'maker ' || coalesce(instruction_name, 'unknown') || ' of value ' || value_id AS what
  FROM recompute_instructions
  GROUP BY module_id, value_id, instruction_name
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'cost of instruction ' || instruction_name AS what
  FROM instruction_costs
  GROUP BY module_id, instruction_name
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'executions of instruction ' || instruction_name AS what
  FROM instruction_executions
  GROUP BY module_id, instruction_name
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'kernel ' || instruction_name AS what
  FROM kernels
  GROUP BY module_id, instruction_name
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'time of ' || instruction_name || ' on ' || device AS what
  FROM instruction_times
  GROUP BY module_id, instruction_name, device, is_overlapped
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'live range of ' || instruction_name || shape_index AS what
  FROM live_ranges
  GROUP BY module_id, instruction_name, shape_index
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'position ' || position_ordinal || ' of value ' || value_id AS what
  FROM positions
  GROUP BY module_id, value_id, position_ordinal
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'use ' || use_ordinal || ' of value ' || value_id AS what
  FROM uses
  GROUP BY module_id, value_id, use_ordinal
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'stack frame ' || stack_frame_id AS what
  FROM stack_frames
  GROUP BY module_id, stack_frame_id
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'file ' || path AS what FROM files GROUP BY module_id, path HAVING count(*) > 1
  UNION ALL
  SELECT
    module_id,
    'reported sum of ' || coalesce('memory space ' || color, 'all memory spaces') AS what
  FROM reported_sums
  GROUP BY module_id, color
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'peak of memory space ' || color AS what
  FROM occupied_peaks
  GROUP BY module_id, color
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'peak ' || peak_ordinal || ' of memory space ' || color AS what
  FROM peaks
  GROUP BY module_id, color, peak_ordinal
  HAVING count(*) > 1
  UNION ALL
  SELECT
    module_id,
    'saving of ' || what || ' ' || coalesce(name, value_id::VARCHAR, 'nothing')
      || ' in memory space ' || color AS what
  FROM peak_savings
  GROUP BY module_id, color, peak_savings.what, name, value_id
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'sums of memory space ' || color AS what
  FROM memory_sums
  GROUP BY module_id, color
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'alias of output ' || output_index AS what
  FROM input_output_aliases
  GROUP BY module_id, output_index
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'alias of parameter ' || parameter_number || ' ' || parameter_index AS what
  FROM input_output_aliases
  GROUP BY module_id, parameter_number, parameter_index
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'parameter ' || parameter_number || ' before optimization' AS what
  FROM entry_parameters
  GROUP BY module_id, parameter_number
  HAVING count(*) > 1
  UNION ALL
  SELECT NULL AS module_id, 'label ' || label || ' of run ' || run_name AS what
  FROM run_labels
  GROUP BY run_name, label
  HAVING count(*) > 1
  UNION ALL
  SELECT NULL AS module_id, 'memory profile ' || profile_name || ' of run ' || run_name AS what
  FROM live_profiles
  GROUP BY run_name, profile_name
  HAVING count(*) > 1
  UNION ALL
  SELECT
    NULL AS module_id, 'totals of memory profile ' || profile_name || ' of run ' || run_name AS what
  FROM live_totals
  GROUP BY run_name, profile_name
  HAVING count(*) > 1
  UNION ALL
  SELECT
    NULL AS module_id,
    'arrays of frame ' || coalesce(stack_frame_id::VARCHAR, '(none)') || ' on ' || device
      || ' of shape ' || coalesce(shape, 'unknown') || ' in memory profile ' || profile_name
      || ' of run ' || run_name AS what
  FROM live_arrays
  GROUP BY run_name, profile_name, device, stack_frame_id, shape
  HAVING count(*) > 1
  UNION ALL
  SELECT
    NULL AS module_id,
    'frame ' || stack_frame_id || ' in memory profile ' || profile_name || ' of run ' || run_name
      AS what
  FROM live_frames
  GROUP BY run_name, profile_name, stack_frame_id
  HAVING count(*) > 1
  UNION ALL
  SELECT max(module_id) AS module_id, 'module key ' || module_key AS what
  FROM modules
  GROUP BY run_name, module_key
  HAVING count(*) > 1
  UNION ALL
  -- The nodes below a node: XLA groups them by label.
  SELECT module_id, 'node ' || label || ' below node ' || parent_ordinal AS what
  FROM peak_stack_nodes
  GROUP BY module_id, parent_ordinal, label
  HAVING count(*) > 1
  UNION ALL
  SELECT any_value(module_id) AS module_id, 'diagnostic ' || any_value(code) AS what
  FROM diagnostics
  GROUP BY diagnostics
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'cost of value ' || value_id AS what
  FROM recompute_costs
  GROUP BY module_id, value_id
  HAVING count(*) > 1
  UNION ALL
  SELECT
    module_id, 'part ' || part_index || ' (' || part_kind || ') of ' || written_by AS what
  FROM recompute_parts
  GROUP BY module_id, written_by, part_kind, part_index
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'origin of value ' || value_id AS what
  FROM value_origins
  GROUP BY module_id, value_id
  HAVING count(*) > 1
  UNION ALL
  SELECT module_id, 'step ' || start_time || ' of memory space ' || color AS what
  FROM occupancy_steps
  GROUP BY module_id, color, start_time
  HAVING count(*) > 1
)
SELECT doubles.module_id, doubles.what || ' is there more than once' AS finding
FROM doubles
ORDER BY doubles.module_id, doubles.what;
