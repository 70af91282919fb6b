-- title: Jitted functions with their compilations and range of peaks
-- group: store
-- engines: duckdb, spark, sail
--
-- One row per function, platform and memory space over all its compilations in all runs, unknown
-- peaks first, then largest peak first. The median of an even number of peaks is the lower of the
-- two middle ones. If the peak of one compilation is unknown, so are the smallest, median and
-- largest; query modules lists the known ones.
--
-- param run, function, platform, color, module, top_n = 100
--
-- column function_name
-- column platform VARCHAR: cpu, gpu or tpu; NULL if unknown.
-- column color BIGINT: Memory space; NULL for compilations without allocations.
-- column run_count BIGINT: Runs that compiled it.
-- column module_count BIGINT: Compilations.
-- column signature_count BIGINT: Different signatures (shapes of arguments and result) among them;
--   NULL if no dump gives one.
-- column min_peak_bytes HUGEINT: Smallest peak [bytes]; NULL if a peak is unknown.
-- column median_peak_bytes HUGEINT: Median peak [bytes]; NULL if a peak is unknown.
-- column max_peak_bytes HUGEINT: Largest peak [bytes]; NULL if a peak is unknown.
-- column max_temp_bytes HUGEINT: Largest sum of temp allocations [bytes]; NULL if no compilation
--   has allocations.
-- column unknown_count BIGINT: Compilations whose peak is unknown.
-- column unknown_reason VARCHAR: Why; for several, the first reason in alphabetical order; NULL if
--   all peaks are known.
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
figures AS (
  SELECT
    coalesce(asked_modules.function_name, asked_modules.module_key) AS known_name,
    asked_modules.platform, asked_modules.color, asked_modules.run_name,
    asked_modules.peak_bytes, asked_modules.temp_bytes, asked_modules.peak_unknown_reason,
    module_signatures.entry_signature,
    row_number() OVER (
      PARTITION BY
        coalesce(asked_modules.function_name, asked_modules.module_key), asked_modules.platform,
        asked_modules.color
      ORDER BY asked_modules.peak_bytes NULLS LAST, asked_modules.module_id
    ) AS place,
    count(*) OVER (
      PARTITION BY
        coalesce(asked_modules.function_name, asked_modules.module_key), asked_modules.platform,
        asked_modules.color
    ) AS peak_count
  FROM asked_modules
  JOIN module_signatures ON module_signatures.module_id = asked_modules.module_id
),
functions AS (
  SELECT
    known_name, platform, color,
    count(DISTINCT run_name) AS run_count,
    count(*) AS module_count,
    nullif(count(DISTINCT entry_signature), 0) AS signature_count,
    count(peak_unknown_reason) AS unknown_count,
    min(peak_unknown_reason) AS unknown_reason,
    min(peak_bytes) AS min_bytes,
    min(CASE WHEN place = (peak_count + 1) // 2 THEN peak_bytes END) AS median_bytes,
    max(peak_bytes) AS max_bytes,
    max(temp_bytes) AS max_temp_bytes
  FROM figures
  GROUP BY known_name, platform, color
)
SELECT
  known_name AS function_name,
  platform, color, run_count, module_count, signature_count,
  CASE WHEN unknown_count = 0 THEN min_bytes END AS min_peak_bytes,
  CASE WHEN unknown_count = 0 THEN median_bytes END AS median_peak_bytes,
  CASE WHEN unknown_count = 0 THEN max_bytes END AS max_peak_bytes,
  max_temp_bytes, unknown_count, unknown_reason
FROM functions
ORDER BY
  CASE WHEN unknown_count = 0 THEN 1 ELSE 0 END,
  max_bytes DESC NULLS LAST, max_temp_bytes DESC NULLS LAST, known_name,
  platform NULLS LAST, color NULLS LAST
LIMIT (SELECT top_n FROM params);
