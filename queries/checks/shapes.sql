-- title: Shapes agree with their text, and values have the size of their shape
-- group: store
--
-- Format sections 3.1 and 3.2. For layouts with their own element width (E(N)) or a shape (P(…)),
-- and for shapes in b(…), only the type is checked.
--
-- column module_id BIGINT: The module of a value; NULL for a shape itself.
-- column finding VARCHAR: What was expected, what was found.
WITH arrays AS (
  SELECT
    shapes.shape, shapes.dtype, shapes.dimensions, shapes.dimensions_text, shapes.layout,
    shapes.memory_space, shapes.element_count, shapes.logical_bytes, shapes.is_tuple,
    regexp_extract(shapes.shape, '^([a-z][a-z0-9_]*)\[', 1) AS read_dtype,
    regexp_extract(shapes.shape, '^[a-z][a-z0-9_]*\[([^\]]*)\]', 1) AS read_dimensions,
    nullif(regexp_extract(shapes.shape, '^[a-z][a-z0-9_]*\[[^\]]*\](\{.*\})$', 1), '')
      AS read_layout
  FROM shapes
  WHERE regexp_matches(
      shapes.shape,
      '^[a-z][a-z0-9_]*\[(((<=)?[0-9]{1,18}|\?)(,((<=)?[0-9]{1,18}|\?))*)?\](\{.*\})?$'
    )
),
parts AS (
  SELECT
    arrays.shape, arrays.dimensions, arrays.element_count, arrays.logical_bytes,
    CASE
      WHEN arrays.read_dimensions = '' THEN []::BIGINT[]
      ELSE list_transform(
        string_split(arrays.read_dimensions, ','),
        lambda part: try_cast(replace(part, '<=', '') AS BIGINT)
      )
    END AS read_sizes,
    CASE
      WHEN arrays.read_dtype = 'pred' THEN 8
      WHEN regexp_matches(arrays.read_dtype, '^(f|bf|s|u|c)[0-9]') THEN greatest(
        8, try_cast(regexp_extract(arrays.read_dtype, '^(?:f|bf|s|u|c)([0-9]+)', 1) AS BIGINT)
      )
    END AS element_bits
  FROM arrays
  WHERE arrays.read_dtype NOT IN ('token', 'opaque')
),
sizes AS (
  SELECT
    parts.shape, parts.dimensions, parts.element_count, parts.logical_bytes, parts.read_sizes,
    parts.element_bits,
    -- A DOUBLE, exact in the range compared below.
    CASE
      WHEN contains(parts.shape, '?') THEN NULL
      WHEN len(parts.read_sizes) = 0 THEN 1
      ELSE list_product(parts.read_sizes)
    END AS read_count
  FROM parts
),
tuples AS (
  SELECT
    shapes.shape, shapes.dtype, shapes.is_tuple, shapes.element_count, shapes.logical_bytes,
    coalesce(
      shapes.dimensions::VARCHAR,
      shapes.dimensions_text, shapes.layout,
      shapes.memory_space::VARCHAR
    ) AS of_arrays,
    -- The rest within the outer brackets without layouts, dimensions and inner tuples, four levels
    -- deep.
    regexp_replace(
      regexp_replace(
        regexp_replace(
          regexp_replace(
            regexp_replace(
              shapes.shape[2:-2], '/\*index=[0-9]+\*/|\[[^\]]*\]|\{[^{}]*\}', '', 'g'
            ),
            '\([^()]*\)', 'x', 'g'
          ),
          '\([^()]*\)', 'x', 'g'
        ),
        '\([^()]*\)', 'x', 'g'
      ),
      '\([^()]*\)', 'x', 'g'
    ) AS elements
  FROM shapes
  WHERE starts_with(shapes.shape, '(')
),
found AS (
  SELECT
    NULL::BIGINT AS module_id,
    arrays.shape,
    'type ' || coalesce(arrays.dtype, 'NULL') || ', dimensions '
      || coalesce(arrays.dimensions_text, 'NULL') || ', layout '
      || coalesce(arrays.layout, 'NULL') || ', memory space '
      || coalesce(arrays.memory_space::VARCHAR, 'NULL') AS what
  FROM arrays
  WHERE arrays.dtype IS DISTINCT FROM arrays.read_dtype
    OR arrays.dimensions_text IS DISTINCT FROM arrays.read_dimensions
    OR arrays.layout IS DISTINCT FROM arrays.read_layout
    OR arrays.is_tuple
    OR (
      NOT contains(arrays.shape, 'P(')
      AND arrays.memory_space IS DISTINCT FROM coalesce(
        nullif(regexp_extract(arrays.read_layout, ':.*?S\(([0-9]{1,18})\)', 1), '')::BIGINT, 0
      )
    )
  UNION ALL
  SELECT
    NULL::BIGINT AS module_id,
    arrays.shape,
    arrays.element_count || ' elements, ' || arrays.logical_bytes || ' bytes' AS what
  FROM arrays
  WHERE arrays.read_dtype IN ('token', 'opaque')
    AND (
      arrays.dimensions IS NOT NULL
      OR arrays.element_count IS DISTINCT FROM 1
      OR arrays.logical_bytes
        IS DISTINCT FROM CASE arrays.read_dtype WHEN 'opaque' THEN 8 ELSE 0 END
    )
  UNION ALL
  SELECT
    NULL::BIGINT AS module_id,
    sizes.shape,
    'dimensions ' || coalesce(sizes.dimensions::VARCHAR, 'NULL') || ', elements '
      || coalesce(sizes.element_count::VARCHAR, 'NULL') || ', bytes '
      || coalesce(sizes.logical_bytes::VARCHAR, 'NULL') AS what
  FROM sizes
  WHERE sizes.dimensions IS DISTINCT FROM sizes.read_sizes
    OR (sizes.read_count IS NULL AND sizes.element_count IS NOT NULL)
    OR (sizes.element_bits IS NULL AND sizes.logical_bytes IS NOT NULL)
    OR (sizes.read_count < 1e15 AND sizes.element_count IS DISTINCT FROM sizes.read_count::BIGINT)
    OR (
      sizes.read_count * sizes.element_bits < 1e15
      AND NOT contains(sizes.shape, 'E(')
      AND sizes.logical_bytes
        IS DISTINCT FROM ((sizes.read_count * sizes.element_bits)::BIGINT + 7) // 8
    )
  UNION ALL
  SELECT
    NULL::BIGINT AS module_id,
    tuples.shape,
    'type ' || coalesce(tuples.dtype, 'NULL') || ', elements '
      || coalesce(tuples.element_count::VARCHAR, 'NULL') || ', bytes '
      || coalesce(tuples.logical_bytes::VARCHAR, 'NULL') AS what
  FROM tuples
  WHERE NOT tuples.is_tuple
    OR tuples.of_arrays IS NOT NULL
    OR tuples.logical_bytes IS DISTINCT FROM 8 * tuples.element_count
    OR (
      NOT regexp_matches(tuples.elements, '[(){}]')
      AND (
        tuples.dtype IS DISTINCT FROM 'tuple'
        OR tuples.element_count IS DISTINCT FROM CASE
          WHEN tuples.elements = '' THEN 0
          ELSE length(tuples.elements) - length(replace(tuples.elements, ',', '')) + 1
        END
      )
    )
  UNION ALL
  SELECT NULL::BIGINT AS module_id, shapes.shape, count(*) || ' rows' AS what
  FROM shapes
  GROUP BY shapes.shape
  HAVING count(*) > 1
  UNION ALL
  SELECT
    "values".module_id, "values".shape,
    'value ' || "values".value_id || ' has ' || coalesce("values".logical_bytes::VARCHAR, 'NULL')
      || ' logical bytes, its shape ' || coalesce(shapes.logical_bytes::VARCHAR, 'NULL') AS what
  FROM "values"
  JOIN shapes ON shapes.shape = "values".shape
  WHERE "values".logical_bytes IS DISTINCT FROM shapes.logical_bytes
)
SELECT found.module_id, 'shape ' || left(found.shape, 80) || ': ' || found.what AS finding
FROM found
ORDER BY found.module_id, finding;
