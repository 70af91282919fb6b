-- title: Collective operations with the buffers that they read and write
-- group: peak
-- engines: duckdb, spark, sail
--
-- Lists all-reduce, all-gather, reduce-scatter, all-to-all, collective-permute and similar
-- operations with the bytes of their operands and results on one device: large ones are sent
-- between devices. An asynchronous operation is listed as its start, with the buffers of the whole
-- chain. One row per operation for each run and function (its compilation with the largest need),
-- most bytes first. live_bytes counts buffers that are live at the peak, or at the instant of step;
-- a result written in place counts under both names.
--
-- wrong when: On a TPU a fusion can contain a collective and the computation that overlaps it:
-- is_fused is TRUE, opcode is NULL, and its bytes are everything that the fusion reads and writes.
-- Collectives inside other fusions and custom calls do not show. Loop iterations are not counted,
-- nor what the communication library allocates.
--
-- param run, function, platform, color, module, peak, step, top_n
--
-- column run_name, function_name, platform
-- column color BIGINT: Memory space of the buffers; an operation with buffers in two has a row for
--   each.
-- column opcode VARCHAR: Kind of operation, without -start; NULL if the dump does not say.
-- column is_async BOOLEAN: Whether other work can overlap it.
-- column is_fused BOOLEAN: Whether it is a fusion that contains the operation.
-- column read_bytes HUGEINT: Its operands [bytes].
-- column written_bytes HUGEINT: Its results [bytes].
-- column live_bytes HUGEINT: Bytes of both that are live at the instant, including results moved to
--   another memory space [bytes]; NULL if the peak is unknown.
-- column low_saving_bytes HUGEINT: Lower bound of how far the peak falls without the result that
--   saves most [bytes]: for an all-gather as in query gathers-live; 0 for others, whose results are
--   needed; NULL if none of them holds anything at the peak.
-- column saving_bytes HUGEINT: Upper bound (query savings, for an all-gather gathers-live) [bytes];
--   NULL where low_saving_bytes is.
-- column start_time BIGINT: Its position [program order]; NULL if it has none.
-- column end_time BIGINT: Last instant at which a result, moved or not, is live [program order];
--   NULL without live ranges.
-- column device_group_size HUGEINT: Devices in each group; NULL if unknown.
-- column device_groups VARCHAR: The groups as printed; source and target pairs for a permute; NULL
--   if the text has none.
-- column instruction_name VARCHAR: The operation.
-- column op_name
-- column source VARCHAR: Innermost file:line that is not library code, "for file:line" for an
--   operation added by the compiler whose result that line uses, "library file:line" if everything
--   is library code; NULL if unknown.
-- column unknown_reason VARCHAR: Why the peak of the function, or what its operations use, is
--   unknown, in a separate row that has nothing else, comes first and does not count toward top_n;
--   NULL in all other rows.
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
functions AS (
  SELECT
    module_id, color, name_place, peak_time, run_name, function_name, platform, unknown_reason
  FROM answered_functions_with_uses
),
buffers AS (
  SELECT
    functions.module_id, functions.color, functions.name_place, functions.peak_time,
    collective_values.instruction_name, collective_values.value_id,
    bool_or(collective_values.is_written) AS is_written,
    bool_or(NOT collective_values.is_written) AS is_read,
    NOT bool_or(NOT collective_values.is_moved) AS is_moved
  FROM functions
  JOIN collective_values ON collective_values.module_id = functions.module_id
  JOIN "values"
    ON "values".module_id = collective_values.module_id
    AND "values".value_id = collective_values.value_id
  JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
    AND allocations.color = functions.color
  GROUP BY
    functions.module_id, functions.color, functions.name_place, functions.peak_time,
    collective_values.instruction_name, collective_values.value_id
),
operations AS (
  SELECT
    buffers.module_id, buffers.color, buffers.name_place, buffers.instruction_name,
    coalesce(sum(CASE WHEN buffers.is_read THEN "values".size_bytes END), 0) AS read_bytes,
    coalesce(
      sum(CASE WHEN buffers.is_written AND NOT buffers.is_moved THEN "values".size_bytes END), 0
    ) AS written_bytes,
    CASE
      WHEN max(buffers.peak_time) IS NOT NULL
        THEN coalesce(
          sum(
            CASE
              WHEN live_ranges.start_time <= buffers.peak_time
                AND live_ranges.end_time >= buffers.peak_time THEN "values".size_bytes
            END
          ),
          0
        )
    END AS live_bytes,
    max(
      CASE
        WHEN buffers.is_written THEN coalesce(gathered.low_saving_bytes, 0 * savings.saving_bytes)
      END
    ) AS low_saving_bytes,
    max(
      CASE WHEN buffers.is_written THEN coalesce(gathered.saving_bytes, savings.saving_bytes) END
    ) AS saving_bytes,
    max(CASE WHEN buffers.is_written THEN live_ranges.end_time END) AS end_time,
    max(CASE WHEN buffers.is_written THEN value_sources.source_line END) AS source
  FROM buffers
  JOIN "values"
    ON "values".module_id = buffers.module_id
    AND "values".value_id = buffers.value_id
  LEFT JOIN value_sources
    ON value_sources.module_id = buffers.module_id
    AND value_sources.value_id = buffers.value_id
  LEFT JOIN live_ranges
    ON live_ranges.module_id = buffers.module_id
    AND live_ranges.value_id = buffers.value_id
  LEFT JOIN peak_savings AS savings
    ON savings.module_id = buffers.module_id
    AND savings.color = buffers.color
    AND savings.value_id = buffers.value_id
  LEFT JOIN gathered_values AS gathered
    ON gathered.module_id = buffers.module_id
    AND gathered.value_id = buffers.value_id
  GROUP BY buffers.module_id, buffers.color, buffers.name_place, buffers.instruction_name
),
ranked AS (
  SELECT
    operations.module_id, operations.color, operations.instruction_name, operations.read_bytes,
    operations.written_bytes, operations.live_bytes, operations.low_saving_bytes,
    operations.saving_bytes, collectives.program_order AS start_time,
    operations.end_time, collectives.opcode, collectives.is_async, collectives.is_fused,
    collectives.device_group_size, collectives.device_groups, instructions.op_name,
    operations.source,
    row_number() OVER (
      ORDER BY
        operations.read_bytes + operations.written_bytes DESC, operations.name_place,
        collectives.program_order NULLS LAST, operations.instruction_name
    ) AS place
  FROM operations
  JOIN collectives
    ON collectives.module_id = operations.module_id
    AND collectives.instruction_name = operations.instruction_name
  JOIN instructions
    ON instructions.module_id = operations.module_id
    AND instructions.instruction_name = operations.instruction_name
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color, ranked.opcode,
  ranked.is_async, ranked.is_fused, ranked.read_bytes, ranked.written_bytes, ranked.live_bytes,
  ranked.low_saving_bytes, ranked.saving_bytes, ranked.start_time, ranked.end_time,
  ranked.device_group_size, ranked.device_groups, ranked.instruction_name, ranked.op_name,
  ranked.source, functions.unknown_reason
FROM functions
CROSS JOIN params
LEFT JOIN ranked
  ON ranked.module_id = functions.module_id
  AND ranked.color = functions.color
  AND ranked.place <= params.top_n
WHERE ranked.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY ranked.place NULLS FIRST, functions.name_place;
