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
-- stage. A process that ended before the others, such as one that was killed, has held and grown
-- less than they at their last snapshot (last_seconds of process-growth). Profiles that a program
-- wrote itself count as one process each, under their names; next to several processes, dumps in a
-- folder of none of them do, too. A label that differs in each run for another reason (a host's
-- name along with its rank) leaves no two runs to compare: name the labels that matter in fixed.
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
compilations AS MATERIALIZED (
  SELECT
    asked_modules.run_name, regexp_extract(asked_modules.module_key, '^(.*/)') AS folder,
    module_signatures.pairing_name, module_signatures.entry_signature, asked_modules.platform,
    asked_modules.color, asked_modules.need_bytes, asked_modules.peak_bytes,
    asked_modules.peak_unknown_reason,
    row_number() OVER (
      PARTITION BY
        asked_modules.run_name, regexp_extract(asked_modules.module_key, '^(.*/)'),
        module_signatures.pairing_name, asked_modules.platform, asked_modules.color
      ORDER BY asked_modules.total_bytes DESC NULLS LAST, asked_modules.module_key
    ) AS compilation_place
  FROM asked_modules
  JOIN module_signatures ON module_signatures.module_id = asked_modules.module_id
),
accounts AS (
  SELECT
    live_accounts.run_name, live_accounts.profile_name, live_accounts.account_name,
    live_accounts.is_account, live_accounts.is_first, live_accounts.is_last
  FROM live_accounts
),
-- Each table is read once; of several devices the fullest counts.
held AS (
  SELECT
    live_sums.run_name, live_sums.profile_name, live_sums.total_bytes AS alive_bytes,
    CAST(NULL AS BIGINT) AS used_bytes, CAST(NULL AS BIGINT) AS most_used_bytes,
    CAST(NULL AS BIGINT) AS pool_bytes, CAST(NULL AS BIGINT) AS block_bytes
  FROM live_sums
  UNION ALL
  -- Without arrays nothing is alive.
  SELECT
    live_profiles.run_name, live_profiles.profile_name, 0 AS alive_bytes, NULL AS used_bytes,
    NULL AS most_used_bytes, NULL AS pool_bytes, NULL AS block_bytes
  FROM live_profiles
  UNION ALL
  SELECT
    allocator_figures.run_name, allocator_figures.profile_name, NULL AS alive_bytes,
    allocator_figures.low_used_bytes AS used_bytes,
    allocator_figures.peak_used_bytes AS most_used_bytes, allocator_figures.pool_bytes,
    allocator_figures.low_block_bytes AS block_bytes
  FROM allocator_figures
),
parts AS (
  SELECT
    held.run_name,
    -- A log is an account of its own.
    coalesce(accounts.account_name, held.profile_name) AS account_name,
    accounts.is_account, accounts.is_first, accounts.is_last,
    held.alive_bytes, held.used_bytes, held.most_used_bytes, held.pool_bytes, held.block_bytes,
    CAST(NULL AS BIGINT) AS program_bytes
  FROM held
  LEFT JOIN accounts
    ON accounts.run_name = held.run_name
    AND accounts.profile_name = held.profile_name
  UNION ALL
  SELECT
    accounts.run_name, accounts.account_name, accounts.is_account,
    accounts.is_first, accounts.is_last, NULL AS alive_bytes, NULL AS used_bytes,
    NULL AS most_used_bytes, NULL AS pool_bytes, NULL AS block_bytes,
    live_programs.argument_bytes + live_programs.output_bytes - live_programs.alias_bytes
      + live_programs.temp_bytes AS program_bytes
  FROM live_programs
  JOIN accounts
    ON accounts.run_name = live_programs.run_name
    AND accounts.profile_name = live_programs.profile_name
  WHERE accounts.is_account
),
processes AS MATERIALIZED (
  SELECT
    parts.run_name, parts.account_name,
    max(CASE WHEN coalesce(parts.is_account, TRUE) THEN parts.alive_bytes END) AS alive_bytes,
    max(parts.alive_bytes) AS most_alive_bytes,
    max(CASE WHEN parts.is_last THEN parts.alive_bytes END)
      - max(CASE WHEN parts.is_first THEN parts.alive_bytes END) AS grown_bytes,
    max(parts.program_bytes) AS program_bytes,
    max(CASE WHEN coalesce(parts.is_account, TRUE) THEN parts.used_bytes END) AS used_bytes,
    max(parts.most_used_bytes) AS most_used_bytes,
    max(CASE WHEN coalesce(parts.is_account, TRUE) THEN parts.pool_bytes END) AS pool_bytes,
    min(CASE WHEN coalesce(parts.is_account, TRUE) THEN parts.block_bytes END) AS block_bytes
  FROM parts
  JOIN asked_runs ON asked_runs.run_name = parts.run_name
  CROSS JOIN params
  WHERE coalesce(params.function, '*') = '*'
    AND coalesce(params.module, '*') = '*'
    AND coalesce(params.platform, '*') = '*'
    AND coalesce(params.color, '0') IN ('0', 'all')
  GROUP BY parts.run_name, parts.account_name
),
named AS (
  SELECT
    processes.run_name,
    regexp_replace(
      regexp_replace(processes.account_name, '(^|/)memory[.](prof|log)$', ''),
      '[.](prof|log|out|err)$', ''
    ) AS process_name,
    '//' || regexp_extract(processes.account_name, '^(.*/)') AS path,
    processes.alive_bytes, processes.most_alive_bytes, processes.grown_bytes,
    processes.program_bytes, processes.used_bytes, processes.most_used_bytes,
    processes.pool_bytes, processes.block_bytes
  FROM processes
),
places AS (
  SELECT
    compilations.run_name, compilations.folder, NULL AS process_name,
    '//' || compilations.folder AS folder_path, NULL AS process_path
  FROM compilations
  UNION ALL
  SELECT
    named.run_name, NULL AS folder, named.process_name, NULL AS folder_path,
    named.path AS process_path
  FROM named
),
-- Runs of one process need no name of it: its dumps and profiles are in one folder, or those of one
-- kind in a folder within.
alone AS (
  SELECT places.run_name
  FROM places
  GROUP BY places.run_name
  HAVING (count(places.folder) = 0 OR min(places.folder) = max(places.folder))
    AND (count(places.process_name) = 0 OR min(places.process_name) = max(places.process_name))
    AND (
      contains(
        coalesce(max(places.folder_path), '//'), coalesce(max(places.process_path), '//')
      )
      OR contains(
        coalesce(max(places.process_path), '//'), coalesce(max(places.folder_path), '//')
      )
    )
),
figures AS (
  SELECT
    compilations.run_name,
    CASE WHEN alone.run_name IS NULL THEN regexp_replace(compilations.folder, '/$', '') ELSE '' END
      AS process_name,
    names.figure, names.figure_place,
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
  LEFT JOIN alone ON alone.run_name = compilations.run_name
  CROSS JOIN (VALUES ('peak', 1), ('need', 2)) AS names(figure, figure_place)
  UNION ALL
  SELECT
    named.run_name,
    CASE WHEN alone.run_name IS NULL THEN named.process_name ELSE '' END AS process_name,
    names.figure, names.figure_place, NULL AS function_name, NULL AS platform,
    NULL AS compilation_place, NULL AS color, NULL AS entry_signature,
    CASE names.figure
      WHEN 'alive' THEN named.alive_bytes
      WHEN 'most_alive' THEN named.most_alive_bytes
      WHEN 'grown' THEN named.grown_bytes
      WHEN 'program' THEN named.program_bytes
      WHEN 'used' THEN named.used_bytes
      WHEN 'most_used' THEN named.most_used_bytes
      WHEN 'pool' THEN named.pool_bytes
      ELSE named.block_bytes
    END AS own_bytes,
    NULL AS unknown_reason
  FROM named
  LEFT JOIN alone ON alone.run_name = named.run_name
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
    CASE WHEN jobs.label_value IS NOT NULL THEN 1 ELSE 0 END AS is_labelled
  FROM figures
  JOIN jobs ON jobs.run_name = figures.run_name
  WHERE figures.own_bytes IS NOT NULL
    OR figures.unknown_reason IS NOT NULL
),
sizes AS (
  SELECT members.job_name, members.other_labels, count(*) AS job_rank_count
  FROM (
    SELECT DISTINCT ranks.job_name, ranks.other_labels, ranks.run_name, ranks.rank FROM ranks
  ) AS members
  GROUP BY members.job_name, members.other_labels
),
-- Most ranks of a job have the same figure: what follows has one row for each value of it.
levels AS MATERIALIZED (
  SELECT
    ranks.job_name, ranks.other_labels, ranks.figure, ranks.figure_place, ranks.function_name,
    ranks.platform, ranks.compilation_place, ranks.color, ranks.entry_signature, ranks.own_bytes,
    max(ranks.is_labelled) AS is_labelled,
    count(*) AS rank_count,
    count(ranks.unknown_reason) AS unknown_count,
    min(ranks.unknown_reason) AS first_reason,
    min(ranks.rank) AS first_rank
  FROM ranks
  CROSS JOIN params
  WHERE params.figure IS NULL
    OR ranks.figure GLOB params.figure
  GROUP BY
    ranks.job_name, ranks.other_labels, ranks.figure, ranks.figure_place, ranks.function_name,
    ranks.platform, ranks.compilation_place, ranks.color, ranks.entry_signature, ranks.own_bytes
),
-- Figures by number, so that what follows has neither names nor labels in each row.
groups AS (
  SELECT
    row_number() OVER (
      ORDER BY
        levels.job_name, levels.other_labels, levels.figure, levels.function_name,
        levels.platform, levels.compilation_place, levels.color
    ) AS group_id,
    levels.job_name, levels.other_labels, levels.figure, levels.figure_place,
    levels.function_name, levels.platform, levels.compilation_place, levels.color,
    max(levels.is_labelled) AS is_labelled,
    CAST(sum(levels.rank_count) AS BIGINT) AS rank_count,
    CAST(sum(levels.unknown_count) AS BIGINT) AS unknown_count,
    min(levels.first_reason) AS first_reason,
    nullif(count(DISTINCT levels.entry_signature), 0) AS signature_count,
    min(CASE WHEN levels.unknown_count = 0 THEN levels.own_bytes END) AS min_bytes,
    max(CASE WHEN levels.unknown_count = 0 THEN levels.own_bytes END) AS max_bytes
  FROM levels
  GROUP BY
    levels.job_name, levels.other_labels, levels.figure, levels.figure_place,
    levels.function_name, levels.platform, levels.compilation_place, levels.color
),
counted AS (
  SELECT
    groups.group_id, levels.own_bytes, groups.rank_count, groups.unknown_count,
    groups.min_bytes, groups.max_bytes, levels.first_rank, levels.rank_count AS own_count,
    sum(levels.rank_count) OVER (
      PARTITION BY groups.group_id
      ORDER BY levels.own_bytes
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS place
  FROM levels
  JOIN groups
    ON groups.job_name = levels.job_name
    AND groups.other_labels = levels.other_labels
    AND groups.figure = levels.figure
    AND groups.function_name IS NOT DISTINCT FROM levels.function_name
    AND groups.platform IS NOT DISTINCT FROM levels.platform
    AND groups.compilation_place IS NOT DISTINCT FROM levels.compilation_place
    AND groups.color IS NOT DISTINCT FROM levels.color
),
medians AS (
  SELECT
    counted.group_id,
    CASE
      WHEN max(counted.unknown_count) = 0
        THEN min(
          CASE WHEN counted.place >= (counted.rank_count + 1) // 2 THEN counted.own_bytes END
        )
    END AS median_bytes,
    min(CASE WHEN counted.own_bytes = counted.max_bytes THEN counted.first_rank END)
      AS fullest_rank,
    min(CASE WHEN counted.own_bytes = counted.min_bytes THEN counted.first_rank END)
      AS emptiest_rank
  FROM counted
  GROUP BY counted.group_id
),
differences AS (
  SELECT
    counted.group_id, counted.own_bytes, counted.own_count, counted.first_rank,
    counted.rank_count, medians.median_bytes,
    abs(counted.own_bytes - medians.median_bytes) AS distance_bytes,
    sum(counted.own_count) OVER (
      PARTITION BY counted.group_id
      ORDER BY abs(counted.own_bytes - medians.median_bytes)
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS distance_place
  FROM counted
  JOIN medians ON medians.group_id = counted.group_id
),
typical AS (
  SELECT
    differences.group_id,
    min(
      CASE
        WHEN differences.distance_place >= (differences.rank_count + 1) // 2
          THEN differences.distance_bytes
      END
    ) AS typical_bytes
  FROM differences
  GROUP BY differences.group_id
),
judged AS (
  SELECT
    differences.group_id, differences.own_bytes, differences.own_count, differences.first_rank,
    differences.distance_bytes,
    CASE
      WHEN differences.distance_bytes IS NOT NULL
        THEN differences.rank_count > 2
          AND differences.distance_bytes > 5 * typical.typical_bytes
          AND differences.distance_bytes > params.odd_ratio * abs(differences.median_bytes)
    END AS is_odd
  FROM differences
  JOIN typical ON typical.group_id = differences.group_id
  CROSS JOIN params
),
classed AS (
  SELECT
    judged.group_id, judged.own_bytes, judged.first_rank, judged.distance_bytes, judged.is_odd,
    CASE WHEN judged.own_bytes IS NULL THEN 0 WHEN judged.is_odd THEN 1 ELSE 2 END AS class,
    rank() OVER (
      PARTITION BY judged.group_id
      ORDER BY
        CASE WHEN judged.own_bytes IS NULL THEN 0 WHEN judged.is_odd THEN 1 ELSE 2 END,
        judged.distance_bytes DESC NULLS LAST
    ) AS value_place
  FROM judged
),
odds AS (
  SELECT
    judged.group_id,
    CAST(sum(CASE WHEN judged.is_odd THEN judged.own_count ELSE 0 END) AS BIGINT) AS odd_count
  FROM judged
  GROUP BY judged.group_id
),
-- The values that are shown: a rank of such a one has at least its place.
shown_values AS (
  SELECT
    classed.group_id, classed.own_bytes, classed.distance_bytes, classed.is_odd, classed.class,
    min(classed.first_rank) AS first_rank
  FROM classed
  CROSS JOIN params
  WHERE classed.value_place = 1
    OR (classed.value_place <= params.rank_n AND classed.class < 2)
  GROUP BY
    classed.group_id, classed.own_bytes, classed.distance_bytes, classed.is_odd, classed.class
),
shown AS (
  SELECT
    groups.group_id, ranks.rank, ranks.own_bytes, shown_values.is_odd,
    row_number() OVER (
      PARTITION BY groups.group_id
      ORDER BY
        shown_values.class, shown_values.distance_bytes DESC NULLS LAST, ranks.rank
    ) AS odd_place
  FROM shown_values
  JOIN groups ON groups.group_id = shown_values.group_id
  JOIN ranks
    ON ranks.job_name = groups.job_name
    AND ranks.other_labels = groups.other_labels
    AND ranks.figure = groups.figure
    AND ranks.function_name IS NOT DISTINCT FROM groups.function_name
    AND ranks.platform IS NOT DISTINCT FROM groups.platform
    AND ranks.compilation_place IS NOT DISTINCT FROM groups.compilation_place
    AND ranks.color IS NOT DISTINCT FROM groups.color
    AND ranks.own_bytes IS NOT DISTINCT FROM shown_values.own_bytes
  WHERE shown_values.class < 2
    OR ranks.rank = shown_values.first_rank
)
SELECT
  groups.figure, groups.function_name, groups.platform, groups.compilation_place, groups.color,
  nullif(groups.job_name, '') AS run_name,
  groups.other_labels, groups.rank_count,
  sizes.job_rank_count - groups.rank_count AS missing_count,
  groups.signature_count,
  CASE WHEN groups.unknown_count = 0 THEN groups.min_bytes END AS min_bytes,
  medians.median_bytes,
  CASE WHEN groups.unknown_count = 0 THEN groups.max_bytes END AS max_bytes,
  CASE WHEN groups.unknown_count = 0 THEN groups.max_bytes - groups.min_bytes END AS spread_bytes,
  CASE
    WHEN groups.unknown_count = 0
      AND groups.max_bytes > 0
      THEN CAST(groups.max_bytes - groups.min_bytes AS DOUBLE) / nullif(groups.max_bytes, 0)
  END AS spread_ratio,
  CASE WHEN groups.unknown_count = 0 THEN medians.fullest_rank END AS fullest_rank,
  CASE WHEN groups.unknown_count = 0 THEN medians.emptiest_rank END AS emptiest_rank,
  CASE WHEN groups.unknown_count = 0 THEN odds.odd_count END AS odd_count,
  shown.rank, shown.own_bytes,
  shown.own_bytes - medians.median_bytes AS difference_bytes,
  shown.is_odd, groups.unknown_count, groups.first_reason AS unknown_reason
FROM shown
JOIN groups ON groups.group_id = shown.group_id
JOIN medians ON medians.group_id = shown.group_id
JOIN odds ON odds.group_id = shown.group_id
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
      AND odds.odd_count > 0
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
