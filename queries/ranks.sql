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
-- first; then figures with odd or missing ranks; then the largest spread. rank-growth has the lines
-- whose arrays grow.
--
-- wrong when: Compilations of a function are paired by size in each rank: one that a rank has in
-- addition moves those after it (signature_count, missing_count). Ranks of a pipeline differ by
-- stage. A process that ended before the others, such as one that was killed (last_seconds less
-- than latest_seconds), has held and grown less than they later on. Profiles that a program wrote
-- itself count as one process each, under their names; next to several processes, dumps in a folder
-- of none of them do, too. A label that differs in each run for another reason (a host's name along
-- with its rank) leaves no two runs to compare: name the labels that matter in fixed.
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
-- column last_seconds DOUBLE: Time of its last memory profile since its process began to be watched
--   [s]; NULL for need and peak, and if no time is known.
-- column latest_seconds DOUBLE: The largest of all ranks [s]: one far below it ended before the
--   others; NULL if no rank has a time.
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
programs AS (
  SELECT
    asked_modules.run_name, asked_modules.module_key,
    regexp_extract(asked_modules.module_key, '^(.*/)') AS folder,
    coalesce(asked_modules.function_name, asked_modules.shapes_name, asked_modules.module_key)
      AS pairing_name,
    -- Shapes of thousands of parameters in thousands of ranks are long.
    asked_modules.entry_hash, asked_modules.platform,
    asked_modules.color, asked_modules.total_bytes, asked_modules.need_bytes,
    asked_modules.peak_bytes, asked_modules.peak_unknown_reason
  FROM asked_modules
),
-- A log is an account of its own.
moments AS (
  SELECT
    live_totals.run_name,
    coalesce(live_accounts.account_name, live_totals.profile_name) AS account_name,
    live_accounts.elapsed_seconds,
    coalesce(live_accounts.is_account, TRUE) AS is_account,
    live_accounts.is_first, live_accounts.is_last,
    live_totals.fullest_bytes, live_totals.program_bytes, live_totals.used_bytes,
    live_totals.most_used_bytes, live_totals.pool_bytes, live_totals.block_bytes
  FROM live_totals
  LEFT JOIN live_accounts
    ON live_accounts.run_name = live_totals.run_name
    AND live_accounts.profile_name = live_totals.profile_name
),
processes AS (
  SELECT
    moments.run_name, moments.account_name,
    regexp_extract(moments.account_name, '^(.*/)') AS path,
    max(moments.elapsed_seconds) AS last_seconds,
    max(CASE WHEN moments.is_account THEN moments.fullest_bytes END) AS alive_bytes,
    max(moments.fullest_bytes) AS most_alive_bytes,
    max(CASE WHEN moments.is_last THEN moments.fullest_bytes END)
      - max(CASE WHEN moments.is_first THEN moments.fullest_bytes END) AS grown_bytes,
    max(CASE WHEN moments.is_account THEN moments.program_bytes END) AS program_bytes,
    max(CASE WHEN moments.is_account THEN moments.used_bytes END) AS used_bytes,
    max(moments.most_used_bytes) AS most_used_bytes,
    max(CASE WHEN moments.is_account THEN moments.pool_bytes END) AS pool_bytes,
    min(CASE WHEN moments.is_account THEN moments.block_bytes END) AS block_bytes
  FROM moments
  JOIN asked_runs ON asked_runs.run_name = moments.run_name
  CROSS JOIN params
  WHERE coalesce(params.function, '*') = '*'
    AND coalesce(params.module, '*') = '*'
    AND coalesce(params.platform, '*') = '*'
    AND coalesce(params.color, '0') IN ('0', 'all')
  GROUP BY moments.run_name, moments.account_name
),
named AS (
  SELECT
    processes.run_name, processes.path,
    -- memory.prof and memory.log have the name of their folder, others their own.
    CASE
      WHEN processes.account_name = processes.path || 'memory.prof'
        OR processes.account_name = processes.path || 'memory.log'
        THEN substr(processes.path, 1, greatest(length(processes.path) - 1, 0))
      ELSE processes.account_name
    END AS process_name,
    processes.last_seconds,
    processes.program_bytes, processes.alive_bytes, processes.most_alive_bytes,
    processes.grown_bytes, processes.used_bytes, processes.most_used_bytes,
    processes.pool_bytes, processes.block_bytes
  FROM processes
),
-- Compilations, and processes: those have a folder and a function, these a path.
seats AS MATERIALIZED (
  SELECT
    programs.run_name, programs.folder, CAST(NULL AS VARCHAR) AS path,
    substr(programs.folder, 1, greatest(length(programs.folder) - 1, 0)) AS process_name,
    programs.pairing_name AS function_name, programs.platform,
    row_number() OVER (
      PARTITION BY
        programs.run_name, programs.folder, programs.pairing_name, programs.platform,
        programs.color
      ORDER BY programs.total_bytes DESC NULLS LAST, programs.module_key
    ) AS compilation_place,
    programs.color, programs.entry_hash, programs.peak_bytes, programs.need_bytes,
    programs.peak_unknown_reason, CAST(NULL AS DOUBLE) AS last_seconds,
    CAST(NULL AS BIGINT) AS program_bytes, CAST(NULL AS BIGINT) AS alive_bytes,
    CAST(NULL AS BIGINT) AS most_alive_bytes, CAST(NULL AS BIGINT) AS grown_bytes,
    CAST(NULL AS BIGINT) AS used_bytes, CAST(NULL AS BIGINT) AS most_used_bytes,
    CAST(NULL AS BIGINT) AS pool_bytes, CAST(NULL AS BIGINT) AS block_bytes
  FROM programs
  UNION ALL
  SELECT
    named.run_name, NULL AS folder, named.path,
    CASE
      WHEN contains(named.process_name, '.')
        THEN regexp_replace(named.process_name, '[.](prof|log|out|err)$', '')
      ELSE named.process_name
    END AS process_name,
    '' AS function_name, NULL AS platform, 0 AS compilation_place, NULL AS color,
    NULL AS entry_hash, NULL AS peak_bytes, NULL AS need_bytes, NULL AS peak_unknown_reason,
    named.last_seconds,
    named.program_bytes, named.alive_bytes, named.most_alive_bytes, named.grown_bytes,
    named.used_bytes, named.most_used_bytes, named.pool_bytes, named.block_bytes
  FROM named
),
-- Runs of one process need no name of it: its dumps and profiles are in one folder, or those of one
-- kind in a folder within.
alone AS (
  SELECT places.run_name
  FROM (
    SELECT
      seats.run_name, count(seats.folder) AS folder_count, count(seats.path) AS path_count,
      min(seats.folder) AS first_folder, max(seats.folder) AS last_folder,
      min(CASE WHEN seats.path IS NOT NULL THEN seats.process_name END) AS first_name,
      max(CASE WHEN seats.path IS NOT NULL THEN seats.process_name END) AS last_name,
      '//' || coalesce(max(seats.folder), '') AS folder_path,
      '//' || coalesce(max(seats.path), '') AS process_path
    FROM seats
    GROUP BY seats.run_name
  ) AS places
  WHERE (places.folder_count = 0 OR places.first_folder = places.last_folder)
    AND (places.path_count = 0 OR places.first_name = places.last_name)
    AND (
      contains(places.folder_path, places.process_path)
      OR contains(places.process_path, places.folder_path)
    )
),
members AS MATERIALIZED (
  SELECT
    jobs.job_name, jobs.other_labels, jobs.run_name,
    CASE
      WHEN alone.run_name IS NULL AND seats.process_name <> ''
        THEN coalesce(jobs.label_value || '/', '') || seats.process_name
      ELSE coalesce(jobs.label_value, '.')
    END AS rank,
    CASE WHEN jobs.label_value IS NOT NULL THEN 1 ELSE 0 END AS is_labelled,
    CASE WHEN seats.folder IS NOT NULL THEN 1 ELSE 0 END AS is_compiled,
    seats.function_name, seats.platform, seats.compilation_place, seats.color,
    seats.entry_hash, seats.peak_bytes, seats.need_bytes, seats.peak_unknown_reason,
    seats.last_seconds,
    seats.program_bytes, seats.alive_bytes, seats.most_alive_bytes, seats.grown_bytes,
    seats.used_bytes, seats.most_used_bytes, seats.pool_bytes, seats.block_bytes
  FROM seats
  JOIN jobs ON jobs.run_name = seats.run_name
  LEFT JOIN alone ON alone.run_name = seats.run_name
  -- A log may say nothing of all these.
  WHERE seats.folder IS NOT NULL
    OR coalesce(
      seats.program_bytes, seats.alive_bytes, seats.most_alive_bytes, seats.grown_bytes,
      seats.used_bytes, seats.most_used_bytes, seats.pool_bytes, seats.block_bytes
    ) IS NOT NULL
),
sizes AS (
  SELECT ranks.job_name, ranks.other_labels, count(*) AS job_rank_count
  FROM (
    SELECT DISTINCT members.job_name, members.other_labels, members.run_name, members.rank
    FROM members
  ) AS ranks
  GROUP BY ranks.job_name, ranks.other_labels
),
-- What is compared, by number, so that what follows has neither names nor labels in each row.
kinds AS MATERIALIZED (
  SELECT
    row_number() OVER (
      ORDER BY
        members.job_name, members.other_labels, members.is_compiled, members.function_name,
        members.platform, members.compilation_place, members.color
    ) AS kind_id,
    members.job_name, members.other_labels, members.is_compiled, members.function_name,
    members.platform, members.compilation_place, members.color,
    max(members.is_labelled) AS is_labelled, max(members.last_seconds) AS latest_seconds,
    count(
      DISTINCT CASE
        WHEN members.peak_bytes IS NOT NULL OR members.peak_unknown_reason IS NOT NULL
          THEN members.entry_hash
      END
    ) AS peak_signature_count,
    count(DISTINCT members.entry_hash) AS signature_count
  FROM members
  GROUP BY
    members.job_name, members.other_labels, members.is_compiled, members.function_name,
    members.platform, members.compilation_place, members.color
),
names AS (
  SELECT known.figure, known.figure_place, known.is_compiled
  FROM (
    VALUES
      ('peak', 1, 1), ('need', 2, 1), ('program', 3, 0), ('alive', 4, 0), ('most_alive', 5, 0),
      ('grown', 6, 0), ('used', 7, 0), ('most_used', 8, 0), ('pool', 9, 0), ('block', 10, 0)
  ) AS known(figure, figure_place, is_compiled)
  CROSS JOIN params
  WHERE params.figure IS NULL
    OR known.figure GLOB params.figure
),
figures AS (
  SELECT
    16 * kinds.kind_id + names.figure_place AS group_id, members.rank, members.last_seconds,
    CASE names.figure_place
      WHEN 1 THEN members.peak_bytes
      WHEN 2 THEN members.need_bytes
      WHEN 3 THEN members.program_bytes
      WHEN 4 THEN members.alive_bytes
      WHEN 5 THEN members.most_alive_bytes
      WHEN 6 THEN members.grown_bytes
      WHEN 7 THEN members.used_bytes
      WHEN 8 THEN members.most_used_bytes
      WHEN 9 THEN members.pool_bytes
      ELSE members.block_bytes
    END AS own_bytes,
    CASE
      WHEN names.figure_place = 1 THEN members.peak_unknown_reason
      WHEN names.figure_place = 2 AND members.need_bytes IS NULL
        THEN coalesce(
          members.peak_unknown_reason, 'the dump does not say what the program needs'
        )
    END AS unknown_reason
  FROM members
  JOIN kinds
    ON kinds.job_name = members.job_name
    AND kinds.other_labels = members.other_labels
    AND kinds.is_compiled = members.is_compiled
    AND kinds.function_name = members.function_name
    AND kinds.platform IS NOT DISTINCT FROM members.platform
    AND kinds.compilation_place = members.compilation_place
    AND kinds.color IS NOT DISTINCT FROM members.color
  JOIN names ON names.is_compiled = members.is_compiled
),
-- Most ranks of a job have the same figure: what follows has one row for each value of it.
levels AS (
  SELECT
    figures.group_id, figures.own_bytes, count(*) AS own_count,
    count(figures.unknown_reason) AS own_unknown_count,
    min(figures.unknown_reason) AS first_reason, min(figures.rank) AS first_rank
  FROM figures
  WHERE figures.own_bytes IS NOT NULL
    OR figures.unknown_reason IS NOT NULL
  GROUP BY figures.group_id, figures.own_bytes
),
counted AS (
  SELECT
    levels.group_id, levels.own_bytes, levels.own_count, levels.own_unknown_count,
    levels.first_rank, levels.first_reason,
    sum(levels.own_count) OVER (PARTITION BY levels.group_id) AS rank_count,
    sum(levels.own_unknown_count) OVER (PARTITION BY levels.group_id) AS unknown_count,
    min(levels.own_bytes) OVER (PARTITION BY levels.group_id) AS min_bytes,
    max(levels.own_bytes) OVER (PARTITION BY levels.group_id) AS max_bytes,
    sum(levels.own_count) OVER (
      PARTITION BY levels.group_id
      ORDER BY levels.own_bytes
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS place
  FROM levels
),
medians AS (
  SELECT
    counted.group_id, counted.own_bytes, counted.own_count, counted.own_unknown_count,
    counted.first_rank, counted.first_reason, counted.rank_count, counted.min_bytes,
    counted.max_bytes,
    min(
      CASE
        WHEN counted.unknown_count = 0 AND counted.place >= (counted.rank_count + 1) // 2
          THEN counted.own_bytes
      END
    ) OVER (PARTITION BY counted.group_id) AS median_bytes
  FROM counted
),
differences AS (
  SELECT
    medians.group_id, medians.own_bytes, medians.own_count, medians.own_unknown_count,
    medians.first_rank, medians.first_reason, medians.rank_count, medians.min_bytes,
    medians.max_bytes, medians.median_bytes,
    abs(medians.own_bytes - medians.median_bytes) AS distance_bytes,
    sum(medians.own_count) OVER (
      PARTITION BY medians.group_id
      ORDER BY abs(medians.own_bytes - medians.median_bytes)
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS distance_place
  FROM medians
),
typical AS (
  SELECT
    differences.group_id, differences.own_bytes, differences.own_count,
    differences.own_unknown_count, differences.first_rank, differences.first_reason,
    differences.rank_count, differences.min_bytes, differences.max_bytes,
    differences.median_bytes, differences.distance_bytes,
    min(
      CASE
        WHEN differences.distance_place >= (differences.rank_count + 1) // 2
          THEN differences.distance_bytes
      END
    ) OVER (PARTITION BY differences.group_id) AS typical_bytes
  FROM differences
),
judged AS MATERIALIZED (
  SELECT
    typical.group_id, typical.own_bytes, typical.own_count, typical.own_unknown_count,
    typical.first_rank, typical.first_reason, typical.min_bytes, typical.max_bytes,
    typical.median_bytes, typical.distance_bytes,
    CASE
      WHEN typical.distance_bytes IS NOT NULL
        THEN typical.rank_count > 2
          AND typical.distance_bytes > 5 * typical.typical_bytes
          AND typical.distance_bytes > params.odd_ratio * abs(typical.median_bytes)
    END AS is_odd
  FROM typical
  CROSS JOIN params
),
groups AS (
  SELECT
    judged.group_id,
    CAST(sum(judged.own_count) AS BIGINT) AS rank_count,
    CAST(sum(judged.own_unknown_count) AS BIGINT) AS unknown_count,
    min(judged.first_reason) AS first_reason,
    max(judged.min_bytes) AS min_bytes, max(judged.max_bytes) AS max_bytes,
    max(judged.median_bytes) AS median_bytes,
    min(CASE WHEN judged.own_bytes = judged.max_bytes THEN judged.first_rank END)
      AS fullest_rank,
    min(CASE WHEN judged.own_bytes = judged.min_bytes THEN judged.first_rank END)
      AS emptiest_rank,
    CAST(sum(CASE WHEN judged.is_odd THEN judged.own_count ELSE 0 END) AS BIGINT) AS odd_count
  FROM judged
  GROUP BY judged.group_id
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
-- The values that are shown: a rank of such a one has at least its place.
shown_values AS (
  SELECT
    classed.group_id, classed.own_bytes, classed.distance_bytes, classed.is_odd, classed.class,
    classed.first_rank
  FROM classed
  CROSS JOIN params
  WHERE classed.value_place = 1
    OR (classed.value_place <= params.rank_n AND classed.class < 2)
),
shown AS (
  SELECT
    figures.group_id, figures.rank, figures.own_bytes, figures.last_seconds,
    shown_values.is_odd,
    row_number() OVER (
      PARTITION BY figures.group_id
      ORDER BY
        shown_values.class, shown_values.distance_bytes DESC NULLS LAST, figures.rank,
        figures.own_bytes
    ) AS odd_place
  FROM shown_values
  JOIN figures
    ON figures.group_id = shown_values.group_id
    AND figures.own_bytes IS NOT DISTINCT FROM shown_values.own_bytes
  WHERE (figures.own_bytes IS NOT NULL OR figures.unknown_reason IS NOT NULL)
    AND (shown_values.class < 2 OR figures.rank = shown_values.first_rank)
)
SELECT
  names.figure,
  CASE WHEN kinds.is_compiled = 1 THEN kinds.function_name END AS function_name, kinds.platform,
  nullif(kinds.compilation_place, 0) AS compilation_place, kinds.color,
  nullif(kinds.job_name, '') AS run_name,
  kinds.other_labels, groups.rank_count,
  sizes.job_rank_count - groups.rank_count AS missing_count,
  nullif(
    CASE WHEN names.figure = 'peak' THEN kinds.peak_signature_count ELSE kinds.signature_count END,
    0
  ) AS signature_count,
  CASE WHEN groups.unknown_count = 0 THEN groups.min_bytes END AS min_bytes,
  groups.median_bytes,
  CASE WHEN groups.unknown_count = 0 THEN groups.max_bytes END AS max_bytes,
  CASE WHEN groups.unknown_count = 0 THEN groups.max_bytes - groups.min_bytes END AS spread_bytes,
  CASE
    WHEN groups.unknown_count = 0
      AND groups.max_bytes > 0
      THEN CAST(groups.max_bytes - groups.min_bytes AS DOUBLE) / nullif(groups.max_bytes, 0)
  END AS spread_ratio,
  CASE WHEN groups.unknown_count = 0 THEN groups.fullest_rank END AS fullest_rank,
  CASE WHEN groups.unknown_count = 0 THEN groups.emptiest_rank END AS emptiest_rank,
  CASE WHEN groups.unknown_count = 0 THEN groups.odd_count END AS odd_count,
  shown.rank, shown.own_bytes,
  shown.own_bytes - groups.median_bytes AS difference_bytes,
  shown.is_odd, shown.last_seconds, kinds.latest_seconds, groups.unknown_count,
  groups.first_reason AS unknown_reason
FROM shown
JOIN groups ON groups.group_id = shown.group_id
JOIN names ON names.figure_place = groups.group_id % 16
JOIN kinds ON kinds.kind_id = groups.group_id // 16
JOIN sizes
  ON sizes.job_name = kinds.job_name
  AND sizes.other_labels = kinds.other_labels
CROSS JOIN params
-- One process without a label is no job.
WHERE (kinds.is_labelled = 1 OR sizes.job_rank_count > 1)
  AND (
    shown.odd_place = 1
    OR (shown.odd_place <= params.rank_n AND (shown.is_odd OR shown.own_bytes IS NULL))
  )
ORDER BY
  CASE WHEN groups.unknown_count > 0 THEN 0 ELSE 1 END,
  CASE
    WHEN groups.unknown_count = 0
      AND groups.odd_count > 0
      OR sizes.job_rank_count > groups.rank_count THEN 0
    ELSE 1
  END,
  CASE WHEN groups.unknown_count = 0 THEN groups.max_bytes - groups.min_bytes END
    DESC NULLS FIRST,
  CASE WHEN groups.unknown_count = 0 THEN groups.max_bytes END DESC NULLS LAST,
  names.figure_place, kinds.function_name, kinds.platform NULLS LAST,
  kinds.color NULLS LAST, kinds.job_name, kinds.other_labels,
  kinds.compilation_place, shown.odd_place
LIMIT (SELECT top_n FROM params);
