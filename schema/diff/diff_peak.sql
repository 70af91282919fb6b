-- The change of the peak by group: bytes held at the peaks of two sides.
CREATE OR REPLACE MACRO diff_peak(
  base_run, new_run, key_name := 'op', asked_pairs := NULL
) AS TABLE
WITH peaks AS (
  SELECT figures.*
  FROM diff_modules(base_run, new_run, asked_pairs) AS figures
  WHERE figures.figure = 'peak'
    AND figures.base_module_id IS NOT NULL
    AND figures.new_module_id IS NOT NULL
),
figures AS (
  SELECT peaks.*
  FROM peaks
  WHERE peaks.delta_bytes IS NOT NULL
),
compared AS (
  SELECT figures.base_module_id AS module_id
  FROM figures
  UNION
  SELECT figures.new_module_id AS module_id
  FROM figures
),
held AS (
  SELECT peak_value_details.*
  FROM peak_value_details
  JOIN compared ON compared.module_id = peak_value_details.module_id
),
-- A parameter keeps its name and shape, whatever the module writes into its bytes later.
parameters AS (
  SELECT
    allocations.module_id, allocations.allocation_index, allocations.color, allocations.kind,
    allocations.parameter_number, allocations.parameter_shape_index,
    arg_min(coalesce(instructions.op_name, ''), "values".value_id) AS op_name,
    arg_min("values".shape, "values".value_id) AS shape
  FROM allocations
  JOIN compared ON compared.module_id = allocations.module_id
  JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
  JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  WHERE allocations.kind IN ('parameter', 'donated_parameter')
    AND instructions.opcode = 'parameter'
    AND NOT "values".is_phi
  GROUP BY
    allocations.module_id, allocations.allocation_index, allocations.color, allocations.kind,
    allocations.parameter_number, allocations.parameter_shape_index
),
-- XLA makes copies, conversions and initial values without an op_name; the instruction that they
-- are for has one.
users AS (
  SELECT
    named_uses.module_id, named_uses.value_id, named_uses.opcode, named_uses.op_name,
    named_uses.stack_frame_id, named_uses.own_source_file, named_uses.own_source_line,
    named_uses.library_source
  FROM named_uses
  JOIN compared ON compared.module_id = named_uses.module_id
),
-- The carry of a loop has the loop's line; the instruction that made the data says more. That takes
-- HLO text: if one side has none, neither uses it, or the same bytes would have two names.
with_text AS (
  SELECT figures.base_module_id, figures.new_module_id
  FROM figures
  JOIN modules AS base_modules ON base_modules.module_id = figures.base_module_id
  JOIN modules AS new_modules ON new_modules.module_id = figures.new_module_id
  WHERE base_modules.has_hlo_text
    AND new_modules.has_hlo_text
),
told AS (
  SELECT with_text.base_module_id AS module_id
  FROM with_text
  UNION
  SELECT with_text.new_module_id AS module_id
  FROM with_text
),
origins AS (
  SELECT
    value_origin_details.module_id, value_origin_details.value_id, value_origin_details.relation,
    value_origin_details.op_name, value_origin_details.stack_frame_id,
    CASE
      WHEN value_origin_details.own_source_file IS NULL THEN value_origin_details.own_source
      ELSE base_name(value_origin_details.own_source_file) || ':'
        || value_origin_details.own_source_line
    END AS source,
    value_origin_details.library_source
  FROM value_origin_details
  JOIN told ON told.module_id = value_origin_details.module_id
  WHERE value_origin_details.instruction_name IS NOT NULL
),
named AS (
  SELECT
    held.module_id, held.color, held.allocation_index, held.allocation_kind, held.value_id,
    held.held_bytes, parameters.parameter_number, parameters.parameter_shape_index,
    coalesce(shapes.dtype, held.dtype) AS dtype,
    CASE
      WHEN shapes.dtype IS NULL THEN held.dtype || coalesce('[' || held.dimensions_text || ']', '')
      ELSE shapes.dtype || coalesce('[' || shapes.dimensions_text || ']', '')
    END AS bare_shape,
    CASE
      WHEN held.allocation_kind IN ('parameter', 'donated_parameter') THEN 'parameter'
      ELSE held.opcode
    END AS opcode,
    -- The carry of a loop belongs to the loop, and older XLA names it after the loop.
    CASE
      WHEN origins.value_id IS NOT NULL THEN origins.relation
      WHEN users.value_id IS NOT NULL AND users.opcode IS DISTINCT FROM 'while'
        -- Either everything with this key was added by XLA, or nothing.
        THEN CASE WHEN key_name = 'all' THEN 'for ' ELSE '' END
      ELSE ''
    END AS relation,
    -- XLA made it for the operation that it is named after: it has no name of its own, is a copy
    -- with that name, or is recomputed to save memory.
    CASE
      WHEN held.allocation_kind IN ('parameter', 'donated_parameter') THEN FALSE
      WHEN regexp_matches(held.instruction_name, '[.]remat(_(un)?compressed)?[0-9]*([.]|$)')
        THEN TRUE
      WHEN origins.value_id IS NOT NULL THEN FALSE
      WHEN held.op_name IS NULL
        THEN users.value_id IS NOT NULL AND users.opcode IS DISTINCT FROM 'while'
      ELSE held.opcode IN ('copy', 'copy-start', 'copy-done')
        -- These JAX operations become copies.
        AND NOT regexp_matches(
          base_name(op_path(held.op_name)), '^(copy|copy_p|transpose|reshape|device_put)$'
        )
    END AS is_added,
    CASE
      WHEN held.allocation_kind IN ('parameter', 'donated_parameter')
        THEN coalesce(nullif(parameters.op_name, ''), '(' || held.allocation_kind || ')')
      ELSE coalesce(origins.op_name, held.op_name, users.op_name)
    END AS op_name,
    CASE
      WHEN held.allocation_kind NOT IN ('parameter', 'donated_parameter')
        THEN coalesce(origins.stack_frame_id, held.stack_frame_id, users.stack_frame_id)
    END AS stack_frame_id,
    CASE
      WHEN held.allocation_kind NOT IN ('parameter', 'donated_parameter')
        THEN coalesce(
          origins.source,
          base_name(coalesce(held.own_source_file, users.own_source_file)) || ':'
            || coalesce(held.own_source_line, users.own_source_line),
          origins.library_source, held.library_source, users.library_source
        )
    END AS source
  FROM held
  LEFT JOIN parameters
    ON parameters.module_id = held.module_id
    AND parameters.allocation_index = held.allocation_index
  LEFT JOIN shapes ON shapes.shape = parameters.shape
  LEFT JOIN users
    ON users.module_id = held.module_id
    AND users.value_id = held.value_id
    AND held.dtype IS DISTINCT FROM 'tuple'
  LEFT JOIN origins
    ON origins.module_id = held.module_id
    AND origins.value_id = held.value_id
    AND held.allocation_kind IN ('temp', 'output')
),
-- Call stacks, innermost frame first, without library code or stacks without their outermost frame.
framed AS (
  SELECT DISTINCT
    stack_frames.module_id, stack_frames.stack_frame_id, stack_frames.tree_ordinal
  FROM named
  JOIN stack_frames
    ON stack_frames.module_id = named.module_id
    AND stack_frames.stack_frame_id = named.stack_frame_id
  WHERE key_name = 'stack'
),
callers AS (
  SELECT
    framed.module_id, framed.stack_frame_id, callers.label, callers.is_own,
    row_number() OVER (
      PARTITION BY framed.module_id, framed.stack_frame_id, callers.is_own
      ORDER BY callers.depth DESC
    ) AS place,
    count(CASE WHEN callers.parent_frame_id IS NULL THEN 1 END) OVER (
      PARTITION BY framed.module_id, framed.stack_frame_id
    ) > 0 AS is_whole
  FROM framed
  JOIN named_frames AS callers
    ON callers.module_id = framed.module_id
    AND callers.tree_ordinal <= framed.tree_ordinal
    AND callers.last_tree_ordinal >= framed.tree_ordinal
),
stack_rows AS (
  SELECT module_id, stack_frame_id, place, label
  FROM callers
  WHERE is_own
    AND is_whole
),
-- Repeated frames, as flax's scan traces them, are one: the outermost (peak_by_stack).
repeats AS (
  SELECT
    near.module_id, near.stack_frame_id, near.place, far.place - near.place AS period,
    near.place - row_number() OVER (
      PARTITION BY near.module_id, near.stack_frame_id, far.place - near.place ORDER BY near.place
    ) AS series
  FROM stack_rows AS near
  JOIN stack_rows AS far
    ON far.module_id = near.module_id
    AND far.stack_frame_id = near.stack_frame_id
    AND far.label = near.label
    AND far.place > near.place
),
rounds AS (
  SELECT
    module_id, stack_frame_id, max(place) - count(*) + count(*) % period AS before_place,
    max(place) AS last_place
  FROM repeats
  GROUP BY module_id, stack_frame_id, period, series
  HAVING count(*) >= period
),
stacks AS (
  SELECT
    stack_rows.module_id, stack_rows.stack_frame_id,
    string_agg(stack_rows.label, ' < ' ORDER BY stack_rows.place) AS call_stack
  FROM stack_rows
  WHERE NOT EXISTS (
    SELECT 1
    FROM rounds
    WHERE rounds.module_id = stack_rows.module_id
      AND rounds.stack_frame_id = stack_rows.stack_frame_id
      AND rounds.before_place < stack_rows.place
      AND rounds.last_place >= stack_rows.place
  )
  GROUP BY stack_rows.module_id, stack_rows.stack_frame_id
),
categories AS (
  SELECT op_name_categories.module_id, op_name_categories.op_name, op_name_categories.category
  FROM op_name_categories
  WHERE key_name = 'category'
),
keyed AS (
  SELECT
    named.*,
    coalesce(
      CASE key_name
        WHEN 'op' THEN
          named.relation
          -- Numbered layers are merged: layer_0 and layer_1 are layer_*.
          || regexp_replace(strip_op_path(op_path(named.op_name)), '([/_])[0-9]+', '\1*', 'g')
        WHEN 'source' THEN named.relation || named.source
        WHEN 'shape' THEN named.bare_shape
        WHEN 'dtype' THEN named.dtype
        WHEN 'opcode' THEN named.opcode
        WHEN 'category' THEN categories.category
        WHEN 'stack' THEN named.relation || coalesce(stacks.call_stack, named.source)
        WHEN 'all' THEN
          concat_ws(
            ' ',
            named.bare_shape, named.opcode,
            named.relation || op_path(named.op_name),
            named.source
          )
        ELSE error('key_name is op, source, shape, dtype, opcode, category, stack or all')
      END,
      '(' || CASE key_name WHEN 'op' THEN coalesce(named.opcode, named.allocation_kind, 'kind unknown')
        ELSE coalesce(named.allocation_kind, 'kind unknown') END || ')'
    ) AS part
  FROM named
  LEFT JOIN stacks
    ON stacks.module_id = named.module_id
    AND stacks.stack_frame_id = named.stack_frame_id
  LEFT JOIN categories
    ON categories.module_id = named.module_id
    AND categories.op_name = named.op_name
),
-- Parameters that only one side donates, identified by name, else by number.
named_parameters AS (
  SELECT
    parameters.module_id, parameters.color, parameters.kind, parameters.allocation_index,
    coalesce(nullif(parameters.op_name, ''), parameters.parameter_number::VARCHAR)
      || parameters.parameter_shape_index AS parameter_name
  FROM parameters
),
distinct_parameters AS (
  SELECT module_id, color, kind, parameter_name, min(allocation_index) AS allocation_index
  FROM named_parameters
  GROUP BY module_id, color, kind, parameter_name
  HAVING count(*) = 1
),
ways AS (
  SELECT
    figures.place, figures.color, 'donated' AS donation,
    'new' AS donated_side, figures.new_module_id AS donated_module_id,
    'base' AS kept_side, figures.base_module_id AS kept_module_id
  FROM figures
  UNION ALL
  SELECT
    figures.place, figures.color, 'not donated' AS donation,
    'base' AS donated_side, figures.base_module_id AS donated_module_id,
    'new' AS kept_side, figures.new_module_id AS kept_module_id
  FROM figures
),
donations AS (
  SELECT
    ways.*,
    donated.allocation_index AS donated_index, kept.allocation_index AS kept_index
  FROM ways
  JOIN distinct_parameters AS donated
    ON donated.module_id = ways.donated_module_id
    AND donated.color = ways.color
    AND donated.kind = 'donated_parameter'
  JOIN distinct_parameters AS kept
    ON kept.module_id = ways.kept_module_id
    AND kept.color = ways.color
    AND kept.kind = 'parameter'
    AND kept.parameter_name = donated.parameter_name
),
-- The elements of their results: the allocation with "output shape is" has the entry root.
results AS (
  SELECT
    allocations.module_id, positions.shape_index AS output_index,
    min("values".allocation_index) AS allocation_index
  FROM (
    SELECT donations.donated_module_id AS module_id
    FROM donations
    UNION
    SELECT donations.kept_module_id AS module_id
    FROM donations
  ) AS donating
  JOIN allocations ON allocations.module_id = donating.module_id
  JOIN "values" AS roots
    ON roots.module_id = allocations.module_id
    AND roots.allocation_index = allocations.allocation_index
  JOIN positions
    ON positions.module_id = roots.module_id
    AND positions.instruction_name = roots.instruction_name
  JOIN "values"
    ON "values".module_id = positions.module_id
    AND "values".value_id = positions.value_id
  -- The allocation may hold other values earlier, but no other tuple.
  WHERE starts_with(roots.shape, '(') = starts_with(allocations.output_shape, '(')
    AND roots.shape_index = '{}'
  GROUP BY allocations.module_id, positions.shape_index
  HAVING min("values".allocation_index) = max("values".allocation_index)
),
-- A donation is one change: the parameter on both sides, and the output that it saves.
moved_parameters AS (
  SELECT
    donations.place, donations.donated_side AS side,
    'donated_parameter' AS allocation_kind,
    donations.donated_index AS allocation_index, donations.donation, donations.donated_module_id,
    donations.donated_index
  FROM donations
  UNION ALL
  SELECT
    donations.place, donations.kept_side AS side,
    'parameter' AS allocation_kind,
    donations.kept_index AS allocation_index, donations.donation, donations.donated_module_id,
    donations.donated_index
  FROM donations
),
moved AS (
  SELECT moved_parameters.*
  FROM moved_parameters
  UNION ALL
  SELECT
    donations.place, donations.kept_side AS side,
    'output' AS allocation_kind,
    kept_results.allocation_index, donations.donation, donations.donated_module_id,
    donations.donated_index
  FROM donations
  JOIN results AS donated_results
    ON donated_results.module_id = donations.donated_module_id
    AND donated_results.allocation_index = donations.donated_index
  JOIN results AS kept_results
    ON kept_results.module_id = donations.kept_module_id
    AND kept_results.output_index = donated_results.output_index
),
-- An output that several parameters share counts for the first.
named_moved AS (
  SELECT
    moved.place, moved.side, moved.allocation_kind, moved.allocation_index,
    min(moved.donation) AS donation,
    arg_min(keyed.part, moved.donated_index) AS part,
    arg_min(keyed.bare_shape, moved.donated_index) AS bare_shape
  FROM moved
  JOIN keyed
    ON keyed.module_id = moved.donated_module_id
    AND keyed.allocation_index = moved.donated_index
  GROUP BY moved.place, moved.side, moved.allocation_kind, moved.allocation_index
),
figure_sides AS (
  SELECT figures.place, figures.color, 'base' AS side, figures.base_module_id AS module_id
  FROM figures
  UNION ALL
  SELECT figures.place, figures.color, 'new' AS side, figures.new_module_id AS module_id
  FROM figures
),
held_sides AS (
  SELECT figure_sides.place, figure_sides.side, keyed.*
  FROM figure_sides
  JOIN keyed
    ON keyed.module_id = figure_sides.module_id
    AND keyed.color = figure_sides.color
),
-- An argument keeps its number and shape where only its name changed, as between versions of JAX.
one_sided AS (
  SELECT held_sides.place, held_sides.allocation_kind, held_sides.part
  FROM held_sides
  WHERE held_sides.parameter_number IS NOT NULL
  GROUP BY held_sides.place, held_sides.allocation_kind, held_sides.part
  HAVING min(held_sides.side) = max(held_sides.side)
),
one_sided_arguments AS (
  SELECT DISTINCT
    held_sides.place, held_sides.side, held_sides.allocation_kind, held_sides.allocation_index,
    held_sides.parameter_number, held_sides.parameter_shape_index, held_sides.bare_shape,
    held_sides.part
  FROM held_sides
  JOIN one_sided
    ON one_sided.place = held_sides.place
    AND one_sided.allocation_kind = held_sides.allocation_kind
    AND one_sided.part = held_sides.part
),
renamed AS (
  -- One name for each, so that no byte counts twice.
  SELECT base_arguments.place, base_arguments.allocation_index, min(new_arguments.part) AS part
  FROM one_sided_arguments AS base_arguments
  JOIN one_sided_arguments AS new_arguments
    ON new_arguments.place = base_arguments.place
    AND new_arguments.allocation_kind = base_arguments.allocation_kind
    AND new_arguments.parameter_number = base_arguments.parameter_number
    AND new_arguments.parameter_shape_index = base_arguments.parameter_shape_index
    AND new_arguments.bare_shape = base_arguments.bare_shape
  WHERE base_arguments.side = 'base'
    AND new_arguments.side = 'new'
  GROUP BY base_arguments.place, base_arguments.allocation_index
),
sides AS (
  SELECT
    held_sides.place, held_sides.side, held_sides.value_id, held_sides.held_bytes,
    held_sides.is_added, named_moved.donation,
    CASE WHEN named_moved.place IS NULL THEN held_sides.allocation_kind ELSE 'donated_parameter'
    END AS allocation_kind,
    coalesce(named_moved.part, renamed.part, held_sides.part) AS part,
    -- The value that an output's bytes hold at the peak may differ from the output.
    CASE
      WHEN named_moved.place IS NOT NULL AND held_sides.allocation_kind = 'output'
        THEN named_moved.bare_shape
      ELSE held_sides.bare_shape
    END AS bare_shape,
    CASE WHEN named_moved.place IS NULL THEN held_sides.source END AS source
  FROM held_sides
  LEFT JOIN named_moved
    ON named_moved.place = held_sides.place
    AND named_moved.side = held_sides.side
    AND named_moved.allocation_kind = held_sides.allocation_kind
    AND named_moved.allocation_index = held_sides.allocation_index
  LEFT JOIN renamed
    ON renamed.place = held_sides.place
    AND held_sides.side = 'base'
    AND renamed.allocation_index = held_sides.allocation_index
),
ranked AS (
  SELECT
    sides.*,
    row_number() OVER (
      PARTITION BY place, side, allocation_kind, donation, part
      ORDER BY held_bytes DESC, value_id
    ) AS value_place
  FROM sides
),
sums AS (
  SELECT
    place,
    allocation_kind,
    donation,
    part,
    coalesce(sum(held_bytes) FILTER (WHERE side = 'base'), 0) AS base_bytes,
    coalesce(sum(held_bytes) FILTER (WHERE side = 'new'), 0) AS new_bytes,
    count(*) FILTER (WHERE side = 'base') AS base_value_count,
    count(*) FILTER (WHERE side = 'new') AS new_value_count,
    coalesce(sum(held_bytes) FILTER (WHERE side = 'base' AND is_added), 0) AS base_added_bytes,
    coalesce(sum(held_bytes) FILTER (WHERE side = 'new' AND is_added), 0) AS new_added_bytes,
    max(bare_shape) FILTER (WHERE side = 'base' AND value_place = 1) AS base_shape,
    max(bare_shape) FILTER (WHERE side = 'new' AND value_place = 1) AS new_shape,
    max(source) FILTER (WHERE side = 'base' AND value_place = 1) AS base_source,
    max(source) FILTER (WHERE side = 'new' AND value_place = 1) AS new_source
  FROM ranked
  GROUP BY place, allocation_kind, donation, part
),
attributed AS (
  SELECT
    place,
    coalesce(sum(held_bytes) FILTER (WHERE side = 'base'), 0) AS base_bytes,
    coalesce(sum(held_bytes) FILTER (WHERE side = 'new'), 0) AS new_bytes
  FROM held_sides
  GROUP BY place
),
parts AS (
  SELECT sums.*
  FROM sums
  UNION ALL
  SELECT
    figures.place,
    NULL AS allocation_kind,
    NULL AS donation,
    '(not attributed)' AS part,
    figures.base_bytes - coalesce(attributed.base_bytes, 0) AS base_bytes,
    figures.new_bytes - coalesce(attributed.new_bytes, 0) AS new_bytes,
    0 AS base_value_count,
    0 AS new_value_count,
    0 AS base_added_bytes,
    0 AS new_added_bytes,
    NULL AS base_shape,
    NULL AS new_shape,
    NULL AS base_source,
    NULL AS new_source
  FROM figures
  LEFT JOIN attributed ON attributed.place = figures.place
  WHERE figures.base_bytes <> coalesce(attributed.base_bytes, 0)
    OR figures.new_bytes <> coalesce(attributed.new_bytes, 0)
)
SELECT
  parts.place,
  row_number() OVER (
    PARTITION BY parts.place
    ORDER BY
      abs(parts.new_bytes - parts.base_bytes) DESC,
      parts.new_bytes DESC,
      parts.allocation_kind NULLS LAST,
      parts.part, parts.donation
  ) AS part_place,
  figures.function_name, figures.base_function_name, figures.new_function_name, figures.platform,
  figures.paired_by, figures.base_run_name, figures.new_run_name, figures.base_module_id,
  figures.new_module_id, figures.base_module_key, figures.new_module_key, figures.color,
  figures.memory_space_name, figures.is_device_memory,
  CASE
    WHEN parts.donation IS NOT NULL THEN parts.donation
    WHEN parts.base_value_count = 0 AND parts.new_value_count > 0 THEN 'appeared'
    WHEN parts.base_value_count > 0 AND parts.new_value_count = 0 THEN 'vanished'
    WHEN parts.new_bytes > parts.base_bytes THEN 'grew'
    WHEN parts.new_bytes < parts.base_bytes THEN 'shrank'
    ELSE 'same'
  END AS change,
  parts.allocation_kind, parts.part, parts.base_bytes, parts.new_bytes,
  parts.new_bytes - parts.base_bytes AS delta_bytes,
  CAST(parts.new_bytes - parts.base_bytes AS DOUBLE) / nullif(parts.base_bytes, 0) AS delta_ratio,
  parts.base_value_count, parts.new_value_count, parts.base_added_bytes, parts.new_added_bytes,
  parts.base_shape, parts.new_shape, parts.base_source, parts.new_source,
  NULL AS unknown_reason
