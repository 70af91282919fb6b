-- title: Bytes in host memory, and the instructions that move them
-- group: peak
-- engines: duckdb, spark, sail
--
-- On a GPU or TPU, offloaded values, and arguments and outputs placed on the host, are in a memory
-- space of their own. For each run and function (its compilation with the largest need there), one
-- row per source line and shape that holds bytes at the peak of that space, largest first, with the
-- instructions that move it to the host and back. On a CPU all memory is host memory; use query
-- module-figures --color all.
--
-- wrong when: moved bytes are for one execution; in a loop an instruction runs once per iteration.
-- Moves by a custom call do not show. Other host memory of the program, its runtime or libraries is
-- in no dump. If the dump does not list uses, held bytes show, but no moves.
--
-- param run, function, platform
-- param color VARCHAR = NULL: Memory space: its number; NULL or all is every one.
-- param module, peak, step, top_n
--
-- column run_name, function_name, platform
-- column color BIGINT: Memory space of the host.
-- column peak_bytes HUGEINT: Peak there [bytes].
-- column held_bytes HUGEINT: Part of it that the line holds [bytes].
-- column held_ratio DOUBLE: The same as a share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column allocation_kind VARCHAR: temp for offloaded values; parameter, donated_parameter, output.
-- column to_host_bytes HUGEINT: Bytes that instructions move here, each instruction counted once
--   [bytes]; 0 if none does; NULL if the dump does not list uses.
-- column to_host_count BIGINT: Number of these instructions; NULL where to_host_bytes is.
-- column from_host_bytes HUGEINT: Bytes that instructions move from here to the device [bytes]; 0
--   if none does; NULL where to_host_bytes is.
-- column from_host_count BIGINT: Number of these instructions; NULL where to_host_bytes is.
-- column shape
-- column op_name VARCHAR: Scope path of the operation, or path of the argument; NULL if the dump
--   has none.
-- column source VARCHAR: Innermost file:line that is not library code, "saved file:line" for what a
--   loop stacks, "for file:line" for what the compiler made for that line, "library file:line" if
--   everything is library code; NULL if unknown.
-- column unknown_reason
WITH params AS (
  SELECT
    getvariable('color')::VARCHAR AS color,
    coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
host_spaces AS (
  SELECT memory_spaces.platform, memory_spaces.color
  FROM memory_spaces
  WHERE memory_spaces.memory_space_name = 'host'
    AND memory_spaces.color <> 0
),
-- The compilation of each function with the largest host memory.
largest AS (
  SELECT
    asked_spaces.module_id, asked_spaces.color, asked_spaces.run_name, asked_spaces.platform,
    coalesce(asked_spaces.function_name, asked_spaces.module_key) AS known_name,
    asked_spaces.peak_bytes,
    row_number() OVER (
      PARTITION BY
        asked_spaces.run_name, coalesce(asked_spaces.function_name, asked_spaces.module_key),
        asked_spaces.platform, asked_spaces.color
      ORDER BY
        asked_spaces.need_bytes DESC NULLS LAST, asked_spaces.peak_bytes DESC,
        asked_spaces.module_key
    ) AS place
  FROM asked_spaces
  CROSS JOIN params
  JOIN host_spaces
    ON host_spaces.platform = asked_spaces.platform
    AND host_spaces.color = asked_spaces.color
  WHERE asked_spaces.peak_bytes > 0
    AND (
      coalesce(params.color, 'all') = 'all'
      OR params.color = CAST(asked_spaces.color AS VARCHAR)
    )
),
functions AS (
  SELECT
    largest.module_id, largest.color, largest.run_name, largest.platform, largest.known_name,
    CASE
      WHEN asked_instants.module_id IS NULL THEN largest.peak_bytes
      ELSE asked_instants.occupied_bytes
    END AS peak_bytes,
    row_number() OVER (
      ORDER BY largest.run_name, largest.known_name, largest.platform, largest.color
    ) AS name_place
  FROM largest
  LEFT JOIN asked_instants
    ON asked_instants.module_id = largest.module_id
    AND asked_instants.color = largest.color
  WHERE largest.place = 1
),
held AS (
  SELECT
    functions.module_id, functions.color, functions.name_place, functions.run_name,
    functions.known_name AS function_name, functions.platform, functions.peak_bytes,
    values_held.allocation_kind, values_held.value_id, values_held.held_bytes, "values".shape,
    value_sources.op_name,
    value_sources.source_line, "values".allocation_index, "values".offset_bytes,
    "values".size_bytes, modules.has_used_values
  FROM functions
  JOIN asked_peak_values AS values_held
    ON values_held.module_id = functions.module_id
    AND values_held.color = functions.color
  JOIN modules ON modules.module_id = functions.module_id
  JOIN "values"
    ON "values".module_id = functions.module_id
    AND "values".value_id = values_held.value_id
  LEFT JOIN value_sources
    ON value_sources.module_id = functions.module_id
    AND value_sources.value_id = values_held.value_id
  WHERE values_held.held_bytes > 0
),
-- An instruction may move bytes of several values: it counts for the first one.
moved AS (
  SELECT
    held.module_id, held.value_id, transfers.is_to_host, transfers.size_bytes,
    row_number() OVER (
      PARTITION BY transfers.module_id, transfers.instruction_name, transfers.is_to_host
      ORDER BY held.value_id
    ) AS place
  FROM held
  JOIN host_transfers AS transfers
    ON transfers.module_id = held.module_id
    AND transfers.host_allocation_index = held.allocation_index
    AND transfers.host_offset_bytes < held.offset_bytes::HUGEINT + held.size_bytes
    AND held.offset_bytes < transfers.host_offset_bytes::HUGEINT + transfers.host_size_bytes
),
moves AS (
  SELECT
    module_id, value_id,
    coalesce(sum(CASE WHEN is_to_host THEN size_bytes END), 0) AS to_host_bytes,
    count(CASE WHEN is_to_host THEN 1 END) AS to_host_count,
    coalesce(sum(CASE WHEN NOT is_to_host THEN size_bytes END), 0) AS from_host_bytes,
    count(CASE WHEN NOT is_to_host THEN 1 END) AS from_host_count
  FROM moved
  WHERE place = 1
  GROUP BY module_id, value_id
),
lines AS (
  SELECT
    held.module_id, held.color, held.name_place, held.run_name, held.function_name, held.platform,
    held.peak_bytes, held.allocation_kind, held.shape, held.op_name, held.source_line,
    sum(held.held_bytes) AS held_bytes,
    count(*) AS value_count,
    CASE WHEN held.has_used_values THEN coalesce(sum(moves.to_host_bytes), 0) END
      AS to_host_bytes,
    CASE WHEN held.has_used_values THEN coalesce(sum(moves.to_host_count), 0)::BIGINT END
      AS to_host_count,
    CASE WHEN held.has_used_values THEN coalesce(sum(moves.from_host_bytes), 0) END
      AS from_host_bytes,
    CASE WHEN held.has_used_values THEN coalesce(sum(moves.from_host_count), 0)::BIGINT END
      AS from_host_count
  FROM held
  LEFT JOIN moves
    ON moves.module_id = held.module_id
    AND moves.value_id = held.value_id
  GROUP BY
    held.module_id, held.color, held.name_place, held.run_name, held.function_name, held.platform,
    held.peak_bytes, held.allocation_kind, held.shape, held.op_name, held.source_line,
    held.has_used_values
),
ranked AS (
  SELECT
    lines.run_name, lines.function_name, lines.platform, lines.color, lines.peak_bytes,
    lines.held_bytes, lines.value_count, lines.allocation_kind, lines.to_host_bytes,
    lines.to_host_count, lines.from_host_bytes, lines.from_host_count, lines.shape, lines.op_name,
    lines.source_line,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (
      ORDER BY
        lines.held_bytes DESC, lines.name_place, lines.source_line NULLS LAST, lines.shape,
        lines.op_name NULLS LAST, lines.allocation_kind
    ) AS place
  FROM lines
  UNION ALL
  SELECT
    functions.run_name, functions.function_name, functions.platform, functions.color,
    NULL AS peak_bytes,
    NULL AS held_bytes,
    NULL AS value_count,
    NULL AS allocation_kind,
    NULL AS to_host_bytes,
    NULL AS to_host_count,
    NULL AS from_host_bytes,
    NULL AS from_host_count,
    NULL AS shape,
    NULL AS op_name,
    NULL AS source_line,
    functions.unknown_reason,
    functions.name_place - 1000000000000 AS place
  FROM answered_instants AS functions
  WHERE functions.unknown_reason IS NOT NULL
)
SELECT
  ranked.run_name, ranked.function_name, ranked.platform, ranked.color, ranked.peak_bytes,
  ranked.held_bytes,
  CAST(ranked.held_bytes AS DOUBLE) / nullif(ranked.peak_bytes, 0) AS held_ratio,
  ranked.value_count, ranked.allocation_kind, ranked.to_host_bytes, ranked.to_host_count,
  ranked.from_host_bytes, ranked.from_host_count, ranked.shape, ranked.op_name,
  ranked.source_line AS source, ranked.unknown_reason
FROM ranked
CROSS JOIN params
WHERE ranked.place <= params.top_n
ORDER BY ranked.place;
