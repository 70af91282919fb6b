-- title: Occupied bytes over the course of the program
-- group: peak
-- engines: duckdb, spark, sail
--
-- Shows how memory fills and drains while a module runs: one row per span in which the occupied
-- bytes stay the same, with the instruction at its start, in program order. If there are more than
-- top_n spans, adjacent ones are merged, about equally many per row, and a row shows the highest
-- moment of its spans. Occupied bytes are all allocations other than temp and thread-local ones,
-- and the bytes of live values in temp allocations, shared bytes counted once. Shows the module
-- with the largest need among those that match the filters. An instruction that runs a loop comes
-- after the loop's body, which is listed once, not once per iteration.
--
-- param run, function, platform, color, module
-- param top_n BIGINT = 40: Most rows to return.
--
-- column run_name, function_name, platform, color
-- column start_time BIGINT: First instant of the row [program order].
-- column end_time BIGINT: Last instant of the row, inclusive [program order].
-- column lowest_bytes HUGEINT: Fewest bytes occupied in the row [bytes].
-- column occupied_bytes HUGEINT: Most bytes occupied in the row [bytes].
-- column peak_ratio DOUBLE: occupied_bytes as a share of the module's peak (0 to 1).
-- column occupied_time BIGINT: First instant with occupied_bytes [program order].
-- column instruction_name VARCHAR: Instruction at that instant; NULL at the end of the program.
-- column opcode VARCHAR: Its opcode; NULL if unknown.
-- column op_name VARCHAR: Its scope path; NULL if the dump has none.
-- column unknown_reason VARCHAR: Why the peak of a matching module is unknown, in a separate row
--   that has nothing else, comes first and does not count toward top_n; NULL in all other rows.
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 40) AS top_n
),
chosen AS (
  SELECT module_id, color
  FROM asked_peaks
  WHERE peak_time IS NOT NULL
  ORDER BY need_bytes DESC NULLS LAST, peak_bytes DESC, run_name, module_key, color
  LIMIT 1
),
numbered_steps AS (
  SELECT
    memory_steps.module_id, memory_steps.color, memory_steps.start_time, memory_steps.end_time,
    memory_steps.occupied_bytes,
    row_number() OVER (ORDER BY memory_steps.start_time) - 1 AS step_number,
    count(*) OVER () AS step_count
  FROM chosen
  JOIN memory_steps
    ON memory_steps.module_id = chosen.module_id
    AND memory_steps.color = chosen.color
),
placed_steps AS (
  SELECT
    module_id, color, start_time, end_time, occupied_bytes,
    step_number * least(params.top_n, step_count) // step_count AS bucket
  FROM numbered_steps
  CROSS JOIN params
),
ranked_steps AS (
  SELECT
    module_id, color,
    start_time AS occupied_time,
    occupied_bytes,
    min(start_time) OVER (PARTITION BY bucket) AS first_time,
    max(end_time) OVER (PARTITION BY bucket) AS last_time,
    min(occupied_bytes) OVER (PARTITION BY bucket) AS lowest_bytes,
    row_number() OVER (PARTITION BY bucket ORDER BY occupied_bytes DESC, start_time) AS place
  FROM placed_steps
)
SELECT
  asked_peaks.run_name, asked_peaks.function_name, asked_peaks.platform, asked_peaks.color,
  ranked_steps.first_time AS start_time, ranked_steps.last_time AS end_time,
  ranked_steps.lowest_bytes, ranked_steps.occupied_bytes,
  CAST(ranked_steps.occupied_bytes AS DOUBLE) / nullif(asked_peaks.peak_bytes, 0) AS peak_ratio,
  ranked_steps.occupied_time, instructions.instruction_name, instructions.opcode,
  instructions.op_name, asked_peaks.peak_unknown_reason AS unknown_reason
FROM asked_peaks
LEFT JOIN ranked_steps
  ON ranked_steps.module_id = asked_peaks.module_id
  AND ranked_steps.color = asked_peaks.color
  AND ranked_steps.place = 1
LEFT JOIN instructions
  ON instructions.module_id = ranked_steps.module_id
  AND instructions.program_order = ranked_steps.occupied_time
WHERE ranked_steps.place IS NOT NULL OR asked_peaks.peak_unknown_reason IS NOT NULL
ORDER BY
  ranked_steps.first_time NULLS FIRST, asked_peaks.run_name, asked_peaks.function_name,
  asked_peaks.platform,
  asked_peaks.color NULLS LAST, asked_peaks.peak_unknown_reason;
