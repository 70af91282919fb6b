-- title: Device memory of a process next to what a program needs
-- group: peak
-- engines: duckdb, spark, sail
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
-- last snapshot, as of a process that was killed; profile shows lines.
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
-- column plan_bytes HUGEINT: What the program needs [bytes]; NULL if not known, or not of this
--   process.
-- column alive_bytes BIGINT: Arrays that are alive when the profile was taken [bytes].
-- column low_bystander_bytes HUGEINT: The least that are bystanders [bytes]; NULL without a
--   program.
-- column bystander_bytes BIGINT: The most that are bystanders [bytes].
-- column process_bytes HUGEINT: The most that is held while the program runs: plan and bystanders
--   [bytes]; NULL without a program.
-- column process_ratio DOUBLE: process_bytes divided by plan_bytes.
-- column limit_bytes BIGINT: Memory of the device as bufdb.watch was given it, else the most that
--   its allocator may take [bytes]; NULL if neither is known.
-- column part VARCHAR: Of the plan argument, output (in memory of its own), temp, constant (and
--   all else); bystander; code of the loaded programs (no row if its size is not known); rest: in
--   use beyond arrays and code, at the most all beyond arrays if the size of the code is not known;
--   free, of the allocator's own limit; split: free, but not in the largest free block.
-- column low_bytes HUGEINT: The least that the part holds [bytes]; NULL if not known.
-- column held_bytes HUGEINT: The most that the part holds [bytes]; NULL if not known.
-- column array_count BIGINT: Number of alive arrays in the part; NULL for lines.
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
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
profiles AS (
  SELECT
    live_profiles.run_name, live_profiles.profile_name, live_profiles.failed_program_name,
    live_profiles.limit_bytes, live_profiles.code_bytes, live_profiles.arguments_unknown_reason,
    live_profiles.moment, live_profiles.elapsed_seconds, live_profiles.mark,
    regexp_extract(live_profiles.profile_name, '^(.*/)') AS folder,
    length(regexp_extract(live_profiles.profile_name, '^(.*/)')) AS folder_length
  FROM live_profiles
  JOIN asked_accounts
    ON asked_accounts.run_name = live_profiles.run_name
    AND asked_accounts.profile_name = live_profiles.profile_name
),
compiled AS (
  SELECT
    asked_modules.run_name, asked_modules.function_name, asked_modules.module_name,
    asked_modules.module_key, asked_modules.color, asked_modules.argument_bytes,
    asked_modules.output_bytes, asked_modules.alias_bytes, asked_modules.temp_bytes,
    asked_modules.need_bytes, regexp_extract(asked_modules.module_key, '^(.*/)') AS folder
  FROM asked_modules
  WHERE asked_modules.need_bytes IS NOT NULL
),
-- Folders of dumps, with as much of their beginning as a folder of a profile is long.
folders AS (
  SELECT DISTINCT
    compiled.run_name, compiled.folder, lengths.folder_length,
    substr(compiled.folder, 1, lengths.folder_length) AS beginning
  FROM compiled
  JOIN (SELECT DISTINCT profiles.run_name, profiles.folder_length FROM profiles) AS lengths
    ON lengths.run_name = compiled.run_name
),
-- Programs of the dumps that may be of the process of a profile: those in or below its folder.
below AS (
  SELECT
    profiles.run_name, profiles.profile_name, profiles.failed_program_name,
    compiled.function_name, compiled.module_name, compiled.module_key, compiled.color,
    compiled.argument_bytes, compiled.output_bytes, compiled.alias_bytes, compiled.temp_bytes,
    compiled.need_bytes, compiled.folder
  FROM profiles
  JOIN folders
    ON folders.run_name = profiles.run_name
    AND folders.folder_length = profiles.folder_length
    AND folders.beginning = profiles.folder
  JOIN compiled
    ON compiled.run_name = folders.run_name
    AND compiled.folder = folders.folder
),
-- Materialized, or else each profile is joined with each program of its run before.
apart AS MATERIALIZED (
  SELECT profiles.run_name, profiles.profile_name, profiles.failed_program_name
  FROM profiles
  WHERE NOT EXISTS (
    SELECT 1
    FROM below
    WHERE below.run_name = profiles.run_name
      AND below.profile_name = profiles.profile_name
  )
),
-- If its folder has none, all of the run.
near AS (
  SELECT
    below.run_name, below.profile_name, below.failed_program_name, below.function_name,
    below.module_name, below.module_key, below.color, below.argument_bytes, below.output_bytes,
    below.alias_bytes, below.temp_bytes, below.need_bytes, below.folder
  FROM below
  UNION ALL
  SELECT
    apart.run_name, apart.profile_name, apart.failed_program_name,
    compiled.function_name, compiled.module_name, compiled.module_key, compiled.color,
    compiled.argument_bytes, compiled.output_bytes, compiled.alias_bytes, compiled.temp_bytes,
    compiled.need_bytes, compiled.folder
  FROM apart
  JOIN compiled ON compiled.run_name = apart.run_name
),
loaded AS (
  SELECT
    near.run_name, near.profile_name, near.module_key, near.color,
    count(live_programs.run_name) AS program_count,
    count(*) FILTER (
      WHERE live_programs.program_name = near.module_name
        AND coalesce(live_programs.argument_bytes = near.argument_bytes, TRUE)
        AND coalesce(live_programs.output_bytes = near.output_bytes, TRUE)
        AND coalesce(live_programs.alias_bytes = near.alias_bytes, TRUE)
        AND coalesce(live_programs.temp_bytes = near.temp_bytes, TRUE)
    ) AS agreeing_count
  FROM near
  LEFT JOIN live_programs
    ON live_programs.run_name = near.run_name
    AND live_programs.profile_name = near.profile_name
  GROUP BY near.run_name, near.profile_name, near.module_key, near.color
),
dumped AS (
  SELECT
    near.run_name, near.profile_name, near.failed_program_name, near.function_name,
    near.module_name, near.module_key, near.argument_bytes, near.output_bytes, near.alias_bytes,
    near.temp_bytes, near.need_bytes,
    CASE
      WHEN loaded.program_count > 0 AND loaded.agreeing_count = 0
        THEN 'no program loaded in this process has the need of the dump of '
          || coalesce(near.function_name, near.module_key)
      WHEN loaded.program_count = 0
        AND min(near.folder) OVER profile <> max(near.folder) OVER profile
        THEN 'the run has programs of several processes, and which the profile is of is not known'
    END AS unknown_reason
  FROM near
  JOIN loaded
    ON loaded.run_name = near.run_name
    AND loaded.profile_name = near.profile_name
    AND loaded.module_key = near.module_key
    AND loaded.color = near.color
  WINDOW profile AS (PARTITION BY near.run_name, near.profile_name)
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
    python_name(live_programs.program_name) AS function_name,
    live_programs.argument_bytes,
    live_programs.output_bytes - live_programs.alias_bytes AS output_bytes,
    live_programs.temp_bytes,
    live_programs.argument_bytes + live_programs.output_bytes - live_programs.alias_bytes
      + live_programs.temp_bytes AS plan_bytes,
    live_programs.is_failed,
    -- Of the program that failed the process itself knows the plan; else dumps come first.
    if(live_programs.is_failed, 0, 2) AS place,
    CAST(live_programs.program_ordinal AS VARCHAR) AS name,
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
      OR python_name(live_programs.program_name) GLOB params.function
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
accounts AS (
  SELECT
    profiles.run_name, profiles.profile_name, profiles.moment, profiles.elapsed_seconds,
    profiles.mark, pools.device, plans.function_name,
    plans.plan_bytes, plans.argument_bytes, plans.output_bytes, plans.temp_bytes,
    coalesce(pools.alive_bytes, 0) AS alive_bytes,
    profiles.code_bytes,
    coalesce(pools.limit_bytes, profiles.limit_bytes) AS limit_bytes,
    pools.rest_bytes, pools.low_split_bytes, pools.split_bytes,
    -- Without the allocator's own word used_bytes has arrays and code alone.
    CASE
      WHEN pools.rest_bytes IS NOT NULL
        THEN pools.used_bytes - pools.alive_bytes - coalesce(profiles.code_bytes, 0)
    END AS high_rest_bytes,
    -- Of the allocator's own limit, whatever bufdb.watch was given.
    CASE
      WHEN allocator_figures.used_bytes <= allocator_figures.limit_bytes
        THEN allocator_figures.limit_bytes - allocator_figures.used_bytes
      WHEN allocator_figures.used_bytes > allocator_figures.limit_bytes THEN 0
    END AS low_free_bytes,
    allocator_figures.limit_bytes - allocator_figures.low_used_bytes AS free_bytes,
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
  LEFT JOIN pools
    ON pools.run_name = profiles.run_name
    AND pools.profile_name = profiles.profile_name
  LEFT JOIN live_sums AS alive
    ON alive.run_name = pools.run_name
    AND alive.profile_name = pools.profile_name
    AND alive.device = pools.device
  LEFT JOIN allocator_figures
    ON allocator_figures.run_name = pools.run_name
    AND allocator_figures.profile_name = pools.profile_name
    AND allocator_figures.device = pools.device
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
    accounts.alive_bytes, accounts.code_bytes, accounts.limit_bytes, accounts.rest_bytes,
    accounts.high_rest_bytes, accounts.low_free_bytes, accounts.free_bytes,
    accounts.low_split_bytes, accounts.split_bytes, accounts.is_known,
    accounts.known_bytes, accounts.known_count, accounts.arguments_unknown_reason,
    CASE
      WHEN accounts.is_known THEN accounts.alive_bytes - accounts.known_bytes
      WHEN accounts.argument_bytes IS NOT NULL
        THEN greatest(0, accounts.alive_bytes - accounts.argument_bytes)
    END AS low_bystander_bytes,
    accounts.alive_bytes - if(accounts.is_known, accounts.known_bytes, 0) AS bystander_bytes
  FROM accounts
),
alive_lines AS (
  SELECT
    profiles.run_name, profiles.profile_name, live_array_lines.device, live_array_lines.source,
    live_array_lines.python_function_name,
    CAST(sum(live_array_lines.total_bytes) AS BIGINT) AS total_bytes,
    CAST(sum(live_array_lines.array_count) AS BIGINT) AS array_count,
    CAST(sum(live_array_lines.argument_bytes) AS BIGINT) AS argument_bytes,
    CAST(sum(live_array_lines.argument_count) AS BIGINT) AS argument_count
  FROM profiles
  JOIN live_array_lines
    ON live_array_lines.run_name = profiles.run_name
    AND live_array_lines.profile_name = profiles.profile_name
  GROUP BY
    profiles.run_name, profiles.profile_name, live_array_lines.device, live_array_lines.source,
    live_array_lines.python_function_name
),
lines AS (
  SELECT
    totals.run_name, totals.profile_name, totals.device, alive_lines.source,
    alive_lines.python_function_name,
    alive_lines.total_bytes - if(totals.is_known, alive_lines.argument_bytes, 0) AS held_bytes,
    alive_lines.array_count - if(totals.is_known, alive_lines.argument_count, 0) AS array_count,
    totals.is_known, totals.argument_bytes
  FROM totals
  JOIN alive_lines
    ON alive_lines.run_name = totals.run_name
    AND alive_lines.profile_name = totals.profile_name
    AND alive_lines.device = totals.device
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
    CAST(sum(shown.held_bytes) AS BIGINT) AS held_bytes,
    CAST(sum(shown.array_count) AS BIGINT) AS array_count,
    CASE
      WHEN min(CASE WHEN shown.is_known THEN 1 ELSE 0 END) = 1
        THEN CAST(sum(shown.held_bytes) AS BIGINT)
      WHEN max(shown.argument_bytes) IS NOT NULL
        THEN greatest(0, CAST(sum(shown.held_bytes) AS BIGINT) - max(shown.argument_bytes))
    END AS low_bytes
  FROM shown
  GROUP BY
    shown.run_name, shown.profile_name, shown.device, shown.place, shown.source,
    shown.python_function_name
),
single_parts AS (
  SELECT
    totals.run_name, totals.profile_name, totals.device, names.part, names.part_place,
    CASE names.part
      WHEN 'argument' THEN totals.argument_bytes
      WHEN 'output' THEN totals.output_bytes
      WHEN 'temp' THEN totals.temp_bytes
      WHEN 'constant'
        THEN totals.plan_bytes - totals.argument_bytes - totals.output_bytes - totals.temp_bytes
      WHEN 'code' THEN nullif(totals.code_bytes, 0)
      WHEN 'rest' THEN totals.high_rest_bytes
      WHEN 'free' THEN totals.free_bytes
      WHEN 'split' THEN totals.split_bytes
    END AS held_bytes,
    CASE WHEN names.part = 'argument' AND totals.is_known THEN totals.known_count END
      AS array_count,
    -- Of what a log rounds, and of code whose size is not known, the least.
    CASE names.part
      WHEN 'free' THEN totals.low_free_bytes
      WHEN 'split' THEN coalesce(totals.low_split_bytes, 0)
      WHEN 'rest' THEN CASE WHEN totals.code_bytes IS NOT NULL THEN totals.rest_bytes ELSE 0 END
    END AS low_bytes
  FROM totals
  CROSS JOIN (
    VALUES
      ('argument', 1), ('output', 2), ('temp', 3), ('constant', 4), ('code', 6), ('rest', 7),
      ('free', 8), ('split', 9)
  ) AS names(part, part_place)
),
parts AS (
  SELECT
    single_parts.run_name, single_parts.profile_name, single_parts.device, single_parts.part,
    single_parts.part_place, 0 AS place,
    coalesce(single_parts.low_bytes, single_parts.held_bytes) AS low_bytes,
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
  totals.plan_bytes, totals.alive_bytes, totals.low_bystander_bytes, totals.bystander_bytes,
  totals.plan_bytes + totals.bystander_bytes AS process_bytes,
  CAST(totals.plan_bytes + totals.bystander_bytes AS DOUBLE) / nullif(totals.plan_bytes, 0)
    AS process_ratio,
  totals.limit_bytes, parts.part, parts.low_bytes, parts.held_bytes, parts.array_count,
  parts.python_function_name, parts.source, totals.arguments_unknown_reason
FROM totals
LEFT JOIN parts
  ON parts.run_name = totals.run_name
  AND parts.profile_name = totals.profile_name
  AND parts.device IS NOT DISTINCT FROM totals.device
ORDER BY
  totals.run_name, totals.profile_name, totals.device, parts.part_place, parts.place;
