-- title: Lines whose arrays grow in the ranks of a job, odd ones first
-- group: change
-- engines: duckdb, spark, sail
--
-- Where the query ranks says that ranks have grown, these are the lines of Python that made the
-- arrays. Of each process with several snapshots (bufdb capture --watch-every, mark of
-- bufdb.watch), what a line has at the first one is compared with the last, or with the failure,
-- on all of its devices. For each line and shape that grows anywhere one row per process that is
-- odd, or else for the one that grows most, with the spread over all processes of the job. A
-- process without such arrays at either end has grown by 0 bytes there.
-- A process is odd if its growth differs from the median by more than odd_ratio, and by more than
-- five times the median difference. First come lines that grow in some processes only, or that are
-- odd in some; then those that grow most. process-growth with run and profile of a row says when
-- it grew, what holds it, and whether it is a leak.
--
-- wrong when: What grows and shrinks again between the first and the last snapshot is not seen. A
-- process that ended before the others, such as one that was killed (last_seconds less than
-- latest_seconds), has grown less than they later on. Ranks of a pipeline differ by stage.
--
-- A process of a run is compared if the run has a program that function, platform, color and module
-- select.
--
-- param run, function, platform, color, module
-- param profile VARCHAR = NULL: Only processes whose account_name, such as process-2/memory.prof,
--   matches this glob.
-- param label VARCHAR = 'rank': Label that differs between runs that are ranks of one job. The
--   processes of a run without it are compared with each other.
-- param fixed VARCHAR = NULL: Labels, separated by commas, that must be equal within a job; NULL
--   takes all others except metadata.
-- param odd_ratio DOUBLE = 0.02: Share of the median by which an odd process differs at the least.
-- param rank_n BIGINT = 3: Odd processes to show of each line, the most different ones.
-- param top_n = 50
--
-- column source VARCHAR: Line of Python that made the arrays, as file:line; "library file:line"
--   where all is library code, (no stack) where JAX has none.
-- column python_function_name VARCHAR: Function of that line; NULL if unknown.
-- column shape VARCHAR: Type and dimensions of the arrays; NULL if not known.
-- column process_count BIGINT: Processes of the job with several snapshots.
-- column grown_count BIGINT: Those in which these arrays have more bytes at the end.
-- column missing_count BIGINT: Those that have none of them, neither at the first snapshot nor at
--   the last.
-- column min_growth_bytes BIGINT: Smallest growth of the processes [bytes]; negative if it shrank.
-- column median_growth_bytes BIGINT: Median growth, the lower one of two [bytes].
-- column max_growth_bytes BIGINT: Largest growth [bytes].
-- column odd_count BIGINT: Processes that are odd, those without such arrays included.
-- column run_name VARCHAR: The run of the process of this row.
-- column account_name VARCHAR: The process: its profiles without the number of a snapshot.
-- column growth_bytes BIGINT: Its growth [bytes].
-- column is_odd BOOLEAN: Whether it is odd.
-- column last_seconds DOUBLE: Time of its last snapshot [s]; NULL if not known.
-- column latest_seconds DOUBLE: The largest of all processes [s]; NULL if no time is known.
WITH params AS (
  SELECT
    coalesce(getvariable('label')::VARCHAR, 'rank') AS label,
    getvariable('fixed')::VARCHAR AS fixed,
    coalesce(getvariable('odd_ratio')::DOUBLE, 0.02) AS odd_ratio,
    coalesce(getvariable('rank_n')::BIGINT, 3) AS rank_n,
    coalesce(getvariable('top_n')::BIGINT, 50) AS top_n
),
labelled AS (
  SELECT run_groups.run_name, run_groups.other_labels
  FROM runs_by_label(
    (SELECT params.label FROM params), (SELECT params.fixed FROM params)
  ) AS run_groups
),
-- Of a failure no number is known: it comes last.
chosen AS (
  SELECT
    asked_moments.run_name, asked_moments.account_name, asked_moments.profile_name,
    asked_moments.elapsed_seconds,
    coalesce(asked_moments.snapshot_ordinal, 9223372036854775807) AS ordinal
  FROM asked_moments
),
-- Processes of one job have the same job_name and other_labels.
processes AS MATERIALIZED (
  SELECT
    row_number() OVER (ORDER BY spans.run_name, spans.account_name) AS process_id,
    spans.run_name, spans.account_name, spans.first_ordinal, spans.last_ordinal,
    spans.last_seconds,
    CASE WHEN labelled.run_name IS NULL THEN spans.run_name ELSE '' END AS job_name,
    coalesce(labelled.other_labels, '') AS other_labels
  FROM (
    SELECT
      chosen.run_name, chosen.account_name, min(chosen.ordinal) AS first_ordinal,
      max(chosen.ordinal) AS last_ordinal, max(chosen.elapsed_seconds) AS last_seconds
    FROM chosen
    GROUP BY chosen.run_name, chosen.account_name
    HAVING min(chosen.ordinal) < max(chosen.ordinal)
  ) AS spans
  LEFT JOIN labelled ON labelled.run_name = spans.run_name
),
jobs AS (
  SELECT
    processes.job_name, processes.other_labels, count(*) AS process_count,
    max(processes.last_seconds) AS latest_seconds
  FROM processes
  GROUP BY processes.job_name, processes.other_labels
),
ends AS (
  SELECT
    processes.process_id, processes.run_name, processes.job_name, processes.other_labels,
    chosen.profile_name,
    CASE WHEN chosen.ordinal = processes.last_ordinal THEN 1 ELSE -1 END AS sign
  FROM processes
  JOIN chosen
    ON chosen.run_name = processes.run_name
    AND chosen.account_name = processes.account_name
  WHERE chosen.ordinal IN (processes.first_ordinal, processes.last_ordinal)
),
changes AS MATERIALIZED (
  SELECT
    ends.process_id, ends.job_name, ends.other_labels, live_array_lines.source,
    live_array_lines.python_function_name, live_array_lines.shape,
    CAST(sum(ends.sign * live_array_lines.total_bytes) AS BIGINT) AS growth_bytes
  FROM ends
  JOIN live_array_lines
    ON live_array_lines.run_name = ends.run_name
    AND live_array_lines.profile_name = ends.profile_name
  GROUP BY
    ends.process_id, ends.job_name, ends.other_labels, live_array_lines.source,
    live_array_lines.python_function_name, live_array_lines.shape
),
-- Lines by number, so that what follows has no names in each row.
lines AS MATERIALIZED (
  SELECT
    row_number() OVER (
      ORDER BY
        changes.job_name, changes.other_labels, changes.source, changes.python_function_name,
        changes.shape
    ) AS line_id,
    changes.job_name, changes.other_labels, changes.source, changes.python_function_name,
    changes.shape, count(*) AS holder_count,
    count(CASE WHEN changes.growth_bytes > 0 THEN 1 END) AS grown_count
  FROM changes
  GROUP BY
    changes.job_name, changes.other_labels, changes.source, changes.python_function_name,
    changes.shape
  HAVING max(changes.growth_bytes) > 0
),
figures AS (
  SELECT lines.line_id, changes.process_id, changes.growth_bytes
  FROM changes
  JOIN lines
    ON lines.job_name = changes.job_name
    AND lines.other_labels = changes.other_labels
    AND lines.source = changes.source
    AND lines.python_function_name IS NOT DISTINCT FROM changes.python_function_name
    AND lines.shape IS NOT DISTINCT FROM changes.shape
),
-- Most processes of a job grow alike: what follows has one row for each value.
levels AS (
  SELECT
    parts.line_id, parts.growth_bytes, CAST(sum(parts.part_count) AS BIGINT) AS level_count
  FROM (
    SELECT figures.line_id, figures.growth_bytes, 1 AS part_count
    FROM figures
    UNION ALL
    SELECT
      lines.line_id, 0 AS growth_bytes, jobs.process_count - lines.holder_count AS part_count
    FROM lines
    JOIN jobs
      ON jobs.job_name = lines.job_name
      AND jobs.other_labels = lines.other_labels
    WHERE jobs.process_count > lines.holder_count
  ) AS parts
  GROUP BY parts.line_id, parts.growth_bytes
),
counted AS (
  SELECT
    levels.line_id, levels.growth_bytes, levels.level_count,
    sum(levels.level_count) OVER (PARTITION BY levels.line_id) AS process_count,
    sum(levels.level_count) OVER (
      PARTITION BY levels.line_id
      ORDER BY levels.growth_bytes
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS place
  FROM levels
),
medians AS (
  SELECT
    counted.line_id, counted.growth_bytes, counted.level_count, counted.process_count,
    min(
      CASE WHEN counted.place >= (counted.process_count + 1) // 2 THEN counted.growth_bytes END
    ) OVER (PARTITION BY counted.line_id) AS median_bytes
  FROM counted
),
differences AS (
  SELECT
    medians.line_id, medians.growth_bytes, medians.level_count, medians.process_count,
    medians.median_bytes, abs(medians.growth_bytes - medians.median_bytes) AS distance_bytes,
    sum(medians.level_count) OVER (
      PARTITION BY medians.line_id
      ORDER BY abs(medians.growth_bytes - medians.median_bytes)
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS distance_place
  FROM medians
),
typical AS (
  SELECT
    differences.line_id, differences.growth_bytes, differences.level_count,
    differences.process_count, differences.median_bytes, differences.distance_bytes,
    min(
      CASE
        WHEN differences.distance_place >= (differences.process_count + 1) // 2
          THEN differences.distance_bytes
      END
    ) OVER (PARTITION BY differences.line_id) AS typical_bytes
  FROM differences
),
judged AS MATERIALIZED (
  SELECT
    typical.line_id, typical.growth_bytes, typical.level_count, typical.median_bytes,
    typical.process_count > 2
      AND typical.distance_bytes > 5 * typical.typical_bytes
      AND typical.distance_bytes > params.odd_ratio * abs(typical.median_bytes) AS is_odd
  FROM typical
  CROSS JOIN params
),
spreads AS (
  SELECT
    judged.line_id, min(judged.growth_bytes) AS min_bytes, max(judged.growth_bytes) AS max_bytes,
    max(judged.median_bytes) AS median_bytes,
    CAST(sum(CASE WHEN judged.is_odd THEN judged.level_count ELSE 0 END) AS BIGINT) AS odd_count
  FROM judged
  GROUP BY judged.line_id
),
shown AS (
  SELECT
    figures.line_id, figures.process_id, figures.growth_bytes, judged.is_odd,
    row_number() OVER (
      PARTITION BY figures.line_id
      ORDER BY
        CASE WHEN judged.is_odd THEN 0 ELSE 1 END,
        CASE WHEN judged.is_odd THEN abs(figures.growth_bytes - judged.median_bytes) END
          DESC NULLS LAST,
        figures.growth_bytes DESC, figures.process_id
    ) AS place
  FROM figures
  JOIN judged
    ON judged.line_id = figures.line_id
    AND judged.growth_bytes = figures.growth_bytes
)
SELECT
  lines.source, lines.python_function_name, lines.shape, jobs.process_count, lines.grown_count,
  jobs.process_count - lines.holder_count AS missing_count,
  spreads.min_bytes AS min_growth_bytes, spreads.median_bytes AS median_growth_bytes,
  spreads.max_bytes AS max_growth_bytes, spreads.odd_count, processes.run_name,
  processes.account_name, shown.growth_bytes, shown.is_odd, processes.last_seconds,
  jobs.latest_seconds
FROM shown
JOIN lines ON lines.line_id = shown.line_id
JOIN spreads ON spreads.line_id = shown.line_id
JOIN processes ON processes.process_id = shown.process_id
JOIN jobs
  ON jobs.job_name = lines.job_name
  AND jobs.other_labels = lines.other_labels
CROSS JOIN params
WHERE shown.place = 1
  OR (shown.place <= params.rank_n AND shown.is_odd)
ORDER BY
  CASE WHEN spreads.odd_count > 0 OR lines.grown_count < jobs.process_count THEN 0 ELSE 1 END,
  spreads.max_bytes DESC, lines.line_id, shown.place
LIMIT (SELECT top_n FROM params);
