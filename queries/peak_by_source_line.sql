-- title: Bytes held at the peak by source line
-- group: meaning
-- engines: duckdb, spark
--
-- Attributes every byte that is occupied at the peak to the source line of the instruction that
-- defined the value there, so that the lines of a module add up to its peak. The peak is the
-- largest number of bytes occupied at one instant, bytes shared by several values counted once
-- (query peak tells more). For each run and function the module with the largest known peak is
-- shown. Bytes without a known line, such as those of parameters, are summed by kind of allocation.
--
-- XLA makes copies, conversions and broadcasts of its own, which no line of the model stands for:
-- values without an op_name. They are often half of the temp bytes. A row for train.py:77 has those
-- that are made for line 77: their first use that has an op_name is of that line. They are never in
-- the row train.py:77, which has what the line itself makes.
--
-- wrong when: a value that XLA made has several uses. It is named for the first in program order
-- that has an op_name, and another one may be what keeps it alive. Where no use of its own has an
-- op_name, it is named for what its first use is used for, and so on, at most four steps away.
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color BIGINT = NULL: Only this memory space.
-- param frame VARCHAR = 'own' | 'leaf': Which line of the call stack: own is the innermost that is
--   not library code, leaf the innermost of all.
-- param unnamed VARCHAR = 'use' | 'none': What to do with values that XLA made without an op_name:
--   use names them for their first use that has one, none counts them by kind of allocation.
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 10: Lines to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column held_bytes HUGEINT: Bytes held at the peak by values of this line [bytes].
-- column held_ratio DOUBLE: The same as share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column source VARCHAR: file:line; "for file:line" where XLA made the values; the kind of
--   allocation in parentheses where no line is known.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    getvariable('run')::VARCHAR AS run,
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('color')::BIGINT AS color,
    coalesce(getvariable('frame')::VARCHAR, 'own') AS frame,
    coalesce(getvariable('unnamed')::VARCHAR, 'use') AS unnamed,
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
ranked_functions AS (
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.module_id,
    function_modules.color,
    function_modules.peak_bytes,
    row_number() OVER (
      ORDER BY
        function_modules.peak_bytes DESC, function_modules.run_name, function_modules.function_name,
        function_modules.color, function_modules.platform NULLS LAST
    ) AS function_place
  FROM function_modules
  CROSS JOIN params
  WHERE function_modules.peak_bytes <> 0
    AND (
      params.run IS NULL
      OR function_modules.run_name IN (
        SELECT run_selectors.run_name
        FROM run_selectors
        CROSS JOIN params
        WHERE run_selectors.selector GLOB params.run
      )
    )
    AND (params.function IS NULL OR function_modules.function_name GLOB params.function)
    AND (params.platform IS NULL OR function_modules.platform = params.platform)
    AND (params.color IS NULL OR function_modules.color = params.color)
),
located_values AS (
  SELECT
    ranked_functions.function_place,
    peak_values.held_bytes,
    coalesce(
      CASE params.frame
        WHEN 'own' THEN value_details.own_source_file || ':' || value_details.own_source_line
        WHEN 'leaf' THEN value_details.source_file || ':' || value_details.source_line
      END,
      CASE params.unnamed WHEN 'use' THEN 'for ' END
        || CASE params.frame
          WHEN 'own' THEN named_uses.own_source_file || ':' || named_uses.own_source_line
          WHEN 'leaf' THEN named_uses.source_file || ':' || named_uses.source_line
        END,
      '(' || peak_values.allocation_kind || ')'
    ) AS source
  FROM ranked_functions
  CROSS JOIN params
  JOIN peak_values
    ON peak_values.module_id = ranked_functions.module_id
    AND peak_values.color = ranked_functions.color
  LEFT JOIN value_details
    ON value_details.module_id = peak_values.module_id
    AND value_details.value_id = peak_values.value_id
  LEFT JOIN named_uses
    ON named_uses.module_id = peak_values.module_id
    AND named_uses.value_id = peak_values.value_id
  WHERE ranked_functions.function_place <= params.top_functions
),
lines AS (
  SELECT
    located_values.function_place,
    located_values.source,
    sum(located_values.held_bytes) AS held_bytes,
    count(*) AS value_count
  FROM located_values
  GROUP BY located_values.function_place, located_values.source
),
ranked_lines AS (
  SELECT
    lines.function_place,
    lines.source,
    lines.held_bytes,
    lines.value_count,
    row_number() OVER (
      PARTITION BY lines.function_place
      ORDER BY lines.held_bytes DESC, lines.source
    ) AS line_place
  FROM lines
),
answers AS (
  SELECT
    ranked_functions.run_name,
    ranked_functions.function_name,
    ranked_functions.color,
    ranked_functions.peak_bytes,
    ranked_lines.held_bytes,
    CAST(ranked_lines.held_bytes AS DOUBLE) / nullif(ranked_functions.peak_bytes, 0) AS held_ratio,
    ranked_lines.value_count,
    ranked_lines.source,
    CAST(NULL AS VARCHAR) AS unknown_reason,
    row_number() OVER (ORDER BY ranked_lines.function_place, ranked_lines.line_place) AS place
  FROM ranked_lines
  CROSS JOIN params
  JOIN ranked_functions ON ranked_functions.function_place = ranked_lines.function_place
  WHERE ranked_lines.line_place <= params.top_n
  UNION ALL
  SELECT
    function_modules.run_name,
    function_modules.function_name,
    function_modules.color,
    NULL AS peak_bytes,
    NULL AS held_bytes,
    NULL AS held_ratio,
    NULL AS value_count,
    NULL AS source,
    function_modules.unknown_reason,
    0 AS place
  FROM function_modules
  CROSS JOIN params
  WHERE function_modules.unknown_count > 0
    AND (
      params.run IS NULL
      OR function_modules.run_name IN (
        SELECT run_selectors.run_name
        FROM run_selectors
        CROSS JOIN params
        WHERE run_selectors.selector GLOB params.run
      )
    )
    AND (params.function IS NULL OR function_modules.function_name GLOB params.function)
    AND (params.platform IS NULL OR function_modules.platform = params.platform)
    AND (
      params.color IS NULL
      OR function_modules.color IS NULL
      OR function_modules.color = params.color
    )
)
SELECT
  answers.run_name,
  answers.function_name,
  answers.color,
  answers.peak_bytes,
  answers.held_bytes,
  answers.held_ratio,
  answers.value_count,
  answers.source,
  answers.unknown_reason
FROM answers
ORDER BY
  answers.place, answers.run_name, answers.function_name, answers.color NULLS LAST,
  answers.unknown_reason;
