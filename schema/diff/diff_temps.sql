-- The change of the temp allocations by part: what occupies them at the peak, and holes.
CREATE OR REPLACE MACRO diff_temps(
  base_run, new_run, key_name := 'op', asked_pairs := NULL
) AS TABLE
WITH figures AS (
  SELECT figures.*
  FROM diff_modules(base_run, new_run, asked_pairs) AS figures
  WHERE figures.figure IN ('temps', 'fragmentation')
    AND figures.base_module_id IS NOT NULL
    AND figures.new_module_id IS NOT NULL
),
parts AS (
  SELECT
    held.place, held.change, held.part, held.base_bytes, held.new_bytes, held.base_value_count,
    held.new_value_count, held.base_added_bytes, held.new_added_bytes, held.base_shape,
    held.new_shape, held.base_source, held.new_source
  FROM diff_peak(base_run, new_run, key_name, asked_pairs) AS held
  WHERE held.allocation_kind = 'temp'
  UNION ALL
  SELECT
    holes.place,
    CASE
      WHEN holes.delta_bytes > 0 THEN 'grew'
      WHEN holes.delta_bytes < 0 THEN 'shrank'
      ELSE 'same'
    END AS change,
    '(fragmentation)' AS part,
    holes.base_bytes, holes.new_bytes,
    0 AS base_value_count,
    0 AS new_value_count,
    0 AS base_added_bytes,
    0 AS new_added_bytes,
    NULL AS base_shape,
    NULL AS new_shape,
    NULL AS base_source,
    NULL AS new_source
  FROM figures AS holes
  WHERE holes.figure = 'fragmentation'
    AND holes.delta_bytes IS NOT NULL
    AND (holes.base_bytes <> 0 OR holes.new_bytes <> 0)
),
attributed AS (
  SELECT parts.place, sum(parts.base_bytes) AS base_bytes, sum(parts.new_bytes) AS new_bytes
  FROM parts
  GROUP BY parts.place
),
all_parts AS (
  SELECT parts.*
  FROM parts
  UNION ALL
  -- Without known peaks on both sides nothing is attributed.
  SELECT
    temps.place,
    CASE
      WHEN temps.delta_bytes > 0 THEN 'grew'
      WHEN temps.delta_bytes < 0 THEN 'shrank'
      ELSE 'same'
    END AS change,
    '(not attributed)' AS part,
    temps.base_bytes - coalesce(attributed.base_bytes, 0) AS base_bytes,
    temps.new_bytes - coalesce(attributed.new_bytes, 0) AS new_bytes,
    0 AS base_value_count,
    0 AS new_value_count,
    0 AS base_added_bytes,
    0 AS new_added_bytes,
    NULL AS base_shape,
    NULL AS new_shape,
    NULL AS base_source,
    NULL AS new_source
  FROM figures AS temps
  LEFT JOIN attributed ON attributed.place = temps.place
  WHERE temps.figure = 'temps'
    AND temps.delta_bytes IS NOT NULL
    AND (
      temps.base_bytes <> coalesce(attributed.base_bytes, 0)
      OR temps.new_bytes <> coalesce(attributed.new_bytes, 0)
    )
)
SELECT
  all_parts.place,
  row_number() OVER (
    PARTITION BY all_parts.place
    ORDER BY
      abs(all_parts.new_bytes - all_parts.base_bytes) DESC, all_parts.new_bytes DESC, all_parts.part
  ) AS part_place,
  figures.function_name, figures.base_function_name, figures.new_function_name, figures.platform,
  figures.paired_by, figures.base_run_name, figures.new_run_name, figures.base_module_id,
  figures.new_module_id, figures.base_module_key, figures.new_module_key, figures.color,
  figures.memory_space_name, figures.is_device_memory, all_parts.change, all_parts.part,
  all_parts.base_bytes, all_parts.new_bytes,
  all_parts.new_bytes - all_parts.base_bytes AS delta_bytes,
  CAST(all_parts.new_bytes - all_parts.base_bytes AS DOUBLE) / nullif(all_parts.base_bytes, 0)
    AS delta_ratio,
  all_parts.base_value_count, all_parts.new_value_count, all_parts.base_added_bytes,
  all_parts.new_added_bytes, all_parts.base_shape, all_parts.new_shape, all_parts.base_source,
  all_parts.new_source
FROM all_parts
JOIN figures
  ON figures.place = all_parts.place
  AND figures.figure = 'temps'
ORDER BY all_parts.place, part_place;
COMMENT ON MACRO TABLE diff_temps IS
  'The parts of a change of the temp allocations: what occupies them at the peak (the rows of diff_peak whose kind is temp) and (fragmentation), the part that nothing occupies; delta_bytes of a place add up exactly to the delta of its temps. If the peak of a side is unknown, the only part is (not attributed); no rows if a side has no allocations.';
