-- The part of an array on one device, from its sharding (format section 7.5).
CREATE OR REPLACE MACRO sharded_dimensions(dimensions, sharding) AS
  CASE
    WHEN sharding_kind(sharding) IN ('replicated', 'maximal') THEN dimensions
    WHEN len(sharding_tiles(sharding)) = len(dimensions)
      THEN list_transform(
        list_zip(dimensions, sharding_tiles(sharding)),
        -- The last part of a dimension that does not divide evenly is padded.
        lambda pair: (pair[1]::HUGEINT + pair[2] - 1) // nullif(pair[2], 0)
      )
  END;
COMMENT ON MACRO sharded_dimensions IS
  'Dimensions of the part of an array that one device holds, NULL for each that the sharding does not determine; NULL if it determines none or has another number of dimensions.';
