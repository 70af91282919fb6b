-- title: Arrays that processes hold, of two runs side by side
-- group: change
-- engines: duckdb, spark, sail
--
-- What processes hold in new and did not hold in base, or the other way around: for each line of
-- Python and shape the arrays that are alive. Of a process it is the account when it failed, else
-- the last snapshot, else the account at its end. Two moments of one run are compared by
-- base_profile and new_profile.
--
-- Name both sides: a run, or LABEL=VALUE for all runs with that label. If each side has one
-- process, they are compared; of several those whose account has the same name. Over several runs
-- of a side arrays add up. Largest change first. bufdb diff says the largest in a sentence.
--
-- wrong when: The moments do not correspond, as a snapshot in the middle of a step and one at its
-- end. A line that moved, in a changed file, counts as another one.
--
-- param function, color, module, base, new
-- param base_profile VARCHAR = NULL: Memory profiles of base whose name matches this glob,
--   snapshots included; NULL takes those that describe each process.
-- param new_profile VARCHAR = NULL: The same of new.
-- param every_line BOOLEAN = FALSE: Also what did not change.
-- param top_n = 100
--
-- column account_name VARCHAR: The process; NULL where each side has one.
-- column device VARCHAR: The device.
-- column python_function_name VARCHAR: Function whose line made the arrays; NULL if unknown.
-- column source VARCHAR: That line as file:line, "library file:line" where all is library code,
--   (no stack) where JAX has none.
-- column shape VARCHAR: Type and dimensions of the arrays; NULL if not known.
-- column base_count BIGINT: Arrays in base.
-- column new_count BIGINT: Arrays in new.
-- column base_bytes BIGINT: Their bytes in base [bytes].
-- column new_bytes BIGINT: Their bytes in new [bytes].
-- column delta_bytes BIGINT: new_bytes minus base_bytes [bytes].
-- column holder_name VARCHAR: Variable that holds them in new, or else in base (--watch-holders);
--   NULL if it is not known.
-- column holder_source VARCHAR: File and line that first assign it; NULL if not known.
WITH params AS (
  SELECT
    getvariable('base')::VARCHAR AS base,
    getvariable('new')::VARCHAR AS new,
    getvariable('base_profile')::VARCHAR AS base_profile,
    getvariable('new_profile')::VARCHAR AS new_profile,
    getvariable('function')::VARCHAR AS function,
    getvariable('module')::VARCHAR AS module,
    getvariable('color')::VARCHAR AS color,
    coalesce(getvariable('every_line')::BOOLEAN, FALSE) AS every_line,
    coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
sides AS (
  SELECT 'base' AS side, base_runs.run_name
  FROM selected_runs((SELECT params.base FROM params)) AS base_runs
  UNION ALL
  SELECT 'new' AS side, new_runs.run_name
  FROM selected_runs((SELECT params.new FROM params)) AS new_runs
),
profiles AS (
  SELECT
    sides.side, live_accounts.run_name, live_accounts.profile_name, live_accounts.account_name,
    CASE
      WHEN sides.side = 'base' THEN params.base_profile
      ELSE params.new_profile
    END AS wanted,
    row_number() OVER (
      PARTITION BY sides.side, live_accounts.run_name, live_accounts.account_name
      ORDER BY
        CASE WHEN live_accounts.moment IN ('snapshot', 'failure') THEN 0 ELSE 1 END,
        live_accounts.snapshot_ordinal DESC NULLS FIRST, live_accounts.profile_name
    ) AS place
  FROM sides
  JOIN live_accounts ON live_accounts.run_name = sides.run_name
  CROSS JOIN params
  WHERE coalesce(params.function, '*') = '*'
    AND coalesce(params.module, '*') = '*'
    AND coalesce(params.color, '0') IN ('0', 'all')
),
chosen AS (
  SELECT profiles.side, profiles.run_name, profiles.profile_name, profiles.account_name
  FROM profiles
  WHERE CASE
    WHEN profiles.wanted IS NULL THEN profiles.place = 1
    ELSE profiles.profile_name GLOB profiles.wanted
  END
),
process_counts AS (
  SELECT names.side, count(*) AS process_count
  FROM (SELECT DISTINCT chosen.side, chosen.account_name FROM chosen) AS names
  GROUP BY names.side
),
most_processes AS (
  SELECT max(process_counts.process_count) AS process_count
  FROM process_counts
),
held AS (
  SELECT
    chosen.side,
    CASE WHEN most_processes.process_count > 1 THEN chosen.account_name END AS account_name,
    live_line_shapes.device, live_line_shapes.python_function_name, live_line_shapes.source,
    live_line_shapes.shape, live_line_shapes.array_count, live_line_shapes.total_bytes,
    live_line_shapes.holder_name, live_line_shapes.holder_source
  FROM chosen
  CROSS JOIN most_processes
  JOIN live_line_shapes
    ON live_line_shapes.run_name = chosen.run_name
    AND live_line_shapes.profile_name = chosen.profile_name
),
placed AS (
  SELECT
    held.side, held.account_name, held.device, held.python_function_name, held.source, held.shape,
    held.array_count, held.total_bytes, held.holder_name, held.holder_source,
    row_number() OVER (
      PARTITION BY
        held.account_name, held.device, held.python_function_name, held.source, held.shape
      ORDER BY
        CASE WHEN held.holder_name IS NULL THEN 1 ELSE 0 END, held.side DESC,
        held.total_bytes DESC, held.holder_name NULLS LAST, held.holder_source NULLS LAST
    ) AS holder_place
  FROM held
),
lines AS (
  SELECT
    placed.account_name, placed.device, placed.python_function_name, placed.source, placed.shape,
    coalesce(CAST(sum(CASE WHEN placed.side = 'base' THEN placed.array_count END) AS BIGINT), 0)
      AS base_count,
    coalesce(CAST(sum(CASE WHEN placed.side = 'new' THEN placed.array_count END) AS BIGINT), 0)
      AS new_count,
    coalesce(CAST(sum(CASE WHEN placed.side = 'base' THEN placed.total_bytes END) AS BIGINT), 0)
      AS base_bytes,
    coalesce(CAST(sum(CASE WHEN placed.side = 'new' THEN placed.total_bytes END) AS BIGINT), 0)
      AS new_bytes,
    max(CASE WHEN placed.holder_place = 1 THEN placed.holder_name END) AS holder_name,
    max(CASE WHEN placed.holder_place = 1 THEN placed.holder_source END) AS holder_source
  FROM placed
  GROUP BY
    placed.account_name, placed.device, placed.python_function_name, placed.source, placed.shape
)
SELECT
  lines.account_name, lines.device, lines.python_function_name, lines.source, lines.shape,
  lines.base_count, lines.new_count, lines.base_bytes, lines.new_bytes,
  lines.new_bytes - lines.base_bytes AS delta_bytes,
  lines.holder_name, lines.holder_source
FROM lines
CROSS JOIN params
-- Without an account of a side nothing is known of a change.
CROSS JOIN (SELECT count(*) AS side_count FROM process_counts) AS known
WHERE known.side_count = 2
  AND (
    params.every_line
    OR lines.new_bytes <> lines.base_bytes
    OR lines.new_count <> lines.base_count
  )
ORDER BY
  abs(lines.new_bytes - lines.base_bytes) DESC, abs(lines.new_count - lines.base_count) DESC,
  lines.account_name NULLS LAST, lines.device, lines.source, lines.shape NULLS LAST,
  lines.python_function_name NULLS LAST
LIMIT (SELECT top_n FROM params);
