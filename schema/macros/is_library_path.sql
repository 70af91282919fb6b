-- Source files that are not user code.
CREATE OR REPLACE MACRO is_library_path(path, own_pattern := NULL) AS
  regexp_matches(path, '(^|/)(site-packages|dist-packages)/|/lib/python[0-9.]+/|^<frozen')
  AND (own_pattern IS NULL OR NOT regexp_full_match(path, own_pattern));
COMMENT ON MACRO is_library_path IS
  'Whether a source file belongs to an installed package or to Python itself, and does not match own_pattern (modules.own_pattern), which marks it as user code.';
