-- title: Values live at one step of the program
-- group: peak
-- engines: duckdb, spark, sail
--
-- Lists what is in memory at a given instant, counted as in query peak: allocations other than temp
-- and thread-local ones as a whole, under the value that represents them; in temp allocations the
-- values live at that instant, with shared bytes counted once, for the first value by offset. The
-- rows add up to the bytes occupied at that instant. Shows the module with the largest need among
-- those that match the filters.
--
-- param run, function, platform, color, module
-- param step BIGINT = NULL: The instant [program order]; NULL takes that of instruction.
-- param instruction VARCHAR = NULL: Instruction whose instant to show, in modules with it in their
--   schedule; NULL takes the instant of the peak.
-- param top_n BIGINT = 50: Values to show, largest first.
--
-- column run_name VARCHAR: The run; NULL, like all columns below, if no module has the instruction.
-- column function_name, platform, color
-- column step_time BIGINT: The instant [program order].
-- column occupied_bytes HUGEINT: Bytes occupied at that instant [bytes].
-- column held_bytes HUGEINT: Bytes held by the value and by none before it [bytes].
-- column cumulative_ratio DOUBLE: Share of occupied_bytes held by this and all rows above it (0 to
--   1).
-- column allocation_kind
-- column start_time BIGINT: First instant at which the value is live [program order]; NULL if the
--   dump lists no value or no live range.
-- column end_time BIGINT: Last such instant [program order]; NULL where start_time is.
-- column shape VARCHAR: Shape of the value with layout; NULL if the dump lists no value.
-- column opcode
-- column instruction_name VARCHAR: Defining instruction; NULL if the dump lists no value.
-- column shape_index VARCHAR: Index of the value in that instruction's shape, {} for the whole
--   result; NULL where instruction_name is.
-- column op_name, source
-- column unknown_reason VARCHAR: Why the peak of a matching module is unknown, that there is no
--   such instant, or that no module has the instruction in its schedule, with the nearest names, in
--   a separate row that has nothing else, comes first and does not count toward top_n; NULL in all
--   other rows.
WITH params AS (
  SELECT
    getvariable('step')::BIGINT AS step,
    getvariable('instruction')::VARCHAR AS instruction,
    coalesce(getvariable('top_n')::BIGINT, 50) AS top_n
),
compilations AS (
  SELECT
    module_id, color, peak_time, need_bytes, peak_bytes, run_name, module_key, function_name,
    platform, peak_unknown_reason
  FROM asked_peaks
),
scheduled AS (
  SELECT DISTINCT instructions.module_id, instructions.instruction_name, instructions.program_order
  FROM instructions
  CROSS JOIN params
  WHERE params.instruction IS NOT NULL
    AND instructions.program_order IS NOT NULL
    AND instructions.module_id IN (SELECT compilations.module_id FROM compilations)
),
likenesses AS (
  SELECT
    names.instruction_name,
    name_likeness(names.instruction_name, params.instruction) AS likeness
  FROM (SELECT DISTINCT scheduled.instruction_name FROM scheduled) AS names
  CROSS JOIN params
),
nearest_names AS (
  SELECT
    likenesses.instruction_name,
    row_number() OVER (ORDER BY likenesses.likeness DESC, likenesses.instruction_name) AS place
  FROM likenesses
  WHERE likenesses.likeness >= 0.5
),
missing AS (
  SELECT
    'no module has ''' || params.instruction || ''' in its schedule'
      || coalesce(
        (
          SELECT
            '; did you mean '
              || string_agg(
                '''' || nearest_names.instruction_name || '''', ', ' ORDER BY nearest_names.place
              )
              || '?'
          FROM nearest_names
          WHERE nearest_names.place <= 3
        ),
        ''
      ) AS unknown_reason
  FROM params
  WHERE params.instruction IS NOT NULL
    AND EXISTS (SELECT 1 FROM compilations)
    AND params.instruction NOT IN (SELECT scheduled.instruction_name FROM scheduled)
),
chosen AS (
  SELECT
    compilations.module_id, compilations.color,
    coalesce(params.step, scheduled.program_order, compilations.peak_time) AS step_time,
    CASE
      WHEN params.step < 0 OR params.step > modules.schedule_length
        THEN 'its instants are 0 to ' || modules.schedule_length
    END AS missing_reason
  FROM compilations
  CROSS JOIN params
  JOIN modules ON modules.module_id = compilations.module_id
  LEFT JOIN scheduled
    ON scheduled.module_id = compilations.module_id
    AND scheduled.instruction_name = params.instruction
  WHERE compilations.peak_time IS NOT NULL
    AND (params.instruction IS NULL OR scheduled.program_order IS NOT NULL)
  ORDER BY
    compilations.need_bytes DESC NULLS LAST, compilations.peak_bytes DESC, compilations.run_name,
    compilations.module_key, compilations.color
  LIMIT 1
),
live_temps AS (
  SELECT
    temp_values.allocation_index, temp_values.value_id, temp_values.size_bytes,
    temp_values.begin_bytes, temp_values.end_bytes
  FROM chosen
  JOIN temp_values
    ON temp_values.module_id = chosen.module_id
    AND temp_values.color = chosen.color
  WHERE temp_values.start_time <= chosen.step_time
    AND temp_values.end_time >= chosen.step_time
),
covered_temps AS (
  SELECT
    live_temps.allocation_index, live_temps.value_id, live_temps.end_bytes,
    greatest(
      live_temps.begin_bytes,
      coalesce(
        max(live_temps.end_bytes) OVER (
          PARTITION BY live_temps.allocation_index
          ORDER BY live_temps.begin_bytes, live_temps.size_bytes DESC, live_temps.value_id
          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ),
        live_temps.begin_bytes
      )
    ) AS covered_bytes
  FROM live_temps
),
held_values AS (
  SELECT
    covered_temps.allocation_index,
    'temp' AS allocation_kind,
    covered_temps.value_id,
    covered_temps.end_bytes - covered_temps.covered_bytes AS held_bytes
  FROM covered_temps
  WHERE covered_temps.end_bytes > covered_temps.covered_bytes
  UNION ALL
  -- Held for the whole run, so the same at every instant.
  SELECT
    peak_values.allocation_index, peak_values.allocation_kind, peak_values.value_id,
    peak_values.held_bytes
  FROM chosen
  JOIN peak_values ON peak_values.module_id = chosen.module_id AND peak_values.color = chosen.color
  WHERE peak_values.allocation_kind <> 'temp'
    AND chosen.missing_reason IS NULL
),
summed_values AS (
  SELECT
    chosen.module_id, chosen.color, chosen.step_time, held_values.allocation_kind,
    held_values.value_id, held_values.held_bytes,
    sum(held_values.held_bytes) OVER () AS occupied_bytes,
    sum(held_values.held_bytes) OVER (
      ORDER BY
        held_values.held_bytes DESC, held_values.allocation_index, held_values.value_id NULLS LAST
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS cumulative_bytes,
    row_number() OVER (
      ORDER BY
        held_values.held_bytes DESC, held_values.allocation_index, held_values.value_id NULLS LAST
    ) AS place
  FROM held_values
  CROSS JOIN chosen
),
asked AS (
  SELECT run_name, function_name, platform, module_id, color, peak_unknown_reason AS unknown_reason
  FROM compilations
  UNION ALL
  SELECT
    compilations.run_name, compilations.function_name, compilations.platform,
    compilations.module_id, compilations.color, chosen.missing_reason AS unknown_reason
  FROM chosen
  JOIN compilations
    ON compilations.module_id = chosen.module_id
    AND compilations.color = chosen.color
  WHERE chosen.missing_reason IS NOT NULL
  UNION ALL
  SELECT NULL, NULL, NULL, NULL, NULL, unknown_reason
  FROM missing
)
SELECT
  asked.run_name, asked.function_name, asked.platform, asked.color, summed_values.step_time,
  summed_values.occupied_bytes, summed_values.held_bytes,
  CAST(summed_values.cumulative_bytes AS DOUBLE) / nullif(summed_values.occupied_bytes, 0)
    AS cumulative_ratio,
  summed_values.allocation_kind, value_details.start_time, value_details.end_time,
  value_details.shape, value_details.opcode, value_details.instruction_name,
  value_details.shape_index, value_details.op_name,
  coalesce(value_details.own_source, value_details.library_source) AS source,
  asked.unknown_reason
FROM asked
CROSS JOIN params
LEFT JOIN summed_values
  ON summed_values.module_id = asked.module_id
  AND summed_values.color = asked.color
  AND summed_values.place <= params.top_n
LEFT JOIN value_details
  ON value_details.module_id = summed_values.module_id
  AND value_details.value_id = summed_values.value_id
WHERE summed_values.place IS NOT NULL OR asked.unknown_reason IS NOT NULL
ORDER BY
  summed_values.place NULLS FIRST, asked.run_name NULLS FIRST, asked.function_name, asked.platform,
  asked.color NULLS LAST, asked.unknown_reason;
