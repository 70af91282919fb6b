-- Parameters of the requested functions that could give their bytes to an output, and the saving.
CREATE OR REPLACE VIEW answered_donations AS
-- A parameter is represented by the first value at its address, an output by the last.
WITH candidates AS (
  SELECT
    allocations.module_id, allocations.color, allocations.allocation_index, allocations.kind,
    allocations.size_bytes, allocations.parameter_number, allocations.parameter_shape_index,
    "values".instruction_name, "values".shape, shapes.dtype, shapes.dimensions_text,
    coalesce(instructions.op_name, "values".instruction_name) AS parameter_name,
    instructions.op_name AS output_op_name,
    row_number() OVER (
      PARTITION BY allocations.module_id, allocations.allocation_index
      ORDER BY
        CASE
          WHEN instructions.opcode = 'parameter' AND allocations.kind = 'parameter' THEN 0
          ELSE 1
        END,
        live_ranges.end_time DESC NULLS LAST, live_ranges.start_time DESC NULLS LAST,
        "values".value_id DESC
    ) AS place
  FROM answered_functions AS functions
  JOIN allocations
    ON allocations.module_id = functions.module_id
    AND allocations.color = functions.color
  JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
    AND "values".size_bytes = allocations.size_bytes
  JOIN shapes ON shapes.shape = "values".shape
  LEFT JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  LEFT JOIN live_ranges
    ON live_ranges.module_id = "values".module_id
    AND live_ranges.value_id = "values".value_id
  WHERE allocations.kind IN ('parameter', 'output')
    AND allocations.size_bytes > 0
    AND NOT shapes.is_tuple
),
numbered AS (
  SELECT
    candidates.module_id, candidates.color, candidates.allocation_index, candidates.kind,
    candidates.size_bytes, candidates.parameter_number, candidates.parameter_shape_index,
    candidates.instruction_name, candidates.shape, candidates.dtype, candidates.dimensions_text,
    candidates.parameter_name, candidates.output_op_name,
    row_number() OVER (
      PARTITION BY
        candidates.module_id, candidates.color, candidates.kind, candidates.dtype,
        candidates.dimensions_text
      ORDER BY
        candidates.parameter_number NULLS LAST, candidates.parameter_shape_index,
        candidates.allocation_index
    ) AS pair
  FROM candidates
  WHERE candidates.place = 1
),
pairs AS (
  SELECT
    arguments.module_id, arguments.color, arguments.allocation_index,
    outputs.allocation_index AS output_allocation_index, outputs.size_bytes,
    arguments.parameter_number, arguments.parameter_shape_index, arguments.parameter_name,
    arguments.shape, outputs.instruction_name AS output_name, outputs.output_op_name
  FROM numbered AS arguments
  JOIN numbered AS outputs
    ON outputs.module_id = arguments.module_id
    AND outputs.color = arguments.color
    AND outputs.dtype = arguments.dtype
    AND outputs.dimensions_text = arguments.dimensions_text
    AND outputs.pair = arguments.pair
  WHERE arguments.kind = 'parameter'
    AND outputs.kind = 'output'
),
-- A parameter that is not donated is live to the end regardless of reads, so its uses count.
reads AS (
  SELECT
    pairs.module_id, "values".value_id,
    CASE WHEN count(*) = count(users.program_order) THEN max(users.program_order) END AS read_time
  FROM pairs
  JOIN "values"
    ON "values".module_id = pairs.module_id
    AND "values".allocation_index = pairs.allocation_index
  JOIN uses
    ON uses.module_id = "values".module_id
    AND uses.value_id = "values".value_id
  LEFT JOIN instructions AS users
    ON users.module_id = uses.module_id
    AND users.instruction_name = uses.instruction_name
  -- These only forward a value.
  WHERE coalesce(users.opcode, '') NOT IN (
    'add-dependency', 'bitcast', 'domain', 'get-tuple-element', 'opt-barrier', 'tuple'
  )
  GROUP BY pairs.module_id, "values".value_id
),
last_uses AS (
  SELECT
    pairs.module_id, pairs.allocation_index,
    max(least(live_ranges.end_time, coalesce(reads.read_time, live_ranges.end_time)))
      AS last_use_time
  FROM pairs
  JOIN "values"
    ON "values".module_id = pairs.module_id
    AND "values".allocation_index = pairs.allocation_index
    AND "values".size_bytes > 0
  JOIN live_ranges
    ON live_ranges.module_id = "values".module_id
    AND live_ranges.value_id = "values".value_id
  LEFT JOIN reads
    ON reads.module_id = "values".module_id
    AND reads.value_id = "values".value_id
  GROUP BY pairs.module_id, pairs.allocation_index
),
outputs_held AS (
  SELECT
    pairs.module_id, pairs.color, pairs.allocation_index, live_ranges.start_time,
    live_ranges.end_time, last_uses.last_use_time,
    live_ranges.start_time = last_uses.last_use_time
      AND coalesce(
        instructions.opcode IN (
          'convolution', 'custom-call', 'dot', 'fft', 'gather', 'reduce', 'reduce-window',
          'reverse', 'sort', 'transpose'
        )
        OR (instructions.opcode = 'fusion' AND regexp_matches(instructions.text, 'kind=kCustom')),
        FALSE
      ) AS is_copied,
    live_ranges.start_time = last_uses.last_use_time
      AND coalesce(
        instructions.opcode = 'fusion' AND regexp_matches(instructions.text, 'kind=kOutput'), FALSE
      ) AS is_in_product
  FROM pairs
  JOIN last_uses
    ON last_uses.module_id = pairs.module_id
    AND last_uses.allocation_index = pairs.allocation_index
  JOIN "values"
    ON "values".module_id = pairs.module_id
    AND "values".allocation_index = pairs.output_allocation_index
  JOIN live_ranges
    ON live_ranges.module_id = "values".module_id
    AND live_ranges.value_id = "values".value_id
  LEFT JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  WHERE live_ranges.start_time <= live_ranges.end_time
    AND live_ranges.start_time <= last_uses.last_use_time
),
-- Times when the output's allocation holds something before the parameter is free.
early AS (
  SELECT
    outputs_held.module_id, outputs_held.color, outputs_held.allocation_index,
    outputs_held.start_time,
    CASE
      WHEN outputs_held.is_copied THEN outputs_held.start_time
      ELSE least(outputs_held.end_time, outputs_held.last_use_time - 1)
    END AS end_time
  FROM outputs_held
  WHERE outputs_held.start_time < outputs_held.last_use_time
    OR outputs_held.is_copied
),
pair_facts AS (
  SELECT
    outputs_held.module_id, outputs_held.allocation_index,
    max(CASE WHEN outputs_held.is_copied THEN 1 ELSE 0 END) = 1 AS is_copied,
    max(CASE WHEN outputs_held.is_in_product THEN 1 ELSE 0 END) = 1 AS is_in_product
  FROM outputs_held
  GROUP BY outputs_held.module_id, outputs_held.allocation_index
),
steps AS (
  SELECT
    occupancy_steps.module_id, occupancy_steps.color, occupancy_steps.start_time,
    lead(occupancy_steps.start_time) OVER (
      PARTITION BY occupancy_steps.module_id, occupancy_steps.color
      ORDER BY occupancy_steps.start_time
    ) AS next_time,
    occupancy_steps.occupied_temp_bytes,
    lag(occupancy_steps.occupied_temp_bytes) OVER (
      PARTITION BY occupancy_steps.module_id, occupancy_steps.color
      ORDER BY occupancy_steps.start_time
    ) AS previous_bytes
  FROM occupancy_steps
  WHERE occupancy_steps.module_id IN (SELECT early.module_id FROM early)
),
highest AS (
  SELECT
    early.module_id, early.allocation_index,
    max(coalesce(steps.occupied_temp_bytes, 0)) AS occupied_temp_bytes
  FROM early
  LEFT JOIN steps
    ON steps.module_id = early.module_id
    AND steps.color = early.color
    AND steps.start_time <= early.end_time
    AND (steps.next_time IS NULL OR steps.next_time > early.start_time)
  GROUP BY early.module_id, early.allocation_index
),
-- The same for all pairs of a module that are not copied: where the bytes that they need elsewhere
-- begin and end.
written_over AS (
  SELECT
    early.module_id, early.color, early.allocation_index, early.start_time, early.end_time
  FROM early
  JOIN pair_facts
    ON pair_facts.module_id = early.module_id
    AND pair_facts.allocation_index = early.allocation_index
  WHERE NOT pair_facts.is_copied
),
counts AS (
  SELECT
    written_over.module_id, written_over.color, written_over.allocation_index,
    written_over.start_time AS change_time,
    1 AS change_count
  FROM written_over
  UNION ALL
  SELECT
    written_over.module_id, written_over.color, written_over.allocation_index,
    written_over.end_time + 1 AS change_time,
    -1 AS change_count
  FROM written_over
),
lives AS (
  SELECT
    counts.module_id, counts.color, counts.allocation_index, counts.change_time,
    sum(sum(counts.change_count)) OVER (
      PARTITION BY counts.module_id, counts.allocation_index
      ORDER BY counts.change_time
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS live_count
  FROM counts
  GROUP BY counts.module_id, counts.color, counts.allocation_index, counts.change_time
),
needs AS (
  SELECT
    lives.module_id, lives.color, lives.change_time,
    CASE WHEN lives.live_count > 0 THEN pairs.size_bytes ELSE 0 END
      - CASE
        WHEN lag(lives.live_count) OVER (
          PARTITION BY lives.module_id, lives.allocation_index
          ORDER BY lives.change_time
        ) > 0 THEN pairs.size_bytes
        ELSE 0
      END AS change_bytes
  FROM lives
  JOIN pairs
    ON pairs.module_id = lives.module_id
    AND pairs.allocation_index = lives.allocation_index
),
changes AS (
  SELECT needs.module_id, needs.color, needs.change_time, needs.change_bytes
  FROM needs
  UNION ALL
  SELECT
    steps.module_id, steps.color, steps.start_time AS change_time,
    steps.occupied_temp_bytes - coalesce(steps.previous_bytes, 0) AS change_bytes
  FROM steps
),
heights AS (
  SELECT
    changes.module_id, changes.color,
    sum(sum(changes.change_bytes)) OVER (
      PARTITION BY changes.module_id, changes.color
      ORDER BY changes.change_time
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS needed_bytes
  FROM changes
  GROUP BY changes.module_id, changes.color, changes.change_time
),
most AS (
  SELECT heights.module_id, heights.color, max(heights.needed_bytes) AS needed_bytes
  FROM heights
  GROUP BY heights.module_id, heights.color
),
figures AS (
  SELECT
    pairs.module_id, pairs.color, pairs.allocation_index, pairs.output_allocation_index,
    pairs.size_bytes,
    CASE WHEN last_uses.last_use_time IS NOT NULL THEN pairs.size_bytes END AS known_bytes,
    CASE
      WHEN last_uses.last_use_time IS NULL THEN NULL
      WHEN highest.allocation_index IS NULL THEN pairs.size_bytes
      ELSE least(
        pairs.size_bytes, occupied_peaks.occupied_temp_bytes - highest.occupied_temp_bytes
      )
    END AS today_bytes,
    occupied_peaks.occupied_temp_bytes
      - greatest(occupied_peaks.occupied_temp_bytes, coalesce(most.needed_bytes, 0))
      AS less_bytes,
    coalesce(pair_facts.is_copied, FALSE) AS is_copied,
    coalesce(pair_facts.is_in_product, FALSE) AS is_in_product,
    pairs.parameter_number, pairs.parameter_shape_index, pairs.parameter_name, pairs.shape,
    pairs.output_name, pairs.output_op_name
  FROM pairs
  LEFT JOIN last_uses
    ON last_uses.module_id = pairs.module_id
    AND last_uses.allocation_index = pairs.allocation_index
  LEFT JOIN pair_facts
    ON pair_facts.module_id = pairs.module_id
    AND pair_facts.allocation_index = pairs.allocation_index
  LEFT JOIN highest
    ON highest.module_id = pairs.module_id
    AND highest.allocation_index = pairs.allocation_index
  LEFT JOIN occupied_peaks
    ON occupied_peaks.module_id = pairs.module_id
    AND occupied_peaks.color = pairs.color
  LEFT JOIN most
    ON most.module_id = pairs.module_id
    AND most.color = pairs.color
),
-- What the product itself reads is copied.
summed AS (
  SELECT
    figures.module_id, figures.color,
    sum(CASE WHEN figures.is_copied THEN 0 ELSE figures.known_bytes END)
      + max(figures.less_bytes) AS today_bytes,
    sum(
      CASE WHEN figures.is_in_product AND NOT figures.is_copied THEN figures.size_bytes ELSE 0 END
    ) AS product_bytes,
    sum(CASE WHEN figures.is_copied THEN 0 ELSE figures.known_bytes END) AS size_bytes
  FROM figures
  GROUP BY figures.module_id, figures.color
)
SELECT
  figures.module_id, figures.color, figures.allocation_index, figures.output_allocation_index,
  figures.size_bytes,
  CASE
    WHEN figures.is_copied THEN 0
    WHEN figures.is_in_product THEN greatest(figures.today_bytes - figures.size_bytes, 0)
    ELSE figures.today_bytes
  END AS low_saving_bytes,
  -- XLA schedules the limiting instants differently when arguments are free early.
  CASE WHEN figures.is_copied THEN figures.today_bytes ELSE figures.known_bytes END
    AS saving_bytes,
  CASE
    WHEN summed.today_bytes IS NOT NULL
      THEN greatest(summed.today_bytes - summed.product_bytes, 0)
  END AS together_low_saving_bytes,
  CASE WHEN summed.today_bytes IS NOT NULL THEN summed.size_bytes END AS together_saving_bytes,
  figures.is_copied, figures.is_in_product, figures.parameter_number, figures.parameter_shape_index,
  figures.parameter_name, figures.shape, figures.output_name, figures.output_op_name
FROM figures
JOIN summed
  ON summed.module_id = figures.module_id
  AND summed.color = figures.color;
COMMENT ON VIEW answered_donations IS
  'One row per parameter of the requested functions (answered_functions) that is not donated, with an output of the same dtype and dimensions in its own allocation that could overwrite it; equal ones are paired in order. Key: module_id, allocation_index.';
COMMENT ON COLUMN answered_donations.allocation_index IS 'The parameter: allocations.allocation_index.';
COMMENT ON COLUMN answered_donations.output_allocation_index IS 'The output: allocations.allocation_index.';
COMMENT ON COLUMN answered_donations.size_bytes IS 'Size of the output''s allocation [bytes].';
COMMENT ON COLUMN answered_donations.low_saving_bytes IS 'Lower bound: how far the peak of the current schedule falls with this donation alone [bytes], 0 to size_bytes. What the output''s allocation holds before the last read of the parameter (such as gradients that a loop stacks) needs bytes elsewhere until then and may raise the peak. Minus the parameter itself where is_in_product; 0 where is_copied. NULL if the peak or the last read of the parameter is unknown.';
COMMENT ON COLUMN answered_donations.saving_bytes IS 'Upper bound [bytes]: size_bytes, because XLA schedules the limiting instants differently when arguments are free early; where is_copied, the saving in the current schedule with the copy. NULL where low_saving_bytes is.';
COMMENT ON COLUMN answered_donations.together_low_saving_bytes IS 'low_saving_bytes for all rows of the module and memory space that are not is_copied, donated together [bytes]; NULL if the last read of all of them is unknown.';
COMMENT ON COLUMN answered_donations.together_saving_bytes IS 'saving_bytes for them, donated together [bytes]: their size_bytes; NULL where together_low_saving_bytes is.';
COMMENT ON COLUMN answered_donations.is_copied IS 'Whether the instruction that makes the output is the last to read the parameter and cannot overwrite its operand (a custom call without output_to_operand_aliasing, a product, a sort, …): XLA then makes the output elsewhere and copies it.';
COMMENT ON COLUMN answered_donations.is_in_product IS 'Whether the instruction that makes the output is the last to read the parameter and a fusion of a product with operations on it (kind=kOutput, as on TPU). XLA copies if the parameter is an operand of the product, and does not if only of the later operations (w - rate * product); no buffer file shows which.';
COMMENT ON COLUMN answered_donations.parameter_name IS 'Op_name of the parameter, in JAX the argument''s path; its instruction if it has none.';
COMMENT ON COLUMN answered_donations.shape IS 'Shape of the parameter with layout.';
COMMENT ON COLUMN answered_donations.output_name IS 'Instruction that defines the output, the last value in its allocation.';
COMMENT ON COLUMN answered_donations.output_op_name IS 'Its op_name; NULL if the dump has none.';
