-- One row per row of live_arrays and of live_programs: what is alive or loaded, and how many bytes that is.
CREATE OR REPLACE VIEW live_parts AS
SELECT
  live_array_lines.run_name, live_array_lines.profile_name, 'arrays' AS kind,
  live_array_lines.device, live_array_lines.python_function_name, live_array_lines.source,
  live_array_lines.shape, live_array_lines.holder_name, live_array_lines.holder_source,
  live_array_lines.array_count AS part_count, live_array_lines.total_bytes AS part_bytes
FROM live_array_lines
UNION ALL
SELECT
  live_programs.run_name, live_programs.profile_name, 'programs' AS kind, NULL AS device,
  python_name(live_programs.program_name) AS python_function_name, NULL AS source, NULL AS shape,
  NULL AS holder_name, NULL AS holder_source, 1 AS part_count,
  live_programs.code_bytes AS part_bytes
FROM live_programs;
COMMENT ON VIEW live_parts IS
  'One row per row of live_arrays and of live_programs: what a process has alive or loaded in a memory profile, in columns of both. Key: none; programs of one name are rows of their own.';
COMMENT ON COLUMN live_parts.run_name IS 'The run: runs.run_name.';
COMMENT ON COLUMN live_parts.profile_name IS 'The profile: live_profiles.profile_name.';
COMMENT ON COLUMN live_parts.kind IS 'arrays or programs.';
COMMENT ON COLUMN live_parts.device IS 'The device; NULL for programs.';
COMMENT ON COLUMN live_parts.python_function_name IS 'Function whose line made the arrays (live_array_lines), or jitted function of the program; NULL if unknown.';
COMMENT ON COLUMN live_parts.source IS 'Line that made the arrays: live_array_lines.source; NULL for programs.';
COMMENT ON COLUMN live_parts.shape IS 'live_arrays.shape; NULL for programs.';
COMMENT ON COLUMN live_parts.holder_name IS 'live_arrays.holder_name; NULL for programs.';
COMMENT ON COLUMN live_parts.holder_source IS 'live_arrays.holder_source; NULL for programs.';
COMMENT ON COLUMN live_parts.part_count IS 'live_arrays.array_count; 1 for a program.';
COMMENT ON COLUMN live_parts.part_bytes IS 'live_arrays.total_bytes, or live_programs.code_bytes [bytes]; NULL if the size of code is not known.';
