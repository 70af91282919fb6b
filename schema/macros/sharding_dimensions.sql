-- The dimensions in a sharding by named axes (format section 7.5).
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
  'From a sharding such as {mesh[''x''=4,''y''=2], [{''x''}, {}]} the part after the mesh: the axes of each dimension in brackets, or replicated; NULL for any other form.';
