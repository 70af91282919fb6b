-- title: Spread of a function's peak over hosts or ranks
-- group: runs
--
-- In a program that runs on many devices the fullest one sets the limit. Ingest each host's or
-- rank's dumps as a run of its own with a label (--label rank=0, --label rank=1, …): one row per
-- function, memory space and set of other labels tells how far the peaks are apart and which rank
-- is the fullest. Only runs whose other labels are equal are taken together. Of several
-- compilations in a run the one with the largest peak counts. If the peak in one run is unknown, so
-- are the spread and all below it, and the row comes first; else largest spread first.
--
-- wrong when: With one program for all devices (SPMD) all ranks compile the same module, so a
-- spread means that they did not run the same thing; none says nothing about what the ranks hold
-- besides. A label that is different in each run for another reason (a host's name beside its
-- rank) leaves no two runs alike: name the labels that matter in fixed.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param label VARCHAR = 'rank': Label that tells the ranks apart.
-- param fixed VARCHAR = NULL: Labels, separated by commas, that must be equal within a row; NULL
--   takes all others.
-- param top_n BIGINT = 50: Rows to return.
--
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column other_labels VARCHAR: What the runs have in common, as K=V separated by blanks.
-- column run_count BIGINT: Runs, one per rank.
-- column signature_count BIGINT: Different shapes of arguments and result among them; NULL if none
--   is known.
-- column min_peak_bytes HUGEINT: Smallest peak [bytes]; NULL if a peak is unknown.
-- column median_peak_bytes HUGEINT: Median peak, the lower one of two [bytes]; NULL likewise.
-- column max_peak_bytes HUGEINT: Largest peak [bytes]; NULL likewise.
-- column spread_bytes HUGEINT: Largest minus smallest peak [bytes]; NULL likewise.
-- column spread_ratio DOUBLE: The same as share of the largest peak (0 to 1); NULL likewise.
-- column fullest_rank VARCHAR: Value of the label with the largest peak, of equal ones the first
--   run by name; NULL likewise.
-- column emptiest_rank VARCHAR: Value of the label with the smallest peak; NULL likewise.
-- column unknown_count BIGINT: Runs in which the function's peak is unknown.
-- column unknown_reason VARCHAR: Why, of several the first reason in alphabetical order; NULL if
--   all peaks are known.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('label')::VARCHAR, 'rank') AS label,
    getvariable('fixed')::VARCHAR AS fixed,
    coalesce(getvariable('top_n')::BIGINT, 50) AS top_n
),
run_groups AS (
  -- Runs are alike if all that they are labelled with is the same, but for the label asked about.
  SELECT
    sized.run_name,
    sized.label_value,
    coalesce(
      string_agg(others.label || '=' || others.label_value, ' ' ORDER BY others.label), ''
    ) AS other_labels
  FROM run_labels AS sized
  CROSS JOIN params
  LEFT JOIN run_labels AS others
    ON others.run_name = sized.run_name
    AND others.label <> sized.label
    AND (
      params.fixed IS NULL
      OR contains(',' || replace(params.fixed, ' ', '') || ',', ',' || others.label || ',')
    )
  WHERE sized.label = params.label
  GROUP BY sized.run_name, sized.label_value
),
figures AS (
  SELECT
    function_modules.function_name,
    function_modules.platform,
    function_modules.color,
    function_modules.run_name,
    run_groups.other_labels,
    run_groups.label_value,
    function_modules.peak_bytes,
    function_modules.unknown_reason,
    module_signatures.entry_signature,
    count(*) OVER ranks AS peak_count,
    count(function_modules.unknown_reason) OVER ranks AS unknown_count,
    row_number() OVER (
      ranks ORDER BY function_modules.peak_bytes NULLS LAST, function_modules.run_name
    ) AS place,
    row_number() OVER (
      ranks ORDER BY function_modules.peak_bytes DESC NULLS LAST, function_modules.run_name
    ) AS reverse_place
  FROM function_modules
  CROSS JOIN params
  JOIN run_groups ON run_groups.run_name = function_modules.run_name
  JOIN module_signatures ON module_signatures.module_id = function_modules.module_id
  WHERE (
    params.run IS NULL
    OR function_modules.run_name IN (
      SELECT run_selectors.run_name
      FROM run_selectors
      CROSS JOIN params
      WHERE run_selectors.selector GLOB params.run
    )
  )
    AND (params.function IS NULL OR function_modules.function_name GLOB params.function)
    AND (params.platform IS NULL OR function_modules.platform = params.platform)
    AND (
      params.color IS NULL
      OR function_modules.color IS NULL
      OR function_modules.color = params.color
    )
  WINDOW ranks AS (
    PARTITION BY
      function_modules.function_name,
      function_modules.platform,
      function_modules.color,
      run_groups.other_labels
  )
),
spreads AS (
  SELECT
    figures.function_name,
    figures.platform,
    figures.color,
    figures.other_labels,
    count(*) AS run_count,
    nullif(count(DISTINCT figures.entry_signature), 0) AS signature_count,
    count(figures.unknown_reason) AS unknown_count,
    min(figures.unknown_reason) AS unknown_reason,
    min(figures.peak_bytes) FILTER (WHERE figures.unknown_count = 0) AS min_peak_bytes,
    min(figures.peak_bytes) FILTER (
      WHERE figures.unknown_count = 0 AND figures.place = (figures.peak_count + 1) // 2
    ) AS median_peak_bytes,
    max(figures.peak_bytes) FILTER (WHERE figures.unknown_count = 0) AS max_peak_bytes,
    min(figures.label_value) FILTER (
      WHERE figures.unknown_count = 0 AND figures.reverse_place = 1
    ) AS fullest_rank,
    min(figures.label_value) FILTER (
      WHERE figures.unknown_count = 0 AND figures.place = 1
    ) AS emptiest_rank
  FROM figures
  GROUP BY figures.function_name, figures.platform, figures.color, figures.other_labels
)
SELECT
  spreads.function_name,
  spreads.platform,
  spreads.color,
  spreads.other_labels,
  spreads.run_count,
  spreads.signature_count,
  spreads.min_peak_bytes,
  spreads.median_peak_bytes,
  spreads.max_peak_bytes,
  spreads.max_peak_bytes - spreads.min_peak_bytes AS spread_bytes,
  CAST(spreads.max_peak_bytes - spreads.min_peak_bytes AS DOUBLE)
    / nullif(spreads.max_peak_bytes, 0) AS spread_ratio,
  spreads.fullest_rank,
  spreads.emptiest_rank,
  spreads.unknown_count,
  spreads.unknown_reason
FROM spreads
ORDER BY
  spreads.max_peak_bytes - spreads.min_peak_bytes DESC NULLS FIRST,
  spreads.max_peak_bytes DESC NULLS LAST,
  spreads.function_name,
  spreads.platform NULLS LAST,
  spreads.color NULLS LAST,
  spreads.other_labels
LIMIT (SELECT top_n FROM params);
