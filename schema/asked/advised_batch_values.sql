-- Values of temp allocations that a vmap makes for all of its axis at once.
CREATE OR REPLACE VIEW advised_batch_values AS
WITH mapped AS (
  SELECT
    functions.module_id, functions.color, temp_values.value_id, shapes.element_count,
    ',' || shapes.dimensions_text || ',' AS dimensions,
    regexp_extract(shapes.dimensions_text, '^([0-9]{1,9})', 1) AS first_size
  FROM answered_functions AS functions
  JOIN temp_values
    ON temp_values.module_id = functions.module_id
    AND temp_values.color = functions.color
  JOIN "values"
    ON "values".module_id = temp_values.module_id
    AND "values".value_id = temp_values.value_id
  JOIN shapes ON shapes.shape = "values".shape
  JOIN value_sources AS sources
    ON sources.module_id = temp_values.module_id
    AND sources.value_id = temp_values.value_id
  WHERE NOT "values".is_phi
    -- A vmap within a gradient keeps all of its values for the backward pass, in batches or not.
    AND regexp_matches(sources.op_name, '(^|/)vmap[(]')
    AND NOT regexp_matches(sources.op_name, '/body/')
),
-- The axis is the first dimension of most results, but not of a product with an unmapped operand.
axes AS (
  SELECT
    mapped.module_id, mapped.first_size,
    row_number() OVER (
      PARTITION BY mapped.module_id
      ORDER BY count(*) DESC, CAST(mapped.first_size AS DOUBLE), mapped.first_size
    ) AS place
  FROM mapped
  WHERE mapped.first_size NOT IN ('', '0', '1')
  GROUP BY mapped.module_id, mapped.first_size
),
-- A product may have the axis and another dimension as one: then the number of elements is the same.
sizes AS (
  SELECT DISTINCT
    mapped.module_id, mapped.element_count,
    try_cast(floor(CAST(axes.first_size AS DOUBLE)) AS BIGINT) AS axis_size
  FROM mapped
  JOIN axes
    ON axes.module_id = mapped.module_id
    AND axes.place = 1
    AND replace(mapped.dimensions, ',' || axes.first_size || ',', '') <> mapped.dimensions
)
SELECT mapped.module_id, mapped.color, mapped.value_id, sizes.axis_size
FROM mapped
JOIN sizes
  ON sizes.module_id = mapped.module_id
  AND sizes.element_count = mapped.element_count;
COMMENT ON VIEW advised_batch_values IS
  'One row per value of a temp allocation that a vmap makes for its whole axis: the outermost transformation of its op_name is vmap, it is in no loop body, and the axis is one of its dimensions, or one of a value with as many elements. Key: module_id, color, value_id.';
COMMENT ON COLUMN advised_batch_values.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_batch_values.color IS 'answered_functions.color.';
COMMENT ON COLUMN advised_batch_values.value_id IS 'values.value_id.';
COMMENT ON COLUMN advised_batch_values.axis_size IS 'Size of the axis: the first dimension of most results of a vmap in the module.';
