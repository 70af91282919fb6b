-- Into how many different parts a sharding divides an array, by its text (format section 7.5).
CREATE OR REPLACE MACRO sharding_tile_count(sharding) AS
  CASE
    WHEN sharding_kind(sharding) IN ('replicated', 'maximal') THEN 1
    WHEN coalesce(sharding_kind(sharding), '') <> 'tiled' THEN NULL
    -- The last sizes are not of dimensions of the array, but of devices that hold the same.
    WHEN sharding LIKE '{devices=%'
      THEN product_of(
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
        )
      )
    -- An axis 'a' of the mesh, or a part of one with its size, 'a':(2)4.
    ELSE product_of(
      list_transform(
        list_zip(
          regexp_extract_all(
            sharding_dimensions(sharding), '''([^'']+)''(?:[:][(][0-9]+[)]([0-9]+))?', 1
          ),
          regexp_extract_all(
            sharding_dimensions(sharding), '''([^'']+)''(?:[:][(][0-9]+[)]([0-9]+))?', 2
          )
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
  END;
COMMENT ON MACRO sharding_tile_count IS
  'Different parts that a sharding makes of an array: 1 if all of it lies on each device, or on one; NULL if the text does not tell.';
