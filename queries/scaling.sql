-- title: Growth of memory with a label such as the batch size
-- group: change
-- engines: duckdb, spark, sail
--
-- Fits a curve through runs that differ in one numeric label (ingest them with --label batch=8,
-- --label batch=16, …): constant, a line, or a parabola (such as attention over sequence length),
-- the simplest that is within max_error of every figure. The figure is what XLA reserves, which a
-- device must hold; metric selects others. One row per function, memory space and set of other
-- labels; only runs with equal other labels are fitted together, so that precision or remat do not
-- mix; rows without a curve come last. If there are several compilations, each is followed through
-- those of the same signature, the rest by size, as bufdb diff pairs two runs (view asked_series);
-- several runs of one size count as several points. Runs with an unknown figure are not points;
-- unknown_count counts them, and if it leaves no point, the row has nothing else.
--
-- Two labels, as in label=batch,length, use their product as the size: the curve is constant or a
-- line over the product, for runs in which neither label determines the other. With budget there is
-- one such row per value of the second label, with the largest first label there. With the
-- parameter size the row predicts the figure for that size; with budget it gives the largest size
-- that fits, and the largest one that is sure because it was compiled. There is no forecast from
-- fewer than three sizes (four for a parabola), because two are always on a line, or if no curve
-- fits; no_fit_reason says so.
--
-- A forecast is a range. Its ends are the minimum and maximum over all curves that fit and the next
-- more complex one, with all points and with each size left out in turn, widened for what so few
-- points cannot show, more with distance: beyond the largest size growth may differ by a twentieth,
-- more if points are far from their curve; up to a quarter of what does not grow yet may begin to;
-- and points slightly off a line that bend upward may be the start of a parabola.
-- data/studies/forecasts.md lists how often such ranges held: least often for parabolas far
-- out, where XLA uses other kernels for attention.
--
-- wrong when: Memory is a step function of size: XLA chooses other layouts, fusions, library calls
-- or rematerialization at other sizes. Beyond twice the largest size a range is a guess
-- (guess_reason): compile that size to prove it. The figure is for one program and one memory
-- space; leave room for what else the device holds. A label that differs in each run (a date)
-- leaves no two runs to compare: name the labels that matter in fixed. A renamed function counts as
-- another function: over many runs, matching names would depend on the runs selected. bufdb diff
-- pairs those of two runs by signature and similarity.
--
-- param run, function, platform, color, module
-- param label VARCHAR = 'batch': Label whose value is the size, or two, separated by commas, whose
--   product is; runs in which one is not a number are left out.
-- param fixed VARCHAR = NULL: Labels, separated by commas, that must be equal within a fit; NULL
--   takes all others except metadata.
-- param metric VARCHAR = 'need' | 'peak' | 'temp' | 'total': Figure to fit: what XLA reserves, all
--   allocations except thread-local ones (total is the same), the occupied peak, or the temp
--   allocations.
-- param max_error DOUBLE = 0.02: Largest distance of the curve from a figure, as a share of it (0
--   to 1).
-- param size VARCHAR = NULL: Size to predict the figure for; for two labels their product, or both
--   values, as in 16,2048.
-- param budget BIGINT = NULL: Upper limit of the figure [bytes].
-- param top_n = 50
--
-- column function_name, platform, compilation_place
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column other_labels VARCHAR: Labels that the runs have in common, as K=V separated by spaces;
--   metadata (bufdb capture's labels) only if fixed names it.
-- column point_count BIGINT: Runs in the fit.
-- column min_size DOUBLE: Smallest size among them, for two labels the smallest product.
-- column max_size DOUBLE: Largest size among them.
-- column largest_bytes HUGEINT: Largest figure among them [bytes].
-- column size_count BIGINT: Different sizes among them.
-- column model VARCHAR: constant, linear or quadratic; for two labels constant or product (a line
--   over their product); NULL without a fit.
-- column fixed_bytes HUGEINT: The curve at size 0 [bytes]; NULL without a fit.
-- column slope_bytes DOUBLE: Growth of the curve per unit of size, at size 0 [bytes]; NULL where
--   fixed_bytes is.
-- column square_factor DOUBLE: Bytes per squared size, 0 unless quadratic; NULL where fixed_bytes
--   is.
-- column max_error_ratio DOUBLE: Largest distance of a figure from the curve, divided by the
--   figure; NULL where fixed_bytes is.
-- column low_predicted_bytes HUGEINT: Low end of the predicted figure at size [bytes]; NULL without
--   size or a curve, or beyond 2^127.
-- column predicted_bytes HUGEINT: Figure of the curve with all points there [bytes]; NULL where
--   low_predicted_bytes is.
-- column high_predicted_bytes HUGEINT: High end of the predicted figure [bytes]; NULL where
--   low_predicted_bytes is.
-- column low_largest_size BIGINT: Largest whole size at which the high end of the range is within
--   budget: use this one. 0 or less if none is; NULL without budget or a curve, if the curve is
--   constant or does not grow, or beyond 2^63.
-- column high_largest_size BIGINT: Largest size at which the low end is within budget, below the
--   next compiled size that is over budget; NULL where low_largest_size is, and if the low end does
--   not grow.
-- column second_size DOUBLE: With budget and two labels, a value of the second among the points;
--   NULL otherwise, or without a curve.
-- column low_largest_first BIGINT: Largest whole value of the first label at which the high end is
--   within budget, if the second is second_size: use this one. NULL without second_size above 0, or
--   where low_largest_size is.
-- column high_largest_first BIGINT: Largest value at which the low end is within budget; NULL where
--   low_largest_first is.
-- column no_fit_reason VARCHAR: Why there is no curve; NULL if there is one, or no point.
-- column measured_largest_size DOUBLE: Largest size among the points whose figure is within budget:
--   sure, because it was compiled. NULL without budget, or if none is.
-- column distance_factor DOUBLE: Distance of the forecast from the points: the larger of size and,
--   with budget, high_largest_size (low_largest_size if that is NULL), divided by max_size. NULL
--   without either, or if max_size is not above 0.
-- column guess_reason VARCHAR: Why the range is a guess, and how to prove it; NULL up to twice
--   max_size.
-- column unknown_count BIGINT: Runs left out of the fit because their figure is unknown.
-- column unknown_reason VARCHAR: Why; for several, the first reason in alphabetical order; NULL if
--   all figures are known.
WITH params AS (
  SELECT
    coalesce(getvariable('label')::VARCHAR, 'batch') AS label,
    getvariable('fixed')::VARCHAR AS fixed,
    coalesce(getvariable('metric')::VARCHAR, 'need') AS metric,
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
      ELSE history.need_bytes
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
    -- If one label determines the other, growth with one may be any power of it.
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
-- All points of a fit, and those without one of its sizes. Weighted, because distances count as a
-- share of the figure: otherwise the largest figure alone would determine the curve.
samples AS (
  SELECT
    points.fit_place, CAST(NULL AS DOUBLE) AS left_out, points.size, points.bytes,
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
    tried.fit_place, tried.model, tried.rank, tried.max_error_ratio,
    -- If a parabola is ten times closer, a line misses the points further out.
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
  -- Constant only means within a thousandth: a line may rise slowly.
  WHERE tried.max_error_ratio
      <= CASE tried.model WHEN 'constant' THEN 0.001 ELSE params.max_error END
    AND counted.size_count >= tried.least_sizes
    AND (counted.label_count = 1 OR counted.is_free)
    AND tried.c2 >= 0
),
ranked AS (
  SELECT
    fitting.fit_place, fitting.model, fitting.rank, fitting.max_error_ratio,
    row_number() OVER (PARTITION BY fitting.fit_place ORDER BY fitting.preference) AS place
  FROM fitting
),
-- How far growth beyond the points may differ from that of a curve, by how close the points are to
-- their curve. Figures from data/studies/forecasts.md.
chosen AS (
  SELECT
    ranked.fit_place, ranked.model, ranked.rank, ranked.max_error_ratio, counted.max_size,
    1.002 + ranked.max_error_ratio AS spread,
    1 / nullif(1.002 + ranked.max_error_ratio, 0) AS shrink,
    least(0.5, 0.05 + 150 * ranked.max_error_ratio) AS less,
    0.05 + 10 * ranked.max_error_ratio AS more,
    CASE WHEN ranked.rank = 1 AND ranked.max_error_ratio < 1e-9 THEN 0.0025 ELSE 0.25 END
      / nullif(greatest(counted.max_size, 0), 0) AS hidden,
    CASE
      WHEN ranked.rank = 2 AND squares.factor > 0 THEN least(0.5, 90 * ranked.max_error_ratio)
    END / nullif(pow(greatest(counted.max_size, 0), 2), 0) AS bend
  FROM ranked
  JOIN counted ON counted.fit_place = ranked.fit_place
  JOIN squares
    ON squares.fit_place = ranked.fit_place
    AND squares.left_out IS NULL
  WHERE ranked.place = 1
),
-- The curves of a range, as bytes = b0 + b1 * u + b2 * u * u, with u from the largest size: those
-- that fit and the next more complex one, if it bends upward.
candidates AS (
  SELECT
    chosen.fit_place, curves.model, curves.left_out,
    curves.c0 + curves.c1 * (chosen.max_size - curves.mean_size)
      + curves.c2 * pow(chosen.max_size - curves.mean_size, 2) AS b0,
    curves.c1 + 2 * curves.c2 * (chosen.max_size - curves.mean_size) AS b1,
    curves.c2 AS b2
  FROM chosen
  JOIN counted ON counted.fit_place = chosen.fit_place
  JOIN curves ON curves.fit_place = chosen.fit_place
  LEFT JOIN fitting
    ON fitting.fit_place = curves.fit_place
    AND fitting.model = curves.model
  WHERE curves.c1 IS NOT NULL
    AND curves.c2 >= 0
    AND (fitting.model IS NOT NULL OR curves.rank = chosen.rank + 1)
    -- A curve needs as many sizes as it has coefficients.
    AND counted.size_count - CASE WHEN curves.left_out IS NULL THEN 0 ELSE 1 END >= curves.rank
),
-- Both ends of each, within and beyond the points.
ends AS (
  SELECT
    candidates.fit_place, 'low' AS side, candidates.b0 * chosen.shrink AS level,
    candidates.b1 * chosen.shrink AS inner_slope, candidates.b2 * chosen.shrink AS inner_bend,
    (candidates.b1 - chosen.less * abs(candidates.b1)) * chosen.shrink AS slope,
    (1 - chosen.less) * candidates.b2 * chosen.shrink AS bend
  FROM candidates
  JOIN chosen ON chosen.fit_place = candidates.fit_place
  UNION ALL
  SELECT
    candidates.fit_place, 'high' AS side, candidates.b0 * chosen.spread AS level,
    candidates.b1 * chosen.spread AS inner_slope, candidates.b2 * chosen.spread AS inner_bend,
    (
      candidates.b1 + chosen.more * abs(candidates.b1)
      + greatest(
        coalesce(
          CASE WHEN chosen.rank = 3 THEN 2 ELSE 1 END * chosen.hidden * candidates.b0, 0
        ) - 0.25 * candidates.b1,
        0
      )
    ) * chosen.spread AS slope,
    (
      (1 + chosen.more) * candidates.b2
      + CASE
        WHEN chosen.rank = 3
          THEN greatest(
            coalesce(chosen.hidden / nullif(chosen.max_size, 0) * candidates.b0, 0)
            - 0.25 * candidates.b2,
            0
          )
        ELSE coalesce(chosen.bend * candidates.b0, 0)
      END
    ) * chosen.spread AS bend
  FROM candidates
  JOIN chosen ON chosen.fit_place = candidates.fit_place
),
bounds AS (
  SELECT
    ends.fit_place, ends.side,
    CASE
      WHEN target.size >= chosen.max_size
        THEN ends.level + ends.slope * (target.size - chosen.max_size)
          + ends.bend * pow(target.size - chosen.max_size, 2)
      ELSE ends.level + ends.inner_slope * (target.size - chosen.max_size)
        + ends.inner_bend * pow(target.size - chosen.max_size, 2)
    END AS predicted,
    params.budget - ends.level AS rest,
    CASE WHEN params.budget >= ends.level THEN ends.slope ELSE ends.inner_slope END AS slope,
    CASE WHEN params.budget >= ends.level THEN ends.bend ELSE ends.inner_bend END AS bend
  FROM ends
  CROSS JOIN params
  CROSS JOIN target
  JOIN chosen ON chosen.fit_place = ends.fit_place
),
reached AS (
  SELECT
    bounds.fit_place, bounds.side, bounds.predicted,
    CASE
      WHEN chosen.rank = 1 OR bounds.slope <= 0 THEN NULL
      -- The whole parabola is above the budget.
      WHEN pow(bounds.slope, 2) + 4 * bounds.bend * bounds.rest < 0 THEN 0
      -- The root in a form that is also exact for a line.
      ELSE chosen.max_size + 2 * bounds.rest / nullif(
        bounds.slope + sqrt(greatest(pow(bounds.slope, 2) + 4 * bounds.bend * bounds.rest, 0)), 0
      )
    END AS largest
  FROM bounds
  JOIN chosen ON chosen.fit_place = bounds.fit_place
),
-- Compiled sizes take precedence over the curve.
measured AS (
  SELECT
    points.fit_place,
    max(CASE WHEN points.bytes <= params.budget THEN points.size END) AS fitting_size
  FROM points
  CROSS JOIN params
  GROUP BY points.fit_place
),
exceeding AS (
  SELECT points.fit_place, min(points.size) AS size
  FROM points
  CROSS JOIN params
  JOIN measured ON measured.fit_place = points.fit_place
  WHERE points.bytes > params.budget
    AND (measured.fitting_size IS NULL OR points.size > measured.fitting_size)
  GROUP BY points.fit_place
),
clipped AS (
  SELECT
    reached.fit_place, reached.side, reached.predicted,
    CASE
      WHEN counted.label_count = 1 AND reached.largest < measured.fitting_size
        THEN measured.fitting_size
      WHEN counted.label_count = 1 AND reached.largest >= exceeding.size
        THEN ceil(exceeding.size) - 1
      ELSE reached.largest
    END AS largest
  FROM reached
  JOIN counted ON counted.fit_place = reached.fit_place
  JOIN measured ON measured.fit_place = reached.fit_place
  LEFT JOIN exceeding ON exceeding.fit_place = reached.fit_place
),
ranges AS (
  SELECT
    fit_place,
    min(CASE WHEN side = 'low' THEN predicted END) AS low_predicted,
    max(CASE WHEN side = 'high' THEN predicted END) AS high_predicted,
    min(CASE WHEN side = 'high' THEN largest END) AS low_largest,
    CASE
      WHEN count(CASE WHEN side = 'low' THEN largest END)
        = count(CASE WHEN side = 'low' THEN side END)
        THEN max(CASE WHEN side = 'low' THEN largest END)
    END AS high_largest
  FROM clipped
  GROUP BY fit_place
),
fits AS (
  SELECT
    chosen.fit_place, chosen.model, chosen.max_error_ratio, measured.fitting_size,
    curves.c0 - curves.c1 * curves.mean_size + curves.c2 * pow(curves.mean_size, 2) AS fixed,
    curves.c1 - 2 * curves.c2 * curves.mean_size AS slope,
    curves.c2 AS factor,
    -- Rounded down and up, as a double in every engine.
    round(ranges.low_predicted - 0.499999) AS low_predicted,
    round(
      curves.c0 + curves.c1 * (target.size - curves.mean_size)
      + curves.c2 * pow(target.size - curves.mean_size, 2)
    ) AS predicted,
    round(ranges.high_predicted + 0.499999) AS high_predicted,
    ranges.low_largest, ranges.high_largest,
    greatest(target.size, coalesce(ranges.high_largest, ranges.low_largest))
      / nullif(greatest(chosen.max_size, 0), 0) AS distance_factor
  FROM chosen
  CROSS JOIN target
  JOIN ranges ON ranges.fit_place = chosen.fit_place
  JOIN measured ON measured.fit_place = chosen.fit_place
  JOIN curves
    ON curves.fit_place = chosen.fit_place
    AND curves.model = chosen.model
    AND curves.left_out IS NULL
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
  -- Rounded, so that the order of summation does not matter.
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
  fits.fitting_size AS measured_largest_size,
  round(fits.distance_factor, 6) AS distance_factor,
  CASE
    WHEN round(fits.distance_factor, 6) > 2
      THEN 'beyond twice the largest size it is a guess: compile that size to prove it'
  END AS guess_reason,
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
