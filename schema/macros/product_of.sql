-- The product of numbers that a dump prints.
CREATE OR REPLACE MACRO product_of(numbers) AS
  list_extract(
    list_transform(
      -- Of one element, so that DuckDB binds the argument once and not once for each use.
      [numbers],
      lambda given: CASE
        WHEN len(list_filter(given, lambda number: try_cast(number AS BIGINT) IS NULL)) > 0 THEN NULL
        -- The length of a lambda's parameter would be a text's in Spark's dialect.
        WHEN len(list_filter(given, lambda number: TRUE)) = 0 THEN 1
        WHEN list_product(list_transform(given, lambda number: try_cast(number AS DOUBLE)))
            BETWEEN 1 AND 1000000000000000
          THEN list_product(list_transform(given, lambda number: try_cast(number AS DOUBLE)))::BIGINT
      END
    ),
    1
  );
COMMENT ON MACRO product_of IS
  'Product of a list of numbers as text, 1 for an empty list; NULL if one is not a number or the product is not between 1 and 10^15, as in damaged dumps.';
