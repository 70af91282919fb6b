-- Values of a loss that is computed in one piece: tokens times vocabulary.
CREATE OR REPLACE VIEW advised_chunk_values AS
WITH weights AS (
  SELECT DISTINCT
    functions.module_id,
    nullif(regexp_extract(shapes.dimensions_text, '^([0-9]{1,9}),([0-9]{1,9})$', 1), '')
      AS first_size,
    nullif(regexp_extract(shapes.dimensions_text, '^([0-9]{1,9}),([0-9]{1,9})$', 2), '')
      AS second_size
  FROM answered_functions AS functions
  JOIN allocations
    ON allocations.module_id = functions.module_id
    AND allocations.kind IN ('parameter', 'donated_parameter')
  JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
  JOIN shapes ON shapes.shape = "values".shape
),
-- Their largest dimension: widths of layers are smaller.
vocabularies AS (
  SELECT
    weights.module_id,
    CASE
      WHEN CAST(weights.first_size AS DOUBLE) > CAST(weights.second_size AS DOUBLE)
        THEN weights.first_size
      ELSE weights.second_size
    END AS vocabulary,
    greatest(CAST(weights.first_size AS DOUBLE), CAST(weights.second_size AS DOUBLE))
      AS vocabulary_size,
    least(CAST(weights.first_size AS DOUBLE), CAST(weights.second_size AS DOUBLE)) AS width,
    row_number() OVER (
      PARTITION BY weights.module_id
      ORDER BY
        greatest(CAST(weights.first_size AS DOUBLE), CAST(weights.second_size AS DOUBLE)) DESC,
        least(CAST(weights.first_size AS DOUBLE), CAST(weights.second_size AS DOUBLE)) DESC,
        weights.first_size
    ) AS place
  FROM weights
  WHERE weights.first_size <> weights.second_size
),
-- Arrays with the vocabulary as exactly one dimension, of another size than the weights.
logits AS (
  SELECT
    vocabularies.module_id, temp_values.color,
    vocabularies.vocabulary_size > 4 * vocabularies.width AS is_long,
    temp_values.value_id, sources.op_name, sources.source_line
  FROM vocabularies
  JOIN temp_values
    ON temp_values.module_id = vocabularies.module_id
  JOIN "values"
    ON "values".module_id = temp_values.module_id
    AND "values".value_id = temp_values.value_id
  JOIN shapes
    ON shapes.shape = "values".shape
    AND shapes.element_count <> vocabularies.vocabulary_size * vocabularies.width
    AND shapes.element_count > vocabularies.vocabulary_size
    -- One of its dimensions is the vocabulary.
    AND length(',' || replace(shapes.dimensions_text, ',', ',,') || ',')
      - length(
        replace(
          ',' || replace(shapes.dimensions_text, ',', ',,') || ',',
          ',' || vocabularies.vocabulary || ',', ''
        )
      )
      = length(vocabularies.vocabulary) + 2
  JOIN value_sources AS sources
    ON sources.module_id = temp_values.module_id
    AND sources.value_id = temp_values.value_id
  WHERE vocabularies.place = 1
    AND NOT "values".is_phi
    -- A loss in chunks is already in a loop.
    AND NOT regexp_matches(coalesce(sources.op_name, ''), '/body/')
),
losses AS (
  SELECT logits.module_id
  FROM logits
  GROUP BY logits.module_id
  HAVING
    max(CASE WHEN is_backward(logits.op_name) THEN 1 ELSE 0 END) = 1
    AND max(
      CASE
        WHEN regexp_matches(
            logits.op_name, 'take_along_axis|one_hot|logsumexp|log_softmax|cross_entropy'
          ) THEN 1
        WHEN logits.is_long
          AND regexp_matches(logits.op_name, '/(exp|log|reduce_max|argmax)$') THEN 1
        ELSE 0
      END
    ) = 1
)
SELECT DISTINCT logits.module_id, logits.color, logits.value_id, logits.source_line
FROM losses
JOIN logits ON logits.module_id = losses.module_id;
COMMENT ON VIEW advised_chunk_values IS
  'One row per value of a temp allocation that a loss over a vocabulary makes in one piece, logits and their gradients: it has the largest dimension of all two-dimensional arguments (the vocabulary of an embedding) and others, is in no loop body, and the op_name of one like it indicates a loss (log_softmax, take_along_axis, …; also exp or log if the vocabulary is more than four widths). No rows if no gradient is computed. Key: module_id, color, value_id.';
COMMENT ON COLUMN advised_chunk_values.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_chunk_values.color IS 'allocations.color.';
COMMENT ON COLUMN advised_chunk_values.value_id IS 'values.value_id.';
COMMENT ON COLUMN advised_chunk_values.source_line IS 'value_sources.source_line; NULL if unknown.';
