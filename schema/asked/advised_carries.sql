-- Stacks that a loop returns while it reads an argument of the same shape: memory held twice.
CREATE OR REPLACE VIEW advised_carries AS
WITH stacks AS (
  SELECT
    functions.module_id, functions.color, held.value_id, held.held_bytes,
    (held.held_bytes + origins.slice_count - 1) // origins.slice_count AS slice_bytes,
    functions.platform, origins.loop_instruction_name, shapes.dtype, shapes.dimensions_text,
    sources.source_line AS name,
    row_number() OVER (
      PARTITION BY
        functions.module_id, functions.color, origins.loop_instruction_name, shapes.dtype,
        shapes.dimensions_text
      ORDER BY held.held_bytes DESC, held.value_id
    ) AS place
  FROM answered_functions AS functions
  JOIN asked_peak_values AS held
    ON held.module_id = functions.module_id
    AND held.color = functions.color
    AND held.allocation_kind IN ('temp', 'output')
  JOIN "values"
    ON "values".module_id = held.module_id
    AND "values".value_id = held.value_id
  JOIN shapes ON shapes.shape = "values".shape
  JOIN value_origins AS origins
    ON origins.module_id = held.module_id
    AND origins.value_id = held.value_id
    AND origins.origin_kind = 'stacked'
    AND origins.slice_count > 1
    -- In a gradient one is weights, the other their gradients or residuals.
    AND NOT (is_forward(origins.op_name) OR is_backward(origins.op_name))
  JOIN value_sources AS sources
    ON sources.module_id = held.module_id
    AND sources.value_id = held.value_id
  -- There a carry written slice by slice is copied, for a layout or for the fast memory.
  WHERE coalesce(functions.platform, '') <> 'tpu'
),
inputs AS (
  SELECT DISTINCT
    stacks.module_id, stacks.color, stacks.loop_instruction_name, stacks.dtype,
    stacks.dimensions_text, held.value_id
  FROM stacks
  JOIN uses
    ON uses.module_id = stacks.module_id
    AND uses.instruction_name = stacks.loop_instruction_name
    AND uses.operand_index <> '{}'
  JOIN asked_peak_values AS held
    ON held.module_id = uses.module_id
    AND held.value_id = uses.value_id
    AND held.color = stacks.color
    AND held.allocation_kind IN ('parameter', 'donated_parameter')
  JOIN "values"
    ON "values".module_id = held.module_id
    AND "values".value_id = held.value_id
  JOIN shapes
    ON shapes.shape = "values".shape
    AND shapes.dtype = stacks.dtype
    AND shapes.dimensions_text = stacks.dimensions_text
  WHERE stacks.place = 1
),
input_counts AS (
  SELECT
    inputs.module_id, inputs.color, inputs.loop_instruction_name, inputs.dtype,
    inputs.dimensions_text,
    count(*) AS input_count
  FROM inputs
  GROUP BY
    inputs.module_id, inputs.color, inputs.loop_instruction_name, inputs.dtype,
    inputs.dimensions_text
)
SELECT
  stacks.module_id, stacks.color,
  min(stacks.name) AS name,
  count(*) AS value_count,
  -- The slice of a round is a separate copy in one of the two forms; the CPU copies one whole array
  -- where its new slice is made from its old one.
  sum(stacks.held_bytes) - CASE min(stacks.platform)
    WHEN 'cpu' THEN max(stacks.held_bytes) + max(stacks.slice_bytes)
    ELSE sum(stacks.slice_bytes)
  END AS low_saving_bytes,
  sum(stacks.held_bytes) + sum(stacks.slice_bytes) AS saving_bytes
FROM stacks
JOIN input_counts AS inputs
  ON inputs.module_id = stacks.module_id
  AND inputs.color = stacks.color
  AND inputs.loop_instruction_name = stacks.loop_instruction_name
  AND inputs.dtype = stacks.dtype
  AND inputs.dimensions_text = stacks.dimensions_text
  AND stacks.place <= inputs.input_count
GROUP BY stacks.module_id, stacks.color, stacks.loop_instruction_name;
COMMENT ON VIEW advised_carries IS
  'One row per loop that reads arguments slice by slice and stacks arrays of the same shape, like a scan whose xs come back as ys (a cache of keys and values): both exist while it runs. As a carry of the loop that is written in place and donated, it is one array. Excludes loops of a gradient, and TPU, where 3 of 3 recompiled programs saved nothing. Key: module_id, color, name.';
COMMENT ON COLUMN advised_carries.name IS 'Line of the first of the stacks by name: value_sources.source_line.';
COMMENT ON COLUMN advised_carries.value_count IS 'Stacks with a matching argument.';
COMMENT ON COLUMN advised_carries.low_saving_bytes IS 'Lower bound [bytes]: without the slices, which a carry needs; on CPU also without the largest stack and a slice, because a carry whose slice is read and written may be copied (negative then).';
COMMENT ON COLUMN advised_carries.saving_bytes IS 'Upper bound [bytes]: what they hold at the peak, and the slices of them that a round copies.';
