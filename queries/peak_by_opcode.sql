-- title: Bytes held at the peak by opcode
-- group: meaning
-- engines: duckdb, spark, sail
--
-- Attributes every byte that is occupied at the peak to the opcode of the instruction that defined
-- the value there, so that the rows of a module add up to its peak (query peak says how that is
-- counted). For each run and function the module with the largest need is shown. Much under
-- copy, broadcast or transpose is memory that computes nothing.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), where a module holds nothing there its largest.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param peak BIGINT = 1: Which of the distinct peaks (query peaks), 1 is the highest.
-- param step BIGINT = NULL: Any instant instead of a peak [program order].
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 10: Opcodes to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column held_bytes HUGEINT: Bytes held at the peak by values of this opcode [bytes].
-- column held_ratio DOUBLE: The same as share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column opcode VARCHAR: HLO opcode; NULL where the dump does not give it.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
opcodes AS (
  SELECT
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, opcode,
    sum(held_bytes) AS held_bytes,
    nullif(count(held_bytes), 0) AS value_count,
    row_number() OVER (PARTITION BY function_place ORDER BY sum(held_bytes) DESC, opcode NULLS LAST)
      AS place
  FROM answered_peak_values
  CROSS JOIN params
  WHERE function_place <= params.top_functions
  GROUP BY
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, opcode
)
SELECT
  run_name, function_name, platform, color, peak_bytes, held_bytes,
  CAST(held_bytes AS DOUBLE) / nullif(peak_bytes, 0) AS held_ratio,
  value_count, opcode, unknown_reason
FROM opcodes
CROSS JOIN params
WHERE place <= params.top_n OR unknown_reason IS NOT NULL
ORDER BY function_place, name_place, place;
