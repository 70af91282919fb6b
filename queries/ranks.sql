-- title: Spread of what the ranks of a job need and hold, odd ones first
-- group: change
-- engines: duckdb, spark, sail
--
-- In a job of many processes the fullest device sets the limit, and a rank that differs is the one
-- to look at. Ranks are the processes of a run, that is the folders of what was ingested (bufdb
-- capture makes one for each process; or one folder that has those of all hosts), or runs with a
-- label (--label rank=0, --label rank=1, …) and otherwise equal labels.
-- For each figure one row per rank that is odd, or else for the one that differs most, with the
-- spread of the figure over all ranks: what plans need (need, peak: of each function, from dumps;
-- program: of the largest loaded program), the arrays that are alive on the fullest device (alive:
-- in the account of the process; most_alive: over its snapshots; grown: from the first to the
-- last), and of the allocator what is in use (used, most_used), its pool, and its largest free
-- block (block, of the device where it is smallest).
-- A rank is odd if it differs from the median by more than odd_ratio, and by more than five times
-- the median difference. If the peak in a rank is unknown, so is the spread, and the figure comes
-- first; then figures with odd or missing ranks; then the largest spread.
--
-- wrong when: Compilations of a function are paired by size in each rank: one that a rank has in
-- addition moves those after it (signature_count, missing_count). Ranks of a pipeline differ by
-- stage. Profiles that a program wrote itself count as one process each, under their names; next to
-- several processes, dumps in a folder of none of them do, too. A label
-- that differs in each run for another reason (a host's name along with its rank) leaves no two
-- runs to compare: name the labels that matter in fixed.
--
-- param run, function, platform, color, module
-- param label VARCHAR = 'rank': Label that differs between the ranks.
-- param fixed VARCHAR = NULL: Labels, separated by commas, that must be equal within a row; NULL
--   takes all others except metadata.
-- param figure VARCHAR = NULL: Only figures whose name matches this glob.
-- param odd_ratio DOUBLE = 0.02: Share of the median by which an odd rank differs at the least.
-- param rank_n BIGINT = 3: Ranks to show of each figure, the most different ones.
-- param top_n = 50
--
-- column figure VARCHAR: need, peak, program, alive, most_alive, grown, used, most_used, pool or
--   block.
-- column function_name VARCHAR: Function of need and peak; NULL for other figures.
-- column platform VARCHAR: Its backend; NULL for other figures, and if unknown.
-- column compilation_place BIGINT: Number of the compilation of the function in each rank, largest
--   first; NULL for other figures.
-- column color BIGINT: Memory space; NULL for other figures, and for compilations without
--   allocations.
-- column run_name VARCHAR: The run whose processes are the ranks; NULL if each is a run of its own.
-- column other_labels VARCHAR: Labels that such runs have in common, as K=V separated by spaces;
--   metadata (bufdb capture's labels) only if fixed names it. Empty for ranks within one run.
-- column rank_count BIGINT: Ranks that have the figure.
-- column missing_count BIGINT: Ranks of the job that do not have it.
-- column signature_count BIGINT: Different shapes of arguments and result among them; NULL if none
--   is known, and for figures without a function.
-- column min_bytes HUGEINT: Smallest of the ranks [bytes]; NULL if one is unknown.
-- column median_bytes HUGEINT: Median, the lower one of two [bytes]; NULL where min_bytes is.
-- column max_bytes HUGEINT: Largest [bytes]; NULL where min_bytes is.
-- column spread_bytes HUGEINT: max_bytes less min_bytes [bytes]; NULL where min_bytes is.
-- column spread_ratio DOUBLE: The same as a share of the largest (0 to 1); NULL where min_bytes is,
--   or the largest is not above 0.
-- column fullest_rank VARCHAR: Rank with max_bytes, for ties the first by name; NULL where
--   min_bytes is.
-- column emptiest_rank VARCHAR: Rank with min_bytes; NULL where min_bytes is.
-- column odd_count BIGINT: Ranks that are odd; NULL where min_bytes is.
-- column rank VARCHAR: The rank of this row: the label's value, the folder of the process, or both.
-- column own_bytes HUGEINT: Its figure [bytes]; NULL if unknown.
-- column difference_bytes HUGEINT: own_bytes less the median [bytes]; NULL where min_bytes is.
-- column is_odd BOOLEAN: Whether it is odd; NULL where min_bytes is.
-- column unknown_count BIGINT: Ranks in which the peak of the function is unknown.
-- column unknown_reason VARCHAR: Why; for several, the first reason in alphabetical order; NULL if
--   all are known.
WITH params AS (
  SELECT
    coalesce(getvariable('label')::VARCHAR, 'rank') AS label,
    getvariable('fixed')::VARCHAR AS fixed,
    getvariable('function')::VARCHAR AS function,
    getvariable('module')::VARCHAR AS module,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::VARCHAR AS color,
    getvariable('figure')::VARCHAR AS figure,
    coalesce(getvariable('odd_ratio')::DOUBLE, 0.02) AS odd_ratio,
    coalesce(getvariable('rank_n')::BIGINT, 3) AS rank_n,
    coalesce(getvariable('top_n')::BIGINT, 50) AS top_n
),
labelled AS (
  SELECT run_groups.run_name, run_groups.label_value, run_groups.other_labels
  FROM runs_by_label(
    (SELECT params.label FROM params), (SELECT params.fixed FROM params)
  ) AS run_groups
),
-- Runs of one job have the same job_name and other_labels.
jobs AS (
  SELECT
    asked_runs.run_name, labelled.label_value,
    coalesce(labelled.other_labels, '') AS other_labels,
    CASE WHEN labelled.run_name IS NULL THEN asked_runs.run_name ELSE '' END AS job_name
  FROM asked_runs
  LEFT JOIN labelled ON labelled.run_name = asked_runs.run_name
),
compiled AS (
  SELECT
    asked_modules.run_name, regexp_extract(asked_modules.module_key, '^(.*)/', 1) AS folder,
    '//' || regexp_extract(asked_modules.module_key, '^(.*/)') AS path,
    module_signatures.pairing_name, module_signatures.entry_signature, asked_modules.platform,
    asked_modules.color, asked_modules.module_key, asked_modules.total_bytes,
    asked_modules.need_bytes, asked_modules.peak_bytes, asked_modules.peak_unknown_reason
  FROM asked_modules
  JOIN module_signatures ON module_signatures.module_id = asked_modules.module_id
),
-- Each table is read once; of several devices the fullest counts.
parts AS (
  SELECT
    live_accounts.run_name, live_accounts.profile_name, live_accounts.account_name,
    CASE WHEN live_accounts.is_account THEN 1 ELSE 0 END AS account_count,
    -- At the end of a program its functions have returned, and what they held is gone.
    CASE
      WHEN live_accounts.moment IN ('snapshot', 'failure') THEN 1 ELSE 0
    END AS running_count,
    live_accounts.snapshot_ordinal, 0 AS alive_bytes, NULL AS program_bytes, NULL AS used_bytes,
    NULL AS most_used_bytes, NULL AS pool_bytes, NULL AS block_bytes
  FROM live_accounts
  UNION ALL
  SELECT
    live_sums.run_name, live_sums.profile_name, NULL AS account_name, NULL AS account_count,
    NULL AS running_count, NULL AS snapshot_ordinal, live_sums.total_bytes AS alive_bytes,
    NULL AS program_bytes, NULL AS used_bytes, NULL AS most_used_bytes, NULL AS pool_bytes,
    NULL AS block_bytes
  FROM live_sums
  UNION ALL
  SELECT
    live_programs.run_name, live_programs.profile_name, NULL AS account_name,
    NULL AS account_count, NULL AS running_count, NULL AS snapshot_ordinal, NULL AS alive_bytes,
    live_programs.argument_bytes + live_programs.output_bytes - live_programs.alias_bytes
      + live_programs.temp_bytes AS program_bytes,
    NULL AS used_bytes, NULL AS most_used_bytes, NULL AS pool_bytes, NULL AS block_bytes
  FROM live_programs
  UNION ALL
  SELECT
    allocator_figures.run_name, allocator_figures.profile_name, NULL AS account_name,
    NULL AS account_count, NULL AS running_count, NULL AS snapshot_ordinal, NULL AS alive_bytes,
    NULL AS program_bytes, allocator_figures.low_used_bytes AS used_bytes,
    allocator_figures.peak_used_bytes AS most_used_bytes, allocator_figures.pool_bytes,
    allocator_figures.low_block_bytes AS block_bytes
  FROM allocator_figures
),
profiles AS (
  SELECT
    parts.run_name, parts.profile_name,
    coalesce(max(parts.account_name), parts.profile_name) AS account_name,
    coalesce(max(parts.account_count), 1) = 1 AS is_account,
    coalesce(max(parts.running_count), 0) = 1 AS is_running,
    max(parts.snapshot_ordinal) AS snapshot_ordinal,
    max(parts.alive_bytes) AS alive_bytes,
    max(parts.program_bytes) AS program_bytes,
    max(parts.used_bytes) AS used_bytes,
    max(parts.most_used_bytes) AS most_used_bytes,
    max(parts.pool_bytes) AS pool_bytes,
    min(parts.block_bytes) AS block_bytes
  FROM parts
  JOIN asked_runs ON asked_runs.run_name = parts.run_name
  CROSS JOIN params
  WHERE coalesce(params.function, '*') = '*'
    AND coalesce(params.module, '*') = '*'
    AND coalesce(params.platform, '*') = '*'
    AND coalesce(params.color, '0') IN ('0', 'all')
  GROUP BY parts.run_name, parts.profile_name
),
moments AS (
  SELECT
    profiles.run_name, profiles.account_name, profiles.is_account, profiles.is_running,
    profiles.alive_bytes, profiles.program_bytes, profiles.used_bytes, profiles.most_used_bytes,
    profiles.pool_bytes, profiles.block_bytes,
    row_number() OVER (
      PARTITION BY profiles.run_name, profiles.account_name, profiles.is_running
      ORDER BY profiles.snapshot_ordinal NULLS LAST, profiles.profile_name
    ) AS place,
    count(*) OVER (PARTITION BY profiles.run_name, profiles.account_name, profiles.is_running)
      AS moment_count
  FROM profiles
),
processes AS (
  SELECT
    moments.run_name,
    regexp_replace(
      regexp_replace(moments.account_name, '(^|/)memory[.](prof|log)$', ''),
      '[.](prof|log|out|err)$', ''
    ) AS process_name,
    '//' || regexp_extract(moments.account_name, '^(.*/)') AS path,
    max(CASE WHEN moments.is_account THEN moments.alive_bytes END) AS alive_bytes,
    max(moments.alive_bytes) AS most_alive_bytes,
    max(
      CASE
        WHEN moments.is_running
          AND moments.moment_count > 1
          AND moments.place = moments.moment_count
          THEN moments.alive_bytes
      END
    ) - max(
      CASE WHEN moments.is_running AND moments.place = 1 THEN moments.alive_bytes END
    ) AS grown_bytes,
    max(CASE WHEN moments.is_account THEN moments.program_bytes END) AS program_bytes,
    max(CASE WHEN moments.is_account THEN moments.used_bytes END) AS used_bytes,
    max(moments.most_used_bytes) AS most_used_bytes,
    max(CASE WHEN moments.is_account THEN moments.pool_bytes END) AS pool_bytes,
    min(CASE WHEN moments.is_account THEN moments.block_bytes END) AS block_bytes
  FROM moments
  GROUP BY moments.run_name, moments.account_name
),
places AS (
  SELECT DISTINCT
    compiled.run_name, compiled.folder, NULL AS process_name, compiled.path AS folder_path,
    NULL AS process_path
  FROM compiled
  UNION ALL
  SELECT
    processes.run_name, NULL AS folder, processes.process_name, NULL AS folder_path,
    processes.path AS process_path
  FROM processes
),
-- Runs of one process need no name of it: its dumps and profiles are in one folder, or those of one
-- kind in a folder within.
alone AS (
  SELECT places.run_name
  FROM places
  GROUP BY places.run_name
  HAVING count(DISTINCT places.folder) <= 1
    AND count(DISTINCT places.process_name) <= 1
    AND (
      contains(
        coalesce(max(places.folder_path), '//'), coalesce(max(places.process_path), '//')
      )
      OR contains(
        coalesce(max(places.process_path), '//'), coalesce(max(places.folder_path), '//')
      )
    )
),
compilations AS (
  SELECT
    compiled.run_name,
    CASE WHEN alone.run_name IS NULL THEN compiled.folder ELSE '' END AS process_name,
    compiled.folder, compiled.pairing_name, compiled.entry_signature, compiled.platform,
    compiled.color, compiled.need_bytes, compiled.peak_bytes, compiled.peak_unknown_reason,
    row_number() OVER (
      PARTITION BY
        compiled.run_name, compiled.folder, compiled.pairing_name, compiled.platform,
        compiled.color
      ORDER BY compiled.total_bytes DESC NULLS LAST, compiled.module_key
    ) AS compilation_place
  FROM compiled
  LEFT JOIN alone ON alone.run_name = compiled.run_name
),
accounts AS (
  SELECT
    processes.run_name,
    CASE WHEN alone.run_name IS NULL THEN processes.process_name ELSE '' END AS process_name,
    processes.alive_bytes, processes.most_alive_bytes, processes.grown_bytes,
    processes.program_bytes, processes.used_bytes, processes.most_used_bytes,
    processes.pool_bytes, processes.block_bytes
  FROM processes
  LEFT JOIN alone ON alone.run_name = processes.run_name
),
figures AS (
  SELECT
    compilations.run_name, compilations.process_name, names.figure, names.figure_place,
    compilations.pairing_name AS function_name, compilations.platform,
    compilations.compilation_place, compilations.color, compilations.entry_signature,
    CASE
      WHEN names.figure = 'need' THEN compilations.need_bytes
      ELSE compilations.peak_bytes
    END AS own_bytes,
    CASE
      WHEN names.figure = 'peak' THEN compilations.peak_unknown_reason
      WHEN compilations.need_bytes IS NULL
        THEN coalesce(
          compilations.peak_unknown_reason, 'the dump does not say what the program needs'
        )
    END AS unknown_reason
  FROM compilations
  CROSS JOIN (VALUES ('peak', 1), ('need', 2)) AS names(figure, figure_place)
  UNION ALL
  SELECT
    accounts.run_name, accounts.process_name, names.figure, names.figure_place,
    NULL AS function_name, NULL AS platform, NULL AS compilation_place, NULL AS color,
    NULL AS entry_signature,
    CASE names.figure
      WHEN 'alive' THEN accounts.alive_bytes
      WHEN 'most_alive' THEN accounts.most_alive_bytes
      WHEN 'grown' THEN accounts.grown_bytes
      WHEN 'program' THEN accounts.program_bytes
      WHEN 'used' THEN accounts.used_bytes
      WHEN 'most_used' THEN accounts.most_used_bytes
      WHEN 'pool' THEN accounts.pool_bytes
      ELSE accounts.block_bytes
    END AS own_bytes,
    NULL AS unknown_reason
  FROM accounts
  CROSS JOIN (
    VALUES
      ('program', 3), ('alive', 4), ('most_alive', 5), ('grown', 6), ('used', 7),
      ('most_used', 8), ('pool', 9), ('block', 10)
  ) AS names(figure, figure_place)
),
ranks AS (
  SELECT
    jobs.job_name, jobs.other_labels,
    CASE
      WHEN jobs.label_value IS NULL THEN coalesce(nullif(figures.process_name, ''), '.')
      WHEN figures.process_name = '' THEN jobs.label_value
      ELSE jobs.label_value || '/' || figures.process_name
    END AS rank,
    jobs.run_name, figures.figure, figures.figure_place, figures.function_name, figures.platform,
    figures.compilation_place, figures.color, figures.entry_signature, figures.own_bytes,
    figures.unknown_reason,
    jobs.label_value IS NOT NULL AS is_labelled
  FROM figures
  JOIN jobs ON jobs.run_name = figures.run_name
  WHERE figures.own_bytes IS NOT NULL
    OR figures.unknown_reason IS NOT NULL
),
-- Figures by number, so that what follows has neither names nor labels in each row.
groups AS (
  SELECT
    row_number() OVER (
      ORDER BY
        ranks.job_name, ranks.other_labels, ranks.figure, ranks.function_name, ranks.platform,
        ranks.compilation_place, ranks.color
    ) AS group_id,
    ranks.job_name, ranks.other_labels, ranks.figure, ranks.figure_place, ranks.function_name,
    ranks.platform, ranks.compilation_place, ranks.color,
    max(CASE WHEN ranks.is_labelled THEN 1 ELSE 0 END) AS is_labelled,
    count(*) AS rank_count,
    count(ranks.unknown_reason) AS unknown_count,
    min(ranks.unknown_reason) AS first_reason,
    nullif(count(DISTINCT ranks.entry_signature), 0) AS signature_count,
    min(CASE WHEN ranks.unknown_reason IS NULL THEN ranks.own_bytes END) AS min_bytes,
    max(CASE WHEN ranks.unknown_reason IS NULL THEN ranks.own_bytes END) AS max_bytes
  FROM ranks
  GROUP BY
    ranks.job_name, ranks.other_labels, ranks.figure, ranks.figure_place, ranks.function_name,
    ranks.platform, ranks.compilation_place, ranks.color
),
sizes AS (
  SELECT members.job_name, members.other_labels, count(*) AS job_rank_count
  FROM (
    SELECT DISTINCT ranks.job_name, ranks.other_labels, ranks.run_name, ranks.rank FROM ranks
  ) AS members
  GROUP BY members.job_name, members.other_labels
),
placed AS (
  SELECT
    groups.group_id, ranks.rank, ranks.own_bytes, groups.rank_count, groups.unknown_count,
    groups.min_bytes, groups.max_bytes,
    row_number() OVER (PARTITION BY groups.group_id ORDER BY ranks.own_bytes) AS place
  FROM ranks
  JOIN groups
    ON groups.job_name = ranks.job_name
    AND groups.other_labels = ranks.other_labels
    AND groups.figure = ranks.figure
    AND groups.function_name IS NOT DISTINCT FROM ranks.function_name
    AND groups.platform IS NOT DISTINCT FROM ranks.platform
    AND groups.compilation_place IS NOT DISTINCT FROM ranks.compilation_place
    AND groups.color IS NOT DISTINCT FROM ranks.color
  CROSS JOIN params
  WHERE params.figure IS NULL
    OR groups.figure GLOB params.figure
),
levels AS (
  SELECT
    placed.group_id, placed.rank, placed.own_bytes, placed.rank_count,
    CASE
      WHEN placed.unknown_count = 0
        THEN max(
          CASE WHEN placed.place = (placed.rank_count + 1) // 2 THEN placed.own_bytes END
        ) OVER (PARTITION BY placed.group_id)
    END AS median_bytes,
    min(CASE WHEN placed.own_bytes = placed.max_bytes THEN placed.rank END)
      OVER (PARTITION BY placed.group_id) AS fullest_rank,
    min(CASE WHEN placed.own_bytes = placed.min_bytes THEN placed.rank END)
      OVER (PARTITION BY placed.group_id) AS emptiest_rank
  FROM placed
),
differences AS (
  SELECT
    levels.group_id, levels.rank, levels.own_bytes, levels.rank_count, levels.median_bytes,
    levels.fullest_rank, levels.emptiest_rank,
    abs(levels.own_bytes - levels.median_bytes) AS distance_bytes,
    row_number() OVER (
      PARTITION BY levels.group_id ORDER BY abs(levels.own_bytes - levels.median_bytes)
    ) AS distance_place
  FROM levels
),
typical AS (
  SELECT
    differences.group_id, differences.rank, differences.own_bytes, differences.rank_count,
    differences.median_bytes, differences.fullest_rank, differences.emptiest_rank,
    differences.distance_bytes,
    max(
      CASE
        WHEN differences.distance_place = (differences.rank_count + 1) // 2
          THEN differences.distance_bytes
      END
    ) OVER (PARTITION BY differences.group_id) AS typical_bytes
  FROM differences
),
judged AS (
  SELECT
    typical.group_id, typical.rank, typical.own_bytes, typical.median_bytes,
    typical.fullest_rank, typical.emptiest_rank, typical.distance_bytes,
    CASE
      WHEN typical.distance_bytes IS NOT NULL
        THEN typical.rank_count > 2
          AND typical.distance_bytes > 5 * typical.typical_bytes
          AND typical.distance_bytes > params.odd_ratio * abs(typical.median_bytes)
    END AS is_odd
  FROM typical
  CROSS JOIN params
),
shown AS (
  SELECT
    judged.group_id, judged.rank, judged.own_bytes, judged.median_bytes, judged.fullest_rank,
    judged.emptiest_rank, judged.is_odd,
    count(CASE WHEN judged.is_odd THEN 1 END) OVER (PARTITION BY judged.group_id) AS odd_count,
    row_number() OVER (
      PARTITION BY judged.group_id
      ORDER BY
        CASE WHEN judged.own_bytes IS NULL THEN 0 WHEN judged.is_odd THEN 1 ELSE 2 END,
        judged.distance_bytes DESC NULLS LAST, judged.rank
    ) AS odd_place
  FROM judged
)
SELECT
  groups.figure, groups.function_name, groups.platform, groups.compilation_place, groups.color,
  nullif(groups.job_name, '') AS run_name,
  groups.other_labels, groups.rank_count,
  sizes.job_rank_count - groups.rank_count AS missing_count,
  groups.signature_count,
  CASE WHEN groups.unknown_count = 0 THEN groups.min_bytes END AS min_bytes,
  shown.median_bytes,
  CASE WHEN groups.unknown_count = 0 THEN groups.max_bytes END AS max_bytes,
  CASE WHEN groups.unknown_count = 0 THEN groups.max_bytes - groups.min_bytes END AS spread_bytes,
  CASE
    WHEN groups.unknown_count = 0
      AND groups.max_bytes > 0
      THEN CAST(groups.max_bytes - groups.min_bytes AS DOUBLE) / nullif(groups.max_bytes, 0)
  END AS spread_ratio,
  CASE WHEN groups.unknown_count = 0 THEN shown.fullest_rank END AS fullest_rank,
  CASE WHEN groups.unknown_count = 0 THEN shown.emptiest_rank END AS emptiest_rank,
  CASE WHEN groups.unknown_count = 0 THEN shown.odd_count END AS odd_count,
  shown.rank, shown.own_bytes,
  shown.own_bytes - shown.median_bytes AS difference_bytes,
  shown.is_odd, groups.unknown_count, groups.first_reason AS unknown_reason
FROM shown
JOIN groups ON groups.group_id = shown.group_id
JOIN sizes
  ON sizes.job_name = groups.job_name
  AND sizes.other_labels = groups.other_labels
CROSS JOIN params
-- One process without a label is no job.
WHERE (groups.is_labelled = 1 OR sizes.job_rank_count > 1)
  AND (
    shown.odd_place = 1
    OR (shown.odd_place <= params.rank_n AND (shown.is_odd OR shown.own_bytes IS NULL))
  )
ORDER BY
  CASE WHEN groups.unknown_count > 0 THEN 0 ELSE 1 END,
  CASE
    WHEN groups.unknown_count = 0
      AND shown.odd_count > 0
      OR sizes.job_rank_count > groups.rank_count THEN 0
    ELSE 1
  END,
  CASE WHEN groups.unknown_count = 0 THEN groups.max_bytes - groups.min_bytes END
    DESC NULLS FIRST,
  CASE WHEN groups.unknown_count = 0 THEN groups.max_bytes END DESC NULLS LAST,
  groups.figure_place, groups.function_name NULLS LAST, groups.platform NULLS LAST,
  groups.color NULLS LAST, groups.job_name, groups.other_labels,
  groups.compilation_place NULLS LAST, shown.odd_place
LIMIT (SELECT top_n FROM params);
