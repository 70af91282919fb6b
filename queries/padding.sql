-- title: Padding bytes, by shape and layout
-- group: saving
-- engines: duckdb, spark, sail
--
-- An array can take more bytes than its elements: tiled layouts (TPU) round dimensions up to whole
-- tiles. For each run and function (its compilation with the largest need) and each shape with its
-- layout, shows the size of one value, the size of its elements, and how much of the difference
-- counts at the peak of the memory space. Most padding at the peak first, then most in all values.
-- Small dimensions are the usual cause. To avoid it, make dimensions multiples of the tile, or
-- merge small ones, as remedy says; the next smaller multiple also saves elements, the next larger
-- one is free. Exchanging axes does not help: the compiler chooses their order in memory.
--
-- wrong when: A value that shares its bytes with others at the peak counts with the part it holds,
-- and only the excess over its elements' bytes is padding, so an in-place pair may show none.
-- padding_bytes of values that live at different times do not add up to memory. A dynamic array
-- (<=N) has a few bytes for its lengths, which look like padding. A value that takes fewer bytes
-- than its elements has no padding and does not reduce that of others. The pointer tables of tuples
-- are left out; see query tuple-tables.
--
-- param run, function, platform, color, module, peak, step, top_n
--
-- column run_name, function_name, platform, color
-- column shape VARCHAR: Shape.
-- column layout VARCHAR: Its layout, which pads it; NULL if none is printed.
-- column peak_padding_bytes HUGEINT: Padding held at the peak [bytes]; NULL if the peak is unknown.
-- column peak_value_count BIGINT: Values of this shape that hold it; NULL where peak_padding_bytes
--   is.
-- column low_saving_bytes HUGEINT: Lower bound of how far the highest peak would fall without the
--   padding [bytes]: for arguments and outputs all of it, for temps that of the value that saves
--   most; 0 where sureness is unlikely; NULL where peak_padding_bytes is, and for an out-of-memory
--   message.
-- column saving_bytes HUGEINT: Upper bound, if all of them change [bytes]: all padding of those
--   that hold it at the peak; NULL where low_saving_bytes is.
-- column sureness VARCHAR: How sure that is (advice_sureness); unlikely for values of one tile,
--   such as scalars, or without tiles: no other dimensions take less.
-- column size_bytes BIGINT: Assigned size of one value [bytes].
-- column logical_bytes BIGINT: Size of its elements [bytes].
-- column padding_bytes HUGEINT: The difference [bytes].
-- column padding_ratio DOUBLE: Share of the assigned size that is padding (0 to 1).
-- column value_count BIGINT: Values of this shape in the module, without those that merge others
--   (phi).
-- column remedy VARCHAR: Change that avoids it: new size of a dimension (numbered from 0, major
--   first), or one to merge it with; NULL if no other dimensions take less.
-- column unknown_reason
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
functions AS (
  SELECT
    name_place, peak_bytes, module_id, color, run_name, function_name, platform, unknown_reason
  FROM answered_instants
),
padded_values AS (
  SELECT
    functions.name_place, functions.peak_bytes, value_details.module_id, value_details.color,
    value_details.bare_shape AS shape, value_details.layout, value_details.shape AS whole_shape,
    value_details.size_bytes, value_details.logical_bytes,
    value_details.padding_bytes, value_details.is_least_size, value_details.is_phi,
    greatest(value_details.padding_bytes + held.held_bytes - value_details.size_bytes, 0)
      AS peak_padding_bytes,
    value_details.allocation_kind
  FROM functions
  JOIN value_details
    ON value_details.module_id = functions.module_id
    AND value_details.color = functions.color
  LEFT JOIN asked_peak_values AS held
    ON held.module_id = value_details.module_id
    AND held.value_id = value_details.value_id
  WHERE value_details.padding_bytes > 0
    AND NOT value_details.is_tuple
),
padded_shapes AS (
  SELECT
    name_place, module_id, color, shape, layout, whole_shape, size_bytes, logical_bytes,
    padding_bytes, is_least_size,
    CASE WHEN peak_bytes IS NOT NULL THEN coalesce(sum(peak_padding_bytes), 0) END
      AS peak_padding_bytes,
    CASE WHEN peak_bytes IS NOT NULL THEN count(CASE WHEN peak_padding_bytes > 0 THEN 1 END) END
      AS peak_value_count,
    -- An out-of-memory message has no live ranges, and so no savings.
    peak_bytes IS NOT NULL AND count(allocation_kind) = count(*) AS has_savings,
    count(CASE WHEN NOT is_phi THEN 1 END) AS value_count
  FROM padded_values
  GROUP BY
    name_place, module_id, color, peak_bytes, shape, layout, whole_shape, size_bytes, logical_bytes,
    padding_bytes, is_least_size
),
ranked_shapes AS (
  SELECT
    module_id, color, shape, layout, whole_shape, peak_padding_bytes, peak_value_count, has_savings,
    size_bytes, logical_bytes, padding_bytes, is_least_size, value_count,
    row_number() OVER (
      ORDER BY
        peak_padding_bytes DESC NULLS LAST, padding_bytes * value_count DESC, name_place, shape,
        layout, size_bytes
    ) AS place
  FROM padded_shapes
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  ranked_shapes.shape, ranked_shapes.layout, ranked_shapes.peak_padding_bytes,
  ranked_shapes.peak_value_count,
  CASE WHEN ranked_shapes.has_savings THEN coalesce(padding.low_saving_bytes, 0) END
    AS low_saving_bytes,
  CASE WHEN ranked_shapes.has_savings THEN coalesce(padding.saving_bytes, 0) END AS saving_bytes,
  advice_sureness.sureness, ranked_shapes.size_bytes,
  ranked_shapes.logical_bytes, ranked_shapes.padding_bytes,
  CAST(ranked_shapes.padding_bytes AS DOUBLE) / nullif(ranked_shapes.size_bytes, 0)
    AS padding_ratio,
  ranked_shapes.value_count,
  CASE WHEN NOT ranked_shapes.is_least_size THEN shape_tiles.whole_tiles END AS remedy,
  functions.unknown_reason
FROM functions
CROSS JOIN params
LEFT JOIN ranked_shapes
  ON ranked_shapes.module_id = functions.module_id
  AND ranked_shapes.color = functions.color
  AND ranked_shapes.place <= params.top_n
LEFT JOIN shape_tiles ON shape_tiles.shape = ranked_shapes.whole_shape
LEFT JOIN answered_padding AS padding
  ON padding.module_id = ranked_shapes.module_id
  AND padding.color = ranked_shapes.color
  AND padding.shape = ranked_shapes.whole_shape
  AND padding.size_bytes = ranked_shapes.size_bytes
  AND padding.is_least_size = ranked_shapes.is_least_size
LEFT JOIN advice_sureness
  ON advice_sureness.kind = CASE
    WHEN ranked_shapes.is_least_size THEN 'least_size'
    WHEN ranked_shapes.place IS NOT NULL THEN 'padding'
  END
  AND advice_sureness.platform = coalesce(functions.platform, '')
  AND advice_sureness.is_from_zero = (coalesce(padding.low_saving_bytes, 0) <= 0)
WHERE ranked_shapes.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY ranked_shapes.place NULLS FIRST, functions.name_place;
