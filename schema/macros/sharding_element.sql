-- The sharding of one array of an entry parameter (format section 7.5).
CREATE OR REPLACE MACRO sharding_element(sharding, place, array_count) AS
  CASE
    WHEN sharding NOT LIKE '{{%' THEN sharding
    WHEN len(
        regexp_extract_all(
          sharding[2:-2], '[{](?:[^{}]|[{](?:[^{}]|[{][^{}]*[}])*[}])*[}]'
        )
      ) = array_count
      THEN list_extract(
        regexp_extract_all(
          sharding[2:-2], '[{](?:[^{}]|[{](?:[^{}]|[{][^{}]*[}])*[}])*[}]'
        ),
        place
      )
    ELSE sharding
  END;
COMMENT ON MACRO sharding_element IS
  'From a tuple''s sharding, that of the array at a position from 1, or all of it if the number of elements differs from the number of arrays; any other sharding unchanged.';
