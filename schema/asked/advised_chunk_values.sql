-- Values of a loss that is computed in one piece: tokens times vocabulary.
CREATE OR REPLACE VIEW advised_chunk_values AS
WITH weights AS (
  SELECT DISTINCT
    functions.module_id,
    functions.color,
    CAST(
      nullif(regexp_extract(shapes.dimensions_text, '^([0-9]{1,9}),([0-9]{1,9})$', 1), '') AS BIGINT
    ) AS first_size,
    CAST(
      nullif(regexp_extract(shapes.dimensions_text, '^([0-9]{1,9}),([0-9]{1,9})$', 2), '') AS BIGINT
    ) AS second_size
  FROM answered_functions AS functions
  JOIN allocations
    ON allocations.module_id = functions.module_id
    AND allocations.kind IN ('parameter', 'donated_parameter')
  JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
  JOIN shapes ON shapes.shape = "values".shape
),
vocabularies AS (
  SELECT
    weights.module_id,
    weights.color,
    greatest(weights.first_size, weights.second_size) AS vocabulary_size,
    least(weights.first_size, weights.second_size) AS width
  FROM weights
  WHERE weights.first_size <> weights.second_size
),
-- Arrays of another size than the weights that have the vocabulary as a dimension, once.
logits AS (
  SELECT
    vocabularies.module_id,
    vocabularies.color,
    vocabularies.vocabulary_size,
    vocabularies.width,
    temp_values.value_id,
    sources.op_name,
    sources.source_line
  FROM vocabularies
  JOIN temp_values
    ON temp_values.module_id = vocabularies.module_id
    AND temp_values.color = vocabularies.color
  JOIN "values"
    ON "values".module_id = temp_values.module_id
    AND "values".value_id = temp_values.value_id
  JOIN shapes
    ON shapes.shape = "values".shape
    AND shapes.element_count <> vocabularies.vocabulary_size * vocabularies.width
    AND shapes.element_count > vocabularies.vocabulary_size
    AND regexp_matches(
      ',' || shapes.dimensions_text || ',', ',' || vocabularies.vocabulary_size || ','
    )
    AND NOT regexp_matches(
      ',' || shapes.dimensions_text || ',',
      ',' || vocabularies.vocabulary_size || ',(.*,)?' || vocabularies.vocabulary_size || ','
    )
  JOIN value_sources AS sources
    ON sources.module_id = temp_values.module_id
    AND sources.value_id = temp_values.value_id
  WHERE NOT "values".is_phi
    -- A loss in chunks is in a loop already.
    AND NOT regexp_matches(coalesce(sources.op_name, ''), '/body/')
),
losses AS (
  SELECT logits.module_id, logits.color, logits.vocabulary_size
  FROM logits
  GROUP BY logits.module_id, logits.color, logits.vocabulary_size
  HAVING
    max(CASE WHEN regexp_matches(logits.op_name, 'jvp[(]|transpose[(]') THEN 1 ELSE 0 END) = 1
    AND max(
      CASE
        WHEN regexp_matches(
            logits.op_name,
            'take_along_axis|one_hot|logsumexp|log_softmax|cross_entropy'
          ) THEN 1
        WHEN logits.vocabulary_size > 4 * logits.width
          AND regexp_matches(logits.op_name, '/(exp|log|reduce_max|argmax)$') THEN 1
        ELSE 0
      END
    ) = 1
)
SELECT DISTINCT logits.module_id, logits.color, logits.value_id, logits.source_line
FROM losses
JOIN logits
  ON logits.module_id = losses.module_id
  AND logits.color = losses.color
  AND logits.vocabulary_size = losses.vocabulary_size;
COMMENT ON VIEW advised_chunk_values IS
  'One row per value of a temp allocation that a loss over a vocabulary makes in one piece, logits and their gradients: it has a dimension of an argument of two dimensions, the larger of them, and others, is in the body of no loop, and the op_name of one like it speaks of a loss (log_softmax, take_along_axis, …; of a vocabulary of more than four widths exp or log, too). Key: module_id, color, value_id.';
COMMENT ON COLUMN advised_chunk_values.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_chunk_values.color IS 'answered_functions.color.';
COMMENT ON COLUMN advised_chunk_values.value_id IS 'values.value_id.';
COMMENT ON COLUMN advised_chunk_values.source_line IS 'value_sources.source_line; NULL if unknown.';
