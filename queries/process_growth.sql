-- title: Arrays and programs of a process that grow from snapshot to snapshot
-- group: peak
-- engines: duckdb, spark, sail
--
-- A process that slowly grows keeps what it made. From snapshots of its memory (bufdb capture
-- --watch-every, mark of bufdb.watch) come for each line of Python and shape the arrays that are
-- alive, and for each program how often it is loaded. One row per line and shape, or program,
-- with figures of the first and the last snapshot, or of the failure if the process failed.
-- What only ever grows is a leak of that line: likely if it never shrank, grew at least as often as
-- least_count, and still grew in the second half of the snapshots; possible if it also shrank at
-- times, or grew only twice. What grew once, such as an optimizer's state, is neither.
-- A program that is loaded many times was compiled as often: the query retraces says why.
--
-- wrong when: The process was still warming up, so that what grows would soon stop. A cache with a
-- bound grows like a leak until it is full. Only some snapshots of a long run are kept, so that
-- what shrinks and grows again between two of them is not seen. Of programs at most the 200
-- largest are listed.
--
-- A process of a run is shown if the run has a program that function, platform, color and module
-- select.
--
-- param run, function, platform, color, module
-- param profile VARCHAR = NULL: Only processes whose account_name, such as process-2/memory.prof,
--   matches this glob.
-- param least_count BIGINT = 3: Pairs of snapshots in which a likely leak has to grow.
-- param every_line BOOLEAN = FALSE: Also what does not grow.
-- param top_n BIGINT = 100: Rows to return of each process.
--
-- column run_name
-- column account_name VARCHAR: The process: its profiles without the number of a snapshot.
-- column device VARCHAR: The device; NULL for programs.
-- column kind VARCHAR: arrays or programs.
-- column python_function_name VARCHAR: Function whose line made the arrays, or jitted function of
--   the program.
-- column source VARCHAR: That line as file:line, "library file:line" where all is library code,
--   (no stack) where JAX has none; NULL for programs.
-- column shape VARCHAR: Type and dimensions of the arrays; NULL if not known, and for programs.
-- column snapshot_count BIGINT: Snapshots of the process.
-- column first_count BIGINT: Arrays or programs at the first snapshot.
-- column last_count BIGINT: The same at the last.
-- column first_bytes BIGINT: Bytes of the arrays, or of the programs' code, at the first snapshot
--   [bytes]; NULL if the size of code is not known.
-- column last_bytes BIGINT: The same at the last [bytes].
-- column growth_bytes BIGINT: last_bytes less first_bytes [bytes].
-- column grown_count BIGINT: Pairs of successive snapshots between which there were more.
-- column shrunk_count BIGINT: Pairs between which there were fewer.
-- column since_seconds DOUBLE: Time of the last snapshot before it first grew [s]; NULL if it never
--   did, or the time is not known.
-- column since_mark VARCHAR: Mark of that snapshot; NULL if it has none.
-- column last_seconds DOUBLE: Time of the last snapshot [s].
-- column last_mark VARCHAR: Mark of the last snapshot; NULL if it has none.
-- column holder_name VARCHAR: Variable that holds the arrays, at the last snapshot that knows it
--   (--watch-holders); NULL if none does.
-- column holder_source VARCHAR: File and line that first assign it; NULL if not known.
-- column sureness VARCHAR: Whether it is a leak: likely, possible, or NULL if nothing shows it.
WITH params AS (
  SELECT
    coalesce(getvariable('least_count')::BIGINT, 3) AS least_count,
    coalesce(getvariable('every_line')::BOOLEAN, FALSE) AS every_line,
    coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
chosen AS MATERIALIZED (
  SELECT
    asked_moments.run_name, asked_moments.account_name, asked_moments.profile_name,
    asked_moments.elapsed_seconds, asked_moments.mark, asked_moments.snapshot_ordinal
  FROM asked_moments
),
processes AS (
  SELECT
    row_number() OVER (ORDER BY chosen.run_name, chosen.account_name) AS process_id,
    chosen.run_name, chosen.account_name, count(*) AS snapshot_count
  FROM chosen
  GROUP BY chosen.run_name, chosen.account_name
  HAVING count(*) > 1
),
-- Processes and things by number, so that what follows has no names in each row.
moments AS MATERIALIZED (
  SELECT
    processes.process_id, processes.snapshot_count, chosen.run_name, chosen.account_name,
    chosen.profile_name, chosen.elapsed_seconds, chosen.mark,
    row_number() OVER (
      PARTITION BY processes.process_id
      ORDER BY chosen.snapshot_ordinal NULLS LAST
    ) AS place
  FROM chosen
  JOIN processes
    ON processes.run_name = chosen.run_name
    AND processes.account_name = chosen.account_name
),
parts AS (
  SELECT
    moments.process_id, moments.snapshot_count, moments.place, 'arrays' AS kind,
    live_array_lines.device, live_array_lines.python_function_name, live_array_lines.source,
    live_array_lines.shape, live_array_lines.holder_name, live_array_lines.holder_source,
    live_array_lines.array_count AS held_count, live_array_lines.total_bytes AS held_bytes
  FROM moments
  JOIN live_array_lines
    ON live_array_lines.run_name = moments.run_name
    AND live_array_lines.profile_name = moments.profile_name
  UNION ALL
  SELECT
    moments.process_id, moments.snapshot_count, moments.place, 'programs' AS kind,
    NULL AS device, python_name(live_programs.program_name) AS python_function_name,
    NULL AS source, NULL AS shape, NULL AS holder_name, NULL AS holder_source, 1 AS held_count,
    live_programs.code_bytes AS held_bytes
  FROM moments
  JOIN live_programs
    ON live_programs.run_name = moments.run_name
    AND live_programs.profile_name = moments.profile_name
),
things AS MATERIALIZED (
  SELECT
    dense_rank() OVER (
      ORDER BY named.kind, named.device, named.python_function_name, named.source, named.shape
    ) AS thing_id,
    row_number() OVER (
      ORDER BY
        named.holder_name, named.holder_source NULLS LAST, named.kind, named.device,
        named.python_function_name, named.source, named.shape
    ) AS holder_id,
    named.kind, named.device, named.python_function_name, named.source, named.shape,
    named.holder_name, named.holder_source
  FROM (
    SELECT DISTINCT
      parts.kind, parts.device, parts.python_function_name, parts.source, parts.shape,
      parts.holder_name, parts.holder_source
    FROM parts
  ) AS named
),
numbered AS MATERIALIZED (
  SELECT
    parts.process_id, parts.snapshot_count, parts.place, things.thing_id, things.holder_id,
    CASE WHEN parts.holder_name IS NOT NULL THEN parts.place END AS holder_place,
    parts.held_count, parts.held_bytes
  FROM parts
  JOIN things
    ON things.kind = parts.kind
    AND things.device IS NOT DISTINCT FROM parts.device
    AND things.python_function_name IS NOT DISTINCT FROM parts.python_function_name
    AND things.source IS NOT DISTINCT FROM parts.source
    AND things.shape IS NOT DISTINCT FROM parts.shape
    AND things.holder_name IS NOT DISTINCT FROM parts.holder_name
    AND things.holder_source IS NOT DISTINCT FROM parts.holder_source
),
lines AS (
  SELECT
    numbered.process_id, numbered.thing_id, numbered.snapshot_count,
    CAST(
      sum(CASE WHEN numbered.place = 1 THEN numbered.held_count ELSE 0 END) AS BIGINT
    ) AS first_count,
    CAST(
      sum(CASE WHEN numbered.place = numbered.snapshot_count THEN numbered.held_count ELSE 0 END)
      AS BIGINT
    ) AS last_count,
    CAST(
      sum(CASE WHEN numbered.place = 1 THEN numbered.held_bytes ELSE 0 END) AS BIGINT
    ) AS first_bytes,
    CAST(
      sum(CASE WHEN numbered.place = numbered.snapshot_count THEN numbered.held_bytes ELSE 0 END)
      AS BIGINT
    ) AS last_bytes,
    count(*) = count(numbered.held_bytes) AS is_known,
    max(numbered.holder_place) AS holder_place
  FROM numbered
  GROUP BY numbered.process_id, numbered.thing_id, numbered.snapshot_count
),
-- Of most lines as much is alive at the end as at the beginning: they need no order.
shown AS MATERIALIZED (
  SELECT
    lines.process_id, lines.thing_id, lines.snapshot_count,
    lines.first_count, lines.last_count,
    CASE WHEN lines.is_known THEN lines.first_bytes END AS first_bytes,
    CASE WHEN lines.is_known THEN lines.last_bytes END AS last_bytes,
    lines.holder_place
  FROM lines
  CROSS JOIN params
  WHERE lines.last_count > lines.first_count
    OR params.every_line
),
held AS (
  SELECT
    numbered.process_id, numbered.thing_id, numbered.place, numbered.snapshot_count,
    CAST(sum(numbered.held_count) AS BIGINT) AS held_count
  FROM shown
  JOIN numbered
    ON numbered.process_id = shown.process_id
    AND numbered.thing_id = shown.thing_id
  GROUP BY
    numbered.process_id, numbered.thing_id, numbered.place, numbered.snapshot_count
),
-- What a snapshot does not list is zero there.
changes AS (
  SELECT
    held.process_id, held.thing_id, held.place,
    CASE
      WHEN held.place = 1 THEN 0
      WHEN lag(held.place) OVER thing = held.place - 1
        THEN held.held_count - lag(held.held_count) OVER thing
      ELSE held.held_count
    END AS change_count,
    CASE
      WHEN held.held_count > 0
        AND held.place < held.snapshot_count
        AND coalesce(lead(held.place) OVER thing, 0) <> held.place + 1
        THEN 1
    END AS end_mark
  FROM held
  WINDOW thing AS (PARTITION BY held.process_id, held.thing_id ORDER BY held.place)
),
grown AS (
  SELECT
    changes.process_id, changes.thing_id,
    count(CASE WHEN changes.change_count > 0 THEN 1 END) AS grown_count,
    count(CASE WHEN changes.change_count < 0 THEN 1 END) + count(changes.end_mark)
      AS shrunk_count,
    min(CASE WHEN changes.change_count > 0 THEN changes.place - 1 END) AS since_place,
    max(CASE WHEN changes.change_count > 0 THEN changes.place - 1 END) AS latest_place
  FROM changes
  GROUP BY changes.process_id, changes.thing_id
),
-- Of the last snapshot that knows a holder, that of the most bytes.
holders AS (
  SELECT
    numbered.process_id, numbered.thing_id, numbered.holder_id,
    row_number() OVER (
      PARTITION BY numbered.process_id, numbered.thing_id
      ORDER BY numbered.held_bytes DESC, numbered.holder_id
    ) AS place
  FROM shown
  JOIN numbered
    ON numbered.process_id = shown.process_id
    AND numbered.thing_id = shown.thing_id
    AND numbered.holder_place = shown.holder_place
),
names AS (
  SELECT
    things.thing_id, things.kind, things.device, things.python_function_name, things.source,
    things.shape
  FROM things
  GROUP BY
    things.thing_id, things.kind, things.device, things.python_function_name, things.source,
    things.shape
),
judged AS (
  SELECT
    latest.run_name, latest.account_name, names.device, names.kind, names.python_function_name,
    names.source, names.shape, shown.snapshot_count, shown.first_count, shown.last_count,
    shown.first_bytes, shown.last_bytes,
    shown.last_bytes - shown.first_bytes AS growth_bytes,
    grown.grown_count, grown.shrunk_count,
    since.elapsed_seconds AS since_seconds,
    since.mark AS since_mark,
    latest.elapsed_seconds AS last_seconds,
    latest.mark AS last_mark,
    things.holder_name, things.holder_source,
    CASE
      WHEN shown.last_count <= shown.first_count OR grown.grown_count < 2 THEN NULL
      WHEN grown.shrunk_count = 0
        AND grown.grown_count >= params.least_count
        AND 2 * grown.latest_place >= shown.snapshot_count
        THEN 'likely'
      ELSE 'possible'
    END AS sureness
  FROM shown
  JOIN grown
    ON grown.process_id = shown.process_id
    AND grown.thing_id = shown.thing_id
  JOIN names ON names.thing_id = shown.thing_id
  JOIN moments AS latest
    ON latest.process_id = shown.process_id
    AND latest.place = shown.snapshot_count
  LEFT JOIN moments AS since
    ON since.process_id = grown.process_id
    AND since.place = grown.since_place
  LEFT JOIN holders
    ON holders.process_id = shown.process_id
    AND holders.thing_id = shown.thing_id
    AND holders.place = 1
  LEFT JOIN things ON things.holder_id = holders.holder_id
  CROSS JOIN params
),
ranked AS (
  SELECT
    judged.run_name, judged.account_name, judged.device, judged.kind,
    judged.python_function_name, judged.source, judged.shape, judged.snapshot_count,
    judged.first_count, judged.last_count, judged.first_bytes, judged.last_bytes,
    judged.growth_bytes, judged.grown_count, judged.shrunk_count, judged.since_seconds,
    judged.since_mark, judged.last_seconds, judged.last_mark, judged.holder_name,
    judged.holder_source, judged.sureness,
    row_number() OVER (
      PARTITION BY judged.run_name, judged.account_name
      ORDER BY
        CASE WHEN judged.sureness = 'likely' THEN 0 WHEN judged.sureness = 'possible' THEN 1
          ELSE 2 END,
        judged.growth_bytes DESC NULLS LAST, judged.kind, judged.source NULLS LAST,
        judged.python_function_name NULLS LAST, judged.shape NULLS LAST, judged.device NULLS LAST
    ) AS place
  FROM judged
)
SELECT
  ranked.run_name, ranked.account_name, ranked.device, ranked.kind, ranked.python_function_name,
  ranked.source, ranked.shape, ranked.snapshot_count, ranked.first_count, ranked.last_count,
  ranked.first_bytes, ranked.last_bytes, ranked.growth_bytes, ranked.grown_count,
  ranked.shrunk_count, ranked.since_seconds, ranked.since_mark, ranked.last_seconds,
  ranked.last_mark, ranked.holder_name, ranked.holder_source, ranked.sureness
FROM ranked
CROSS JOIN params
WHERE ranked.place <= params.top_n
ORDER BY ranked.run_name, ranked.account_name, ranked.place;
