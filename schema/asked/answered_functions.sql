-- The requested functions as answers show them: those with values, and those with an unknown peak.
CREATE OR REPLACE VIEW answered_functions AS
WITH functions AS (
  SELECT
    asked_functions.run_name, asked_functions.function_name, asked_functions.platform,
    asked_functions.color, asked_functions.module_id, asked_functions.unknown_count,
    asked_functions.peak_bytes, asked_functions.need_bytes, asked_functions.peak_time,
    asked_functions.constant_bytes, asked_functions.thread_local_bytes, asked_functions.total_bytes,
    asked_functions.fragmentation_bytes, asked_functions.unknown_reason
  FROM asked_functions
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  functions.module_id, functions.unknown_count, functions.peak_bytes, functions.need_bytes,
  functions.peak_time, functions.constant_bytes, functions.thread_local_bytes,
  functions.total_bytes, functions.fragmentation_bytes,
  CAST(NULL AS VARCHAR) AS unknown_reason,
  CASE
    WHEN functions.peak_bytes <> 0 THEN row_number() OVER (
      PARTITION BY coalesce(functions.peak_bytes, 0) <> 0
      ORDER BY
        functions.need_bytes DESC NULLS LAST, functions.peak_bytes DESC,
        functions.run_name, functions.function_name, functions.color, functions.platform NULLS LAST
    )
  END AS place,
  row_number() OVER (
    ORDER BY
      functions.run_name, functions.function_name,
      functions.platform NULLS LAST, functions.color NULLS LAST
  ) AS name_place
FROM functions
UNION ALL
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  NULL AS module_id,
  functions.unknown_count,
  NULL AS peak_bytes,
  NULL AS need_bytes,
  NULL AS peak_time,
  NULL AS constant_bytes,
  NULL AS thread_local_bytes,
  NULL AS total_bytes,
  NULL AS fragmentation_bytes,
  functions.unknown_reason,
  0 AS place,
  row_number() OVER (
    ORDER BY
      functions.run_name, functions.function_name, functions.color NULLS LAST,
      functions.unknown_reason, functions.platform NULLS LAST
  ) AS name_place
FROM functions
WHERE functions.unknown_reason IS NOT NULL;
COMMENT ON VIEW answered_functions IS
  'Rows of asked_functions without unknown_reason, to show what is in their modules, and one more row for each with an unknown peak, with unknown_reason, in which module_id and all figures are NULL: an answer that joins values by module_id and color has such a row with nothing else. Key: run_name, function_name, platform, color, unknown_reason.';
COMMENT ON COLUMN answered_functions.unknown_reason IS 'asked_functions.unknown_reason in a row for an unknown peak; NULL in the others.';
COMMENT ON COLUMN answered_functions.place IS 'Rank by need_bytes, largest first, then peak_bytes, run, function, memory space and platform; 0 in a row with unknown_reason, NULL where the peak is 0 or unknown.';
COMMENT ON COLUMN answered_functions.name_place IS 'Rank by run, function, platform and memory space; among rows with unknown_reason by run, function, memory space and unknown_reason.';
