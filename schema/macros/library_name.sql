-- The name of a line of a file that is library code.
CREATE OR REPLACE MACRO library_name(path, line) AS
  'library ' || CASE
    WHEN regexp_matches(path, '(?:^|/)(?:site|dist)-packages/|/lib(?:64)?/(?:python|pypy)[0-9.]+t?/')
      THEN regexp_replace(path, '(?s)^(?:.*/)?(?:site|dist)-packages/|^.*/lib(?:64)?/(?:python|pypy)[0-9.]+t?/', '')
    ELSE regexp_replace(path, '(?s)^.*?/(' || checkout_pattern() || ')', '\1')
  END || ':' || line;
COMMENT ON MACRO library_name IS
  'A line of library code as "library FILE:LINE", FILE relative to the folder that has the package, such as library flax/linen/linear.py:271; path must be library code (is_library_path). NULL unless the line is known.';
