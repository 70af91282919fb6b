-- One of the dimensions that a shape prints.
CREATE OR REPLACE MACRO dimension_size(dimensions_text, dimension) AS
  try_cast(list_extract(string_split(dimensions_text, ','), dimension + 1) AS BIGINT);
COMMENT ON MACRO dimension_size IS
  'Size of a dimension of "8,100,64", numbered from 0; NULL if there is none or it is dynamic ("<=64").';
