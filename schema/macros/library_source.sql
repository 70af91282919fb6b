-- The name of a line of library code, which marks it as such.
CREATE OR REPLACE MACRO library_source(path, line, own_pattern := NULL) AS
  CASE WHEN is_library_path(path, own_pattern) THEN library_name(path, line) END;
COMMENT ON MACRO library_source IS
  'A line of library code as "library FILE:LINE", FILE relative to the folder that has the package, such as library flax/linen/linear.py:271; NULL unless path is library code (is_library_path) and the line is known.';
