-- The figures of the modules of two sides, next to each other.
CREATE OR REPLACE MACRO diff_modules(base_run, new_run, asked_pairs := NULL) AS TABLE
WITH pairs AS (
  SELECT pairs.*
  FROM diff_pairs(base_run, new_run, asked_pairs) AS pairs
),
paddings AS (
  SELECT
    peak_values.module_id, peak_values.color,
    sum(greatest(peak_values.held_bytes::HUGEINT - "values".logical_bytes, 0)) AS padding_bytes
  FROM peak_values
  JOIN "values"
    ON "values".module_id = peak_values.module_id
    AND "values".value_id = peak_values.value_id
  JOIN shapes ON shapes.shape = "values".shape
  WHERE NOT shapes.is_tuple
  GROUP BY peak_values.module_id, peak_values.color
),
known_modules AS (
  SELECT
    memory_figures.module_id,
    count(memory_figures.color) > 0 AS has_allocations,
    min(memory_figures.peak_unknown_reason) AS unknown_reason
  FROM memory_figures
  GROUP BY memory_figures.module_id
),
figures AS (
  SELECT
    memory_figures.module_id, memory_figures.color, memory_figures.memory_space_name,
    memory_figures.is_device_memory, kinds.figure, kinds.figure_place,
    CASE kinds.figure
      WHEN 'peak' THEN memory_figures.peak_bytes
      WHEN 'arguments' THEN memory_figures.argument_bytes
      WHEN 'outputs' THEN memory_figures.output_bytes
      WHEN 'aliased' THEN memory_figures.alias_bytes
      WHEN 'temps' THEN memory_figures.temp_bytes
      WHEN 'constants' THEN memory_figures.constant_bytes
      WHEN 'fragmentation' THEN memory_figures.fragmentation_bytes
      WHEN 'padding'
        THEN CASE
          WHEN memory_figures.peak_bytes IS NOT NULL THEN coalesce(paddings.padding_bytes, 0)
        END
    END AS figure_bytes
  FROM memory_figures
  CROSS JOIN (
    VALUES
      ('peak', 1), ('arguments', 2), ('outputs', 3), ('aliased', 4), ('temps', 5),
      ('constants', 6), ('fragmentation', 7), ('padding', 8)
  ) AS kinds (figure, figure_place)
  LEFT JOIN paddings
    ON paddings.module_id = memory_figures.module_id
    AND paddings.color = memory_figures.color
),
sides AS (
  SELECT pairs.base_module_id, pairs.new_module_id, 'base' AS side, figures.*
  FROM pairs
  JOIN figures ON figures.module_id = pairs.base_module_id
  UNION ALL
  SELECT pairs.base_module_id, pairs.new_module_id, 'new' AS side, figures.*
  FROM pairs
  JOIN figures ON figures.module_id = pairs.new_module_id
),
spaces AS (
  SELECT
    sides.*,
    count(sides.color) OVER (PARTITION BY sides.base_module_id, sides.new_module_id)
      AS space_count
  FROM sides
),
joined AS (
  SELECT
    base_module_id,
    new_module_id,
    color,
    figure,
    figure_place,
    max(memory_space_name) FILTER (WHERE side = 'base') AS base_space_name,
    max(memory_space_name) FILTER (WHERE side = 'new') AS new_space_name,
    coalesce(bool_or(is_device_memory), TRUE) AS is_device_memory,
    max(figure_bytes) FILTER (WHERE side = 'base') AS base_bytes,
    max(figure_bytes) FILTER (WHERE side = 'new') AS new_bytes,
    count(*) FILTER (WHERE side = 'base') AS base_count,
    count(*) FILTER (WHERE side = 'new') AS new_count
  FROM spaces
  -- A module without allocations is compared in the memory spaces of the other side.
  WHERE color IS NOT NULL
    OR space_count = 0
  GROUP BY base_module_id, new_module_id, color, figure, figure_place
),
filled AS (
  -- A module that does not use a memory space has 0 bytes there. A module with an unknown peak has
  -- NULL in figures that need it; one without allocations, or missing, has NULL everywhere.
  SELECT
    joined.*
      REPLACE (
        CASE
          WHEN joined.base_count = 0
            AND base_modules.has_allocations
            AND (
              base_modules.unknown_reason IS NULL
              OR joined.figure NOT IN ('peak', 'fragmentation', 'padding')
            )
            THEN 0
          ELSE joined.base_bytes
        END AS base_bytes,
        CASE
          WHEN joined.new_count = 0
            AND new_modules.has_allocations
            AND (
              new_modules.unknown_reason IS NULL
              OR joined.figure NOT IN ('peak', 'fragmentation', 'padding')
            )
            THEN 0
          ELSE joined.new_bytes
        END AS new_bytes
      ),
    base_modules.unknown_reason AS base_reason, new_modules.unknown_reason AS new_reason
  FROM joined
  LEFT JOIN known_modules AS base_modules ON base_modules.module_id = joined.base_module_id
  LEFT JOIN known_modules AS new_modules ON new_modules.module_id = joined.new_module_id
),
peaks AS (
  -- In order: what grew, what shrank, what is unknown, what is on one side only, what is unchanged.
  SELECT
    filled.base_module_id, filled.new_module_id, filled.color,
    row_number() OVER (
      ORDER BY
        CASE
          WHEN filled.new_bytes > filled.base_bytes THEN 0
          WHEN filled.new_bytes < filled.base_bytes THEN 1
          WHEN filled.base_module_id IS NULL OR filled.new_module_id IS NULL THEN 3
          WHEN filled.new_bytes IS NULL OR filled.base_bytes IS NULL THEN 2
          ELSE 4
        END,
        abs(filled.new_bytes - filled.base_bytes) DESC NULLS LAST,
        coalesce(filled.new_bytes, filled.base_bytes) DESC NULLS LAST,
        pairs.function_name,
        pairs.new_run_name NULLS LAST,
        pairs.base_run_name NULLS LAST,
        pairs.new_module_key NULLS LAST,
        pairs.base_module_key NULLS LAST,
        filled.color
    ) AS place
  FROM filled
  JOIN pairs
    ON pairs.base_module_id IS NOT DISTINCT FROM filled.base_module_id
    AND pairs.new_module_id IS NOT DISTINCT FROM filled.new_module_id
  WHERE filled.figure = 'peak'
)
SELECT
  peaks.place, pairs.function_name, pairs.base_function_name, pairs.new_function_name,
  CASE
    WHEN base_modules.platform <> new_modules.platform
      THEN base_modules.platform || ' -> ' || new_modules.platform
    ELSE coalesce(new_modules.platform, base_modules.platform)
  END AS platform,
  pairs.paired_by, pairs.base_run_name, pairs.new_run_name, pairs.base_module_id,
  pairs.new_module_id, pairs.base_module_key, pairs.new_module_key, filled.color,
  coalesce(filled.new_space_name, filled.base_space_name) AS memory_space_name,
  filled.is_device_memory, filled.figure_place, filled.figure, filled.base_bytes, filled.new_bytes,
  filled.new_bytes - filled.base_bytes AS delta_bytes,
  CAST(filled.new_bytes - filled.base_bytes AS DOUBLE) / nullif(filled.base_bytes, 0)
    AS delta_ratio,
  nullif(
    concat_ws(
      '; ',
      CASE
        WHEN filled.base_module_id IS NOT NULL AND filled.base_bytes IS NULL
          THEN 'base: ' || coalesce(filled.base_reason, 'unknown')
      END,
      CASE
        WHEN filled.new_module_id IS NOT NULL AND filled.new_bytes IS NULL
          THEN 'new: ' || coalesce(filled.new_reason, 'unknown')
      END
    ),
    ''
  ) AS unknown_reason
