-- title: Spread of a function's peak over hosts or ranks
-- group: change
-- engines: duckdb, spark, sail
--
-- In a program that runs on many devices the fullest one sets the limit. Ingest each host's or
-- rank's dumps as a separate run with a label (--label rank=0, --label rank=1, …): one row per
-- function, memory space and set of other labels shows the spread of the peaks and the fullest
-- rank. Only runs with equal other labels are combined. If there are several compilations, each is
-- followed through those of the same signature, the rest by size, as bufdb diff pairs two runs
-- (view asked_series). If the peak in one run is unknown, so are the spread and the figures that
-- depend on it, and the row comes first; else largest spread first.
--
-- wrong when: With one program for all devices (SPMD) all ranks compile the same module, so a
-- spread means that they did not run the same program; no spread does not mean that the ranks hold
-- the same otherwise. A label that differs in each run for another reason (a host's name along with
-- its rank) leaves no two runs to compare: name the labels that matter in fixed. A renamed function
-- counts as another function: over many runs, matching names would depend on the runs selected.
-- bufdb diff pairs those of two runs by signature and similarity.
--
-- param run, function, platform, color, module
-- param label VARCHAR = 'rank': Label that differs between the ranks.
-- param fixed VARCHAR = NULL: Labels, separated by commas, that must be equal within a row; NULL
--   takes all others except metadata.
-- param top_n = 50
--
-- column function_name, platform, compilation_place
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column other_labels VARCHAR: Labels that the runs have in common, as K=V separated by spaces;
--   metadata (bufdb capture's labels) only if fixed names it.
-- column run_count BIGINT: Runs, one per rank.
-- column signature_count BIGINT: Different shapes of arguments and result among them; NULL if none
--   is known.
-- column min_peak_bytes HUGEINT: Smallest peak [bytes]; NULL if a peak is unknown.
-- column median_peak_bytes HUGEINT: Median peak, the lower one of two [bytes]; NULL where
--   min_peak_bytes is.
-- column max_peak_bytes HUGEINT: Largest peak [bytes]; NULL where min_peak_bytes is.
-- column spread_bytes HUGEINT: Largest minus smallest peak [bytes]; NULL where min_peak_bytes is.
-- column spread_ratio DOUBLE: The same as a share of the largest peak (0 to 1); NULL where
--   min_peak_bytes is.
-- column fullest_rank VARCHAR: Value of the label with the largest peak, for ties in the first run
--   by name; NULL where min_peak_bytes is.
-- column emptiest_rank VARCHAR: Value of the label with the smallest peak; NULL where
--   min_peak_bytes is.
-- column unknown_count BIGINT: Runs in which the function's peak is unknown.
-- column unknown_reason VARCHAR: Why; for several, the first reason in alphabetical order; NULL if
--   all peaks are known.
WITH params AS (
  SELECT
    coalesce(getvariable('label')::VARCHAR, 'rank') AS label,
    getvariable('fixed')::VARCHAR AS fixed,
    coalesce(getvariable('top_n')::BIGINT, 50) AS top_n
),
figures AS (
  SELECT
    history.function_name, history.platform, history.compilation_place, history.color,
    run_groups.other_labels, run_groups.label_value, history.peak_bytes, history.unknown_reason,
    history.entry_signature,
    count(*) OVER ranks AS peak_count,
    count(history.unknown_reason) OVER ranks AS unknown_count,
    row_number() OVER (ranks ORDER BY history.peak_bytes NULLS LAST, history.run_name) AS place,
    row_number() OVER (ranks ORDER BY history.peak_bytes DESC NULLS LAST, history.run_name)
      AS reverse_place
  FROM asked_history AS history
  JOIN runs_by_label(
    (SELECT params.label FROM params), (SELECT params.fixed FROM params)
  ) AS run_groups
    ON run_groups.run_name = history.run_name
  WINDOW ranks AS (
    PARTITION BY history.series_place, run_groups.other_labels
  )
),
spreads AS (
  SELECT
    function_name, platform, compilation_place, color, other_labels,
    count(*) AS run_count,
    nullif(count(DISTINCT entry_signature), 0) AS signature_count,
    unknown_count,
    min(unknown_reason) AS unknown_reason,
    min(peak_bytes) FILTER (WHERE unknown_count = 0) AS min_peak_bytes,
    min(peak_bytes) FILTER (WHERE unknown_count = 0 AND place = (peak_count + 1) // 2)
      AS median_peak_bytes,
    max(peak_bytes) FILTER (WHERE unknown_count = 0) AS max_peak_bytes,
    min(label_value) FILTER (WHERE unknown_count = 0 AND reverse_place = 1) AS fullest_rank,
    min(label_value) FILTER (WHERE unknown_count = 0 AND place = 1) AS emptiest_rank
  FROM figures
  GROUP BY function_name, platform, compilation_place, color, other_labels, unknown_count
)
SELECT
  function_name, platform, compilation_place, color, other_labels, run_count, signature_count,
  min_peak_bytes, median_peak_bytes, max_peak_bytes,
  max_peak_bytes - min_peak_bytes AS spread_bytes,
  CAST(max_peak_bytes - min_peak_bytes AS DOUBLE) / nullif(max_peak_bytes, 0) AS spread_ratio,
  fullest_rank, emptiest_rank, unknown_count, unknown_reason
FROM spreads
ORDER BY
  max_peak_bytes - min_peak_bytes DESC NULLS FIRST,
  max_peak_bytes DESC NULLS LAST, function_name, platform NULLS LAST, color NULLS LAST,
  other_labels, compilation_place
LIMIT (SELECT top_n FROM params);
