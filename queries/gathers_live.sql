-- title: Results of all-gathers that are live together
-- group: saving
-- engines: duckdb, spark, sail
--
-- Sharded parameters (FSDP, ZeRO) are gathered before use; a schedule that gathers early or frees
-- late holds many gathered arrays at once, and the sharding saves nothing. For each run and
-- function (its compilation with the largest need), shows the instant with the most bytes of live
-- all-gather results, and those results, largest first; gathered_bytes is their sum. A result moved
-- to another memory space (VMEM of a TPU, and back) counts there.
--
-- wrong when: An all-gather inside a fusion, a custom call, a loop of permutes or a generic async
-- wrapper (async-start) does not show. A result that is converted or reshaped right away continues
-- under another name. Overlapping gathers with computation needs two of them live. If
-- gathered_bytes is small compared to the peak, there is nothing to gain.
--
-- param run, function, platform, color, module, top_n
--
-- column run_name, function_name, platform, color, peak_bytes
-- column gathered_bytes HUGEINT: All-gather results live at the instant [bytes].
-- column gathered_count BIGINT: Number of them.
-- column gathered_time BIGINT: The first such instant [program order].
-- column size_bytes BIGINT: Assigned size of this result [bytes].
-- column low_saving_bytes HUGEINT: Lower bound of how far the peak falls without this result (query
--   savings) [bytes]; 0 for the only one at the peak, because it is needed at some instant; NULL if
--   it holds nothing there.
-- column saving_bytes HUGEINT: Upper bound [bytes]: what it holds at the peak if there are others,
--   because the one that is needed may use bytes that they leave free; NULL where low_saving_bytes
--   is.
-- column sureness VARCHAR: How sure that is (advice_sureness); unlikely if it is the only one live,
--   because it is needed at some instant.
-- column start_time BIGINT: First instant at which it is live [program order].
-- column end_time BIGINT: Last instant at which it is live [program order].
-- column shape
-- column instruction_name VARCHAR: The all-gather.
-- column op_name, source, unknown_reason
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
functions AS (
  SELECT
    name_place, module_id, color, peak_bytes, run_name, function_name, platform, unknown_reason
  FROM answered_functions
),
arrays AS (
  SELECT
    functions.name_place, value_details.module_id, value_details.color, value_details.value_id,
    value_details.size_bytes, value_details.start_time, value_details.end_time, value_details.shape,
    value_details.instruction_name, gathered.low_saving_bytes, gathered.saving_bytes,
    results.op_name,
    coalesce(results.own_source, results.library_source) AS source
  FROM functions
  JOIN value_details
    ON value_details.module_id = functions.module_id
    AND value_details.color = functions.color
  JOIN gathered_values AS gathered
    ON gathered.module_id = value_details.module_id
    AND gathered.value_id = value_details.value_id
  JOIN value_details AS results
    ON results.module_id = gathered.module_id
    AND results.value_id = gathered.result_value_id
  WHERE NOT value_details.is_tuple
    AND value_details.dtype IS NOT NULL
    AND value_details.size_bytes > 0
    AND value_details.start_time IS NOT NULL
    -- If the peak is unknown, so are other live values.
    AND functions.peak_bytes IS NOT NULL
),
changes AS (
  SELECT module_id, color, start_time AS change_time, size_bytes
  FROM arrays
  UNION ALL
  SELECT
    module_id, color,
    -- Damaged dumps have times close to 2^63.
    least(end_time, 9223372036854775806) + 1 AS change_time,
    -size_bytes AS size_bytes
  FROM arrays
),
steps AS (
  SELECT
    module_id, color, change_time,
    sum(sum(size_bytes)) OVER (
      PARTITION BY module_id, color
      ORDER BY change_time
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS gathered_bytes
  FROM changes
  GROUP BY module_id, color, change_time
),
ranked_steps AS (
  SELECT
    module_id, color,
    change_time AS gathered_time,
    gathered_bytes,
    row_number() OVER (PARTITION BY module_id, color ORDER BY gathered_bytes DESC, change_time)
      AS place
  FROM steps
),
gathers AS (
  SELECT
    arrays.module_id, arrays.color, arrays.value_id, ranked_steps.gathered_bytes,
    count(*) OVER (PARTITION BY arrays.module_id, arrays.color) AS gathered_count,
    ranked_steps.gathered_time, arrays.size_bytes, arrays.start_time,
    arrays.end_time, arrays.shape, arrays.instruction_name, arrays.low_saving_bytes,
    arrays.saving_bytes, arrays.op_name, arrays.source,
    row_number() OVER (
      ORDER BY
        ranked_steps.gathered_bytes DESC, arrays.name_place,
        arrays.size_bytes DESC, arrays.start_time, arrays.value_id
    ) AS place
  FROM arrays
  JOIN ranked_steps
    ON ranked_steps.module_id = arrays.module_id
    AND ranked_steps.color = arrays.color
    AND ranked_steps.place = 1
  WHERE arrays.start_time <= ranked_steps.gathered_time
    AND arrays.end_time >= ranked_steps.gathered_time
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  CASE WHEN gathers.place IS NOT NULL THEN functions.peak_bytes END AS peak_bytes,
  gathers.gathered_bytes, gathers.gathered_count, gathers.gathered_time, gathers.size_bytes,
  gathers.low_saving_bytes, gathers.saving_bytes, advice_sureness.sureness,
  gathers.start_time, gathers.end_time, gathers.shape, gathers.instruction_name, gathers.op_name,
  gathers.source, functions.unknown_reason
FROM functions
CROSS JOIN params
LEFT JOIN gathers
  ON gathers.module_id = functions.module_id
  AND gathers.color = functions.color
  AND gathers.place <= params.top_n
LEFT JOIN advice_sureness
  ON advice_sureness.kind = CASE
    WHEN gathers.gathered_count > 1 THEN 'gather'
    WHEN gathers.gathered_count = 1 THEN 'single_gather'
  END
  AND advice_sureness.platform = coalesce(functions.platform, '')
  AND advice_sureness.is_from_zero = (coalesce(gathers.low_saving_bytes, 1) <= 0)
WHERE gathers.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY gathers.place NULLS FIRST, functions.name_place;
