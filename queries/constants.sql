-- title: Constants that a program holds in memory
-- group: saving
-- engines: duckdb, spark, sail
--
-- Constant allocations are held for the whole execution and are part of the executable, once per
-- compiled program. Large ones are arrays that a traced function closes over (a table, a mask, a
-- model's weights). As an argument instead, several programs can share one copy, and the compiler
-- has less to fold. One row per constant allocation for each run and function (its compilation with
-- the largest need), largest first, with the number of equal ones.
--
-- wrong when: Constants of computations that run on a stack (reducers) are listed too, a few bytes
-- each. A constant inside a fusion has no allocation of its own and does not show. The CPU may keep
-- constants in the code instead of on a heap. Dumps print literals of up to ten elements only:
-- larger ones of the same shape may or may not be equal, and XLA merges equal ones within a
-- program. An argument is more likely to be shared where other programs hold the same literal
-- (program_count) than where they hold one of the same shape.
--
-- param run, function, platform, color, module, top_n = 20
--
-- column run_name, function_name, platform, color
-- column constant_bytes HUGEINT: All constants of the module and memory space [bytes].
-- column size_bytes BIGINT: This one [bytes].
-- column low_saving_bytes BIGINT: Lower bound of how far the peak would fall if it were computed
--   where it is used [bytes]: 0, because it may be needed whole there.
-- column saving_bytes BIGINT: Upper bound [bytes]: all of it. An argument instead would be held as
--   well.
-- column size_ratio DOUBLE: Its share of all allocations of the memory space but thread-local ones
--   (0 to 1).
-- column shape VARCHAR: Shape with layout; NULL if the dump lists no value.
-- column instruction_name VARCHAR: The constant; NULL where shape is.
-- column use_count BIGINT: Instructions that use it, once per operand; NULL if the dump does not
--   list uses.
-- column copied_bytes HUGEINT: Copies of it [bytes], at any time; 0 if there is none; NULL where
--   use_count is.
-- column literal VARCHAR: Its literal; NULL if the dump omits it.
-- column alike_count BIGINT: Constants of the module and memory space with this shape (and literal,
--   if known), including itself; NULL where shape is.
-- column program_count BIGINT: Modules of the run with an equal one, including this module; NULL
--   where shape is.
-- column sureness VARCHAR: possible, because it may save nothing; NULL where advice is.
-- column advice VARCHAR: What to do; NULL for scalars, and as shape.
-- column op_name
-- column source VARCHAR: Innermost file:line that is not library code, "for file:line" of the first
--   operation that uses it if it has none of its own, "library file:line" if everything is library
--   code; NULL if unknown.
-- column unknown_reason
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
functions AS (
  SELECT
    name_place, module_id, color, run_name, function_name, platform, constant_bytes,
    total_bytes, thread_local_bytes, unknown_reason
  FROM answered_functions
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
  FROM functions
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
users AS (
  SELECT
    uses.module_id, uses.value_id,
    CASE
      WHEN value_sources.source_line LIKE 'for %' THEN value_sources.source_line
      ELSE 'for ' || value_sources.source_line
    END AS source,
    row_number() OVER (
      PARTITION BY uses.module_id, uses.value_id
      ORDER BY
        instructions.program_order NULLS LAST, instructions.instruction_name, used_by.value_id
    ) AS place
  FROM uses
  JOIN constants ON constants.module_id = uses.module_id AND constants.value_id = uses.value_id
  JOIN instructions
    ON instructions.module_id = uses.module_id
    AND instructions.instruction_name = uses.instruction_name
  JOIN "values" AS used_by
    ON used_by.module_id = uses.module_id
    AND used_by.instruction_name = uses.instruction_name
  JOIN value_sources
    ON value_sources.module_id = used_by.module_id
    AND value_sources.value_id = used_by.value_id
  WHERE value_sources.source_line IS NOT NULL
),
-- Counted before the join: all programs of a run may have the same few constants.
repeated AS (
  SELECT
    constant_literals.module_id, constant_literals.color, constant_literals.shape,
    coalesce(constant_literals.literal, '') AS literal,
    count(DISTINCT constant_literals.allocation_index) AS alike_count
  FROM constant_literals
  GROUP BY
    constant_literals.module_id, constant_literals.color, constant_literals.shape,
    coalesce(constant_literals.literal, '')
),
alike AS (
  SELECT
    constant_literals.module_id, constant_literals.value_id, constant_literals.literal,
    repeated.alike_count, literal_programs.program_count
  FROM constant_literals
  JOIN constants
    ON constants.module_id = constant_literals.module_id
    AND constants.value_id = constant_literals.value_id
  JOIN repeated
    ON repeated.module_id = constant_literals.module_id
    AND repeated.color = constant_literals.color
    AND repeated.shape = constant_literals.shape
    AND repeated.literal = coalesce(constant_literals.literal, '')
  JOIN literal_programs
    ON literal_programs.run_name = constant_literals.run_name
    AND literal_programs.shape = constant_literals.shape
    AND literal_programs.literal = coalesce(constant_literals.literal, '')
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
  functions.run_name, functions.function_name, functions.platform, functions.color,
  CASE WHEN constants.place IS NOT NULL THEN functions.constant_bytes END AS constant_bytes,
  constants.size_bytes,
  0 * constants.size_bytes AS low_saving_bytes, constants.size_bytes AS saving_bytes,
  CAST(constants.size_bytes AS DOUBLE)
    / nullif(functions.total_bytes - functions.thread_local_bytes, 0) AS size_ratio,
  value_details.shape, value_details.instruction_name,
  CASE WHEN modules.has_used_values THEN coalesce(use_counts.use_count, 0) END AS use_count,
  CASE WHEN modules.has_used_values THEN coalesce(copies.copied_bytes, 0) END AS copied_bytes,
  alike.literal, alike.alike_count, alike.program_count,
  CASE
    WHEN alike.value_id IS NULL OR value_details.bare_shape LIKE '%[]' THEN NULL
    ELSE 'possible'
  END AS sureness,
  CASE
    WHEN alike.value_id IS NULL OR value_details.bare_shape LIKE '%[]' THEN NULL
    ELSE 'pass it as an argument, or compute it where it is used'
  END AS advice,
  value_details.op_name,
  coalesce(value_details.own_source, users.source, value_details.library_source) AS source,
  functions.unknown_reason
FROM functions
LEFT JOIN modules ON modules.module_id = functions.module_id
LEFT JOIN constants
  ON constants.module_id = functions.module_id
  AND constants.color = functions.color
LEFT JOIN value_details
  ON value_details.module_id = constants.module_id
  AND value_details.value_id = constants.value_id
LEFT JOIN alike
  ON alike.module_id = constants.module_id
  AND alike.value_id = constants.value_id
LEFT JOIN users
  ON users.module_id = constants.module_id
  AND users.value_id = constants.value_id
  AND users.place = 1
LEFT JOIN use_counts
  ON use_counts.module_id = constants.module_id
  AND use_counts.value_id = constants.value_id
LEFT JOIN copies
  ON copies.module_id = constants.module_id
  AND copies.source_value_id = constants.value_id
WHERE constants.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY constants.place NULLS FIRST, functions.name_place;
