-- Elements in a tile of a layout (format section 3.1).
CREATE OR REPLACE MACRO tile_element_count(layout) AS
  product_of(string_split(regexp_extract(layout, 'T[(]([0-9,]+)[)]', 1), ','));
COMMENT ON MACRO tile_element_count IS
  'Elements in the outermost tile of a layout such as {1,0:T(8,128)(2,1)}: 1024; NULL if it has none.';
