-- title: How the peak grows with a label such as the batch size
-- group: runs
-- engines: duckdb, spark, sail
--
-- Fits a curve through runs that differ in one numeric label (ingest them with --label batch=8,
-- --label batch=16, …): constant, a line, or a parabola such as attention gives over the length of
-- a sequence, the simplest that is within max_error of every figure. One row per function, memory
-- space and set of other labels; only runs whose other labels are equal are fitted together, so
-- that precision or remat do not mix; rows without a curve come last. Each of several compilations
-- is followed through those of the same signature, what is left by size, as bufdb diff pairs two
-- runs (view asked_series); several runs of one size count as several points. Runs whose figure is
-- unknown are no points; unknown_count says how many there are, and where it leaves no point the
-- row has nothing else.
-- Two labels, as in label=batch,length, make one size of their product: the curve is constant or a
-- line over the product, for runs in which neither label follows from the other. With budget such a
-- row stands once for each value of the second label, with the largest first label there.
-- With the parameter size the row predicts the figure for that size; with budget it says the
-- largest size that fits. Both are ranges: what the curve says with all points, and with each size
-- left out in turn. There is no forecast from fewer than three sizes (four for a parabola), for two
-- always lie on a line, and none where no curve fits: no_fit_reason says so.
--
-- wrong when: Memory is a step function of size: XLA chooses other layouts, fusions, library calls
-- or rematerialisation at other sizes, so what lies far outside the sizes measured is a guess, and
-- the range tells only how well the points agree. The figure is one program's and one memory
-- space's; leave room for what else the device holds. A label that is different in each run (a
-- date) leaves no two runs alike: name the labels that matter in fixed. A function that was renamed
-- is another function: of many runs, which names are one would depend on the runs asked for. bufdb
-- diff pairs those of two runs by signature and likeness.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param label VARCHAR = 'batch': Label whose value is the size, or two, separated by commas, whose
--   product is; runs in which one is no number are left out.
-- param fixed VARCHAR = NULL: Labels, separated by commas, that must be equal within a fit; NULL
--   takes all others but metadata.
-- param metric VARCHAR = 'peak' | 'temp' | 'total': Figure to fit: the peak, the temp allocations,
--   or all allocations but thread-local ones.
-- param max_error DOUBLE = 0.02: How far the curve may be from a figure, as share of it (0 to 1).
-- param size VARCHAR = NULL: Size to predict the figure for; of two labels their product, or both
--   values, as in 16,2048.
-- param budget BIGINT = NULL: What the figure may not exceed [bytes].
-- param top_n BIGINT = 50: Rows to return.
--
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column compilation_place BIGINT: Which of several compilations of the function, 1 the largest.
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column other_labels VARCHAR: Labels that the runs have in common, as K=V separated by blanks;
--   metadata (bufdb capture's labels) only where fixed names it.
-- column point_count BIGINT: Runs in the fit.
-- column min_size DOUBLE: Smallest size among them, of two labels the smallest product.
-- column max_size DOUBLE: Largest size among them.
-- column largest_bytes HUGEINT: Largest figure among them [bytes].
-- column size_count BIGINT: Different sizes among them.
-- column model VARCHAR: constant, linear or quadratic, of two labels constant or product, a line
--   over their product; NULL if there is no fit.
-- column fixed_bytes HUGEINT: The curve at size 0 [bytes]; NULL without one.
-- column slope_bytes DOUBLE: Its growth per unit of the size at size 0 [bytes]; NULL likewise.
-- column square_factor DOUBLE: Bytes for each square of the size, 0 but for quadratic;
--   NULL likewise.
-- column max_error_ratio DOUBLE: Largest distance of a figure from the curve, divided by the
--   figure; NULL likewise.
-- column low_predicted_bytes HUGEINT: Least that the curve says at size, with each size left out in
--   turn [bytes]; NULL without size or a curve, or beyond 2^127.
-- column predicted_bytes HUGEINT: What it says with all of them [bytes]; NULL likewise.
-- column high_predicted_bytes HUGEINT: Most of these [bytes]; NULL likewise.
-- column low_largest_size BIGINT: Largest whole size at which each of these curves is within
--   budget: take this one. 0 or less if none is; NULL without budget or a curve, if one of them
--   does not grow, or beyond 2^63.
-- column high_largest_size BIGINT: Largest whole size at which one of them is; NULL likewise.
-- column second_size DOUBLE: With budget and two labels a value of the second among the points;
--   NULL otherwise, or without a curve.
-- column low_largest_first BIGINT: Largest whole value of the first label at which each of these
--   curves is within budget, where the second is second_size: take this one. NULL without
--   second_size, where that is not above 0, or where low_largest_size is.
-- column high_largest_first BIGINT: Largest at which one of them is; NULL likewise.
-- column no_fit_reason VARCHAR: Why there is no curve; NULL if there is one, or no point.
-- column unknown_count BIGINT: Runs left out of the fit because their figure is unknown.
-- column unknown_reason VARCHAR: Why, of several the first reason in alphabetical order; NULL if
--   all figures are known.
WITH params AS (
  SELECT
    coalesce(getvariable('label')::VARCHAR, 'batch') AS label,
    getvariable('fixed')::VARCHAR AS fixed,
    coalesce(getvariable('metric')::VARCHAR, 'peak') AS metric,
    coalesce(getvariable('max_error')::DOUBLE, 0.02) AS max_error,
    getvariable('size')::VARCHAR AS size,
    getvariable('budget')::BIGINT AS budget,
    coalesce(getvariable('top_n')::BIGINT, 50) AS top_n
),
-- The numbers in label and size.
asked AS (
  SELECT
    len(string_split(params.label, ',')) AS label_count,
    string_split(params.size, ',')::DOUBLE[] AS sizes
  FROM params
),
target AS (
  SELECT
    CASE
      WHEN len(sizes) = 1 THEN sizes[1]
      WHEN len(sizes) = 2 AND label_count = 2 THEN sizes[1] * sizes[2]
      WHEN len(sizes) > 1 THEN error('size is one number, or as many as there are labels')
    END AS size
  FROM asked
),
labelled AS (
  SELECT
    run_groups.run_name, run_groups.other_labels, asked.label_count,
    TRY_CAST(string_split(run_groups.label_value, ',') AS DOUBLE[]) AS sizes
  FROM asked
  CROSS JOIN runs_by_label(
    (SELECT params.label FROM params), (SELECT params.fixed FROM params)
  ) AS run_groups
),
sized AS (
  SELECT
    run_name, other_labels, label_count,
    sizes[1] AS first_size,
    CASE WHEN label_count = 2 THEN sizes[2] END AS second_size,
    CASE WHEN label_count = 2 THEN sizes[1] * sizes[2] ELSE sizes[1] END AS size
  FROM labelled
  WHERE len(sizes) = label_count
),
points AS (
  SELECT
    history.function_name, history.platform, history.compilation_place, history.color,
    sized.other_labels,
    dense_rank() OVER (ORDER BY history.series_place, sized.other_labels) AS fit_place,
    sized.label_count, sized.first_size, sized.second_size, sized.size,
    CASE params.metric
      WHEN 'peak' THEN history.peak_bytes
      WHEN 'temp' THEN history.temp_bytes
      WHEN 'total' THEN history.total_bytes - history.thread_local_bytes
    END AS bytes,
    history.unknown_reason
  FROM asked_history AS history
  CROSS JOIN params
  JOIN sized ON sized.run_name = history.run_name
  WHERE isfinite(sized.size)
),
counted AS (
  SELECT
    fit_place,
    count(*) AS point_count,
    count(DISTINCT size) AS size_count,
    min(label_count) AS label_count,
    -- Where one label follows from the other, what grows with one may grow with any power of it.
    count(DISTINCT (first_size, second_size)) > count(DISTINCT first_size)
      AND count(DISTINCT (first_size, second_size)) > count(DISTINCT second_size) AS is_free,
    min(size) AS min_size,
    max(size) AS max_size,
    min(bytes) AS least_bytes,
    max(bytes) AS largest_bytes
  FROM points
  WHERE bytes IS NOT NULL
  GROUP BY fit_place
),
-- All points of a fit, and those without one of its sizes. Weighted, for distances count as share
-- of the figure: without that the largest alone would draw the curve.
samples AS (
  SELECT
    points.fit_place, NULL AS left_out, points.size, points.bytes,
    1 / nullif(pow(greatest(points.bytes, 1)::DOUBLE, 2), 0) AS weight
  FROM points
  WHERE points.bytes IS NOT NULL
  UNION ALL
  SELECT
    points.fit_place, others.size AS left_out, points.size, points.bytes,
    1 / nullif(pow(greatest(points.bytes, 1)::DOUBLE, 2), 0) AS weight
  FROM points
  JOIN (SELECT DISTINCT fit_place, size FROM points WHERE bytes IS NOT NULL) AS others
    ON others.fit_place = points.fit_place
    AND others.size <> points.size
  WHERE points.bytes IS NOT NULL
),
centred AS (
  SELECT
    fit_place, left_out,
    sum(weight * size) / nullif(sum(weight), 0) AS mean_size,
    sum(weight * bytes) / nullif(sum(weight), 0) AS mean_bytes
  FROM samples
  GROUP BY fit_place, left_out
),
offsets AS (
  SELECT
    samples.fit_place, samples.left_out, centred.mean_size, centred.mean_bytes, samples.weight,
    samples.size - centred.mean_size AS u,
    samples.bytes - centred.mean_bytes AS v
  FROM samples
  JOIN centred
    ON centred.fit_place = samples.fit_place
    AND centred.left_out IS NOT DISTINCT FROM samples.left_out
),
moments AS (
  SELECT
    fit_place, left_out, mean_size, mean_bytes,
    sum(weight * u * u) / nullif(sum(weight), 0) AS square_mean,
    sum(weight * u * u * u) / nullif(sum(weight * u * u), 0) AS skew,
    sum(weight * u * v) / nullif(sum(weight * u * u), 0) AS slope
  FROM offsets
  GROUP BY fit_place, left_out, mean_size, mean_bytes
),
-- The parabola that is orthogonal to every line: u * u - skew * u - square_mean.
squares AS (
  SELECT
    moments.fit_place, moments.left_out, moments.mean_size, moments.mean_bytes,
    moments.square_mean, moments.skew, moments.slope,
    sum(weight * (u * u - moments.skew * u - moments.square_mean) * v)
      / nullif(sum(weight * pow(u * u - moments.skew * u - moments.square_mean, 2)), 0) AS factor
  FROM moments
  JOIN offsets
    ON offsets.fit_place = moments.fit_place
    AND offsets.left_out IS NOT DISTINCT FROM moments.left_out
  GROUP BY
    moments.fit_place, moments.left_out, moments.mean_size, moments.mean_bytes,
    moments.square_mean, moments.skew, moments.slope
),
models AS (
  SELECT kinds.label_count, kinds.model, kinds.rank, kinds.least_sizes
  FROM (
    VALUES
      (1, 'constant', 1, 2), (1, 'linear', 2, 3), (1, 'quadratic', 3, 4),
      (2, 'constant', 1, 2), (2, 'product', 2, 3)
  ) AS kinds (label_count, model, rank, least_sizes)
),
-- bytes = c0 + c1 * u + c2 * u * u, with u from the mean size.
curves AS (
  SELECT
    squares.fit_place, squares.left_out, models.model, models.rank, models.least_sizes,
    squares.mean_size,
    CASE models.model
      WHEN 'quadratic' THEN squares.mean_bytes - squares.factor * squares.square_mean
      ELSE squares.mean_bytes
    END AS c0,
    CASE models.model
      WHEN 'constant' THEN 0
      WHEN 'quadratic' THEN squares.slope - squares.factor * squares.skew
      ELSE squares.slope
    END AS c1,
    CASE models.model WHEN 'quadratic' THEN squares.factor ELSE 0 END AS c2
  FROM squares
  CROSS JOIN asked
  JOIN models ON models.label_count = asked.label_count
),
distances AS (
  SELECT
    curves.fit_place, curves.model, curves.rank, curves.least_sizes, curves.c2,
    max(
      abs(
        points.bytes - curves.c0 - curves.c1 * (points.size - curves.mean_size)
        - curves.c2 * pow(points.size - curves.mean_size, 2)
      ) / nullif(points.bytes, 0)
    ) AS max_error_ratio
  FROM curves
  JOIN points
    ON points.fit_place = curves.fit_place
    AND points.bytes IS NOT NULL
  WHERE curves.left_out IS NULL
    AND curves.c1 IS NOT NULL
    AND curves.c2 IS NOT NULL
  GROUP BY curves.fit_place, curves.model, curves.rank, curves.least_sizes, curves.c2
),
tried AS (
  SELECT
    fit_place, model, rank, least_sizes, c2, max_error_ratio,
    max(CASE WHEN model = 'linear' THEN max_error_ratio END) OVER (PARTITION BY fit_place)
      AS line_error_ratio
  FROM distances
),
fitting AS (
  SELECT
    tried.fit_place, tried.model, tried.max_error_ratio,
    -- Where a parabola is ten times as near, a line leaves the points further out.
    CASE
      WHEN tried.model = 'quadratic'
        AND tried.line_error_ratio > 0.0005
        AND tried.max_error_ratio < 0.1 * tried.line_error_ratio
        THEN 1.5
      ELSE tried.rank
    END AS preference
  FROM tried
  CROSS JOIN params
  JOIN counted ON counted.fit_place = tried.fit_place
  -- What is constant within a thousandth only is one: a line may rise slowly.
  WHERE tried.max_error_ratio
      <= CASE tried.model WHEN 'constant' THEN 0.001 ELSE params.max_error END
    AND counted.size_count >= tried.least_sizes
    AND (counted.label_count = 1 OR counted.is_free)
    AND tried.c2 >= 0
),
chosen AS (
  SELECT
    fitting.fit_place, fitting.model, fitting.max_error_ratio,
    row_number() OVER (PARTITION BY fitting.fit_place ORDER BY fitting.preference) AS place
  FROM fitting
),
told AS (
  SELECT
    chosen.fit_place, chosen.model, chosen.max_error_ratio, curves.left_out,
    curves.mean_size, curves.c0, curves.c1, curves.c2,
    round(
      curves.c0 + curves.c1 * (target.size - curves.mean_size)
      + curves.c2 * pow(target.size - curves.mean_size, 2)
    ) AS predicted,
    CASE
      WHEN curves.c2 > 0
        AND pow(curves.c1, 2) >= 4 * curves.c2 * (curves.c0 - params.budget)
        THEN curves.mean_size + (
          sqrt(greatest(pow(curves.c1, 2) - 4 * curves.c2 * (curves.c0 - params.budget), 0))
          - curves.c1
        ) / nullif(2 * curves.c2, 0)
      WHEN curves.c2 > 0 THEN 0
      WHEN curves.c2 = 0 AND curves.c1 > 0
        THEN curves.mean_size + (params.budget - curves.c0) / nullif(curves.c1, 0)
    END AS largest
  FROM chosen
  CROSS JOIN params
  CROSS JOIN target
  JOIN curves
    ON curves.fit_place = chosen.fit_place
    AND curves.model = chosen.model
  WHERE chosen.place = 1
    AND curves.c1 IS NOT NULL
    AND curves.c2 IS NOT NULL
),
fits AS (
  SELECT
    fit_place, model, max_error_ratio,
    max(CASE WHEN left_out IS NULL THEN c0 - c1 * mean_size + c2 * mean_size * mean_size END)
      AS fixed,
    max(CASE WHEN left_out IS NULL THEN c1 - 2 * c2 * mean_size END) AS slope,
    max(CASE WHEN left_out IS NULL THEN c2 END) AS factor,
    min(predicted) AS low_predicted,
    max(CASE WHEN left_out IS NULL THEN predicted END) AS predicted,
    max(predicted) AS high_predicted,
    CASE WHEN count(largest) = count(*) THEN min(largest) END AS low_largest,
    CASE WHEN count(largest) = count(*) THEN max(largest) END AS high_largest
  FROM told
  GROUP BY fit_place, model, max_error_ratio
),
seconds AS (
  SELECT DISTINCT points.fit_place, points.second_size
  FROM points
  JOIN fits ON fits.fit_place = points.fit_place
  CROSS JOIN params
  WHERE points.bytes IS NOT NULL
    AND points.second_size IS NOT NULL
    AND params.budget IS NOT NULL
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
  coalesce(counted.point_count, 0) AS point_count,
  counted.min_size, counted.max_size, counted.largest_bytes, counted.size_count, fits.model,
  TRY_CAST(round(fits.fixed) AS HUGEINT) AS fixed_bytes,
  -- Rounded, so that the order of summation does not show.
  round(fits.slope, 6) AS slope_bytes,
  round(fits.factor, 6) AS square_factor,
  round(fits.max_error_ratio, 6) AS max_error_ratio,
  TRY_CAST(fits.low_predicted AS HUGEINT) AS low_predicted_bytes,
  TRY_CAST(fits.predicted AS HUGEINT) AS predicted_bytes,
  TRY_CAST(fits.high_predicted AS HUGEINT) AS high_predicted_bytes,
  TRY_CAST(floor(round(fits.low_largest, 6)) AS BIGINT) AS low_largest_size,
  TRY_CAST(floor(round(fits.high_largest, 6)) AS BIGINT) AS high_largest_size,
  seconds.second_size,
  CASE
    WHEN seconds.second_size > 0
      THEN TRY_CAST(floor(round(fits.low_largest / nullif(seconds.second_size, 0), 6)) AS BIGINT)
  END AS low_largest_first,
  CASE
    WHEN seconds.second_size > 0
      THEN TRY_CAST(floor(round(fits.high_largest / nullif(seconds.second_size, 0), 6)) AS BIGINT)
  END AS high_largest_first,
  CASE
    WHEN fits.model IS NOT NULL OR counted.point_count IS NULL THEN NULL
    WHEN counted.label_count > 2 THEN 'a curve takes one label or two'
    WHEN counted.label_count = 2 AND counted.size_count < 3
      THEN 'a line through fewer than three products says nothing'
    WHEN counted.label_count = 2 AND NOT counted.is_free
      THEN 'one label follows from the other: vary each while the other stays'
    WHEN counted.label_count = 2
      THEN 'no line over the product is within max_error of every figure'
    WHEN counted.size_count < 3 THEN 'a line through fewer than three sizes says nothing'
    WHEN counted.size_count < 4 THEN 'no line fits, and a parabola takes four sizes'
    ELSE 'neither a line nor a parabola is within max_error of every figure'
  END AS no_fit_reason,
  groups.unknown_count, groups.unknown_reason
FROM groups
CROSS JOIN params
LEFT JOIN counted ON counted.fit_place = groups.fit_place
LEFT JOIN fits ON fits.fit_place = groups.fit_place
LEFT JOIN seconds ON seconds.fit_place = groups.fit_place
ORDER BY
  CASE WHEN counted.point_count IS NULL THEN 0 WHEN fits.model IS NULL THEN 2 ELSE 1 END,
  counted.largest_bytes DESC, groups.function_name, groups.platform NULLS LAST,
  groups.color NULLS LAST, groups.other_labels, groups.compilation_place, seconds.second_size
LIMIT (SELECT top_n FROM params);
