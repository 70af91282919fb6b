-- The sharding of one array of an entry parameter, out of that of all (format section 7.5).
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
  'Of a tuple''s sharding that of the array at a place from 1, all of it where it does not have as many elements as the tuple has arrays; a sharding of no tuple as it is.';
