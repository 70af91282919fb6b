-- What one device holds of an array, by its sharding (format section 7.5).
CREATE OR REPLACE MACRO sharded_dimensions(dimensions, sharding) AS
  CASE
    WHEN sharding_kind(sharding) IN ('replicated', 'maximal') THEN dimensions
    WHEN len(sharding_tiles(sharding)) = len(dimensions)
      THEN list_transform(
        list_zip(dimensions, sharding_tiles(sharding)),
        -- The last part of what cannot be divided without a rest is filled up.
        lambda pair: (pair[1]::HUGEINT + pair[2] - 1) // nullif(pair[2], 0)
      )
  END;
COMMENT ON MACRO sharded_dimensions IS
  'Dimensions of the part that one device holds of an array with these dimensions, NULL for one that the sharding does not tell; NULL if it tells none, or of another number of dimensions.';
