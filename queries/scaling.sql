-- title: How the peak grows with a label such as the batch size
-- group: runs
--
-- Fits a line through runs that differ in one numeric label (ingest them with --label batch=8,
-- --label batch=16, …): peak = fixed part + slope * label. One row per function, memory space and
-- set of other labels; only runs whose other labels are equal are fitted together, so that
-- precision or remat do not mix; rows without two sizes to fit come last. Each of several
-- compilations is followed through those of the same signature, what is left by size, as bufdb diff
-- pairs two runs (view asked_series); several runs of one size count as several points.
-- Runs whose figure is unknown are no points; unknown_count says how many there are, and where it
-- leaves no point the row has nothing else.
-- With the parameter size the row predicts the figure for that size; with budget it says the
-- largest size that fits.
--
-- wrong when: Two points always lie on a line: look at point_count, r2 and max_error_ratio. Memory
-- is a step function of size: XLA chooses other layouts, fusions, library calls or
-- rematerialisation at other sizes, so what lies outside the sizes measured is a guess. The figure
-- is one program's and one memory space's; leave room for what else the device holds. A label that
-- is different in each run (a commit, a date) leaves no two runs alike: name the labels that matter
-- in fixed.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param label VARCHAR = 'batch': Label whose value is the size; runs in which it is no number are
--   left out.
-- param fixed VARCHAR = NULL: Labels, separated by commas, that must be equal within a fit; NULL
--   takes all others.
-- param metric VARCHAR = 'peak' | 'temp' | 'total': Figure to fit: the peak, the temp allocations,
--   or all allocations but thread-local ones.
-- param size DOUBLE = NULL: Size to predict the figure for.
-- param budget BIGINT = NULL: Bytes that the figure may not exceed.
-- param top_n BIGINT = 50: Rows to return.
--
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column compilation_place BIGINT: Which of several compilations of the function, 1 the largest.
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column other_labels VARCHAR: What the runs have in common, as K=V separated by blanks.
-- column point_count BIGINT: Runs in the fit.
-- column min_size DOUBLE: Smallest size among them.
-- column max_size DOUBLE: Largest size among them.
-- column largest_bytes HUGEINT: Largest figure among them [bytes].
-- column fixed_bytes HUGEINT: The line at size 0 [bytes]; NULL with fewer than two sizes.
-- column slope_bytes DOUBLE: The line's growth per unit of the label [bytes]; NULL likewise.
-- column r2 DOUBLE: Share of the figures' variance that the line explains (0 to 1); 1 if they do
--   not vary; NULL with fewer than two sizes.
-- column max_error_ratio DOUBLE: Largest distance of a figure from the line, divided by the
--   figure.
-- column predicted_bytes HUGEINT: The line at size [bytes]; NULL without size, or beyond 2^127.
-- column largest_size BIGINT: Largest whole size at which the line is within budget, 0 or less if
--   none is; NULL without budget, if the line does not grow, or beyond 2^63.
-- column unknown_count BIGINT: Runs left out of the fit because their figure is unknown.
-- column unknown_reason VARCHAR: Why, of several the first reason in alphabetical order; NULL if
--   all figures are known.
WITH params AS (
  SELECT
    coalesce(getvariable('label')::VARCHAR, 'batch') AS label,
    getvariable('fixed')::VARCHAR AS fixed,
    coalesce(getvariable('metric')::VARCHAR, 'peak') AS metric,
    getvariable('size')::DOUBLE AS size,
    getvariable('budget')::BIGINT AS budget,
    coalesce(getvariable('top_n')::BIGINT, 50) AS top_n
),
points AS (
  SELECT
    history.function_name, history.platform, history.compilation_place, history.color,
    run_groups.other_labels,
    dense_rank() OVER (ORDER BY history.series_place, run_groups.other_labels) AS fit_place,
    TRY_CAST(run_groups.label_value AS DOUBLE) AS size,
    CASE params.metric
      WHEN 'peak' THEN history.peak_bytes
      WHEN 'temp' THEN history.temp_bytes
      WHEN 'total' THEN history.total_bytes - history.thread_local_bytes
    END AS bytes,
    history.unknown_reason
  FROM asked_history AS history
  CROSS JOIN params
  JOIN runs_by_label(
    (SELECT params.label FROM params), (SELECT params.fixed FROM params)
  ) AS run_groups
    ON run_groups.run_name = history.run_name
  WHERE isfinite(TRY_CAST(run_groups.label_value AS DOUBLE))
),
centred_points AS (
  SELECT
    fit_place, size, bytes,
    avg(size) OVER (PARTITION BY fit_place) AS mean_size,
    avg(bytes) OVER (PARTITION BY fit_place) AS mean_bytes
  FROM points
  WHERE bytes IS NOT NULL
),
sums AS (
  SELECT
    fit_place, mean_size, mean_bytes,
    count(*) AS point_count,
    min(size) AS min_size,
    max(size) AS max_size,
    max(bytes) AS largest_bytes,
    -- Rounded, as all figures below, so that the order of summation does not show.
    round(
      sum((size - mean_size) * (bytes - mean_bytes)) / nullif(sum(pow(size - mean_size, 2)), 0), 6
    ) AS slope_bytes,
    sum(pow(bytes - mean_bytes, 2)) AS bytes_squares
  FROM centred_points
  GROUP BY fit_place, mean_size, mean_bytes
),
errors AS (
  SELECT
    sums.fit_place,
    sum(pow(
      points.bytes - sums.mean_bytes - sums.slope_bytes * (points.size - sums.mean_size), 2
    )) AS error_squares,
    max(
      abs(points.bytes - sums.mean_bytes - sums.slope_bytes * (points.size - sums.mean_size))
      / nullif(points.bytes, 0)
    ) AS max_error_ratio
  FROM sums
  JOIN centred_points AS points ON points.fit_place = sums.fit_place
  GROUP BY sums.fit_place
),
groups AS (
  SELECT
    fit_place, function_name, platform, compilation_place, color, other_labels,
    count(*) - count(bytes) AS unknown_count,
    min(unknown_reason) FILTER (WHERE bytes IS NULL) AS unknown_reason
  FROM points
  GROUP BY fit_place, function_name, platform, compilation_place, color, other_labels
)
SELECT
  groups.function_name, groups.platform, groups.compilation_place, groups.color,
  groups.other_labels,
  coalesce(sums.point_count, 0) AS point_count,
  sums.min_size, sums.max_size, sums.largest_bytes,
  TRY_CAST(round(sums.mean_bytes - sums.slope_bytes * sums.mean_size) AS HUGEINT) AS fixed_bytes,
  sums.slope_bytes,
  CASE
    WHEN sums.slope_bytes IS NULL THEN NULL
    WHEN sums.bytes_squares = 0 THEN 1
    ELSE round(greatest(1 - errors.error_squares / sums.bytes_squares, 0), 6)
  END AS r2,
  round(errors.max_error_ratio, 6) AS max_error_ratio,
  TRY_CAST(
    round(sums.mean_bytes + sums.slope_bytes * (params.size - sums.mean_size)) AS HUGEINT
  ) AS predicted_bytes,
  CASE
    WHEN sums.slope_bytes > 0
      THEN TRY_CAST(
        floor(
          (params.budget - round(sums.mean_bytes - sums.slope_bytes * sums.mean_size))
          / sums.slope_bytes
        ) AS BIGINT
      )
  END AS largest_size,
  groups.unknown_count, groups.unknown_reason
FROM groups
CROSS JOIN params
LEFT JOIN sums ON sums.fit_place = groups.fit_place
LEFT JOIN errors ON errors.fit_place = groups.fit_place
ORDER BY
  CASE WHEN sums.point_count IS NULL THEN 0 WHEN sums.slope_bytes IS NULL THEN 2 ELSE 1 END,
  sums.largest_bytes DESC, groups.function_name, groups.platform NULLS LAST,
  groups.color NULLS LAST, groups.other_labels, groups.compilation_place
LIMIT (SELECT top_n FROM params);
