-- What a sharding by names of axes says of the dimensions of an array (format section 7.5).
CREATE OR REPLACE MACRO sharding_dimensions(sharding) AS
  nullif(
    regexp_extract(
      sharding,
      '^[{]mesh[[][^]]*[]](?:, device_ids=[(](?:[^()]|[(][^()]*[)])*[)])?, ([[][^]]*[]]|replicated)',
      1
    ),
    ''
  );
COMMENT ON MACRO sharding_dimensions IS
  'Of a sharding such as {mesh[''x''=4,''y''=2], [{''x''}, {}]} what stands behind the mesh: the axes of each dimension in brackets, or replicated; NULL if it is of another form or says something else.';
