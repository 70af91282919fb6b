-- title: Constants that a program holds in memory
-- group: waste
-- engines: duckdb, spark
--
-- Constant allocations are held for the whole execution and are part of the executable, once per
-- compiled program. Large ones are arrays that a traced function closes over (a table, a mask, a
-- model's weights): given as an argument instead, several programs can share one copy, and the
-- compiler has less to fold. For each run and function (its compilation with the largest known
-- peak) one row per constant allocation, largest first.
--
-- wrong when: Constants of computations that run on a stack (reducers) are listed too, a few bytes
-- each. A constant that a fusion contains has no allocation of its own and does not show. The CPU
-- may keep constants in the code instead of on a heap.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param top_n BIGINT = 20: Rows to return.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column constant_bytes HUGEINT: All constants of the module and memory space [bytes].
-- column size_bytes BIGINT: This one [bytes].
-- column saving_bytes BIGINT: By how much the peak would fall if it were computed where it is used
--   [bytes]: all of it. An argument in its place would be held as well.
-- column size_ratio DOUBLE: Its share of all allocations of the memory space but thread-local ones
--   (0 to 1).
-- column shape VARCHAR: Shape with layout; NULL if the dump lists no value.
-- column instruction_name VARCHAR: The constant; NULL as shape.
-- column use_count BIGINT: Instructions that use it, once per operand; NULL if the dump does not
--   list uses.
-- column copied_bytes HUGEINT: Copies of it [bytes], whenever they live; 0 if there is none; NULL
--   likewise.
-- column op_name VARCHAR: Scope path of the operation; NULL if the dump has none.
-- column source VARCHAR: Innermost file:line that is not library code; NULL if unknown.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
ranked_constants AS (
  SELECT
    allocations.module_id, allocations.color, allocations.size_bytes, "values".value_id,
    row_number() OVER (
      PARTITION BY allocations.module_id, allocations.allocation_index
      ORDER BY "values".size_bytes DESC, "values".value_id
    ) AS value_place,
    row_number() OVER (
      ORDER BY
        allocations.size_bytes DESC, functions.name_place, allocations.allocation_index,
        "values".size_bytes DESC, "values".value_id
    ) AS place
  FROM answered_functions AS functions
  JOIN allocations
    ON allocations.module_id = functions.module_id
    AND allocations.color = functions.color
  LEFT JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
  WHERE allocations.kind = 'constant'
    AND allocations.size_bytes > 0
),
constants AS (
  SELECT module_id, color, size_bytes, value_id, place
  FROM ranked_constants
  WHERE value_place = 1
  ORDER BY place
  LIMIT (SELECT top_n FROM params)
),
use_counts AS (
  SELECT uses.module_id, uses.value_id, count(*) AS use_count
  FROM uses
  JOIN constants ON constants.module_id = uses.module_id AND constants.value_id = uses.value_id
  GROUP BY uses.module_id, uses.value_id
),
copies AS (
  SELECT
    copy_details.module_id, copy_details.source_value_id,
    sum(copy_details.size_bytes) AS copied_bytes
  FROM copy_details
  JOIN constants
    ON constants.module_id = copy_details.module_id
    AND constants.value_id = copy_details.source_value_id
  GROUP BY copy_details.module_id, copy_details.source_value_id
)
SELECT
  functions.run_name, functions.function_name, functions.color,
  CASE WHEN constants.place IS NOT NULL THEN functions.constant_bytes END AS constant_bytes,
  constants.size_bytes,
  constants.size_bytes AS saving_bytes,
  CAST(constants.size_bytes AS DOUBLE)
    / nullif(functions.total_bytes - functions.thread_local_bytes, 0) AS size_ratio,
  value_details.shape, value_details.instruction_name,
  CASE WHEN modules.has_used_values THEN coalesce(use_counts.use_count, 0) END AS use_count,
  CASE WHEN modules.has_used_values THEN coalesce(copies.copied_bytes, 0) END AS copied_bytes,
  value_details.op_name,
  value_details.own_source AS source,
  functions.unknown_reason
FROM answered_functions AS functions
LEFT JOIN modules ON modules.module_id = functions.module_id
LEFT JOIN constants
  ON constants.module_id = functions.module_id
  AND constants.color = functions.color
LEFT JOIN value_details
  ON value_details.module_id = constants.module_id
  AND value_details.value_id = constants.value_id
LEFT JOIN use_counts
  ON use_counts.module_id = constants.module_id
  AND use_counts.value_id = constants.value_id
LEFT JOIN copies
  ON copies.module_id = constants.module_id
  AND copies.source_value_id = constants.value_id
WHERE constants.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY constants.place NULLS FIRST, functions.name_place;
