-- Which source files are not the user's.
CREATE OR REPLACE MACRO is_library_path(path, own_pattern := NULL) AS
  regexp_matches(path, '(^|/)(site-packages|dist-packages)/|/lib/python[0-9.]+/|^<frozen')
  AND (own_pattern IS NULL OR NOT regexp_full_match(path, own_pattern));
COMMENT ON MACRO is_library_path IS
  'Whether a source file belongs to an installed package or to Python itself, and not to what counts as the user''s own all the same (own_pattern: modules.own_pattern).';