FROM parts
JOIN figures ON figures.place = parts.place
UNION ALL
SELECT
  peaks.place,
  1 AS part_place,
  peaks.function_name, peaks.base_function_name, peaks.new_function_name, peaks.platform,
  peaks.paired_by, peaks.base_run_name, peaks.new_run_name, peaks.base_module_id,
  peaks.new_module_id, peaks.base_module_key, peaks.new_module_key, peaks.color,
  peaks.memory_space_name, peaks.is_device_memory,
  'unknown' AS change,
  NULL AS allocation_kind,
  '(unknown)' AS part,
  peaks.base_bytes, peaks.new_bytes,
  NULL AS delta_bytes,
  NULL AS delta_ratio,
  NULL AS base_value_count,
  NULL AS new_value_count,
  NULL AS base_added_bytes,
  NULL AS new_added_bytes,
  NULL AS base_shape,
  NULL AS new_shape,
  NULL AS base_source,
  NULL AS new_source,
  peaks.unknown_reason
FROM peaks
WHERE peaks.delta_bytes IS NULL
ORDER BY place, part_place;
COMMENT ON MACRO TABLE diff_peak IS
  'The parts of a change of the peak: the bytes held at the peak of each side (peak_values), grouped by kind of allocation and by a key that survives recompilation; delta_bytes of a place (pair and memory space, see diff_modules) add up exactly to the delta of its peak. key_name chooses the key: op (scope path without what JAX adds, numbered layers merged; the default), source (line of user code, library FILE:LINE where a stack has none), shape, dtype, opcode, category (phase by op_categories), stack (call stack, repeated frames once) or all (shape, opcode, whole path and line). The carry of a loop has the name of what makes the data, with saved for what the loop stacks (value_origins), if both sides have HLO text. A value without an op_name counts under its first use that has one; with all, it is marked "for PATH". base_added_bytes and new_added_bytes are the parts of base_bytes and new_bytes that XLA adds for the operation they count under: such values, copies, and recomputation (.remat). A parameter that only one side donates is one part with the output that reuses its bytes (by the index in the result), of kind donated_parameter, and its change is donated or, where base donated it, not donated. A parameter keeps its own name even where its bytes hold something else. One whose name is on one side only has that of new, if number, shape and kind are the same. Shapes and lines are those of the largest value of the group on each side. A pair with an unknown peak has one row, with change unknown, the peak of the known side, no delta_bytes and unknown_reason, which is NULL in all other rows.';
