-- Number of devices in the text of a sharding (format section 7.5).
CREATE OR REPLACE MACRO sharding_device_count(sharding) AS
  CASE
    WHEN sharding LIKE '{devices=%'
      THEN product_of(
        string_split(regexp_extract(sharding, '^[{]devices=[[]([0-9,]+)[]]', 1), ',')
      )
    WHEN sharding LIKE '{mesh[''%'
      THEN product_of(
        regexp_extract_all(regexp_extract(sharding, '^[{]mesh[[]([^]]*)[]]', 1), '''=([0-9]+)', 1)
      )
  END;
COMMENT ON MACRO sharding_device_count IS
  'Devices in the text of a sharding: the product of devices=[…], or of the axes of its mesh; NULL if it has none ({replicated}).';
