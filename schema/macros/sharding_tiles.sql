-- Number of parts of each dimension of a sharded array (format section 7.5).
CREATE OR REPLACE MACRO sharding_tiles(sharding) AS
  CASE
    WHEN coalesce(sharding_kind(sharding), '') <> 'tiled' THEN NULL
    -- The last sizes do not belong to dimensions, but to devices that hold the same part.
    WHEN sharding LIKE '{devices=%'
      THEN list_transform(
        list_slice(
          string_split(regexp_extract(sharding, '^[{]devices=[[]([0-9,]+)[]]', 1), ','),
          1,
          -1 - CASE
            WHEN regexp_matches(sharding, '\blast_tile_dim_replicate\b') THEN 1
            ELSE len(
              regexp_extract_all(
                regexp_extract(sharding, '\blast_tile_dims=[{]([^}]*)[}]', 1), '[a-z]+'
              )
            )
          END
        ),
        lambda size: try_cast(size AS BIGINT)
      )
    ELSE list_transform(
      regexp_extract_all(sharding_dimensions(sharding), '[{]([^{}]*)[}]', 1),
      lambda axes: product_of(
        -- An axis 'a' of the mesh, or a part of one with its size, 'a':(2)4.
        list_transform(
          list_zip(
            regexp_extract_all(axes, '''([^'']+)''(?:[:][(][0-9]+[)]([0-9]+))?', 1),
            regexp_extract_all(axes, '''([^'']+)''(?:[:][(][0-9]+[)]([0-9]+))?', 2)
          ),
          lambda axis: coalesce(
            nullif(axis[2], ''),
            list_extract(
              regexp_extract_all(
                regexp_extract(sharding, '^[{]mesh[[]([^]]*)[]]', 1), '''([^'']+)''=([0-9]+)', 2
              ),
              list_position(
                regexp_extract_all(
                  regexp_extract(sharding, '^[{]mesh[[]([^]]*)[]]', 1), '''([^'']+)''=([0-9]+)', 1
                ),
                axis[1]
              )
            )
          )
        )
      )
    )
  END;
COMMENT ON MACRO sharding_tiles IS
  'Parts that a tiled sharding makes of each dimension, in order, NULL where the text does not say; NULL if it is not tiled.';
