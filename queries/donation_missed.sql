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
-- with which output is told by shape alone, so of several alike the pair may be another one. An
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
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
-- The value that stands for a parameter is the first at its address, for an output the last.
candidates AS (
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.platform,
    function_modules.color,
    allocations.module_id,
    allocations.allocation_index,
    allocations.kind,
    allocations.size_bytes,
    allocations.parameter_number,
    allocations.parameter_shape_index,
    "values".value_id,
    "values".instruction_name,
    "values".shape,
    shapes.dtype,
    shapes.dimensions_text,
    row_number() OVER (
      PARTITION BY allocations.module_id, allocations.allocation_index
      ORDER BY
        CASE
          WHEN instructions.opcode = 'parameter' AND allocations.kind = 'parameter' THEN 0
          ELSE 1
        END,
        live_ranges.end_time DESC NULLS LAST,
        live_ranges.start_time DESC NULLS LAST,
        "values".value_id DESC
    ) AS place
  FROM function_modules
  CROSS JOIN params
  JOIN allocations
    ON allocations.module_id = function_modules.module_id
    AND allocations.color = function_modules.color
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
    AND (
      params.run IS NULL
      OR function_modules.run_name IN (
        SELECT run_selectors.run_name
        FROM run_selectors
        CROSS JOIN params
        WHERE run_selectors.selector GLOB params.run
      )
    )
    AND (params.function IS NULL OR function_modules.function_name GLOB params.function)
    AND (params.platform IS NULL OR function_modules.platform = params.platform)
    AND (params.color IS NULL OR function_modules.color = params.color)
),
numbered AS (
  SELECT
    candidates.run_name,
    candidates.function_name,
    candidates.platform,
    candidates.color,
    candidates.module_id,
    candidates.allocation_index,
    candidates.kind,
    candidates.size_bytes,
    candidates.parameter_number,
    candidates.parameter_shape_index,
    candidates.value_id,
    candidates.instruction_name,
    candidates.shape,
    candidates.dtype,
    candidates.dimensions_text,
    row_number() OVER (
      PARTITION BY
        candidates.module_id,
        candidates.color,
        candidates.kind,
        candidates.dtype,
        candidates.dimensions_text
      ORDER BY
        candidates.parameter_number NULLS LAST,
        candidates.parameter_shape_index,
        candidates.allocation_index
    ) AS pair
  FROM candidates
  WHERE candidates.place = 1
),
answers AS (
  SELECT
    arguments.run_name,
    arguments.function_name,
    arguments.color,
    outputs.size_bytes AS saved_bytes,
    sum(outputs.size_bytes) OVER (PARTITION BY arguments.module_id, arguments.color)
      AS missed_bytes,
    arguments.parameter_number,
    arguments.parameter_shape_index,
    coalesce(argument_instructions.op_name, arguments.instruction_name) AS parameter_name,
    arguments.shape,
    outputs.instruction_name AS output_name,
    output_instructions.op_name AS output_op_name,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (
      ORDER BY
        outputs.size_bytes DESC,
        arguments.run_name,
        arguments.function_name,
        arguments.platform NULLS LAST,
        arguments.color,
        arguments.parameter_number,
        arguments.parameter_shape_index,
        outputs.allocation_index
    ) AS place
  FROM numbered AS arguments
  JOIN numbered AS outputs
    ON outputs.module_id = arguments.module_id
    AND outputs.color = arguments.color
    AND outputs.dtype = arguments.dtype
    AND outputs.dimensions_text = arguments.dimensions_text
    AND outputs.pair = arguments.pair
  LEFT JOIN instructions AS argument_instructions
    ON argument_instructions.module_id = arguments.module_id
    AND argument_instructions.instruction_name = arguments.instruction_name
  LEFT JOIN instructions AS output_instructions
    ON output_instructions.module_id = outputs.module_id
    AND output_instructions.instruction_name = outputs.instruction_name
  WHERE arguments.kind = 'parameter'
    AND outputs.kind = 'output'
  UNION ALL
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    NULL AS saved_bytes,
    NULL AS missed_bytes,
    NULL AS parameter_number,
    NULL AS parameter_shape_index,
    NULL AS parameter_name,
    NULL AS shape,
    NULL AS output_name,
    NULL AS output_op_name,
    function_modules.unknown_reason,
    0 AS place
  FROM function_modules
  CROSS JOIN params
  WHERE function_modules.unknown_count > 0
    AND (
      params.run IS NULL
      OR function_modules.run_name IN (
        SELECT run_selectors.run_name
        FROM run_selectors
        CROSS JOIN params
        WHERE run_selectors.selector GLOB params.run
      )
    )
    AND (params.function IS NULL OR function_modules.function_name GLOB params.function)
    AND (params.platform IS NULL OR function_modules.platform = params.platform)
    AND (
      params.color IS NULL
      OR function_modules.color IS NULL
      OR function_modules.color = params.color
    )
)
SELECT
  answers.run_name,
  answers.function_name,
  answers.color,
  answers.saved_bytes,
  answers.missed_bytes,
  answers.parameter_number,
  answers.parameter_shape_index,
  answers.parameter_name,
  answers.shape,
  answers.output_name,
  answers.output_op_name,
  answers.unknown_reason
FROM answers
CROSS JOIN params
WHERE answers.place <= params.top_n
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
