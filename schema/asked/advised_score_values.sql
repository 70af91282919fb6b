-- Scores of all pairs that an attention holds: of each query with each key, and their gradients.
CREATE OR REPLACE VIEW advised_score_values AS
-- Of an array as its instruction makes it: the first dimension that is not 1, the last two, and how
-- many pairs are multiplied for each element.
WITH products AS (
  SELECT
    functions.module_id, costs.instruction_name, "values".value_id, shapes.element_count,
    CAST(shapes.element_count AS DOUBLE) AS size,
    CAST(nullif(regexp_extract(shapes.dimensions_text, '^(1,)*([0-9]{1,9}),', 2), '') AS DOUBLE)
      AS first_size,
    nullif(regexp_extract(shapes.dimensions_text, '([0-9]{1,9}),([0-9]{1,9})$', 1), '')
      AS row_text,
    nullif(regexp_extract(shapes.dimensions_text, '([0-9]{1,9}),([0-9]{1,9})$', 2), '')
      AS last_text,
    CAST(costs.operation_count AS DOUBLE)
      / nullif(2.0 * costs.execution_count * shapes.element_count, 0) AS width
  FROM (
    SELECT DISTINCT answered.module_id FROM answered_functions AS answered
  ) AS functions
  JOIN instruction_costs AS costs
    ON costs.module_id = functions.module_id
    AND costs.operation_count > 0
  JOIN "values"
    ON "values".module_id = costs.module_id
    AND "values".instruction_name = costs.instruction_name
    AND NOT "values".is_phi
  JOIN shapes
    ON shapes.shape = "values".shape
    AND regexp_matches(shapes.dtype, '^(f|bf)[0-9]')
    AND shapes.element_count > 0
),
-- Both are eight times as long as what is multiplied: products of experts or of a vmap make four
-- times their width.
long_products AS (
  SELECT
    products.module_id, products.instruction_name, products.value_id, products.element_count,
    products.size, products.row_text, products.last_text, products.width,
    CAST(products.last_text AS DOUBLE) AS last_size,
    products.first_size * CAST(products.last_text AS DOUBLE) AS first_and_last_size
  FROM products
  WHERE products.first_size > 1
    AND CAST(products.last_text AS DOUBLE) >= 8 * products.width
    AND products.size
      >= 8 * products.width * products.first_size * CAST(products.last_text AS DOUBLE)
),
operands AS (
  SELECT DISTINCT
    products.module_id, products.instruction_name, products.value_id, uses.value_id AS operand_id,
    CAST(shapes.element_count AS DOUBLE) AS size
  FROM long_products AS products
  JOIN uses
    ON uses.module_id = products.module_id
    AND uses.instruction_name = products.instruction_name
  JOIN "values"
    ON "values".module_id = uses.module_id
    AND "values".value_id = uses.value_id
  -- What is added to the product, or hides a part of it, is as large.
  JOIN shapes
    ON shapes.shape = "values".shape
    AND shapes.element_count < products.element_count
),
-- Each part of the first dimension has its own rows and its own columns, at least, unlike a product
-- with weights; and they are half as large as the product or less.
batched AS (
  SELECT
    products.module_id, products.instruction_name, products.value_id, products.element_count,
    products.row_text, products.last_text, products.last_size
  FROM long_products AS products
  JOIN operands
    ON operands.module_id = products.module_id
    AND operands.instruction_name = products.instruction_name
    AND operands.value_id = products.value_id
  GROUP BY
    products.module_id, products.instruction_name, products.value_id, products.element_count,
    products.size, products.row_text, products.last_text, products.last_size,
    products.first_and_last_size, products.width
  HAVING 2 * sum(operands.size) <= products.size
    AND sum(operands.size)
      >= products.width * (products.size / nullif(products.last_size, 0) + products.first_and_last_size)
),
-- Their largest element, or another sum, of each row may be of the same instruction.
reduced AS (
  SELECT DISTINCT batched.module_id, batched.element_count, batched.last_text
  FROM batched
  JOIN "values"
    ON "values".module_id = batched.module_id
    AND "values".instruction_name = batched.instruction_name
  JOIN shapes
    ON shapes.shape = "values".shape
    AND shapes.element_count * batched.last_size = batched.element_count
),
-- What reads arrays as large as one of them, in the forward pass: a softmax, and a product that
-- sums its rows.
readers AS (
  SELECT
    sizes.module_id, sizes.element_count, sizes.last_text,
    max(
      CASE
        WHEN regexp_matches(
            instructions.op_name,
            '/(reduce_max|reduce_sum)$|(^|[/(])softmax([)/]|$)|^online-softmax$'
          ) THEN 1
        -- A fused softmax has its last operation's name; a loop fusion has elementwise ones only.
        WHEN regexp_matches(instructions.op_name, '/(exp|exp2|div)$')
          AND instructions.fusion_kind <> 'kLoop' THEN 1
        ELSE 0
      END
    ) AS softmax_count,
    max(
      CASE
        WHEN sums.width = sizes.last_size THEN 1
        -- The compiler for TPUs makes one kernel of both.
        WHEN instructions.op_name = 'online-softmax' THEN 1
        ELSE 0
      END
    ) AS sum_count
  FROM (
    SELECT DISTINCT
      batched.module_id, batched.element_count, batched.last_text, batched.last_size
    FROM batched
  ) AS sizes
  JOIN shapes ON shapes.element_count = sizes.element_count
  JOIN "values"
    ON "values".module_id = sizes.module_id
    AND "values".shape = shapes.shape
  JOIN uses
    ON uses.module_id = "values".module_id
    AND uses.value_id = "values".value_id
  JOIN instructions
    ON instructions.module_id = uses.module_id
    AND instructions.instruction_name = uses.instruction_name
    AND NOT is_backward(coalesce(instructions.op_name, ''))
  LEFT JOIN products AS sums
    ON sums.module_id = instructions.module_id
    AND sums.instruction_name = instructions.instruction_name
    AND sums.size < sizes.element_count
  GROUP BY sizes.module_id, sizes.element_count, sizes.last_text
),
scores AS (
  SELECT
    batched.module_id, batched.element_count, batched.row_text, batched.last_text,
    sources.source_line,
    row_number() OVER (
      PARTITION BY batched.module_id, batched.element_count
      ORDER BY sources.is_backward, live_ranges.start_time, batched.value_id
    ) AS place
  FROM batched
  JOIN readers
    ON readers.module_id = batched.module_id
    AND readers.element_count = batched.element_count
    AND readers.last_text = batched.last_text
    AND readers.sum_count = 1
  LEFT JOIN reduced
    ON reduced.module_id = batched.module_id
    AND reduced.element_count = batched.element_count
    AND reduced.last_text = batched.last_text
  JOIN value_sources AS sources
    ON sources.module_id = batched.module_id
    AND sources.value_id = batched.value_id
  LEFT JOIN live_ranges
    ON live_ranges.module_id = batched.module_id
    AND live_ranges.value_id = batched.value_id
  WHERE readers.softmax_count = 1 OR reduced.module_id IS NOT NULL
)
SELECT
  scores.module_id, temp_values.color, temp_values.value_id,
  min(scores.source_line) AS source_line
