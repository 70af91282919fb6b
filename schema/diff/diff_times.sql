-- How long the parts of a program take on both sides, by a key that survives recompilation.
CREATE OR REPLACE MACRO diff_times(
  base_run, new_run, key_name := 'op', asked_pairs := NULL
) AS TABLE
WITH pairs AS (
  SELECT DISTINCT figures.place, figures.base_module_id, figures.new_module_id
  FROM diff_modules(base_run, new_run, asked_pairs) AS figures
  WHERE figures.figure = 'peak'
    AND figures.base_module_id IN (SELECT instruction_times.module_id FROM instruction_times)
    AND figures.new_module_id IN (SELECT instruction_times.module_id FROM instruction_times)
),
sides AS (
  SELECT place, TRUE AS is_base, base_module_id AS module_id
  FROM pairs
  UNION ALL
  SELECT place, FALSE AS is_base, new_module_id AS module_id
  FROM pairs
),
timed AS (
  SELECT
    sides.place, sides.is_base,
    CASE key_name
      WHEN 'op' THEN regexp_replace(sources.stripped_op_path, '([/_])[0-9]+', '\1*', 'g')
      WHEN 'source' THEN CASE
        WHEN sources.source GLOB 'library *' THEN sources.source
        ELSE base_name(sources.source)
      END
      WHEN 'opcode' THEN sources.opcode
    END AS part,
    run_times.run_ns
  FROM sides
  JOIN run_times ON run_times.module_id = sides.module_id
  LEFT JOIN instruction_sources AS sources
    ON sources.module_id = run_times.module_id
    AND sources.instruction_name = run_times.instruction_name
)
SELECT
  timed.place, timed.part,
  grouping(timed.part) = 1 AS is_whole,
  coalesce(sum(timed.run_ns) FILTER (WHERE timed.is_base), 0)::BIGINT AS base_ns,
  coalesce(sum(timed.run_ns) FILTER (WHERE NOT timed.is_base), 0)::BIGINT AS new_ns
FROM timed
GROUP BY GROUPING SETS ((timed.place, timed.part), (timed.place))
ORDER BY timed.place, is_whole DESC, abs(new_ns - base_ns) DESC, timed.part;
COMMENT ON MACRO TABLE diff_times IS
  'Measured time of one run, of pairs that profiles timed on both sides: a row with is_whole for all instructions of a place (pair and memory space, see diff_modules), and one for each part by op, source or opcode as in diff_peak, there without relation (saved, for); part is NULL for what has none, and with other keys. Columns: place, part, is_whole, base_ns, new_ns [nanoseconds], 0 for a part that one side lacks.';
