-- One row per memory profile, or log with a report of an allocator: what its row of live_totals is made of.
CREATE OR REPLACE VIEW derived_live_totals AS
-- Two parts each: DuckDB prints a union of more in another way once it is stored in a file.
WITH alive AS (
  -- Without arrays nothing is alive; of what a log's process holds only the allocator is known.
  SELECT
    live_profiles.run_name, live_profiles.profile_name, 0 AS device_bytes, 0 AS device_array_count
  FROM live_profiles
  UNION ALL
  SELECT
    live_sums.run_name, live_sums.profile_name, live_sums.total_bytes AS device_bytes,
    live_sums.array_count AS device_array_count
  FROM live_sums
),
needed AS (
  SELECT
    live_programs.run_name, live_programs.profile_name,
    live_programs.argument_bytes + live_programs.output_bytes - live_programs.alias_bytes
      + live_programs.temp_bytes AS program_bytes,
    CAST(NULL AS BIGINT) AS used_bytes, CAST(NULL AS BIGINT) AS most_used_bytes,
    CAST(NULL AS BIGINT) AS pool_bytes, CAST(NULL AS BIGINT) AS block_bytes
  FROM live_programs
  UNION ALL
  SELECT
    allocator_figures.run_name, allocator_figures.profile_name, NULL AS program_bytes,
    allocator_figures.low_used_bytes AS used_bytes,
    allocator_figures.peak_used_bytes AS most_used_bytes, allocator_figures.pool_bytes,
    allocator_figures.low_block_bytes AS block_bytes
  FROM allocator_figures
),
parts AS (
  SELECT
    alive.run_name, alive.profile_name, alive.device_bytes, alive.device_array_count,
    CAST(NULL AS BIGINT) AS program_bytes, CAST(NULL AS BIGINT) AS used_bytes,
    CAST(NULL AS BIGINT) AS most_used_bytes, CAST(NULL AS BIGINT) AS pool_bytes,
    CAST(NULL AS BIGINT) AS block_bytes
  FROM alive
  UNION ALL
  SELECT
    needed.run_name, needed.profile_name, NULL AS device_bytes, NULL AS device_array_count,
    needed.program_bytes, needed.used_bytes, needed.most_used_bytes, needed.pool_bytes,
    needed.block_bytes
  FROM needed
)
SELECT
  parts.run_name, parts.profile_name,
  CAST(sum(parts.device_bytes) AS BIGINT) AS total_bytes,
  CAST(sum(parts.device_array_count) AS BIGINT) AS array_count,
  max(parts.device_bytes) AS fullest_bytes,
  max(parts.program_bytes) AS program_bytes, max(parts.used_bytes) AS used_bytes,
  max(parts.most_used_bytes) AS most_used_bytes, max(parts.pool_bytes) AS pool_bytes,
  min(parts.block_bytes) AS block_bytes
FROM parts
GROUP BY parts.run_name, parts.profile_name;
COMMENT ON VIEW derived_live_totals IS
  'One row per memory profile, or log with a report of an allocator: its row of live_totals, computed from live_arrays, live_programs and allocator_statistics. Key: run_name, profile_name.';
COMMENT ON COLUMN derived_live_totals.run_name IS 'The run: runs.run_name.';
COMMENT ON COLUMN derived_live_totals.profile_name IS 'The profile or log: live_profiles.profile_name or allocator_statistics.profile_name.';
COMMENT ON COLUMN derived_live_totals.total_bytes IS 'What live_totals.total_bytes has to be [bytes]; NULL where that is.';
COMMENT ON COLUMN derived_live_totals.array_count IS 'What live_totals.array_count has to be; NULL where that is.';
COMMENT ON COLUMN derived_live_totals.fullest_bytes IS 'What live_totals.fullest_bytes has to be [bytes]; NULL where that is.';
COMMENT ON COLUMN derived_live_totals.program_bytes IS 'What live_totals.program_bytes has to be [bytes]; NULL where that is.';
COMMENT ON COLUMN derived_live_totals.used_bytes IS 'What live_totals.used_bytes has to be [bytes]; NULL where that is.';
COMMENT ON COLUMN derived_live_totals.most_used_bytes IS 'What live_totals.most_used_bytes has to be [bytes]; NULL where that is.';
COMMENT ON COLUMN derived_live_totals.pool_bytes IS 'What live_totals.pool_bytes has to be [bytes]; NULL where that is.';
COMMENT ON COLUMN derived_live_totals.block_bytes IS 'What live_totals.block_bytes has to be [bytes]; NULL where that is.';
