-- title: Occupied bytes over the course of the program
-- group: live
-- engines: duckdb, spark
--
-- How memory fills and drains while a module runs: one row per span in which the occupied bytes
-- stay the same, with the instruction at its start, in program order. Where there are more than
-- top_n such spans, neighbours are put together, about as many in each row, and a row tells the
-- highest moment of its spans. Occupied are all allocations other than temp and thread-local ones
-- as a whole, and the bytes of live values in temp allocations, shared bytes counted once. Of all
-- modules that the filters leave, the one with the largest known peak is shown. An instruction that
-- runs a loop stands after the loop's body, which is told once, not once per iteration.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param top_n BIGINT = 40: Rows to return at most.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column start_time BIGINT: First instant of the row [program order].
-- column end_time BIGINT: Last instant of the row, itself included [program order].
-- column lowest_bytes HUGEINT: Fewest bytes occupied in it [bytes].
-- column occupied_bytes HUGEINT: Most bytes occupied in it [bytes].
-- column peak_ratio DOUBLE: occupied_bytes as share of the module's peak (0 to 1).
-- column occupied_time BIGINT: First instant with occupied_bytes [program order].
-- column instruction_name VARCHAR: Instruction at that instant; NULL at the end of the program.
-- column opcode VARCHAR: Its opcode; NULL if unknown.
-- column op_name VARCHAR: Its scope path; NULL if the dump has none.
-- column unknown_reason VARCHAR: Why the peak of a module that fits is unknown, in a row of its own
--   that has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    getvariable('module')::VARCHAR AS module,
    coalesce(getvariable('top_n')::BIGINT, 40) AS top_n
),
ranked_modules AS (
  SELECT
    module_peaks.run_name,
    module_peaks.function_name,
    module_peaks.module_id,
    module_peaks.color,
    module_peaks.peak_bytes,
    row_number() OVER (
      ORDER BY
        module_peaks.peak_bytes DESC, module_peaks.run_name, module_peaks.module_key,
        module_peaks.color
    ) AS place
  FROM module_peaks
  CROSS JOIN params
  WHERE module_peaks.peak_bytes IS NOT NULL
    AND (
      params.run IS NULL
      OR module_peaks.run_name IN (
        SELECT run_selectors.run_name
        FROM run_selectors
        CROSS JOIN params
        WHERE run_selectors.selector GLOB params.run
      )
    )
    AND (params.function IS NULL OR module_peaks.function_name GLOB params.function)
    AND (params.platform IS NULL OR module_peaks.platform = params.platform)
    AND (params.color IS NULL OR module_peaks.color = params.color)
    AND (params.module IS NULL OR module_peaks.module_key GLOB params.module)
),
numbered_steps AS (
  SELECT
    memory_steps.module_id,
    memory_steps.start_time,
    memory_steps.end_time,
    memory_steps.occupied_bytes,
    row_number() OVER (ORDER BY memory_steps.start_time) - 1 AS step_number,
    count(*) OVER () AS step_count
  FROM ranked_modules
  JOIN memory_steps
    ON memory_steps.module_id = ranked_modules.module_id
    AND memory_steps.color = ranked_modules.color
  WHERE ranked_modules.place = 1
),
placed_steps AS (
  SELECT
    numbered_steps.module_id,
    numbered_steps.start_time,
    numbered_steps.end_time,
    numbered_steps.occupied_bytes,
    numbered_steps.step_number * least(params.top_n, numbered_steps.step_count)
      // numbered_steps.step_count AS bucket
  FROM numbered_steps
  CROSS JOIN params
),
ranked_steps AS (
  SELECT
    placed_steps.module_id,
    placed_steps.bucket,
    placed_steps.start_time AS occupied_time,
    placed_steps.occupied_bytes,
    min(placed_steps.start_time) OVER (PARTITION BY placed_steps.bucket) AS start_time,
    max(placed_steps.end_time) OVER (PARTITION BY placed_steps.bucket) AS end_time,
    min(placed_steps.occupied_bytes) OVER (PARTITION BY placed_steps.bucket) AS lowest_bytes,
    row_number() OVER (
      PARTITION BY placed_steps.bucket
      ORDER BY placed_steps.occupied_bytes DESC, placed_steps.start_time
    ) AS place
  FROM placed_steps
),
answers AS (
  SELECT
    ranked_modules.run_name,
    ranked_modules.function_name,
    ranked_modules.color,
    ranked_steps.start_time,
    ranked_steps.end_time,
    ranked_steps.lowest_bytes,
    ranked_steps.occupied_bytes,
    CAST(ranked_steps.occupied_bytes AS DOUBLE) / nullif(ranked_modules.peak_bytes, 0)
      AS peak_ratio,
    ranked_steps.occupied_time,
    instructions.instruction_name,
    instructions.opcode,
    instructions.op_name,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (ORDER BY ranked_steps.start_time) AS place
  FROM ranked_steps
  CROSS JOIN params
  JOIN ranked_modules ON ranked_modules.place = 1
  LEFT JOIN instructions
    ON instructions.module_id = ranked_steps.module_id
    AND instructions.program_order = ranked_steps.occupied_time
  WHERE ranked_steps.place = 1
  UNION ALL
  SELECT
    module_peaks.run_name,
    module_peaks.function_name,
    module_peaks.color,
    NULL AS start_time,
    NULL AS end_time,
    NULL AS lowest_bytes,
    NULL AS occupied_bytes,
    NULL AS peak_ratio,
    NULL AS occupied_time,
    NULL AS instruction_name,
    NULL AS opcode,
    NULL AS op_name,
    module_peaks.peak_unknown_reason AS unknown_reason,
    0 AS place
  FROM module_peaks
  CROSS JOIN params
  WHERE module_peaks.peak_unknown_reason IS NOT NULL
    AND (
      params.run IS NULL
      OR module_peaks.run_name IN (
        SELECT run_selectors.run_name
        FROM run_selectors
        CROSS JOIN params
        WHERE run_selectors.selector GLOB params.run
      )
    )
    AND (params.function IS NULL OR module_peaks.function_name GLOB params.function)
    AND (params.platform IS NULL OR module_peaks.platform = params.platform)
    AND (
      params.color IS NULL
      OR module_peaks.color IS NULL
      OR module_peaks.color = params.color
    )
    AND (params.module IS NULL OR module_peaks.module_key GLOB params.module)
)
SELECT
  answers.run_name,
  answers.function_name,
  answers.color,
  answers.start_time,
  answers.end_time,
  answers.lowest_bytes,
  answers.occupied_bytes,
  answers.peak_ratio,
  answers.occupied_time,
  answers.instruction_name,
  answers.opcode,
  answers.op_name,
  answers.unknown_reason
FROM answers
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
