-- The file in a path, or the operation in a scope path.
CREATE OR REPLACE MACRO base_name(path) AS
  regexp_extract(path, '[^/]*$');
COMMENT ON MACRO base_name IS 'Last element of a path.';
