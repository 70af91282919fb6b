-- title: Device memory of a process next to what a program needs
-- group: peak
-- engines: duckdb (spark: it casts to an integer, unnests lists and takes any_value;
--   sail: it casts to an integer, unnests lists and takes any_value)
--
-- The plan is what one program takes; a process holds more. From a memory profile
-- (jax.profiler.save_device_memory_profile, bufdb.watch, bufdb capture --watch) come the arrays
-- that are alive, by the line of Python that made them. Those that the program does not take are
-- bystanders: they are held while it runs, in addition to what it needs. For each profile and
-- device the parts of this account: what the plan needs (argument, output, temp, constant),
-- bystanders by line, and what the allocator holds beyond, where the device has statistics.
--
-- The program is the one that failed, else the one with the largest need among the programs that
-- the process has loaded, else in the dumps of its run; function and module choose another, and
-- nothing is shown if no program matches. The need is that of the dumps where they agree with the
-- loaded program; it is not known for a program of the dumps that is not loaded, nor in a run with
-- dumps of several processes if it is not known which of them the profile is of. bufdb.watch knows
-- arguments by identity at the call. Without it, or for another program, bystanders are a range: at
-- the least what is alive beyond the bytes of the arguments, at the most all of it.
--
-- wrong when: the profile is of another moment than the call: arrays made or freed between the two
-- are wrongly counted. A program that another thread runs at the same time is in the rest. What
-- other processes hold on the device is in no figure.
--
-- Of the profiles of a process the one is shown that was taken when it failed or ended, else its
-- last snapshot, as of a process that was killed; profile shows others.
--
-- param run, function, platform, color, module
-- param profile VARCHAR = NULL: Only memory profiles whose name matches this glob, snapshots
--   included.
-- param top_n BIGINT = 10: Lines to show of each device, the others as one row.
--
-- column run_name
-- column profile_name VARCHAR: The memory profile.
-- column moment VARCHAR: failure, end or snapshot; NULL if the program wrote the profile itself.
-- column elapsed_seconds DOUBLE: When it was taken, since the process began to be watched [s]; NULL
--   if not known.
-- column mark VARCHAR: Text that the program gave the snapshot; NULL if it gave none.
-- column device VARCHAR: The device; NULL if nothing is alive on any.
-- column function_name VARCHAR: The program; NULL if there is none.
-- column plan_bytes BIGINT: What the program needs [bytes]; NULL if not known, or not of this
--   process.
-- column alive_bytes BIGINT: Arrays that are alive when the profile was taken [bytes].
-- column low_bystander_bytes BIGINT: The least that are bystanders [bytes]; NULL without a program.
-- column bystander_bytes BIGINT: The most that are bystanders [bytes].
-- column process_bytes BIGINT: The most that is held while the program runs: plan and bystanders
--   [bytes]; NULL without a program.
-- column process_ratio DOUBLE: process_bytes divided by plan_bytes.
-- column limit_bytes BIGINT: Memory of the device as bufdb.watch was given it, else the most that
--   its allocator may take [bytes]; NULL if neither is known.
-- column part VARCHAR: Of the plan argument, output (in memory of its own), temp, constant (and
--   all else); bystander; code of the loaded programs (no row if its size is not known); rest: in
--   use beyond arrays and code, at the most all beyond arrays if the size of the code is not known;
--   free; split: free, but not in the largest free block.
-- column low_bytes BIGINT: The least that the part holds [bytes]; NULL if not known.
-- column held_bytes BIGINT: The most that the part holds [bytes]; NULL if not known.
-- column array_count BIGINT: Number of alive arrays in the part; NULL for others.
-- column python_function_name VARCHAR: Function whose line made bystanders; NULL for other parts.
-- column source VARCHAR: That line as file:line, "library file:line" where all is library code,
--   (no stack) where JAX has none, (N more) for the other lines; NULL for other parts.
-- column arguments_unknown_reason VARCHAR: Why it is not known which arrays are arguments, or what
--   the program of this process needs; NULL if it is known.
WITH params AS (
  SELECT
    getvariable('function')::VARCHAR AS function,
    getvariable('module')::VARCHAR AS module,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('profile')::VARCHAR AS profile,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
profiles AS (
  SELECT
    live_profiles.run_name, live_profiles.profile_name, live_profiles.failed_program_name,
    live_profiles.limit_bytes, live_profiles.code_bytes, live_profiles.arguments_unknown_reason,
    live_profiles.moment, live_profiles.elapsed_seconds, live_profiles.mark
  FROM live_profiles
  JOIN live_moments
    ON live_moments.run_name = live_profiles.run_name
    AND live_moments.profile_name = live_profiles.profile_name
  CROSS JOIN params
  JOIN asked_runs ON asked_runs.run_name = live_profiles.run_name
  WHERE if(
    params.profile IS NULL, live_moments.is_account,
    live_profiles.profile_name GLOB params.profile
  )
),
-- Programs of the dumps that may be of the process of a profile: of its folder, if that has any.
candidates AS (
  SELECT
    profiles.run_name, profiles.profile_name, profiles.failed_program_name,
    asked_modules.function_name, asked_modules.module_name, asked_modules.module_key,
    asked_modules.argument_bytes, asked_modules.output_bytes, asked_modules.alias_bytes,
    asked_modules.temp_bytes, asked_modules.need_bytes,
    regexp_extract(asked_modules.module_key, '^(.*/)') AS folder,
    regexp_extract(profiles.profile_name, '^(.*/)') AS profile_folder
  FROM profiles
  JOIN asked_modules ON asked_modules.run_name = profiles.run_name
  WHERE asked_modules.need_bytes IS NOT NULL
  QUALIFY starts_with(folder, profile_folder)
    OR NOT bool_or(starts_with(folder, profile_folder)) OVER (
      PARTITION BY profiles.run_name, profiles.profile_name
    )
),
dumped AS (
  SELECT
    candidates.run_name, candidates.profile_name, candidates.failed_program_name,
    candidates.function_name, candidates.module_name, candidates.module_key,
    candidates.argument_bytes, candidates.output_bytes, candidates.alias_bytes,
    candidates.temp_bytes, candidates.need_bytes,
    CASE
      WHEN loaded.program_count > 0 AND loaded.agreeing_count = 0
        THEN 'no program loaded in this process has the need of the dump of '
          || coalesce(candidates.function_name, candidates.module_key)
      WHEN loaded.program_count = 0
        AND min(candidates.folder) OVER profile <> max(candidates.folder) OVER profile
        THEN 'the run has programs of several processes, and which the profile is of is not known'
    END AS unknown_reason
  FROM candidates
  CROSS JOIN LATERAL (
    SELECT
      count(*) AS program_count,
      count(*) FILTER (
        WHERE live_programs.program_name = candidates.module_name
          AND coalesce(live_programs.argument_bytes = candidates.argument_bytes, TRUE)
          AND coalesce(live_programs.output_bytes = candidates.output_bytes, TRUE)
          AND coalesce(live_programs.alias_bytes = candidates.alias_bytes, TRUE)
          AND coalesce(live_programs.temp_bytes = candidates.temp_bytes, TRUE)
      ) AS agreeing_count
    FROM live_programs
    WHERE live_programs.run_name = candidates.run_name
      AND live_programs.profile_name = candidates.profile_name
  ) AS loaded
  WINDOW profile AS (PARTITION BY candidates.run_name, candidates.profile_name)
),
programs AS (
  SELECT
    dumped.run_name, dumped.profile_name,
    coalesce(dumped.function_name, dumped.module_key) AS function_name,
    if(dumped.unknown_reason IS NULL, dumped.argument_bytes, NULL) AS argument_bytes,
    if(dumped.unknown_reason IS NULL, dumped.output_bytes - dumped.alias_bytes, NULL)
      AS output_bytes,
    if(dumped.unknown_reason IS NULL, dumped.temp_bytes, NULL) AS temp_bytes,
    if(dumped.unknown_reason IS NULL, dumped.need_bytes, NULL) AS plan_bytes,
    coalesce(dumped.module_name = dumped.failed_program_name, FALSE) AS is_failed,
    1 AS place,
    dumped.module_key AS name, dumped.unknown_reason
  FROM dumped
  UNION ALL
  SELECT
    live_programs.run_name, live_programs.profile_name,
    regexp_replace(live_programs.program_name, '^p?jit_(.)', '\1') AS function_name,
    live_programs.argument_bytes,
    live_programs.output_bytes - live_programs.alias_bytes AS output_bytes,
    live_programs.temp_bytes,
    live_programs.argument_bytes + live_programs.output_bytes - live_programs.alias_bytes
      + live_programs.temp_bytes AS plan_bytes,
    live_programs.is_failed,
    -- Of the program that failed the process itself knows the plan; else dumps come first.
    if(live_programs.is_failed, 0, 2) AS place,
    live_programs.program_ordinal::VARCHAR AS name,
    NULL AS unknown_reason
  FROM live_programs
  CROSS JOIN params
  JOIN profiles
    ON profiles.run_name = live_programs.run_name
    AND profiles.profile_name = live_programs.profile_name
  WHERE coalesce(params.module, '*') = '*'
    AND coalesce(params.platform, '*') = '*'
    AND (
      params.function IS NULL
      OR regexp_replace(live_programs.program_name, '^p?jit_(.)', '\1') GLOB params.function
    )
),
plans AS (
  SELECT
    programs.run_name, programs.profile_name, programs.function_name, programs.argument_bytes,
    programs.output_bytes, programs.temp_bytes, programs.plan_bytes, programs.is_failed,
    programs.unknown_reason
  FROM programs
  QUALIFY row_number() OVER (
    PARTITION BY programs.run_name, programs.profile_name
    ORDER BY
      programs.is_failed DESC, if(programs.plan_bytes IS NULL, 1, 0),
      if(programs.place = 0, 0, 1), programs.plan_bytes DESC, programs.place,
      programs.function_name, programs.name
  ) = 1
),
statistics AS (
  SELECT
    allocator_statistics.run_name, allocator_statistics.profile_name, allocator_statistics.device,
    max(allocator_statistics.statistic_value) FILTER (
      WHERE allocator_statistics.statistic_name = 'bytes_in_use'
    ) AS used_bytes,
    max(allocator_statistics.statistic_value) FILTER (
      WHERE allocator_statistics.statistic_name = 'bytes_limit'
    ) AS limit_bytes,
    max(allocator_statistics.statistic_value) FILTER (
      WHERE allocator_statistics.statistic_name = 'free_chunk_bytes'
    ) AS free_chunk_bytes,
    max(allocator_statistics.statistic_value) FILTER (
      WHERE allocator_statistics.statistic_name = 'largest_free_block_bytes'
    ) AS largest_free_bytes
  FROM allocator_statistics
  -- Memory for collectives is no device of its own.
  WHERE NOT starts_with(allocator_statistics.device, 'GPU_collectivememory_')
  GROUP BY
    allocator_statistics.run_name, allocator_statistics.profile_name, allocator_statistics.device
),
alive AS (
  SELECT
    live_arrays.run_name, live_arrays.profile_name, live_arrays.device,
    sum(live_arrays.total_bytes)::BIGINT AS alive_bytes,
    sum(live_arrays.argument_bytes)::BIGINT AS argument_bytes,
    sum(live_arrays.argument_count)::BIGINT AS argument_count
  FROM live_arrays
  GROUP BY live_arrays.run_name, live_arrays.profile_name, live_arrays.device
),
devices AS (
  SELECT alive.run_name, alive.profile_name, alive.device
  FROM alive
  UNION
  SELECT statistics.run_name, statistics.profile_name, statistics.device
  FROM statistics
),
accounts AS (
  SELECT
    profiles.run_name, profiles.profile_name, profiles.moment, profiles.elapsed_seconds,
    profiles.mark, devices.device, plans.function_name,
    plans.plan_bytes, plans.argument_bytes, plans.output_bytes, plans.temp_bytes,
    coalesce(alive.alive_bytes, 0) AS alive_bytes,
    profiles.code_bytes, statistics.used_bytes, statistics.limit_bytes,
    coalesce(profiles.limit_bytes, statistics.limit_bytes) AS device_limit_bytes,
    statistics.free_chunk_bytes, statistics.largest_free_bytes,
    coalesce(plans.is_failed, FALSE) AND profiles.arguments_unknown_reason IS NULL AS is_known,
    coalesce(alive.argument_bytes, 0) AS known_bytes,
    coalesce(alive.argument_count, 0) AS known_count,
    CASE
      WHEN plans.unknown_reason IS NOT NULL THEN plans.unknown_reason
      WHEN profiles.arguments_unknown_reason IS NOT NULL THEN profiles.arguments_unknown_reason
      WHEN plans.function_name IS NULL THEN 'the run has no program with a known need'
      WHEN NOT plans.is_failed THEN 'arguments are known of the program that failed alone'
    END AS arguments_unknown_reason
  FROM profiles
  LEFT JOIN devices
    ON devices.run_name = profiles.run_name
    AND devices.profile_name = profiles.profile_name
  LEFT JOIN alive
    ON alive.run_name = devices.run_name
    AND alive.profile_name = devices.profile_name
    AND alive.device = devices.device
  LEFT JOIN statistics
    ON statistics.run_name = devices.run_name
    AND statistics.profile_name = devices.profile_name
    AND statistics.device = devices.device
  LEFT JOIN plans
    ON plans.run_name = profiles.run_name
    AND plans.profile_name = profiles.profile_name
  CROSS JOIN params
  WHERE plans.run_name IS NOT NULL
    OR (
      coalesce(params.function, '*') = '*'
      AND coalesce(params.module, '*') = '*'
      AND coalesce(params.platform, '*') = '*'
    )
),
totals AS (
  SELECT
    accounts.run_name, accounts.profile_name, accounts.moment, accounts.elapsed_seconds,
    accounts.mark, accounts.device, accounts.function_name,
    accounts.plan_bytes, accounts.argument_bytes, accounts.output_bytes, accounts.temp_bytes,
    accounts.alive_bytes, accounts.code_bytes, accounts.used_bytes, accounts.limit_bytes,
    accounts.device_limit_bytes,
    accounts.free_chunk_bytes, accounts.largest_free_bytes, accounts.is_known,
    accounts.known_bytes, accounts.known_count, accounts.arguments_unknown_reason,
    CASE
      WHEN accounts.is_known THEN accounts.alive_bytes - accounts.known_bytes
      WHEN accounts.argument_bytes IS NOT NULL
        THEN greatest(0, accounts.alive_bytes - accounts.argument_bytes)
    END AS low_bystander_bytes,
    accounts.alive_bytes - if(accounts.is_known, accounts.known_bytes, 0) AS bystander_bytes
  FROM accounts
),
lines AS (
  SELECT
    totals.run_name, totals.profile_name, totals.device, live_lines.source,
    live_lines.python_function_name,
    live_lines.total_bytes - if(totals.is_known, live_lines.argument_bytes, 0) AS held_bytes,
    live_lines.array_count - if(totals.is_known, live_lines.argument_count, 0) AS array_count,
    totals.is_known, totals.argument_bytes
  FROM totals
  JOIN live_lines
    ON live_lines.run_name = totals.run_name
    AND live_lines.profile_name = totals.profile_name
    AND live_lines.device = totals.device
),
ranked AS (
  SELECT
    lines.run_name, lines.profile_name, lines.device, lines.source, lines.python_function_name,
    lines.held_bytes, lines.array_count, lines.is_known, lines.argument_bytes,
    row_number() OVER (
      PARTITION BY lines.run_name, lines.profile_name, lines.device
      ORDER BY lines.held_bytes DESC, lines.source, lines.python_function_name
    ) AS place
  FROM lines
  WHERE lines.array_count > 0
),
shown AS (
  SELECT
    ranked.run_name, ranked.profile_name, ranked.device,
    least(ranked.place, params.top_n + 1) AS place,
    if(ranked.place <= params.top_n, ranked.source, NULL) AS source,
    if(ranked.place <= params.top_n, ranked.python_function_name, NULL) AS python_function_name,
    ranked.held_bytes, ranked.array_count, ranked.is_known, ranked.argument_bytes
  FROM ranked
  CROSS JOIN params
),
bystanders AS (
  SELECT
    shown.run_name, shown.profile_name, shown.device, shown.place,
    coalesce(shown.source, '(' || count(*) || ' more)') AS source,
    shown.python_function_name,
    sum(shown.held_bytes)::BIGINT AS held_bytes,
    sum(shown.array_count)::BIGINT AS array_count,
    CASE
      WHEN bool_and(shown.is_known) THEN sum(shown.held_bytes)
      WHEN any_value(shown.argument_bytes) IS NOT NULL
        THEN greatest(0, sum(shown.held_bytes) - any_value(shown.argument_bytes))
    END::BIGINT AS low_bytes
  FROM shown
  GROUP BY
    shown.run_name, shown.profile_name, shown.device, shown.place, shown.source,
    shown.python_function_name
),
single_parts AS (
  SELECT
    totals.run_name, totals.profile_name, totals.device,
    unnest(['argument', 'output', 'temp', 'constant', 'code', 'rest', 'free', 'split']) AS part,
    unnest([1, 2, 3, 4, 6, 7, 8, 9]) AS part_place,
    unnest([
      totals.argument_bytes, totals.output_bytes, totals.temp_bytes,
      totals.plan_bytes - totals.argument_bytes - totals.output_bytes - totals.temp_bytes,
      nullif(totals.code_bytes, 0),
      totals.used_bytes - totals.alive_bytes - coalesce(totals.code_bytes, 0),
      totals.limit_bytes - totals.used_bytes,
      totals.free_chunk_bytes - totals.largest_free_bytes
    ]) AS held_bytes,
    unnest([
      if(totals.is_known, totals.known_count, NULL), NULL, NULL, NULL, NULL, NULL, NULL, NULL
    ]) AS array_count,
    totals.code_bytes
  FROM totals
),
parts AS (
  SELECT
    single_parts.run_name, single_parts.profile_name, single_parts.device, single_parts.part,
    single_parts.part_place, 0 AS place,
    if(single_parts.part = 'rest' AND single_parts.code_bytes IS NULL, 0, single_parts.held_bytes)
      AS low_bytes,
    single_parts.held_bytes, single_parts.array_count, NULL AS python_function_name,
    NULL AS source
  FROM single_parts
  WHERE single_parts.held_bytes IS NOT NULL
    AND (single_parts.held_bytes > 0 OR single_parts.part_place < 4)
  UNION ALL
  SELECT
    bystanders.run_name, bystanders.profile_name, bystanders.device, 'bystander' AS part,
    5 AS part_place, bystanders.place, bystanders.low_bytes, bystanders.held_bytes,
    bystanders.array_count, bystanders.python_function_name, bystanders.source
  FROM bystanders
)
SELECT
  totals.run_name, totals.profile_name, totals.moment, totals.elapsed_seconds, totals.mark,
  totals.device, totals.function_name,
  totals.plan_bytes::BIGINT AS plan_bytes,
  totals.alive_bytes,
  totals.low_bystander_bytes::BIGINT AS low_bystander_bytes,
  totals.bystander_bytes::BIGINT AS bystander_bytes,
  (totals.plan_bytes + totals.bystander_bytes)::BIGINT AS process_bytes,
  (totals.plan_bytes + totals.bystander_bytes)::DOUBLE / nullif(totals.plan_bytes, 0)
    AS process_ratio,
  totals.device_limit_bytes AS limit_bytes, parts.part,
  parts.low_bytes::BIGINT AS low_bytes,
  parts.held_bytes::BIGINT AS held_bytes,
  parts.array_count::BIGINT AS array_count,
  parts.python_function_name, parts.source, totals.arguments_unknown_reason
FROM totals
LEFT JOIN parts
  ON parts.run_name = totals.run_name
  AND parts.profile_name = totals.profile_name
  AND parts.device IS NOT DISTINCT FROM totals.device
ORDER BY
  totals.run_name, totals.profile_name, totals.device, parts.part_place, parts.place;
