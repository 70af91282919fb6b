-- title: Distinct peaks of a function, and the valleys between them
-- group: peak
-- engines: duckdb, spark, sail
--
-- Lists the instants that compete for the peak: local maxima of the occupied bytes over program
-- order that are above the valley between them and a higher one by at least 5 percent of the
-- highest. If you lower the first, the second is the next limit. Shows the module with the largest
-- need for each run and function. Query at-step shows what is live at one of them (-p step TIME).
--
-- wrong when: Program order is not time: a peak can last for one short instruction or for most of
-- the run.
--
-- param run, function, platform, color, module, top_functions
-- param top_n BIGINT = 5: Peaks to show for each.
--
-- column run_name, function_name, platform, color
-- column peak_ordinal BIGINT: Rank among the peaks; 1 is the highest.
-- column peak_bytes HUGEINT: Bytes occupied then, including those held for the whole run [bytes].
-- column peak_ratio DOUBLE: The same as a share of the highest (0 to 1).
-- column valley_bytes HUGEINT: Fewest bytes occupied on the way to a higher peak [bytes]; NULL for
--   the highest.
-- column peak_time BIGINT: First instant of the peak [program order].
-- column opcode VARCHAR: Opcode of the instruction at that instant; NULL if unknown.
-- column instruction_name VARCHAR: The instruction; NULL if the instant is none's.
-- column op_name VARCHAR: Its scope path; NULL if the dump has none.
-- column unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 5) AS top_n
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  peaks.peak_ordinal,
  memory_sums.fixed_bytes + peaks.occupied_temp_bytes AS peak_bytes,
  CAST(memory_sums.fixed_bytes + peaks.occupied_temp_bytes AS DOUBLE)
    / nullif(functions.peak_bytes, 0) AS peak_ratio,
  memory_sums.fixed_bytes + peaks.valley_bytes AS valley_bytes,
  peaks.peak_time, instructions.opcode, instructions.instruction_name, instructions.op_name,
  functions.unknown_reason
FROM answered_functions AS functions
CROSS JOIN params
LEFT JOIN memory_sums
  ON memory_sums.module_id = functions.module_id
  AND memory_sums.color = functions.color
LEFT JOIN peaks
  ON peaks.module_id = functions.module_id
  AND peaks.color = functions.color
  AND peaks.peak_ordinal <= params.top_n
LEFT JOIN instructions
  ON instructions.module_id = peaks.module_id
  AND instructions.program_order = peaks.peak_time
WHERE functions.place <= params.top_functions
  AND (peaks.module_id IS NOT NULL OR functions.unknown_reason IS NOT NULL)
ORDER BY functions.place, functions.name_place, peaks.peak_ordinal;
