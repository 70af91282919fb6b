-- title: Arguments that could give their buffer to an output
-- group: waste
-- engines: duckdb, spark
--
-- An argument that is not donated and an output of the same dtype and dimensions in an allocation
-- of its own: with donate_argnums the output could be written over the argument, which saves its
-- bytes for the whole execution. For each run and function (its compilation with the largest known
-- peak) arguments and outputs of equal shape are paired off, so that as many rows show as buffers
-- could be saved; largest first.
--
-- wrong when: The caller still needs the argument after the call: the usual case for a model's
-- parameters in an evaluation step or in a function that returns gradients. Which argument belongs
-- with which output is found by shape alone, so of several alike the pair may be another one. An
-- output is compared by the shape of the last value in its allocation; where a bitcast reshapes it
-- at the end, a pair is missed. XLA may still refuse to alias when layouts or shardings differ.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param top_n BIGINT = 20: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column saved_bytes BIGINT: Size of the output's allocation, which donation would save [bytes].
-- column missed_bytes HUGEINT: The same for all pairs of the module and memory space [bytes].
-- column parameter_number BIGINT: Entry parameter that could be donated.
-- column parameter_shape_index VARCHAR: Index in that parameter's shape, in braces.
-- column parameter_name VARCHAR: Its op_name, which is the argument's path in JAX; the instruction
--   if it has none.
-- column shape VARCHAR: Shape of the parameter with layout.
-- column output_name VARCHAR: Instruction that defines the output.
-- column output_op_name VARCHAR: Scope path of that instruction; NULL if the dump has none.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
-- The value that stands for a parameter is the first at its address, for an output the last.
candidates AS (
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
    module_id, color, allocation_index, kind, size_bytes, parameter_number, parameter_shape_index,
    instruction_name, shape, dtype, dimensions_text, parameter_name, output_op_name,
    row_number() OVER (
      PARTITION BY module_id, color, kind, dtype, dimensions_text
      ORDER BY parameter_number NULLS LAST, parameter_shape_index, allocation_index
    ) AS pair
  FROM candidates
  WHERE place = 1
),
pairs AS (
  SELECT
    arguments.module_id, arguments.color,
    outputs.size_bytes AS saved_bytes,
    sum(outputs.size_bytes) OVER (PARTITION BY arguments.module_id, arguments.color)
      AS missed_bytes,
    arguments.parameter_number, arguments.parameter_shape_index, arguments.parameter_name,
    arguments.shape,
    outputs.instruction_name AS output_name,
    outputs.output_op_name,
    row_number() OVER (
      ORDER BY
        outputs.size_bytes DESC, functions.name_place, arguments.parameter_number,
        arguments.parameter_shape_index, outputs.allocation_index
    ) AS place
  FROM numbered AS arguments
  JOIN numbered AS outputs
    ON outputs.module_id = arguments.module_id
    AND outputs.color = arguments.color
    AND outputs.dtype = arguments.dtype
    AND outputs.dimensions_text = arguments.dimensions_text
    AND outputs.pair = arguments.pair
  JOIN answered_functions AS functions
    ON functions.module_id = arguments.module_id
    AND functions.color = arguments.color
  WHERE arguments.kind = 'parameter'
    AND outputs.kind = 'output'
)
SELECT
  functions.run_name, functions.function_name, functions.color, pairs.saved_bytes,
  pairs.missed_bytes, pairs.parameter_number, pairs.parameter_shape_index, pairs.parameter_name,
  pairs.shape, pairs.output_name, pairs.output_op_name, functions.unknown_reason
FROM answered_functions AS functions
CROSS JOIN params
LEFT JOIN pairs
  ON pairs.module_id = functions.module_id
  AND pairs.color = functions.color
  AND pairs.place <= params.top_n
WHERE pairs.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY pairs.place NULLS FIRST, functions.name_place;
