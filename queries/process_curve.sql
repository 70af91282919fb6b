-- title: Memory of a process over time, with the program that runs
-- group: peak
-- engines: duckdb, spark, sail
--
-- Snapshots of a process (bufdb capture --watch-every, mark of bufdb.watch) in order of time: for
-- each of its devices the arrays that are alive, and what the device holds while the largest loaded
-- program runs, or the one that failed: its plan, and of the arrays those that are not its
-- arguments. Which arrays are its arguments is not known at a snapshot, so that this is a range.
-- bufdb show --process draws it, and bufdb report.
--
-- wrong when: Memory between two snapshots is not seen. Only some snapshots of a long run are kept.
-- Code of programs and what the allocator rounds up are in used_bytes alone.
--
-- A process of a run is shown if the run has a program that function, platform, color and module
-- select; function also chooses the program.
--
-- param run, function, platform, color, module
-- param profile VARCHAR = NULL: Only processes whose account_name, such as process-2/memory.prof,
--   matches this glob.
-- param process_n BIGINT = 100: Processes to show of each run, those that hold the most at a time.
-- param top_n BIGINT = 1000: Rows to return of each process.
--
-- column run_name
-- column account_name VARCHAR: The process: its profiles without the number of a snapshot.
-- column device VARCHAR: The device; NULL if nothing is alive on any, and no allocator reports what
--   it has in use.
-- column moment VARCHAR: snapshot or failure.
-- column elapsed_seconds DOUBLE: Time since the process began to be watched [s].
-- column mark VARCHAR: Text that the program gave the snapshot; NULL if it gave none.
-- column alive_bytes BIGINT: Arrays that are alive on the device [bytes].
-- column array_count BIGINT: Number of these.
-- column function_name VARCHAR: The loaded program with the largest need, or the one that failed;
--   NULL if none is known.
-- column plan_bytes BIGINT: What it needs: arguments, outputs, temporaries [bytes]; NULL if that is
--   not known.
-- column low_running_bytes BIGINT: The least that the device holds while it runs [bytes]; NULL
--   where plan_bytes is.
-- column running_bytes BIGINT: The most, if none of the arrays is its argument [bytes]; NULL where
--   plan_bytes is.
-- column used_bytes BIGINT: What the allocator has in use [bytes]; NULL if it does not say.
-- column limit_bytes BIGINT: Memory of the device as bufdb.watch was given it, else the most that
--   its allocator may take [bytes]; NULL if neither is known.
WITH params AS (
  SELECT
    getvariable('function')::VARCHAR AS function,
    coalesce(getvariable('process_n')::BIGINT, 100) AS process_n,
    coalesce(getvariable('top_n')::BIGINT, 1000) AS top_n
),
moments AS (
  SELECT
    asked_moments.run_name, asked_moments.profile_name, asked_moments.account_name,
    asked_moments.moment, asked_moments.elapsed_seconds, asked_moments.mark,
    asked_moments.snapshot_ordinal
  FROM asked_moments
  WHERE asked_moments.elapsed_seconds IS NOT NULL
),
alive AS (
  SELECT
    moments.run_name, moments.account_name, live_sums.profile_name, live_sums.device,
    live_sums.total_bytes, live_sums.array_count
  FROM moments
  JOIN live_sums
    ON live_sums.run_name = moments.run_name
    AND live_sums.profile_name = moments.profile_name
),
devices AS (
  SELECT alive.run_name, alive.account_name, alive.device
  FROM alive
  UNION
  SELECT moments.run_name, moments.account_name, allocator_figures.device
  FROM moments
  JOIN allocator_figures
    ON allocator_figures.run_name = moments.run_name
    AND allocator_figures.profile_name = moments.profile_name
),
programs AS (
  SELECT
    live_programs.run_name, live_programs.profile_name,
    python_name(live_programs.program_name) AS function_name,
    live_programs.argument_bytes,
    live_programs.argument_bytes + live_programs.output_bytes - live_programs.alias_bytes
      + live_programs.temp_bytes AS plan_bytes,
    live_programs.is_failed, live_programs.program_ordinal
  FROM live_programs
  JOIN moments
    ON moments.run_name = live_programs.run_name
    AND moments.profile_name = live_programs.profile_name
),
ranked AS (
  SELECT
    programs.run_name, programs.profile_name, programs.function_name, programs.argument_bytes,
    programs.plan_bytes,
    row_number() OVER (
      PARTITION BY programs.run_name, programs.profile_name
      ORDER BY
        CASE WHEN programs.is_failed THEN 0 ELSE 1 END, programs.plan_bytes DESC NULLS LAST,
        programs.program_ordinal
    ) AS place
  FROM programs
  CROSS JOIN params
  WHERE params.function IS NULL
    OR programs.function_name GLOB params.function
),
held AS (
  SELECT
    moments.run_name, moments.account_name, devices.device, moments.moment,
    moments.elapsed_seconds, moments.mark, moments.snapshot_ordinal, moments.profile_name,
    coalesce(alive.total_bytes, 0) AS alive_bytes,
    coalesce(alive.array_count, 0) AS array_count,
    ranked.function_name, ranked.plan_bytes, ranked.argument_bytes,
    allocator_figures.low_used_bytes AS used_bytes,
    coalesce(live_profiles.limit_bytes, allocator_figures.limit_bytes) AS limit_bytes
  FROM moments
  JOIN live_profiles
    ON live_profiles.run_name = moments.run_name
    AND live_profiles.profile_name = moments.profile_name
  LEFT JOIN devices
    ON devices.run_name = moments.run_name
    AND devices.account_name = moments.account_name
  LEFT JOIN alive
    ON alive.run_name = moments.run_name
    AND alive.profile_name = moments.profile_name
    AND alive.device = devices.device
  LEFT JOIN ranked
    ON ranked.run_name = moments.run_name
    AND ranked.profile_name = moments.profile_name
    AND ranked.place = 1
  LEFT JOIN allocator_figures
    ON allocator_figures.run_name = moments.run_name
    AND allocator_figures.profile_name = moments.profile_name
    AND allocator_figures.device = devices.device
),
placed AS (
  SELECT
    held.run_name, held.account_name, held.device, held.moment, held.elapsed_seconds, held.mark,
    held.alive_bytes, held.array_count, held.function_name, held.plan_bytes, held.argument_bytes,
    held.used_bytes, held.limit_bytes,
    max(held.alive_bytes) OVER (PARTITION BY held.run_name, held.account_name) AS most_bytes,
    row_number() OVER (
      PARTITION BY held.run_name, held.account_name
      ORDER BY
        held.device NULLS LAST, held.snapshot_ordinal NULLS LAST, held.elapsed_seconds,
        held.profile_name
    ) AS place
  FROM held
),
chosen AS (
  SELECT
    placed.run_name, placed.account_name, placed.device, placed.moment, placed.elapsed_seconds,
    placed.mark, placed.alive_bytes, placed.array_count, placed.function_name, placed.plan_bytes,
    placed.argument_bytes, placed.used_bytes, placed.limit_bytes, placed.place,
    dense_rank() OVER (
      PARTITION BY placed.run_name ORDER BY placed.most_bytes DESC, placed.account_name
    ) AS process_place
  FROM placed
)
SELECT
  chosen.run_name, chosen.account_name, chosen.device, chosen.moment, chosen.elapsed_seconds,
  chosen.mark, chosen.alive_bytes, chosen.array_count, chosen.function_name, chosen.plan_bytes,
  CASE
    WHEN chosen.plan_bytes IS NOT NULL
      THEN chosen.plan_bytes + greatest(chosen.alive_bytes - chosen.argument_bytes, 0)
  END AS low_running_bytes,
  chosen.plan_bytes + chosen.alive_bytes AS running_bytes,
  chosen.used_bytes, chosen.limit_bytes
FROM chosen
CROSS JOIN params
WHERE chosen.place <= params.top_n
  AND chosen.process_place <= params.process_n
ORDER BY chosen.run_name, chosen.account_name, chosen.place;