FROM scores
JOIN temp_values ON temp_values.module_id = scores.module_id
JOIN "values"
  ON "values".module_id = temp_values.module_id
  AND "values".value_id = temp_values.value_id
LEFT JOIN value_origins AS origins
  ON origins.module_id = temp_values.module_id
  AND origins.value_id = temp_values.value_id
  AND origins.origin_kind = 'stacked'
JOIN shapes
  ON shapes.shape = "values".shape
  AND regexp_matches(shapes.dtype, '^(f|bf)[0-9]')
  AND shapes.element_count
    = CAST(scores.element_count AS DOUBLE) * coalesce(origins.slice_count, 1)
  -- Logits may have as many elements.
  AND contains(',' || shapes.dimensions_text || ',', ',' || scores.last_text || ',')
  AND regexp_extract(shapes.dimensions_text, '([0-9]{1,9})$', 1)
    IN (scores.row_text, scores.last_text)
WHERE scores.place = 1
GROUP BY scores.module_id, temp_values.color, temp_values.value_id;
COMMENT ON VIEW advised_score_values IS
  'One row per value of a temp allocation with a score, or its gradient, for each pair of a query and a key in an attention. A score product has more than one part in its first dimension (that is not 1), each with its own queries and keys; both are at least eight times as long as the width that is multiplied (instruction_costs), and together at most half as large as the product. In the forward pass a softmax reads arrays of its size (one whose name is that of its last operation only where that is no loop fusion), or the instruction has a result with an element for each row, and another product sums their rows. Values have as many elements as one of these products, or a stack of a loop as many in each slice, and dimensions like its. No rows without HLO text, for a kernel that never holds the scores, and where it is not known how often the product is computed. Key: module_id, color, value_id.';
COMMENT ON COLUMN advised_score_values.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_score_values.color IS 'allocations.color.';
COMMENT ON COLUMN advised_score_values.value_id IS 'values.value_id.';
COMMENT ON COLUMN advised_score_values.source_line IS 'Line of the first score product of its size, of the forward pass if it has one: value_sources.source_line; NULL if unknown.';
