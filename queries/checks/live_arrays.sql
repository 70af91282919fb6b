-- title: Memory profiles are whole: frames and programs are there, arguments are part of what is alive
-- group: store
--
-- Rows of memory profiles (tables live_profiles, live_arrays, live_frames, live_programs,
-- allocator_statistics, live_totals) belong to runs, so that a finding names no module. A log may
-- have statistics of allocators without a profile. Totals are those of the other tables.
--
-- column module_id BIGINT: Always NULL.
-- column finding VARCHAR: What was expected, what was found.
WITH named AS (
  SELECT run_name, profile_name, 'live_arrays' AS table_name FROM live_arrays
  UNION
  SELECT run_name, profile_name, 'live_frames' AS table_name FROM live_frames
  UNION
  SELECT run_name, profile_name, 'live_programs' AS table_name FROM live_programs
),
totals AS (
  SELECT
    'stored' AS place, run_name, profile_name, total_bytes, array_count, fullest_bytes,
    program_bytes, used_bytes, most_used_bytes, pool_bytes, block_bytes
  FROM live_totals
  UNION ALL
  SELECT
    'derived' AS place, run_name, profile_name, total_bytes, array_count, fullest_bytes,
    program_bytes, used_bytes, most_used_bytes, pool_bytes, block_bytes
  FROM derived_live_totals
),
found AS (
  SELECT named.run_name, named.profile_name, 'rows of ' || named.table_name || ' alone' AS what
  FROM named
  ANTI JOIN live_profiles
    ON live_profiles.run_name = named.run_name
    AND live_profiles.profile_name = named.profile_name
  UNION ALL
  SELECT live_profiles.run_name, live_profiles.profile_name, 'its run is not there' AS what
  FROM live_profiles
  ANTI JOIN runs ON runs.run_name = live_profiles.run_name
  UNION ALL
  SELECT
    allocator_statistics.run_name, allocator_statistics.profile_name,
    'the run of statistics is not there' AS what
  FROM allocator_statistics
  ANTI JOIN runs ON runs.run_name = allocator_statistics.run_name
  UNION
  SELECT
    allocator_statistics.run_name, allocator_statistics.profile_name,
    allocator_statistics.statistic_name || ' of ' || allocator_statistics.device || ' is '
      || allocator_statistics.statistic_value || ' +- ' || allocator_statistics.slack_bytes AS what
  FROM allocator_statistics
  WHERE allocator_statistics.statistic_value < 0
    OR allocator_statistics.slack_bytes < 0
  UNION ALL
  SELECT
    totals.run_name, totals.profile_name,
    'totals are not those of its arrays, programs and allocators' AS what
  FROM totals
  GROUP BY
    totals.run_name, totals.profile_name, totals.total_bytes, totals.array_count,
    totals.fullest_bytes, totals.program_bytes, totals.used_bytes, totals.most_used_bytes,
    totals.pool_bytes, totals.block_bytes
  HAVING count(DISTINCT totals.place) < 2
  UNION ALL
  SELECT
    live_arrays.run_name, live_arrays.profile_name,
    'no frame ' || live_arrays.stack_frame_id || ' of arrays' AS what
  FROM live_arrays
  ANTI JOIN live_frames
    ON live_frames.run_name = live_arrays.run_name
    AND live_frames.profile_name = live_arrays.profile_name
    AND live_frames.stack_frame_id = live_arrays.stack_frame_id
  WHERE live_arrays.stack_frame_id IS NOT NULL
  UNION ALL
  SELECT
    live_arrays.run_name, live_arrays.profile_name,
    'the line of frame ' || coalesce(live_arrays.stack_frame_id::VARCHAR, '(none)')
      || ' is not that of its arrays' AS what
  FROM live_arrays
  LEFT JOIN live_frames AS made
    ON made.run_name = live_arrays.run_name
    AND made.profile_name = live_arrays.profile_name
    AND made.stack_frame_id = live_arrays.stack_frame_id
  LEFT JOIN live_frames AS own
    ON own.run_name = live_arrays.run_name
    AND own.profile_name = live_arrays.profile_name
    AND own.stack_frame_id = coalesce(made.own_frame_id, made.stack_frame_id)
  WHERE live_arrays.python_function_name IS DISTINCT FROM own.function_name
    -- Paths of libraries are not known as such in an anonymous export.
    OR (
      made.own_frame_id IS NOT NULL
      AND live_arrays.source IS DISTINCT FROM own.source_file || ':' || own.source_line
    )
  UNION ALL
  SELECT
    live_frames.run_name, live_frames.profile_name,
    'the caller of frame ' || live_frames.stack_frame_id || ' is not the frame above it' AS what
  FROM live_frames
  LEFT JOIN live_frames AS callers
    ON callers.run_name = live_frames.run_name
    AND callers.profile_name = live_frames.profile_name
    AND callers.stack_frame_id = live_frames.parent_frame_id
  WHERE live_frames.depth <> coalesce(callers.depth + 1, 0)
    OR (live_frames.parent_frame_id IS NOT NULL AND callers.stack_frame_id IS NULL)
  UNION ALL
  SELECT
    live_frames.run_name, live_frames.profile_name,
    'the own frame of frame ' || live_frames.stack_frame_id || ' is not its own' AS what
  FROM live_frames
  LEFT JOIN live_frames AS own
    ON own.run_name = live_frames.run_name
    AND own.profile_name = live_frames.profile_name
    AND own.stack_frame_id = live_frames.own_frame_id
  WHERE live_frames.own_frame_id IS DISTINCT FROM own.own_frame_id
  UNION ALL
  SELECT
    live_programs.run_name, live_programs.profile_name,
    count(*) || ' programs up to number ' || max(live_programs.program_ordinal) || ' of '
      || coalesce(any_value(live_profiles.program_count)::VARCHAR, 'no') || ' loaded ones' AS what
  FROM live_programs
  LEFT JOIN live_profiles
    ON live_profiles.run_name = live_programs.run_name
    AND live_profiles.profile_name = live_programs.profile_name
  GROUP BY live_programs.run_name, live_programs.profile_name
  HAVING count(DISTINCT live_programs.program_ordinal) <> max(live_programs.program_ordinal) + 1
    -- bufdb.watch lists at most 200, and only the one that failed where a runtime lists none.
    OR (
      count(*) <> least(any_value(live_profiles.program_count), 200)
      AND NOT (count(*) = 1 AND bool_and(live_programs.is_failed))
    )
  UNION ALL
  SELECT
    live_profiles.run_name, live_profiles.profile_name,
    'the program that failed is ' || coalesce(live_profiles.failed_program_name, 'unknown')
      || ', and in the list ' || coalesce(min(live_programs.program_name), 'none') AS what
  FROM live_profiles
  LEFT JOIN live_programs
    ON live_programs.run_name = live_profiles.run_name
    AND live_programs.profile_name = live_profiles.profile_name
    AND live_programs.is_failed
  GROUP BY live_profiles.run_name, live_profiles.profile_name, live_profiles.failed_program_name
  HAVING count(live_programs.program_name) > 1
    OR min(live_programs.program_name) IS DISTINCT FROM live_profiles.failed_program_name
  UNION ALL
  SELECT
    live_arrays.run_name, live_arrays.profile_name,
    'arguments of frame ' || coalesce(live_arrays.stack_frame_id::VARCHAR, '(none)')
      || ' are more than is alive' AS what
  FROM live_arrays
  WHERE live_arrays.total_bytes < 0
    OR live_arrays.argument_bytes NOT BETWEEN 0 AND live_arrays.total_bytes
    OR live_arrays.argument_count NOT BETWEEN 0 AND live_arrays.array_count
  UNION ALL
  SELECT
    live_arrays.run_name, live_arrays.profile_name,
    'the shape of some arrays is not known, and live_profiles says otherwise' AS what
  FROM live_arrays
  JOIN live_profiles
    ON live_profiles.run_name = live_arrays.run_name
    AND live_profiles.profile_name = live_arrays.profile_name
  GROUP BY live_arrays.run_name, live_arrays.profile_name
  HAVING bool_or(live_arrays.shape IS NULL)
    <> bool_or(live_profiles.shapes_unknown_reason IS NOT NULL)
  UNION ALL
  SELECT
    live_arrays.run_name, live_arrays.profile_name,
    'the arrays of frame ' || coalesce(live_arrays.stack_frame_id::VARCHAR, '(none)')
      || ' are fewer than none, or a holder has no name' AS what
  FROM live_arrays
  WHERE live_arrays.array_count < 0
    OR (live_arrays.holder_name IS NULL AND live_arrays.holder_source IS NOT NULL)
  UNION ALL
  SELECT
    live_profiles.run_name, live_profiles.profile_name,
    'number ' || coalesce(live_profiles.snapshot_ordinal::VARCHAR, 'unknown') || ' of moment '
      || coalesce(live_profiles.moment, 'unknown') AS what
  FROM live_profiles
  WHERE (live_profiles.snapshot_ordinal IS NOT NULL)
    <> (coalesce(live_profiles.moment, '') = 'snapshot')
    OR live_profiles.snapshot_ordinal < 0
    OR live_profiles.elapsed_seconds < 0
    OR (live_profiles.mark IS NOT NULL AND live_profiles.snapshot_ordinal IS NULL)
  UNION ALL
  SELECT ordered.run_name, ordered.profile_name, 'it is earlier than the snapshot before' AS what
  FROM (
    SELECT
      live_moments.run_name, live_moments.profile_name,
      live_moments.elapsed_seconds < lag(live_moments.elapsed_seconds) OVER (
        PARTITION BY live_moments.run_name, live_moments.account_name
        ORDER BY live_moments.snapshot_ordinal NULLS LAST
      ) AS is_earlier
    FROM live_moments
    WHERE live_moments.moment IS NOT NULL
  ) AS ordered
  WHERE ordered.is_earlier
  UNION ALL
  SELECT
    live_arrays.run_name, live_arrays.profile_name,
    'arguments are known of some arrays, and live_profiles says otherwise' AS what
  FROM live_arrays
  JOIN live_profiles
    ON live_profiles.run_name = live_arrays.run_name
    AND live_profiles.profile_name = live_arrays.profile_name
  GROUP BY live_arrays.run_name, live_arrays.profile_name
  HAVING bool_or(
      (live_arrays.argument_bytes IS NULL) <> (live_profiles.arguments_unknown_reason IS NOT NULL)
    )
)
SELECT
  CAST(NULL AS BIGINT) AS module_id,
  'memory profile ' || found.profile_name || ' of run ' || found.run_name || ': ' || found.what
    AS finding
FROM found
ORDER BY found.run_name, found.profile_name, found.what;