FROM filled
JOIN peaks
  ON peaks.base_module_id IS NOT DISTINCT FROM filled.base_module_id
  AND peaks.new_module_id IS NOT DISTINCT FROM filled.new_module_id
  AND peaks.color IS NOT DISTINCT FROM filled.color
JOIN pairs
  ON pairs.base_module_id IS NOT DISTINCT FROM filled.base_module_id
  AND pairs.new_module_id IS NOT DISTINCT FROM filled.new_module_id
LEFT JOIN modules AS base_modules ON base_modules.module_id = filled.base_module_id
LEFT JOIN modules AS new_modules ON new_modules.module_id = filled.new_module_id
ORDER BY peaks.place, filled.figure_place;
COMMENT ON MACRO TABLE diff_modules IS
  'The figures of the modules of base_run next to those of new_run, paired by diff_pairs (with asked_pairs). One row per pair (or module without a partner), memory space and figure: peak, arguments, outputs, aliased, temps, constants, fragmentation as in memory_figures, and padding (bytes held at the peak beyond the bare shapes, without tuples). base_bytes and new_bytes, their difference delta_bytes, and delta_ratio, delta_bytes divided by base_bytes. NULL where a side has no such module or the figure is unknown, with side and reason in unknown_reason; 0 where a module does not use the memory space. color is NULL where neither side has allocations. is_device_memory: whether it is the memory of the device (memory_figures) on either side; TRUE where color is NULL. platform is that of both, OLD -> NEW if they differ, NULL if unknown. place orders pairs and memory spaces: largest growth of the peak first, then those that shrank, those with an unknown peak, those on one side only, unchanged ones.';
