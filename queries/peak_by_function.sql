-- title: Bytes held at the peak by Python or jitted function
-- group: meaning
-- engines: duckdb, spark, sail
--
-- Attributes every byte that is occupied at the peak to a function, so that the rows of a module
-- add up to its peak (query peak says how that is counted). For each run and function the module
-- with the largest peak is shown.
--
-- With by = 'python' it is the Python function that holds the innermost line of the call stack that
-- is not library code, known from jaxlib 0.8.2 on where the HLO text was dumped too; before, only
-- the file is. With by = 'jit' it is the chain of jitted functions in the op_name, outermost first:
-- step/_where for jit(step)/jit(_where)/select_n. Bytes without a function, such as those of
-- parameters, are summed by kind of allocation.
--
-- XLA makes copies, conversions and broadcasts of its own, without an op_name. They are often half
-- of the temp bytes. A row for Net.__call__ has those whose first use that has an op_name is in
-- Net.__call__. They are never in the row Net.__call__, which has what the function itself makes.
--
-- wrong when: a value that XLA made has several uses. It is named for the first in program order
-- that has an op_name, and another one may be what keeps it alive. Where no use of its own has an
-- op_name, it is named for what its first use is used for, and so on, at most four steps away.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), where a module holds nothing there its largest.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param peak BIGINT = 1: Which of the distinct peaks (query peaks), 1 is the highest.
-- param step BIGINT = NULL: Any instant instead of a peak [program order].
-- param by VARCHAR = 'python' | 'jit': Which function.
-- param loops VARCHAR = 'origin' | 'carrier': Whose line counts for what a loop carries: origin is
--   the one that makes the data, carrier that of the loop itself.
-- param unnamed VARCHAR = 'use' | 'none': What to do with values that XLA made without an op_name:
--   use names them for their first use that has one, none counts them by kind of allocation.
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 10: Functions to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column held_bytes HUGEINT: Bytes held at the peak by values of this function [bytes].
-- column held_ratio DOUBLE: The same as share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column source_function VARCHAR: Python function (with its class and outer function) or chain of
--   jitted functions; NULL if only the file is known; "for FUNCTION" or "for FILE" where XLA made
--   the values; "library FILE" where no function of the user's is known; the kind of allocation
--   in parentheses where nothing is known.
-- column source_file VARCHAR: File of the Python function; NULL if unknown or by = 'jit'.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('by')::VARCHAR, 'python') AS "by",
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
named AS (
  SELECT
    coalesce(
      CASE params.by
        WHEN 'python' THEN held.attributed_own_function
        WHEN 'jit' THEN held.attributed_jit_path
      END,
      CASE
        WHEN held.held_bytes IS NOT NULL
            AND (params.by = 'jit' OR held.attributed_own_file IS NULL)
          THEN '(' || coalesce(held.allocation_kind, 'kind unknown') || ')'
      END
    ) AS source_function,
    CASE params.by WHEN 'python' THEN held.attributed_own_file END AS source_file,
    held.function_place, held.name_place, held.run_name, held.function_name, held.platform,
    held.color, held.peak_bytes, held.unknown_reason, held.held_bytes
  FROM attributed_peak_values AS held
  CROSS JOIN params
  WHERE held.function_place <= params.top_functions
),
functions AS (
  SELECT
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, source_function, source_file,
    sum(held_bytes) AS held_bytes,
    nullif(count(held_bytes), 0) AS value_count,
    row_number() OVER (
      PARTITION BY function_place
      ORDER BY sum(held_bytes) DESC, source_function NULLS LAST, source_file NULLS LAST
    ) AS place
  FROM named
  GROUP BY
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, source_function, source_file
)
SELECT
  run_name, function_name, platform, color, peak_bytes, held_bytes,
  CAST(held_bytes AS DOUBLE) / nullif(peak_bytes, 0) AS held_ratio,
  value_count, source_function, source_file, unknown_reason
FROM functions
CROSS JOIN params
WHERE place <= params.top_n OR unknown_reason IS NOT NULL
ORDER BY function_place, name_place, place;
