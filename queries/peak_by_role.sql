-- title: Bytes held at the peak by what they are for the model: weights, optimizer state, …
-- group: meaning
-- engines: duckdb, spark, sail
--
-- Attributes every byte that is occupied at the peak to a role: weights, optimizer state, model
-- state and inputs by the names of arguments; activations, gradients and the optimizer's step by
-- the phase in which they are computed (query peak-by-category); constants. The rows of a module
-- add up to its peak. For each run and function the module with the largest need is shown.
-- Rules are in the table role_rules. A file of your own, given by --categories or
-- BUFDB_CATEGORIES, goes before them.
--
-- wrong when: names mislead, which sureness tells: told, by a rule of your file; likely, by the
-- name of an argument, or a constant; possible, by the phase. gradients are all that the backward
-- pass computes, also with regard to activations; activations all of the forward pass, with what is
-- computed there of weights, such as a copy in bf16 or what is gathered of them. What
-- peak-by-category cannot tell is not told here either. In a program that does not train all that
-- it computes counts as activations. What outputs are is not told by phases.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), where a module holds nothing there its largest.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param peak BIGINT = 1: Which of the distinct peaks (query peaks), 1 is the highest.
-- param step BIGINT = NULL: Any instant instead of a peak [program order].
-- param loops VARCHAR = 'origin' | 'carrier': Whose role counts for what a loop carries: origin is
--   that of the operation that makes the data, or of the argument; carrier that of the loop itself.
-- param unnamed VARCHAR = 'use' | 'none': Whose role counts for what the compiler makes without a
--   name, such as copies: use is that of the operation that it is for; none has none.
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 20: Rows to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column held_bytes HUGEINT: Bytes held at the peak by values of this role and kind [bytes].
-- column held_ratio DOUBLE: The same as share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column role VARCHAR: Role; NULL if no rule covers the name or there is none.
-- column allocation_kind VARCHAR: parameter, donated_parameter, output, constant or temp.
-- column sureness VARCHAR: told, likely or possible, see above; NULL as role.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('loops')::VARCHAR, 'origin') AS loops,
    coalesce(getvariable('unnamed')::VARCHAR, 'use') AS unnamed,
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
held AS (
  SELECT
    values_held.function_place, values_held.name_place, values_held.run_name,
    values_held.function_name, values_held.platform, values_held.color, values_held.peak_bytes,
    values_held.unknown_reason, values_held.module_id, values_held.allocation_index,
    values_held.allocation_kind, values_held.held_bytes,
    coalesce(value_origins.op_name, values_held.op_name, named_uses.op_name) AS op_name,
    CASE
      WHEN value_origins.op_name IS NOT NULL THEN value_origins.opcode
      WHEN values_held.op_name IS NOT NULL THEN values_held.opcode
    END AS opcode
  FROM answered_peak_values AS values_held
  CROSS JOIN params
  LEFT JOIN value_origins
    ON value_origins.module_id = values_held.module_id
    AND value_origins.value_id = values_held.value_id
    AND params.loops = 'origin'
  LEFT JOIN named_uses
    ON named_uses.module_id = values_held.module_id
    AND named_uses.value_id = values_held.value_id
    AND params.unnamed = 'use'
  WHERE values_held.function_place <= params.top_functions
),
-- What stands in the bytes of an argument is what the argument is, whoever wrote it last.
arguments AS (
  SELECT
    allocations.module_id, allocations.allocation_index,
    min(instructions.op_name) AS op_name
  FROM allocations
  JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
    AND "values".shape_index = allocations.parameter_shape_index
  JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  WHERE instructions.opcode = 'parameter'
    AND NOT "values".is_phi
    AND allocations.parameter_number IS NOT NULL
  GROUP BY allocations.module_id, allocations.allocation_index
),
roles AS (
  SELECT
    held.function_place, held.name_place, held.run_name, held.function_name, held.platform,
    held.color, held.peak_bytes, held.unknown_reason, held.held_bytes, held.allocation_kind,
    CASE
      WHEN held.allocation_kind = 'constant' THEN 'constants'
      WHEN held.allocation_kind = 'output' AND op_name_roles.sureness = 'possible' THEN NULL
      ELSE op_name_roles.role
    END AS role,
    CASE
      WHEN held.allocation_kind = 'constant' THEN 'likely'
      WHEN held.allocation_kind = 'output' AND op_name_roles.sureness = 'possible' THEN NULL
      ELSE op_name_roles.sureness
    END AS sureness
  FROM held
  LEFT JOIN arguments
    ON arguments.module_id = held.module_id
    AND arguments.allocation_index = held.allocation_index
  LEFT JOIN op_name_roles
    ON op_name_roles.module_id = held.module_id
    AND op_name_roles.op_name = coalesce(arguments.op_name, held.op_name)
    AND op_name_roles.is_parameter
      = (arguments.op_name IS NOT NULL OR coalesce(held.opcode = 'parameter', FALSE))
),
grouped AS (
  SELECT
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, role, allocation_kind, sureness,
    sum(held_bytes) AS held_bytes,
    nullif(count(held_bytes), 0) AS value_count,
    row_number() OVER (
      PARTITION BY function_place
      ORDER BY
        sum(held_bytes) DESC, role NULLS LAST, allocation_kind NULLS LAST, sureness NULLS LAST
    ) AS place
  FROM roles
  GROUP BY
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, role, allocation_kind, sureness
)
SELECT
  run_name, function_name, platform, color, peak_bytes, held_bytes,
  CAST(held_bytes AS DOUBLE) / nullif(peak_bytes, 0) AS held_ratio,
  value_count, role, allocation_kind, sureness, unknown_reason
FROM grouped
CROSS JOIN params
WHERE place <= params.top_n OR unknown_reason IS NOT NULL
ORDER BY function_place, name_place, place;
