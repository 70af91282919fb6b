-- title: Bytes held at the peak by kind of allocation and phase of training
-- group: meaning
-- engines: duckdb, spark, sail
--
-- Attributes every byte that is occupied at the peak to the kind of its allocation and to a phase:
-- forward, backward, rematerialised, optimizer. The rows of a module add up to its peak (query peak
-- says how that is counted). For each run and function the module with the largest need is
-- shown. The phase comes from rules on the op_name in the table op_categories, which is yours to
-- edit; [phases] of a file given by --categories goes before them. What the bytes are for the model
-- (weights, optimizer state, …) is told by peak-by-role.
--
-- wrong when: the rules do not fit the program. In a function that takes a gradient, all that lies
-- outside of it counts as optimizer, metrics and preparation of data included. XLA fuses and
-- merges: a fusion bears one name only, and a value of the forward pass that the backward pass
-- reads may bear a name of either. Copies and other instructions of the compiler have no op_name.
-- To jax 0.6 operations outside of any scope do not show their phase and have none here, and to
-- jax 0.4.15 the gradient of a rematerialised scope counts as rematerialised.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), where a module holds nothing there its largest.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param peak BIGINT = 1: Which of the distinct peaks (query peaks), 1 is the highest.
-- param step BIGINT = NULL: Any instant instead of a peak [program order].
-- param loops VARCHAR = 'origin' | 'carrier': Whose phase counts for what a loop carries: origin is
--   that of the operation that makes the data, carrier that of the loop itself.
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 20: Rows to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column held_bytes HUGEINT: Bytes held at the peak by values of this kind and phase [bytes].
-- column held_ratio DOUBLE: The same as share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column allocation_kind VARCHAR: parameter, donated_parameter, output, constant or temp.
-- column category VARCHAR: Phase; NULL if no rule covers the op_name or there is none.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('loops')::VARCHAR, 'origin') AS loops,
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
categorised AS (
  SELECT
    held.function_place, held.name_place, held.run_name, held.function_name, held.platform,
    held.color, held.peak_bytes, held.unknown_reason, held.held_bytes, held.allocation_kind,
    op_name_categories.category
  FROM answered_peak_values AS held
  CROSS JOIN params
  LEFT JOIN value_origins
    ON value_origins.module_id = held.module_id
    AND value_origins.value_id = held.value_id
    AND params.loops = 'origin'
  LEFT JOIN op_name_categories
    ON op_name_categories.module_id = held.module_id
    AND op_name_categories.op_name = coalesce(value_origins.op_name, held.op_name)
  WHERE held.function_place <= params.top_functions
),
categories AS (
  SELECT
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, allocation_kind, category,
    sum(held_bytes) AS held_bytes,
    nullif(count(held_bytes), 0) AS value_count,
    row_number() OVER (
      PARTITION BY function_place
      ORDER BY sum(held_bytes) DESC, allocation_kind NULLS LAST, category NULLS LAST
    ) AS place
  FROM categorised
  GROUP BY
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, allocation_kind, category
)
SELECT
  run_name, function_name, platform, color, peak_bytes, held_bytes,
  CAST(held_bytes AS DOUBLE) / nullif(peak_bytes, 0) AS held_ratio,
  value_count, allocation_kind, category, unknown_reason
FROM categories
CROSS JOIN params
WHERE place <= params.top_n OR unknown_reason IS NOT NULL
ORDER BY function_place, name_place, place;
