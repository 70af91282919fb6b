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
              -- The digits of the element type are included, and are equal.
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
  'Whether two lists have the same number of shapes with the same element types and ranks in order, and each dimension in the first list is a multiple of that in the second; NULL if there are none.';
