-- title: Arguments that several devices hold in full and could divide
-- group: saving
-- engines: duckdb, spark, sail
--
-- A module compiled for several devices (partitions, format section 7.5) has a sharding for each
-- argument: divided among all devices, or the same on some or all of them. For each run and
-- function (its compilation with the largest need), one row per argument with a part that several
-- devices hold, with the bytes that each would save if they divided it, most first. Arguments are
-- held for the whole run, so all of it counts at the peak. Figures are for one device. On TPU only
-- before_optimizations.txt has shardings, which count if they fit what a device holds (view
-- parameter_shardings shows the source); without that file figures are NULL, with the reason.
--
-- wrong when: sureness says how even a division would be: likely, if a dimension is divisible by
-- the number of holders; possible, if none is and padding would be needed. An array that is needed
-- whole must be gathered before each use, which takes time and may temporarily take as much memory
-- (query gathers-live); one that is updated element by element, such as optimizer state, need not
-- be. Tiled layouts (TPU) may pad the parts more than the whole. Shardings in the rest of the
-- program are ignored, and after a change the compiler plans again.
--
-- param run, function, platform, color, module
-- param all_arguments BOOLEAN = FALSE: Also show arguments with a different part on each device,
--   and those where this is unknown.
-- param top_n
--
-- column run_name, function_name, platform, color, peak_bytes
-- column replicated_bytes HUGEINT: Bytes that each device would save if its holders divided it
--   [bytes]; NULL if the dump does not say which device holds what.
-- column replicated_ratio DOUBLE: The same as a share of the peak (0 to 1); NULL where
--   replicated_bytes is.
-- column sureness VARCHAR: likely or possible, see above; NULL if there is nothing to divide, or it
--   is unknown.
-- column size_bytes BIGINT: The argument on one device [bytes].
-- column device_count BIGINT: Devices that the module is for; NULL if unknown.
-- column tile_count BIGINT: Different parts that it is divided into, 1 if it is not divided; NULL
--   where replicated_bytes is.
-- column holder_count BIGINT: Devices that hold the same part; NULL where replicated_bytes is.
-- column sharding VARCHAR: Sharding as printed; NULL if the dump has none.
-- column shape VARCHAR: Shape on one device, with layout.
-- column parameter_number BIGINT: The entry parameter.
-- column parameter_name VARCHAR: Path of the argument, such as params['w']; the instruction's name
--   if it has none.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, or which devices hold
--   some of its arguments, in a separate row that has nothing else, comes first and does not count
--   toward top_n; NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('all_arguments')::BOOLEAN, FALSE) AS all_arguments,
    coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
functions AS (
  SELECT
    name_place, module_id, color, run_name, function_name, platform, unknown_reason, peak_bytes
  FROM answered_functions
),
arguments AS (
  SELECT
    shardings.module_id, shardings.color, shardings.replicated_bytes, shardings.is_divisible,
    shardings.size_bytes, shardings.device_count, shardings.tile_count, shardings.holder_count,
    shardings.sharding, shardings.shape, shardings.parameter_number, shardings.parameter_name,
    row_number() OVER (
      ORDER BY
        shardings.replicated_bytes DESC NULLS LAST, shardings.size_bytes DESC, functions.name_place,
        shardings.parameter_number, shardings.allocation_index
    ) AS place
  FROM functions
  CROSS JOIN params
  JOIN parameter_shardings AS shardings
    ON shardings.module_id = functions.module_id
    AND shardings.color = functions.color
  WHERE params.all_arguments OR shardings.replicated_bytes > 0
),
reasons AS (
  SELECT
    shardings.module_id, shardings.color, shardings.unknown_sharding_reason,
    count(*) AS argument_count
  FROM parameter_shardings AS shardings
  WHERE shardings.unknown_sharding_reason IS NOT NULL
    -- Without a sharding or a device count nothing indicates several devices.
    AND (
      shardings.sharding IS NOT NULL OR shardings.device_count > 1 OR shardings.replica_count > 1
    )
  GROUP BY shardings.module_id, shardings.color, shardings.unknown_sharding_reason
),
unknown AS (
  SELECT
    functions.run_name, functions.function_name, functions.platform, functions.color,
    functions.name_place, functions.unknown_reason
  FROM functions
  WHERE functions.unknown_reason IS NOT NULL
  UNION ALL
  SELECT
    functions.run_name, functions.function_name, functions.platform, functions.color,
    functions.name_place,
    reasons.unknown_sharding_reason || ' (arguments: ' || reasons.argument_count || ')'
      AS unknown_reason
  FROM functions
  JOIN reasons
    ON reasons.module_id = functions.module_id
    AND reasons.color = functions.color
),
answers AS (
  SELECT
    functions.run_name, functions.function_name, functions.platform, functions.color,
    functions.peak_bytes, arguments.replicated_bytes,
    CASE
      WHEN arguments.replicated_bytes > 0 AND arguments.is_divisible THEN 'likely'
      WHEN arguments.replicated_bytes > 0 THEN 'possible'
    END AS sureness,
    arguments.size_bytes, arguments.device_count, arguments.tile_count, arguments.holder_count,
    arguments.sharding, arguments.shape, arguments.parameter_number, arguments.parameter_name,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    arguments.place, functions.name_place
  FROM functions
  CROSS JOIN params
  JOIN arguments
    ON arguments.module_id = functions.module_id
    AND arguments.color = functions.color
    AND arguments.place <= params.top_n
  UNION ALL
  SELECT
    unknown.run_name, unknown.function_name, unknown.platform, unknown.color,
    NULL AS peak_bytes,
    NULL AS replicated_bytes,
    NULL AS sureness,
    NULL AS size_bytes,
    NULL AS device_count,
    NULL AS tile_count,
    NULL AS holder_count,
    NULL AS sharding,
    NULL AS shape,
    NULL AS parameter_number,
    NULL AS parameter_name,
    unknown.unknown_reason,
    NULL AS place, unknown.name_place
  FROM unknown
)
SELECT
  answers.run_name, answers.function_name, answers.platform, answers.color, answers.peak_bytes,
  answers.replicated_bytes,
  CAST(answers.replicated_bytes AS DOUBLE) / nullif(answers.peak_bytes, 0) AS replicated_ratio,
  answers.sureness, answers.size_bytes, answers.device_count, answers.tile_count,
  answers.holder_count, answers.sharding, answers.shape, answers.parameter_number,
  answers.parameter_name, answers.unknown_reason
FROM answers
ORDER BY answers.place NULLS FIRST, answers.name_place, answers.unknown_reason;
