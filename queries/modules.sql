-- title: Every module with its arguments, outputs, temps, constants and peak
-- group: store
-- engines: duckdb, spark, sail
--
-- One row per module and memory space, unknown peaks first, then largest peak first. The peak is
-- the largest number of bytes occupied at one instant: all allocations except temp and thread-local
-- ones, which are held for the whole run, plus the bytes of temp allocations that live values
-- occupy, shared bytes counted once. NULL if the dump does not give it; unknown_reason says why.
--
-- param run, function, platform, color, module, top_n = 100
--
-- column run_name
-- column function_name VARCHAR: Jitted function; NULL if unknown.
-- column module_key VARCHAR: The dump's path in its run.
-- column platform
-- column color BIGINT: Memory space; NULL for a module without allocations.
-- column peak_bytes HUGEINT: The peak [bytes]; NULL if unknown.
-- column need_bytes HUGEINT: What a device must hold: all allocations except thread-local ones
--   [bytes]; NULL if unknown.
-- column argument_bytes HUGEINT: Parameters, including donated ones [bytes].
-- column output_bytes HUGEINT: Outputs, including donated parameters [bytes].
-- column alias_bytes HUGEINT: Donated parameters, counted in both [bytes].
-- column constant_bytes HUGEINT: Constants [bytes].
-- column temp_bytes HUGEINT: Temp allocations as a whole [bytes].
-- column total_bytes HUGEINT: All allocations [bytes].
-- column biggest_value_bytes BIGINT: Largest value [bytes]; NULL if no value is listed.
-- column biggest_value VARCHAR: Its defining instruction, for ties with the lowest value_id; NULL
--   if no value is listed.
-- column unknown_reason VARCHAR: Why the peak is unknown; NULL if it is known.
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
ranked_values AS (
  SELECT
    allocations.module_id, allocations.color, "values".size_bytes, "values".instruction_name,
    row_number() OVER (
      PARTITION BY allocations.module_id, allocations.color
      ORDER BY "values".size_bytes DESC, "values".value_id
    ) AS place
  FROM asked_modules
  JOIN allocations
    ON allocations.module_id = asked_modules.module_id
    AND allocations.color = asked_modules.color
  JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
)
SELECT
  figures.run_name, figures.function_name, figures.module_key, figures.platform, figures.color,
  figures.peak_bytes, figures.need_bytes, figures.argument_bytes, figures.output_bytes,
  figures.alias_bytes, figures.constant_bytes, figures.temp_bytes, figures.total_bytes,
  ranked_values.size_bytes AS biggest_value_bytes, ranked_values.instruction_name AS biggest_value,
  figures.peak_unknown_reason AS unknown_reason
FROM asked_modules AS figures
LEFT JOIN ranked_values
  ON ranked_values.module_id = figures.module_id
  AND ranked_values.color = figures.color
  AND ranked_values.place = 1
ORDER BY
  figures.peak_bytes DESC NULLS FIRST, figures.total_bytes DESC NULLS LAST, figures.run_name,
  figures.module_key, figures.color
LIMIT (SELECT top_n FROM params);
