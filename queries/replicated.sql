-- title: Arguments that several devices hold in full, and could share
-- group: saving
-- engines: duckdb, spark, sail
--
-- A module compiled for several devices (partitions, format section 7.5) takes each argument by a
-- sharding: divided among all devices, or the same on some or all of them. For each run and
-- function (its compilation with the largest need) one row per argument of which several
-- devices hold the same part, with what each of them would hold less if they shared it, most first.
-- Arguments are held for the whole run, so all of it counts at the peak. Figures are those of one
-- device. On TPU shardings are in before_optimizations.txt alone, and count where they fit what a
-- device holds (view parameter_shardings says which text has one); without that file figures are
-- NULL, and the reason says so.
--
-- wrong when: sureness says how even a division would be: likely, where a dimension can be divided
-- by the number of holders; possible, where none can and padding would be needed. What is needed
-- whole has to be gathered before each use, which takes time and may take as much memory for a
-- while (query gathers-live); that of what is updated element by element, such as the state of an
-- optimizer, is not. Tiled layouts (TPU) may pad the parts more than the whole. Which shardings the
-- rest of the program wants is not looked at, and a change makes the compiler plan anew.
--
-- param run, function, platform, color, module
-- param all_arguments BOOLEAN = FALSE: Show those too that each device has its own part of, and
--   those of which that is not known.
-- param top_n
--
-- column run_name, function_name, platform, color, peak_bytes
-- column replicated_bytes HUGEINT: What each device would hold less if its holders shared it
--   [bytes]; NULL if the dump does not tell who holds what.
-- column replicated_ratio DOUBLE: The same as share of the peak (0 to 1); NULL likewise.
-- column sureness VARCHAR: likely or possible, see above; NULL if there is nothing to share, or it
--   is not known.
-- column size_bytes BIGINT: The argument on one device [bytes].
-- column device_count BIGINT: Devices that the module is for; NULL if nothing says so.
-- column tile_count BIGINT: Different parts that it is divided into, 1 if it is not; NULL as
--   replicated_bytes.
-- column holder_count BIGINT: Devices that hold the same part; NULL as replicated_bytes.
-- column sharding VARCHAR: Sharding as the dump has it; NULL if it has none.
-- column shape VARCHAR: Shape on one device, with layout.
-- column parameter_number BIGINT: The entry parameter.
-- column parameter_name VARCHAR: Path of the argument, such as params['w']; the instruction's name
--   if it has none.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, or who holds what of some
--   of its arguments, in a row of its own that has nothing else, comes first and does not count in
--   top_n; NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('all_arguments')::BOOLEAN, FALSE) AS all_arguments,
    coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
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
  FROM answered_functions AS functions
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
    -- Nothing speaks of several devices where there is neither a sharding nor a count of them.
    AND (
      shardings.sharding IS NOT NULL OR shardings.device_count > 1 OR shardings.replica_count > 1
    )
  GROUP BY shardings.module_id, shardings.color, shardings.unknown_sharding_reason
),
unknown AS (
  SELECT
    functions.run_name, functions.function_name, functions.platform, functions.color,
    functions.name_place, functions.unknown_reason
  FROM answered_functions AS functions
  WHERE functions.unknown_reason IS NOT NULL
  UNION ALL
  SELECT
    functions.run_name, functions.function_name, functions.platform, functions.color,
    functions.name_place,
    reasons.unknown_sharding_reason || ' (arguments: ' || reasons.argument_count || ')'
      AS unknown_reason
  FROM answered_functions AS functions
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
  FROM answered_functions AS functions
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
