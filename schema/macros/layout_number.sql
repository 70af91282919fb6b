-- A number in a layout.
CREATE OR REPLACE MACRO layout_number(layout, pattern) AS
  try_cast(nullif(regexp_extract(layout, pattern, 1), '') AS BIGINT);
COMMENT ON MACRO layout_number IS
  'The number that the first group of a pattern matches in a layout such as {2,1,0:T(8,128)}; NULL if there is none.';
