-- Values of a loss that is computed in one piece: tokens times vocabulary.
CREATE OR REPLACE VIEW advised_chunk_values AS
WITH weights AS (
  SELECT DISTINCT
    functions.module_id,
    nullif(regexp_extract(shapes.dimensions_text, '^([0-9]{1,9}),([0-9]{1,9})$', 1), '')
      AS first_size,
    nullif(regexp_extract(shapes.dimensions_text, '^([0-9]{1,9}),([0-9]{1,9})$', 2), '')
      AS second_size,
    nullif(regexp_extract(instructions.text, '[ ]sharding=[{]devices=[[]([0-9]{1,9}),[0-9]', 1), '')
      AS first_tiles,
    nullif(
      regexp_extract(
        instructions.text, '[ ]sharding=[{]devices=[[][0-9]{1,9},([0-9]{1,9})[],]', 1
      ), ''
    ) AS second_tiles
  FROM answered_functions AS functions
  JOIN allocations
    ON allocations.module_id = functions.module_id
    AND allocations.kind IN ('parameter', 'donated_parameter')
  JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
  JOIN shapes
    ON shapes.shape = "values".shape
    -- Tokens are no weights.
    AND regexp_matches(shapes.dtype, '^(f|bf|c)[0-9]')
  LEFT JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  -- A result may be in the buffer of a donated argument.
  WHERE coalesce(instructions.opcode, 'parameter') = 'parameter'
),
-- Of what devices share, one holds a part, and a product may take all of it: what is sharded by its
-- width is as wide as all of its parts.
sizes AS (
  SELECT
    weights.module_id, weights.first_size, weights.second_size,
    CAST(weights.first_size AS DOUBLE) AS first_part,
    CAST(weights.second_size AS DOUBLE) AS second_part,
    CAST(weights.first_size AS DOUBLE) * coalesce(CAST(weights.first_tiles AS DOUBLE), 1)
      AS first_whole,
    CAST(weights.second_size AS DOUBLE) * coalesce(CAST(weights.second_tiles AS DOUBLE), 1)
      AS second_whole
  FROM weights
),
-- Their largest dimension: widths of layers are smaller. A product over it is wide if it makes at
-- least twice what it takes, as bufdb fit --also chunks wants it: else its inputs hold as much.
vocabularies AS (
  SELECT
    sizes.module_id,
    CASE
      WHEN sizes.first_part > sizes.second_part THEN sizes.first_size ELSE sizes.second_size
    END AS vocabulary,
    greatest(sizes.first_part, sizes.second_part) AS vocabulary_size,
    least(sizes.first_part, sizes.second_part) AS width,
    CASE
      WHEN sizes.first_part > sizes.second_part THEN sizes.second_whole ELSE sizes.first_whole
    END AS whole_width,
    row_number() OVER (
      PARTITION BY sizes.module_id
      ORDER BY
        greatest(sizes.first_part, sizes.second_part) DESC,
        least(sizes.first_part, sizes.second_part) DESC,
        sizes.first_size
    ) AS place
  FROM sizes
  WHERE greatest(sizes.first_part, sizes.second_part)
    >= 2 * least(sizes.first_part, sizes.second_part)
    AND greatest(sizes.first_whole, sizes.second_whole)
    >= 2 * least(sizes.first_whole, sizes.second_whole)
),
-- Arrays with the vocabulary as exactly one dimension, of another size than the weights.
logits AS (
  SELECT
    vocabularies.module_id, temp_values.color,
    vocabularies.vocabulary_size > 4 * vocabularies.width AS is_long,
    shapes.dimensions_text LIKE '%,' || vocabularies.vocabulary AS is_last,
    vocabularies.vocabulary_size * vocabularies.width AS weight_count,
    temp_values.value_id, sources.op_name, sources.source_line,
    CAST(nullif(regexp_extract(shapes.dimensions_text, '^([0-9]{1,9}),[0-9]+,', 1), '') AS DOUBLE)
      AS example_count
  FROM vocabularies
  JOIN temp_values
    ON temp_values.module_id = vocabularies.module_id
  JOIN "values"
    ON "values".module_id = temp_values.module_id
    AND "values".value_id = temp_values.value_id
  JOIN shapes
    ON shapes.shape = "values".shape
    AND shapes.element_count <> vocabularies.vocabulary_size * vocabularies.width
    AND shapes.element_count <> vocabularies.vocabulary_size * vocabularies.whole_width
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
  SELECT
    logits.module_id,
    -- In the words of bufdb fit.
    CASE
      WHEN bool_or(regexp_matches(logits.op_name, '/shard_map/(.*[(/])?jvp[(]'))
        THEN 'the gradient is taken within a shard_map'
      WHEN bool_or(contains(logits.op_name, '/shard_map/')) THEN 'the loss is within a shard_map'
      WHEN min(logits.example_count) = max(logits.example_count)
        -- Up to 16 parts are tried: none if no prime below that divides it.
        AND least(
          min(logits.example_count) % 2, min(logits.example_count) % 3,
          min(logits.example_count) % 5, min(logits.example_count) % 7,
          min(logits.example_count) % 11, min(logits.example_count) % 13
        ) > 0
        THEN 'the batch has no equal parts on a device'
    END AS obstacle
  FROM logits
  GROUP BY logits.module_id
  HAVING
    max(CASE WHEN is_backward(logits.op_name) THEN 1 ELSE 0 END) = 1
    AND max(
      CASE
        -- Examples come first: their number may be that of an argument, too.
        WHEN NOT logits.is_last THEN 0
        WHEN regexp_matches(
            logits.op_name, 'take_along_axis|one_hot|logsumexp|log_softmax|cross_entropy'
          ) THEN 1
        WHEN logits.is_long
          AND regexp_matches(logits.op_name, '/(exp|log|reduce_max|argmax)$') THEN 1
        ELSE 0
      END
    ) = 1
),
-- What is no part of the gradient reads them: they leave the loss as an output of it. An update of
-- the weights may be one with the product of their gradient.
readers AS (
  SELECT
    logits.module_id, logits.color,
    min(
      CASE
        WHEN stack_frames.stack_frame_id IS NOT NULL
          THEN own_frames.source_file || ':' || own_frames.source_line
        WHEN NOT is_library_path(instructions.source_file, modules.own_pattern)
          THEN instructions.source_file || ':' || instructions.source_line
      END
    ) AS reader
  FROM logits
  JOIN modules ON modules.module_id = logits.module_id
  JOIN uses
    ON uses.module_id = logits.module_id
    AND uses.value_id = logits.value_id
  JOIN instructions
    ON instructions.module_id = uses.module_id
    AND instructions.instruction_name = uses.instruction_name
    AND NOT regexp_matches(instructions.op_name, jax_names('gradient'))
  LEFT JOIN stack_frames
    ON stack_frames.module_id = instructions.module_id
    AND stack_frames.stack_frame_id = instructions.stack_frame_id
  LEFT JOIN stack_frames AS own_frames
    ON own_frames.module_id = stack_frames.module_id
    AND own_frames.stack_frame_id = stack_frames.own_frame_id
  WHERE is_forward(logits.op_name)
    AND NOT EXISTS (
      SELECT 1
      FROM "values" AS results
      JOIN shapes ON shapes.shape = results.shape
      WHERE results.module_id = instructions.module_id
        AND results.instruction_name = instructions.instruction_name
        AND shapes.element_count = logits.weight_count
    )
  GROUP BY logits.module_id, logits.color
)
SELECT DISTINCT
  logits.module_id, logits.color, logits.value_id, logits.source_line, readers.reader,
  losses.obstacle
