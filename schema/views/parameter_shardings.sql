-- One row per array in the entry parameters of a module, with how devices share it.
CREATE OR REPLACE VIEW parameter_shardings AS
WITH arrays AS (
  SELECT
    allocations.module_id, allocations.allocation_index, allocations.color, allocations.size_bytes,
    allocations.parameter_number, allocations.parameter_shape_index, "values".value_id,
    "values".shape, shapes.dimensions, instructions.instruction_name, instructions.op_name,
    instructions.text,
    sharding_text(instructions.text) AS own_sharding,
    sharding_text(entry_parameters.text) AS given_sharding,
    entry_parameters.shape AS given_shape,
    row_number() OVER (
      PARTITION BY allocations.module_id, allocations.allocation_index
      ORDER BY "values".value_id
    ) AS place
  FROM allocations
  JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
    AND "values".shape_index = allocations.parameter_shape_index
    AND NOT "values".is_phi
  JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
    AND instructions.opcode = 'parameter'
  LEFT JOIN entry_parameters
    ON entry_parameters.module_id = allocations.module_id
    AND entry_parameters.parameter_number = allocations.parameter_number
  LEFT JOIN shapes ON shapes.shape = "values".shape
  WHERE allocations.parameter_number IS NOT NULL
    AND "values".shape NOT LIKE '(%'
),
numbered AS (
  SELECT
    arrays.module_id, arrays.allocation_index,
    -- A tuple's sharding lists those of its arrays, in order.
    row_number() OVER (
      PARTITION BY arrays.module_id, arrays.instruction_name
      ORDER BY
        list_transform(
          regexp_extract_all(arrays.parameter_shape_index, '[0-9]+'),
          lambda number: try_cast(number AS BIGINT)
        )
    ) AS element_place,
    count(*) OVER (PARTITION BY arrays.module_id, arrays.instruction_name) AS element_count,
    regexp_extract_all(arrays.given_shape, '[a-z][a-z0-9]*[[]([^]]*)[]]', 1) AS given_dimensions
  FROM arrays
  WHERE arrays.place = 1
),
printed AS (
  SELECT
    arrays.module_id, arrays.allocation_index, arrays.color, arrays.size_bytes,
    arrays.parameter_number, arrays.parameter_shape_index, arrays.value_id, arrays.shape,
    arrays.dimensions, arrays.instruction_name, arrays.op_name, arrays.text,
    sharding_element(arrays.own_sharding, numbered.element_place, numbered.element_count)
      AS own_sharding,
    sharding_element(arrays.given_sharding, numbered.element_place, numbered.element_count)
      AS given_sharding,
    CASE
      WHEN len(numbered.given_dimensions) = numbered.element_count
        THEN list_transform(
          regexp_extract_all(numbered.given_dimensions[numbered.element_place], '[0-9]+'),
          lambda size: try_cast(size AS BIGINT)
        )
    END AS given_dimensions
  FROM arrays
  JOIN numbered
    ON numbered.module_id = arrays.module_id
    AND numbered.allocation_index = arrays.allocation_index
  WHERE arrays.place = 1
),
matched AS (
  SELECT
    printed.module_id, printed.allocation_index,
    -- The sharding must turn the whole shape into the shape that a device holds.
    sharded_dimensions(printed.given_dimensions, printed.given_sharding) = printed.dimensions
      OR sharding_kind(printed.given_sharding) IN ('manual', 'unreduced') AS is_fitting
  FROM printed
),
shardings AS (
  SELECT
    printed.module_id, printed.allocation_index, printed.color, printed.size_bytes,
    printed.parameter_number, printed.parameter_shape_index, printed.value_id, printed.shape,
    printed.dimensions, printed.instruction_name, printed.op_name, printed.text,
    coalesce(
      printed.own_sharding, CASE WHEN matched.is_fitting THEN printed.given_sharding END
    ) AS sharding,
    CASE
      WHEN printed.own_sharding IS NOT NULL THEN 'optimized text'
      WHEN matched.is_fitting THEN 'before_optimizations'
    END AS sharding_source,
    printed.own_sharding IS NULL
      AND printed.given_sharding IS NOT NULL
      AND matched.is_fitting IS NOT TRUE AS is_misfit,
    coalesce(
      printed.own_sharding IS NOT NULL
        AND printed.given_sharding IS NOT NULL
        AND (
          sharding_kind(printed.own_sharding) <> sharding_kind(printed.given_sharding)
          OR sharding_tiles(printed.own_sharding) <> sharding_tiles(printed.given_sharding)
          OR NOT matched.is_fitting
        ),
      FALSE
    ) AS is_contradicted
  FROM printed
  JOIN matched
    ON matched.module_id = printed.module_id
    AND matched.allocation_index = printed.allocation_index
),
counted AS (
  SELECT
    shardings.module_id, shardings.allocation_index,
    sharding_kind(shardings.sharding) AS sharding_kind,
    sharding_device_count(shardings.sharding) AS own_device_count,
    -- Without the HLO text, what other parameters are divided among.
    coalesce(
      modules.partition_count,
      max(sharding_device_count(shardings.sharding)) OVER (PARTITION BY shardings.module_id)
    ) AS device_count,
    sharding_tile_count(shardings.sharding) AS tile_count,
    modules.partition_count, modules.replica_count
  FROM shardings
  JOIN modules ON modules.module_id = shardings.module_id
),
explained AS (
  SELECT
    counted.module_id, counted.allocation_index,
    CASE
      WHEN counted.replica_count > 1 THEN 'the dump does not tell whether replicas hold the same'
      WHEN shardings.text IS NULL AND shardings.sharding IS NULL
        THEN 'the dump does not print its instructions'
      WHEN counted.device_count = 1 THEN NULL
      WHEN shardings.is_misfit
        THEN 'the sharding in before_optimizations.txt does not fit what a device holds'
      WHEN shardings.sharding IS NULL AND EXISTS (
          SELECT 1 FROM entry_parameters WHERE entry_parameters.module_id = counted.module_id
        )
        THEN 'no text of the dump has a sharding of the parameter'
      WHEN shardings.sharding IS NULL
        THEN 'the dump prints no sharding of the parameter; on TPU before_optimizations.txt alone '
          || 'has it, which is missing'
      WHEN counted.sharding_kind IS NULL THEN 'the sharding is not understood'
      WHEN counted.sharding_kind IN ('manual', 'unreduced')
        THEN 'the sharding is ' || counted.sharding_kind || ': which device holds what is unknown'
      WHEN counted.sharding_kind = 'maximal' THEN NULL
      WHEN counted.device_count IS NULL
        THEN 'the number of devices is in the HLO text, which is missing'
      WHEN counted.tile_count IS NULL
        OR counted.device_count < 1
        OR coalesce(counted.own_device_count, counted.device_count) <> counted.device_count
        OR counted.device_count % counted.tile_count <> 0
        THEN 'the sharding does not fit the number of devices'
    END AS unknown_sharding_reason
  FROM counted
  JOIN shardings
    ON shardings.module_id = counted.module_id
    AND shardings.allocation_index = counted.allocation_index
),
held AS (
  SELECT
    counted.module_id, counted.allocation_index, counted.sharding_kind, counted.partition_count,
    counted.replica_count, counted.device_count, explained.unknown_sharding_reason,
    CASE WHEN explained.unknown_sharding_reason IS NULL THEN counted.tile_count END AS tile_count,
    CASE
      WHEN explained.unknown_sharding_reason IS NOT NULL THEN NULL
      WHEN counted.device_count = 1 OR counted.sharding_kind = 'maximal' THEN 1
      ELSE counted.device_count // counted.tile_count
    END AS holder_count
  FROM counted
  JOIN explained
    ON explained.module_id = counted.module_id
    AND explained.allocation_index = counted.allocation_index
)
SELECT
  shardings.module_id, shardings.parameter_number, shardings.parameter_shape_index,
  shardings.allocation_index, shardings.color, shardings.value_id, shardings.instruction_name,
  coalesce(shardings.op_name, shardings.instruction_name) AS parameter_name,
  shardings.shape, shardings.size_bytes, shardings.sharding, shardings.sharding_source,
  shardings.is_contradicted, held.sharding_kind, held.partition_count, held.replica_count,
  held.device_count, held.tile_count, held.holder_count,
  -- Everything except one holder's share of the part, rounded up.
  shardings.size_bytes
    - (shardings.size_bytes::HUGEINT + held.holder_count - 1) // held.holder_count
    AS replicated_bytes,
  CASE
    WHEN held.holder_count IS NOT NULL
      THEN coalesce(
        len(
          list_filter(
            shardings.dimensions, lambda dimension: dimension > 0 AND dimension % held.holder_count = 0
          )
        ) > 0,
        FALSE
      )
  END AS is_divisible,
  held.unknown_sharding_reason
