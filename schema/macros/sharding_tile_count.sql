-- Number of different parts of a sharded array, from the text of its sharding (format section 7.5).
CREATE OR REPLACE MACRO sharding_tile_count(sharding) AS
  CASE
    WHEN sharding_kind(sharding) IN ('replicated', 'maximal') THEN 1
    ELSE product_of(sharding_tiles(sharding))
  END;
COMMENT ON MACRO sharding_tile_count IS
  'Different parts that a sharding makes of an array: 1 if each device, or only one, holds all of it; NULL if the text does not say.';
