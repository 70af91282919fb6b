-- title: Time and bytes by source line, op, opcode or function
-- group: peak
-- engines: duckdb (spark: it casts to an integer;
--   sail: it casts to an integer)
--
-- Shows the time of each part of the program in one run of a module, next to the bytes that it
-- holds at the peak: the slowest and the largest parts in one table. Times come from a profile
-- (bufdb ingest --profile, bufdb profile): the mean over its runs and devices, for each instruction
-- without what runs within it. Separate columns have the work (products and convolutions, counted
-- from shapes through loops) and the estimate of the TPU compiler. Without a profile, parts are
-- ranked by the estimate, else by the work. Shows the module with the largest need for each run and
-- function.
--
-- Parts are those of peak-by, but without "saved" and "for": the bytes of a line include what it
-- makes, what a loop saves of it, and what XLA copies for it. A fusion has only one line. (no line)
-- and similar parts have none.
--
-- wrong when: instructions run at the same time, on streams of a GPU or threads of a CPU: their
-- times add up to more than a run takes. On CPU a time is that of the thread that begins an
-- instruction. Asynchronous instructions of a TPU (copies, collectives), which overlap others, are
-- left out. GPU command buffers hide names: profile with XLA_FLAGS=--xla_gpu_enable_command_buffer=
-- ; query diagnostics lists kernels without a name. The estimate depends on the effort of the
-- compilation and was not compared with a device.
--
-- param run, function, platform, color, module, peak, step
-- param by VARCHAR = 'line' | 'op' | 'opcode' | 'function': The parts.
-- param loops
-- param unnamed VARCHAR = 'use' | 'none': For values that XLA made without an op_name: use counts
--   them for their first use that has one, none counts them by kind of allocation.
-- param top_functions
-- param top_n BIGINT = 10: Parts to show for each, the slowest and the largest.
--
-- column run_name, function_name, platform, color
-- column module_ns BIGINT: Time of all instructions of the module in one run [nanoseconds]; NULL
--   without a profile.
-- column run_ns BIGINT: Time of the part [nanoseconds]; NULL if none of it was timed.
-- column time_ratio DOUBLE: run_ns as a share of module_ns (0 to 1).
-- column held_bytes HUGEINT: Bytes held at the peak by values of the part [bytes]; NULL if none.
-- column held_ratio DOUBLE: held_bytes as a share of the peak (0 to 1).
-- column operation_count HUGEINT: Operations of its products and convolutions in one run; NULL if
--   there are none, or some are unknown.
-- column estimated_cycles HUGEINT: Estimate of the TPU compiler for one run [cycles]; NULL without
--   one.
-- column instruction_count BIGINT: Instructions with any of these.
-- column part VARCHAR: file:line, scope path, opcode or function; in parentheses if there is none.
-- column ranked_by VARCHAR: Ranking of the parts of the module: time (measured), estimate (the
--   compiler's), work (from shapes) or bytes.
-- column unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('by')::VARCHAR, 'line') AS "by",
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
functions AS (
  SELECT
    place, module_id, run_name, function_name, platform, color, peak_bytes, unknown_reason,
    name_place
  FROM answered_instants
),
figures AS (
  SELECT
    coalesce(run_times.module_id, costs.module_id) AS module_id,
    coalesce(run_times.instruction_name, costs.instruction_name) AS instruction_name,
    run_times.run_ns, costs.operation_count,
    costs.operation_unknown_reason IS NOT NULL AS has_unknown_work,
    costs.estimated_cycles
  FROM run_times
  FULL JOIN instruction_costs AS costs
    ON costs.module_id = run_times.module_id
    AND costs.instruction_name = run_times.instruction_name
),
timed AS (
  SELECT
    functions.place AS function_place,
    CASE params."by"
      WHEN 'line' THEN coalesce(sources.source, '(no line)')
      WHEN 'op' THEN coalesce(sources.stripped_op_path, '(no op)')
      WHEN 'opcode' THEN coalesce(sources.opcode, '(no opcode)')
      ELSE coalesce(sources.own_function_name, '(no function)')
    END AS part,
    sum(figures.run_ns) AS run_ns,
    CASE
      WHEN NOT bool_or(figures.has_unknown_work) THEN sum(figures.operation_count)
    END AS operation_count,
    sum(figures.estimated_cycles) AS estimated_cycles,
    count(*) AS instruction_count
  FROM functions
  CROSS JOIN params
  JOIN figures ON figures.module_id = functions.module_id
  LEFT JOIN instruction_sources AS sources
    ON sources.module_id = figures.module_id
    AND sources.instruction_name = figures.instruction_name
  WHERE functions.place <= params.top_functions
  GROUP BY function_place, part
),
held AS (
  SELECT
    values_held.function_place,
    coalesce(
      regexp_replace(
        CASE params."by"
          WHEN 'line' THEN values_held.attributed_source
          WHEN 'op' THEN values_held.attributed_stripped_op_path
          WHEN 'opcode' THEN values_held.opcode
          ELSE coalesce(values_held.attributed_own_function, values_held.attributed_own_file)
        END,
        '^(saved |slice of |copy of |for )', ''
      ),
      '(' || coalesce(values_held.allocation_kind, 'kind unknown') || ')'
    ) AS part,
    sum(values_held.held_bytes) AS held_bytes
  FROM attributed_peak_values AS values_held
  CROSS JOIN params
  WHERE values_held.function_place <= params.top_functions
    AND values_held.held_bytes IS NOT NULL
  GROUP BY function_place, part
),
parts AS (
  SELECT
    coalesce(timed.function_place, held.function_place) AS function_place,
    coalesce(timed.part, held.part) AS part,
    timed.run_ns, timed.operation_count, timed.estimated_cycles, timed.instruction_count,
    held.held_bytes
  FROM timed
  FULL JOIN held
    ON held.function_place = timed.function_place
    AND held.part = timed.part
),
ranked AS (
  SELECT
    parts.function_place, parts.part, parts.run_ns, parts.operation_count,
    parts.estimated_cycles, parts.instruction_count, parts.held_bytes,
    sum(parts.run_ns) OVER whole AS module_ns,
    CASE
      WHEN count(parts.run_ns) OVER whole > 0 THEN 'time'
      WHEN count(parts.estimated_cycles) OVER whole > 0 THEN 'estimate'
      WHEN count(parts.operation_count) OVER whole > 0 THEN 'work'
      ELSE 'bytes'
    END AS ranked_by,
    row_number() OVER (
      PARTITION BY parts.function_place
      ORDER BY
        parts.run_ns DESC NULLS LAST, parts.estimated_cycles DESC NULLS LAST,
        parts.operation_count DESC NULLS LAST, parts.held_bytes DESC NULLS LAST, parts.part
    ) AS place,
    row_number() OVER (
      PARTITION BY parts.function_place
      ORDER BY parts.held_bytes DESC NULLS LAST, parts.part
    ) AS held_place
  FROM parts
  WINDOW whole AS (PARTITION BY parts.function_place)
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  CAST(ranked.module_ns AS BIGINT) AS module_ns,
  CAST(ranked.run_ns AS BIGINT) AS run_ns,
  CAST(ranked.run_ns AS DOUBLE) / nullif(ranked.module_ns, 0) AS time_ratio,
  ranked.held_bytes,
  CAST(ranked.held_bytes AS DOUBLE) / nullif(functions.peak_bytes, 0) AS held_ratio,
  CAST(ranked.operation_count AS HUGEINT) AS operation_count,
  CAST(ranked.estimated_cycles AS HUGEINT) AS estimated_cycles,
  ranked.instruction_count, ranked.part, ranked.ranked_by, functions.unknown_reason
FROM functions
CROSS JOIN params
LEFT JOIN ranked ON ranked.function_place = functions.place
WHERE functions.unknown_reason IS NOT NULL
  OR (
    functions.place <= params.top_functions
    AND (
      ranked.place <= params.top_n
      OR (ranked.held_place <= params.top_n AND ranked.held_bytes IS NOT NULL)
    )
  )
ORDER BY functions.place, functions.name_place, ranked.place;
