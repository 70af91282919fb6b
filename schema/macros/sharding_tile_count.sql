-- Into how many different parts a sharding divides an array, by its text (format section 7.5).
CREATE OR REPLACE MACRO sharding_tile_count(sharding) AS
  CASE
    WHEN sharding_kind(sharding) IN ('replicated', 'maximal') THEN 1
    ELSE product_of(sharding_tiles(sharding))
  END;
COMMENT ON MACRO sharding_tile_count IS
  'Different parts that a sharding makes of an array: 1 if all of it lies on each device, or on one; NULL if the text does not tell.';
