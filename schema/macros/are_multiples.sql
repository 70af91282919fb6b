-- Whether one signature is another sharded, or for another batch.
CREATE OR REPLACE MACRO are_multiples(shapes, divided_shapes) AS
  len(shapes) = len(divided_shapes)
  AND list_bool_and(
    list_transform(
      list_zip(shapes, divided_shapes),
      lambda pair: pair[1] = pair[2]
        OR (
          split_part(pair[1], '[', 1) = split_part(pair[2], '[', 1)
          AND len(regexp_extract_all(pair[1], '[0-9]+'))
            = len(regexp_extract_all(pair[2], '[0-9]+'))
          AND list_bool_and(
            list_transform(
              -- The digits of the element type are among them, and are equal.
              list_zip(
                regexp_extract_all(pair[1], '[0-9]+'), regexp_extract_all(pair[2], '[0-9]+')
              ),
              lambda digits: coalesce(
                TRY_CAST(digits[1] AS BIGINT) % nullif(TRY_CAST(digits[2] AS BIGINT), 0) = 0, FALSE
              )
            )
          )
        )
    )
  );
COMMENT ON MACRO are_multiples IS
  'Whether two lists have as many shapes, one by one of the same element type and rank, and each dimension of the first list is a whole multiple of that of the second; NULL if there are none.';
