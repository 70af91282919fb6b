-- title: Values that hold memory at the peak, largest first
-- group: peak
-- engines: duckdb, spark, sail
--
-- Lists what is in memory at the peak, the instant when most bytes of the memory space are
-- occupied. Allocations other than temp and thread-local ones are held for the whole run and count
-- as a whole, under the value that represents them. In temp allocations the values live at that
-- instant count; shared bytes count once, for the first value by offset, so the rows of a module
-- add up to its peak. Shows the module with the largest known peak for each run and function; a
-- function with an unknown peak has a row that says why.
--
-- param run, function, platform, color, module, peak, step, loops, top_functions = 1
-- param top_n BIGINT = 20: Values to show for each.
--
-- column run_name, function_name, platform, color
-- column held_bytes HUGEINT: Bytes held by the value and by none before it [bytes].
-- column low_saving_bytes
-- column saving_bytes HUGEINT: How far the peak would fall without it (query savings) [bytes]; NULL
--   if it is in no temp allocation.
-- column cumulative_ratio DOUBLE: Share of the peak held by this and all rows above it (0 to 1).
-- column allocation_kind
-- column shape VARCHAR: Shape of the value with layout; NULL if the dump lists no value.
-- column opcode
-- column instruction_name VARCHAR: Defining instruction; NULL if the dump lists no value.
-- column op_name VARCHAR: Scope path of the operation that made the data; NULL if the dump has
--   none.
-- column source VARCHAR: Its innermost file:line that is not library code, "saved file:line" for
--   what a loop stacks, "library file:line" if everything is library code; NULL if unknown.
-- column unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('loops')::VARCHAR, 'origin') AS loops,
    coalesce(getvariable('top_functions')::BIGINT, 1) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
ranked_values AS (
  SELECT
    held.function_place, held.name_place, held.run_name, held.function_name, held.platform,
    held.color, held.peak_bytes, held.held_bytes,
    savings.low_saving_bytes, savings.saving_bytes, held.allocation_kind,
    held.shape, held.opcode, held.instruction_name,
    coalesce(origins.op_name, held.op_name) AS op_name,
    coalesce(
      origins.relation || origins.own_source, held.own_source,
      origins.relation || origins.library_source, held.library_source
    ) AS source,
    held.unknown_reason,
    row_number() OVER (
      PARTITION BY held.function_place
      ORDER BY held.held_bytes DESC, held.allocation_index, held.value_id NULLS LAST
    ) AS place
  FROM answered_peak_values AS held
  CROSS JOIN params
  LEFT JOIN value_origin_details AS origins
    ON origins.module_id = held.module_id
    AND origins.value_id = held.value_id
    AND held.allocation_kind IN ('temp', 'output')
    AND params.loops = 'origin'
  LEFT JOIN peak_savings AS savings
    ON savings.module_id = held.module_id
    AND savings.color = held.color
    AND savings.value_id = held.value_id
  WHERE held.function_place <= params.top_functions
),
summed_values AS (
  SELECT
    function_place, name_place, place, run_name, function_name, platform, color, held_bytes,
    low_saving_bytes, saving_bytes,
    CAST(
      sum(held_bytes) OVER (
        PARTITION BY function_place
        ORDER BY place
        ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
      ) AS DOUBLE
    ) / nullif(peak_bytes, 0) AS cumulative_ratio,
    allocation_kind, shape, opcode, instruction_name, op_name, source, unknown_reason
  FROM ranked_values
)
SELECT
  run_name, function_name, platform, color, held_bytes, low_saving_bytes, saving_bytes,
  cumulative_ratio,
  allocation_kind, shape, opcode, instruction_name, op_name, source, unknown_reason
FROM summed_values
CROSS JOIN params
WHERE place <= params.top_n OR unknown_reason IS NOT NULL
ORDER BY function_place, name_place, place;
