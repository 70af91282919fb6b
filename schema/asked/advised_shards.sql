-- Requested functions with arguments that several devices hold in full.
CREATE OR REPLACE VIEW advised_shards AS
WITH shards AS (
  SELECT
    shardings.module_id, shardings.color, shardings.replicated_bytes, shardings.size_bytes,
    shardings.holder_count, shardings.shape, shardings.parameter_name,
    sum(shardings.replicated_bytes) OVER (PARTITION BY shardings.module_id, shardings.color)
      AS saving_bytes,
    max(shardings.size_bytes) OVER (PARTITION BY shardings.module_id, shardings.color)
      AS gathered_bytes,
    count(*) OVER (PARTITION BY shardings.module_id, shardings.color) AS value_count,
    row_number() OVER (
      PARTITION BY shardings.module_id, shardings.color
      ORDER BY shardings.replicated_bytes DESC, shardings.parameter_number,
        shardings.allocation_index
    ) AS place
  FROM answered_functions AS functions
  JOIN parameter_shardings AS shardings
    ON shardings.module_id = functions.module_id
    AND shardings.color = functions.color
    AND shardings.replicated_bytes > 0
    AND shardings.is_divisible
),
-- Arrays made from them element by element are divided like them: gradients, updates, outputs.
divided_alike AS (
  SELECT
    shard_shapes.module_id, shard_shapes.color,
    sum(
      held.held_bytes
        - (held.held_bytes + shard_shapes.holder_count - 1) // shard_shapes.holder_count
    ) AS saving_bytes
  FROM (
    SELECT
      shards.module_id, shards.color, shapes.dtype, shapes.dimensions_text,
      min(shards.holder_count) AS holder_count
    FROM shards
    JOIN shapes ON shapes.shape = shards.shape
    GROUP BY shards.module_id, shards.color, shapes.dtype, shapes.dimensions_text
  ) AS shard_shapes
  JOIN asked_peak_values AS held
    ON held.module_id = shard_shapes.module_id
    AND held.color = shard_shapes.color
    AND held.allocation_kind IN ('temp', 'output')
  JOIN "values"
    ON "values".module_id = held.module_id
    AND "values".value_id = held.value_id
  JOIN shapes
    ON shapes.shape = "values".shape
    AND shapes.dtype = shard_shapes.dtype
    AND shapes.dimensions_text = shard_shapes.dimensions_text
  GROUP BY shard_shapes.module_id, shard_shapes.color
)
SELECT
  shards.module_id, shards.color, shards.parameter_name, shards.value_count,
  greatest(shards.saving_bytes - shards.gathered_bytes, 0) AS low_saving_bytes,
  shards.saving_bytes + coalesce(divided_alike.saving_bytes, 0) AS saving_bytes
FROM shards
LEFT JOIN divided_alike
  ON divided_alike.module_id = shards.module_id
  AND divided_alike.color = shards.color
WHERE shards.place = 1;
COMMENT ON VIEW advised_shards IS
  'One row per requested function (answered_functions) whose devices could divide arguments that each of them holds in full: parameter_shardings.replicated_bytes is above 0, and is_divisible. Key: module_id, color.';
COMMENT ON COLUMN advised_shards.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_shards.color IS 'answered_functions.color.';
COMMENT ON COLUMN advised_shards.parameter_name IS 'The argument that would save most: parameter_shardings.parameter_name.';
COMMENT ON COLUMN advised_shards.value_count IS 'Such arguments.';
COMMENT ON COLUMN advised_shards.low_saving_bytes IS 'Lower bound of what a device saves [bytes]: their replicated_bytes, with the largest of them gathered.';
COMMENT ON COLUMN advised_shards.saving_bytes IS 'Upper bound [bytes]: their replicated_bytes, and a share of the values held at the peak that have the dtype and dimensions of one of them.';
