-- The name of a line of library code, which marks it as such.
CREATE OR REPLACE MACRO library_source(path, line, own_pattern := NULL) AS
  CASE
    WHEN is_library_path(path, own_pattern)
      THEN 'library ' || CASE
        WHEN regexp_matches(path, '(?:^|/)(?:site|dist)-packages/|/lib(?:64)?/(?:python|pypy)[0-9.]+t?/')
          THEN regexp_replace(path, '(?s)^(?:.*/)?(?:site|dist)-packages/|^.*/lib(?:64)?/(?:python|pypy)[0-9.]+t?/', '')
        ELSE regexp_replace(path, '(?s)^.*?/(' || checkout_pattern() || ')', '\1')
      END || ':' || line
  END;
COMMENT ON MACRO library_source IS
  'A line of library code as "library FILE:LINE", FILE relative to the folder that has the package, such as library flax/linen/linear.py:271; NULL unless path is library code (is_library_path) and the line is known.';
