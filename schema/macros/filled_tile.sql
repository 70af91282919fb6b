-- How a dimension could fill the tiles of its layout (format section 3.1).
CREATE OR REPLACE MACRO filled_tile(size, tile, dimension, next_dimension, next_size) AS
  CASE
    WHEN NOT (size BETWEEN 1 AND 1000000000000000) OR NOT (tile BETWEEN 1 AND 1000000000) THEN NULL
    WHEN size % tile <> 0
      THEN 'dimension ' || dimension || ': ' || size || ' to '
        || CASE WHEN size > tile THEN (size // tile * tile) || ' or ' ELSE '' END
        || ((size + tile - 1) // tile * tile)
        || CASE
          WHEN size < tile AND next_size > 1
            AND next_dimension BETWEEN dimension - 1 AND dimension + 1
            THEN ', or merge it with ' || next_dimension
          ELSE ''
        END
  END;
COMMENT ON MACRO filled_tile IS
  'The nearest multiples of the tile size for a dimension, and whether it could instead be merged with the next one in memory (NULL for none): "dimension 2: 64 to 128, or merge it with 1"; NULL if it is a multiple.';
