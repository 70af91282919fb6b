-- The product of numbers that a dump prints.
CREATE OR REPLACE MACRO product_of(numbers) AS
  CASE
    WHEN numbers IS NULL
      OR len(list_filter(numbers, lambda number: try_cast(number AS BIGINT) IS NULL)) > 0 THEN NULL
    WHEN len(numbers) = 0 THEN 1
    WHEN list_product(list_transform(numbers, lambda number: try_cast(number AS DOUBLE))) >= 1
      AND list_product(list_transform(numbers, lambda number: try_cast(number AS DOUBLE))) <= 1000000000000000
      THEN list_product(list_transform(numbers, lambda number: try_cast(number AS DOUBLE)))::BIGINT
  END;
COMMENT ON MACRO product_of IS
  'Product of a list of numbers as text, 1 for an empty list; NULL if one is not a number or the product is not between 1 and 10^15, as in damaged dumps.';
