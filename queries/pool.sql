-- title: Room for a program in the pool of a device's allocator
-- group: peak
-- engines: duckdb, spark, sail
--
-- A program needs its temporaries in one piece, its arena; what arrays, code and libraries hold
-- stays while it runs. For each memory profile and log with reports of an allocator, and each
-- device: what the allocator may take, what stays, the most that is free in one piece, and each
-- program with its arena and outputs, what failed and then the largest arena first, and whether it
-- fits. The programs are those that the process has loaded, else those in the dumps of the run; and
-- a request that failed, without a name.
--
-- On a GPU XLA plans the arena for a limit: 80 % of the device's memory without arguments and
-- outputs, times xla_gpu_memory_limit_slop_factor (95 by default) / 100. Where an arena that does
-- not fit follows that limit, fitting_slop_factor is the largest factor at which XLA would plan
-- for what is free in one piece, and without the outputs.
--
-- wrong when: The profile is of another moment than the call. Of cuda_async the limit is what its
-- pool keeps: it may take more, if the device has it. A lower factor costs time, and XLA may not
-- reach it. Without its dump a program's arena is the sum of its temporaries.
--
-- param run, function, platform, color, module
-- param profile VARCHAR = NULL: Only memory profiles and logs whose name matches this glob.
-- param budget BIGINT = NULL: Most that the allocator may take, instead of what is known [bytes].
-- param top_n BIGINT = 20: Programs to show of each device.
--
-- column run_name
-- column profile_name VARCHAR: The memory profile, or the log.
-- column device VARCHAR: The device, or the allocator's name in the log.
-- column limit_bytes BIGINT: Most that the allocator may take [bytes]; NULL if not known.
-- column alive_bytes BIGINT: Arrays that are alive [bytes]; NULL without a profile.
-- column code_bytes BIGINT: Code of loaded programs [bytes]; NULL if not known.
-- column rest_bytes BIGINT: In use beyond arrays and code, with code whose size is not known
--   [bytes]; NULL if the allocator does not say what is in use.
-- column collective_bytes BIGINT: Memory for collectives, in addition to limit_bytes [bytes]; NULL
--   if no log has it.
-- column outside_bytes BIGINT: What of the device is in use outside of the pool, such as CUDA's
--   context, NCCL and other processes [bytes]; NULL if no log has it.
-- column function_name VARCHAR: The program; NULL for a request that failed.
-- column is_failed BOOLEAN: Whether it is what failed.
-- column arena_bytes HUGEINT: What it needs in one piece: its largest temp allocation [bytes];
--   NULL if not known.
-- column output_bytes HUGEINT: Outputs in memory of their own, in addition [bytes]; NULL if not
--   known.
-- column low_stay_bytes HUGEINT: The least that stays while it runs: what is in use, with its
--   arguments [bytes]; NULL if not known.
-- column stay_bytes HUGEINT: The most: arguments may be alive or have to be made [bytes].
-- column low_block_bytes HUGEINT: The least that is free then in one piece [bytes]; NULL if the
--   allocator does not say.
-- column block_bytes HUGEINT: The most that is free then in one piece [bytes]; NULL without a
--   limit.
-- column fit VARCHAR: yes; no; possible if what is known does not decide; NULL without a limit or
--   arena.
-- column planned_bytes HUGEINT: What XLA planned the arena for [bytes]; NULL if not known.
-- column planned_source VARCHAR: warning (XLA printed it), computed (from the device's memory or
--   the limit that XLA printed); NULL where planned_bytes is.
-- column slop_factor BIGINT: xla_gpu_memory_limit_slop_factor of the program; NULL if not known.
-- column fitting_slop_factor HUGEINT: Largest factor at which XLA would plan for block_bytes, and
--   leave room for outputs; NULL unless it does not fit and its arena follows what XLA planned for,
--   and where outputs alone do not fit.
-- column fitting_arena_bytes HUGEINT: What XLA would plan for with that factor [bytes]; NULL where
--   fitting_slop_factor is.
WITH params AS (
  SELECT
    getvariable('function')::VARCHAR AS function,
    getvariable('module')::VARCHAR AS module,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('budget')::BIGINT AS budget,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
accounts AS (
  SELECT
    pools.run_name, pools.profile_name, pools.device,
    coalesce(params.budget, pools.limit_bytes) AS limit_bytes,
    pools.alive_bytes, pools.code_bytes, pools.rest_bytes, pools.low_used_bytes,
    pools.used_bytes, pools.low_block_bytes,
    CASE
      WHEN params.budget IS NULL THEN pools.block_bytes
      WHEN pools.low_used_bytes IS NOT NULL
        THEN greatest(params.budget - pools.low_used_bytes, 0)
    END AS block_bytes,
    pools.requested_bytes, pools.collective_bytes, pools.outside_bytes, pools.device_total_bytes
  FROM pools
  CROSS JOIN params
  JOIN asked_accounts
    ON asked_accounts.run_name = pools.run_name
    AND asked_accounts.profile_name = pools.profile_name
),
profiles AS (
  SELECT DISTINCT accounts.run_name, accounts.profile_name
  FROM accounts
),
arenas AS (
  SELECT allocations.module_id, allocations.color, max(allocations.size_bytes) AS arena_bytes
  FROM allocations
  WHERE allocations.kind = 'temp'
  GROUP BY allocations.module_id, allocations.color
),
dumped AS (
  SELECT
    asked_modules.run_name, asked_modules.module_id, asked_modules.module_key,
    asked_modules.module_name, asked_modules.platform,
    coalesce(asked_modules.function_name, asked_modules.module_key) AS function_name,
    asked_modules.argument_bytes, asked_modules.output_bytes, asked_modules.alias_bytes,
    asked_modules.temp_bytes,
    -- A message in a log has the sum alone.
    coalesce(arenas.arena_bytes, asked_modules.temp_bytes) AS arena_bytes
  FROM asked_modules
  LEFT JOIN arenas
    ON arenas.module_id = asked_modules.module_id
    AND arenas.color = asked_modules.color
  WHERE asked_modules.temp_bytes IS NOT NULL
),
loaded AS (
  SELECT
    live_programs.run_name, live_programs.profile_name, live_programs.program_ordinal,
    python_name(live_programs.program_name) AS function_name,
    live_programs.is_failed, live_programs.argument_bytes,
    live_programs.output_bytes - live_programs.alias_bytes AS output_bytes,
    coalesce(min(dumped.arena_bytes), live_programs.temp_bytes) AS arena_bytes,
    min(dumped.module_id) AS module_id,
    min(dumped.platform) AS platform
  FROM live_programs
  JOIN profiles
    ON profiles.run_name = live_programs.run_name
    AND profiles.profile_name = live_programs.profile_name
  LEFT JOIN dumped
    ON dumped.run_name = live_programs.run_name
    AND dumped.module_name = live_programs.program_name
    AND dumped.temp_bytes = live_programs.temp_bytes
    AND dumped.argument_bytes = live_programs.argument_bytes
  GROUP BY
    live_programs.run_name, live_programs.profile_name, live_programs.program_ordinal,
    live_programs.program_name, live_programs.is_failed, live_programs.argument_bytes,
    live_programs.output_bytes, live_programs.alias_bytes, live_programs.temp_bytes
),
-- Without a list of what is loaded those of the dumps: in the folder of the profile, if it has any.
unlisted AS (
  SELECT
    profiles.run_name, profiles.profile_name, dumped.function_name,
    coalesce(dumped.module_name = live_profiles.failed_program_name, FALSE) AS is_failed,
    dumped.argument_bytes,
    dumped.output_bytes - dumped.alias_bytes AS output_bytes,
    dumped.arena_bytes, dumped.module_id, dumped.platform, dumped.module_key,
    -- A path has no empty part, so that // marks its beginning.
    contains(
      '//' || dumped.module_key, '//' || regexp_extract(profiles.profile_name, '^(.*/)')
    ) AS is_near
  FROM profiles
  JOIN dumped ON dumped.run_name = profiles.run_name
  LEFT JOIN live_profiles
    ON live_profiles.run_name = profiles.run_name
    AND live_profiles.profile_name = profiles.profile_name
  WHERE NOT EXISTS (
    SELECT 1
    FROM live_programs
    WHERE live_programs.run_name = profiles.run_name
      AND live_programs.profile_name = profiles.profile_name
  )
),
near AS (
  SELECT
    unlisted.run_name, unlisted.profile_name, unlisted.function_name, unlisted.is_failed,
    unlisted.argument_bytes, unlisted.output_bytes, unlisted.arena_bytes, unlisted.module_id,
    unlisted.platform, unlisted.module_key
  FROM unlisted
  LEFT JOIN (
    SELECT DISTINCT unlisted.run_name, unlisted.profile_name
    FROM unlisted
    WHERE unlisted.is_near
  ) AS placed
    ON placed.run_name = unlisted.run_name
    AND placed.profile_name = unlisted.profile_name
  WHERE unlisted.is_near OR placed.run_name IS NULL
),
programs AS (
  SELECT
    loaded.run_name, loaded.profile_name, loaded.function_name, loaded.is_failed,
    loaded.argument_bytes, loaded.output_bytes, loaded.arena_bytes, loaded.module_id,
    loaded.platform, CAST(loaded.program_ordinal AS VARCHAR) AS name
  FROM loaded
  CROSS JOIN params
  WHERE coalesce(params.module, '*') = '*'
    AND (coalesce(params.platform, '*') = '*' OR loaded.platform GLOB params.platform)
    AND (params.function IS NULL OR loaded.function_name GLOB params.function)
  UNION ALL
  SELECT
    near.run_name, near.profile_name, near.function_name, near.is_failed, near.argument_bytes,
    near.output_bytes, near.arena_bytes, near.module_id, near.platform, near.module_key AS name
  FROM near
),
wanted AS (
  SELECT
    accounts.run_name, accounts.profile_name, accounts.device, accounts.limit_bytes,
    accounts.alive_bytes, accounts.code_bytes, accounts.rest_bytes, accounts.collective_bytes,
    accounts.outside_bytes, accounts.low_used_bytes, accounts.used_bytes,
    accounts.low_block_bytes, accounts.block_bytes, accounts.device_total_bytes,
    programs.function_name, programs.is_failed, programs.arena_bytes, programs.output_bytes,
    programs.argument_bytes, programs.module_id, programs.platform, programs.name,
    -- When it failed its arguments were there.
    CASE WHEN NOT programs.is_failed THEN programs.argument_bytes ELSE 0 END AS added_bytes
  FROM accounts
  JOIN programs
    ON programs.run_name = accounts.run_name
    AND programs.profile_name = accounts.profile_name
  UNION ALL
  SELECT
    accounts.run_name, accounts.profile_name, accounts.device, accounts.limit_bytes,
    accounts.alive_bytes, accounts.code_bytes, accounts.rest_bytes, accounts.collective_bytes,
    accounts.outside_bytes, accounts.low_used_bytes, accounts.used_bytes,
    accounts.low_block_bytes, accounts.block_bytes, accounts.device_total_bytes,
    NULL AS function_name, TRUE AS is_failed, accounts.requested_bytes AS arena_bytes,
    0 AS output_bytes, 0 AS argument_bytes, NULL AS module_id, NULL AS platform, '' AS name,
    0 AS added_bytes
  FROM accounts
  CROSS JOIN params
  WHERE accounts.requested_bytes IS NOT NULL
    AND coalesce(params.function, '*') = '*'
    AND coalesce(params.module, '*') = '*'
    AND coalesce(params.platform, '*') = '*'
),
flags AS (
  SELECT
    dumped.module_id,
    CASE
      WHEN dumped.platform <> 'gpu' THEN NULL
      -- The file of options, like the label, has what differs from the default.
      WHEN count(compiler_options.option_name) > 0
        THEN coalesce(
          max(
            CASE
              WHEN compiler_options.option_name = 'xla_gpu_memory_limit_slop_factor'
                THEN try_cast(floor(try_cast(compiler_options.option_value AS DOUBLE)) AS BIGINT)
            END
          ),
          95
        )
      WHEN max(run_labels.label_value) IS NOT NULL
        THEN coalesce(
          try_cast(
            floor(
              try_cast(
                regexp_extract(
                  max(run_labels.label_value), 'xla_gpu_memory_limit_slop_factor=([0-9]+)', 1
                ) AS DOUBLE
              )
            ) AS BIGINT
          ),
          95
        )
    END AS slop_factor
  FROM dumped
  LEFT JOIN compiler_options ON compiler_options.module_id = dumped.module_id
  LEFT JOIN run_labels
    ON run_labels.run_name = dumped.run_name
    AND run_labels.label = 'xla_flags'
  GROUP BY dumped.module_id, dumped.platform
),
-- What XLA printed in a log of the run about a program of this name.
printed AS (
  SELECT
    modules.run_name, modules.function_name,
    max(scheduled_limits.limit_bytes) AS limit_bytes,
    max(scheduled_limits.base_bytes) AS base_bytes
  FROM scheduled_limits
  JOIN modules ON modules.module_id = scheduled_limits.module_id
  WHERE modules.function_name IS NOT NULL
  GROUP BY modules.run_name, modules.function_name
),
staying AS (
  SELECT
    wanted.run_name, wanted.profile_name, wanted.device, wanted.name,
    CASE
      WHEN wanted.low_used_bytes IS NOT NULL
        THEN greatest(wanted.low_used_bytes, coalesce(wanted.added_bytes, 0))
    END AS low_stay_bytes,
    wanted.used_bytes + wanted.added_bytes AS stay_bytes,
    flags.slop_factor,
    printed.limit_bytes AS printed_bytes,
    CASE
      WHEN wanted.platform = 'gpu'
        THEN (
          coalesce(
            CAST(printed.base_bytes AS HUGEINT),
            CAST(wanted.device_total_bytes AS HUGEINT) * 80 // 100
          ) - wanted.argument_bytes - wanted.output_bytes
        ) * flags.slop_factor // 100
    END AS computed_bytes
  FROM wanted
  LEFT JOIN flags ON flags.module_id = wanted.module_id
  LEFT JOIN printed
    ON printed.run_name = wanted.run_name
    AND printed.function_name = wanted.function_name
),
judged AS (
  SELECT
    wanted.run_name, wanted.profile_name, wanted.device, wanted.limit_bytes, wanted.alive_bytes,
    wanted.code_bytes, wanted.rest_bytes, wanted.collective_bytes, wanted.outside_bytes,
    wanted.function_name, wanted.is_failed, wanted.arena_bytes, wanted.output_bytes,
    wanted.argument_bytes, staying.low_stay_bytes, staying.stay_bytes,
    CASE
      WHEN wanted.low_block_bytes - wanted.added_bytes IS NOT NULL
        THEN greatest(wanted.low_block_bytes - wanted.added_bytes, 0)
    END AS low_block_bytes,
    CASE
      WHEN wanted.block_bytes IS NOT NULL
        THEN greatest(
          least(
            wanted.block_bytes,
            coalesce(wanted.limit_bytes - staying.low_stay_bytes, wanted.block_bytes)
          ),
          0
        )
    END AS block_bytes,
    wanted.limit_bytes - staying.low_stay_bytes AS free_bytes,
    staying.printed_bytes,
    coalesce(staying.printed_bytes, staying.computed_bytes) AS planned_bytes,
    staying.slop_factor, wanted.name
  FROM wanted
  JOIN staying
    ON staying.run_name = wanted.run_name
    AND staying.profile_name = wanted.profile_name
    AND staying.device = wanted.device
    AND staying.name = wanted.name
),
fits AS (
  SELECT
    judged.run_name, judged.profile_name, judged.device, judged.limit_bytes, judged.alive_bytes,
    judged.code_bytes, judged.rest_bytes, judged.collective_bytes, judged.outside_bytes,
    judged.function_name, judged.is_failed, judged.arena_bytes, judged.output_bytes,
    judged.low_stay_bytes, judged.stay_bytes, judged.low_block_bytes, judged.block_bytes,
    CASE
      WHEN judged.arena_bytes > judged.block_bytes
        OR judged.arena_bytes + coalesce(judged.output_bytes, 0) > judged.free_bytes THEN 'no'
      WHEN judged.arena_bytes + judged.output_bytes <= judged.low_block_bytes THEN 'yes'
      WHEN judged.arena_bytes IS NOT NULL AND judged.block_bytes IS NOT NULL THEN 'possible'
    END AS fit,
    -- What an arena may take, next to the outputs.
    least(
      judged.block_bytes,
      coalesce(judged.free_bytes - coalesce(judged.output_bytes, 0), judged.block_bytes)
    ) AS room_bytes,
    judged.planned_bytes, judged.printed_bytes, judged.slop_factor,
    row_number() OVER (
      PARTITION BY judged.run_name, judged.profile_name, judged.device
      ORDER BY
        judged.is_failed DESC, judged.arena_bytes DESC NULLS LAST,
        -- Not what merely made arrays, such as the weights.
        judged.argument_bytes + judged.output_bytes DESC NULLS LAST,
        judged.function_name NULLS LAST, judged.name
    ) AS place
  FROM judged
),
factors AS (
  SELECT
    fits.run_name, fits.profile_name, fits.device, fits.place,
    CASE
      -- A warning says that XLA did not reach its limit.
      WHEN fits.fit = 'no'
        AND fits.printed_bytes IS NULL
        AND fits.arena_bytes * 10 >= fits.planned_bytes * 9
        AND fits.arena_bytes * 50 <= fits.planned_bytes * 51
        AND fits.planned_bytes > 0
        AND fits.room_bytes > 0
        THEN fits.room_bytes * fits.slop_factor // fits.planned_bytes
    END AS fitting_factor
  FROM fits
)
SELECT
  fits.run_name, fits.profile_name, fits.device, fits.limit_bytes, fits.alive_bytes,
  fits.code_bytes, fits.rest_bytes, fits.collective_bytes, fits.outside_bytes,
  fits.function_name, fits.is_failed, fits.arena_bytes, fits.output_bytes, fits.low_stay_bytes,
  fits.stay_bytes, fits.low_block_bytes, fits.block_bytes, fits.fit, fits.planned_bytes,
  CASE
    WHEN fits.printed_bytes IS NOT NULL THEN 'warning'
    WHEN fits.planned_bytes IS NOT NULL THEN 'computed'
  END AS planned_source,
  fits.slop_factor,
  factors.fitting_factor AS fitting_slop_factor,
  factors.fitting_factor * fits.planned_bytes // fits.slop_factor AS fitting_arena_bytes
FROM fits
CROSS JOIN params
JOIN factors
  ON factors.run_name = fits.run_name
  AND factors.profile_name = fits.profile_name
  AND factors.device = fits.device
  AND factors.place = fits.place
WHERE fits.place <= params.top_n
ORDER BY fits.run_name, fits.profile_name, fits.device, fits.place;