FROM shardings
JOIN held
  ON held.module_id = shardings.module_id
  AND held.allocation_index = shardings.allocation_index;
COMMENT ON VIEW parameter_shardings IS
  'One row per array in the entry parameters of a module whose value the dump lists, with how devices share it (format section 7.5). Key: module_id, allocation_index.';
COMMENT ON COLUMN parameter_shardings.parameter_name IS 'Its op_name, in JAX the path of the argument, such as params[''w'']; the instruction''s name if it has none.';
COMMENT ON COLUMN parameter_shardings.shape IS 'Shape of what one device holds, with layout: values.shape. A partitioned module has the shapes of one partition.';
COMMENT ON COLUMN parameter_shardings.size_bytes IS 'Bytes on one device [bytes]: allocations.size_bytes.';
COMMENT ON COLUMN parameter_shardings.sharding IS 'Its sharding from the text of the instruction, without metadata; else from before_optimizations.txt, if it turns the whole shape into what a device holds. For a tuple, the sharding of the array, or the whole text where it does not fit the tuple; NULL if none is printed.';
COMMENT ON COLUMN parameter_shardings.sharding_source IS '"optimized text": the compiled program has it (instructions.text); before_optimizations: only the program as the compiler received it (entry_parameters.text), as on TPU; NULL without sharding.';
COMMENT ON COLUMN parameter_shardings.is_contradicted IS 'Whether before_optimizations.txt has a sharding that differs from the optimized text, which counts; FALSE unless both have one.';
COMMENT ON COLUMN parameter_shardings.sharding_kind IS 'replicated, tiled, maximal, manual or unreduced (macro sharding_kind); NULL if there is none or it is not understood.';
COMMENT ON COLUMN parameter_shardings.device_count IS 'Devices that share the parameters: partition_count, without the HLO text the most that a sharding of the module counts; NULL if none does.';
COMMENT ON COLUMN parameter_shardings.tile_count IS 'Different parts of the array (macro sharding_tile_count); NULL with unknown_sharding_reason.';
COMMENT ON COLUMN parameter_shardings.holder_count IS 'Devices that hold the same part: device_count / tile_count, 1 for maximal; NULL where tile_count is.';
COMMENT ON COLUMN parameter_shardings.replicated_bytes IS 'What each of them would save if they divided the part [bytes]: size_bytes minus size_bytes / holder_count rounded up; 0 if only one holds it; NULL where tile_count is.';
COMMENT ON COLUMN parameter_shardings.is_divisible IS 'Whether a dimension of shape is divisible by holder_count; NULL where tile_count is.';
COMMENT ON COLUMN parameter_shardings.unknown_sharding_reason IS 'Why it is unknown which devices hold which part; NULL if it is known.';