FROM losses
JOIN logits ON logits.module_id = losses.module_id
LEFT JOIN readers
  ON readers.module_id = logits.module_id
  AND readers.color = logits.color;
COMMENT ON VIEW advised_chunk_values IS
  'One row per value of a temp allocation that a loss over a vocabulary makes in one piece, logits and their gradients: it has the largest dimension of all two-dimensional arguments that are at least twice as long as wide, all of their parts on devices together (the vocabulary of an embedding; bufdb fit --also chunks wants as much) and others, is in no loop body, and the op_name of one like it, whose last dimension that is, indicates a loss (log_softmax, take_along_axis, …; also exp or log if the vocabulary is more than four widths). No rows if no gradient is computed. Key: module_id, color, value_id.';
COMMENT ON COLUMN advised_chunk_values.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_chunk_values.color IS 'allocations.color.';
COMMENT ON COLUMN advised_chunk_values.value_id IS 'values.value_id.';
COMMENT ON COLUMN advised_chunk_values.source_line IS 'value_sources.source_line; NULL if unknown.';
COMMENT ON COLUMN advised_chunk_values.reader IS 'FILE:LINE of an operation outside of the gradient that reads one of these values of the forward pass, the same for all of a module and memory space: the loss returns it (has_aux), so it exists in one piece until metrics are returned in its place. NULL if there is none, or its line is not known.';
COMMENT ON COLUMN advised_chunk_values.obstacle IS 'Why bufdb fit --also chunks does not do it, in its words: the gradient or the loss is within a shard_map, or the logits have an odd number of examples on a device, the first of three dimensions or more in all of them. NULL if the text shows none.';
