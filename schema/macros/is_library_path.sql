-- Which source files are not the user's.
CREATE OR REPLACE MACRO is_library_path(path) AS
  regexp_matches(path, '(^|/)(site-packages|dist-packages)/|/lib/python[0-9.]+/|^<frozen');
COMMENT ON MACRO is_library_path IS
  'Whether a source file belongs to an installed package or to Python itself, not to the user.';
