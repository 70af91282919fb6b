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
moments AS (
  SELECT
    asked_moments.run_name, asked_moments.account_name, asked_moments.profile_name,
    asked_moments.elapsed_seconds, asked_moments.mark,
    row_number() OVER (
      PARTITION BY asked_moments.run_name, asked_moments.account_name
      ORDER BY asked_moments.snapshot_ordinal NULLS LAST
    ) AS place,
    count(*) OVER (
      PARTITION BY asked_moments.run_name, asked_moments.account_name
    ) AS snapshot_count
  FROM asked_moments
),
programs AS (
  SELECT
    moments.run_name, moments.account_name, moments.place,
    python_name(live_programs.program_name) AS python_function_name,
    live_programs.code_bytes
  FROM moments
  JOIN live_programs
    ON live_programs.run_name = moments.run_name
    AND live_programs.profile_name = moments.profile_name
),
held AS (
  SELECT
    moments.run_name, moments.account_name, moments.place, 'arrays' AS kind,
    live_line_shapes.device, live_line_shapes.python_function_name, live_line_shapes.source,
    live_line_shapes.shape, live_line_shapes.array_count AS held_count,
    live_line_shapes.total_bytes AS held_bytes,
    live_line_shapes.holder_name, live_line_shapes.holder_source
  FROM moments
  JOIN live_line_shapes
    ON live_line_shapes.run_name = moments.run_name
    AND live_line_shapes.profile_name = moments.profile_name
  UNION ALL
  SELECT
    programs.run_name, programs.account_name, programs.place, 'programs' AS kind,
    NULL AS device, programs.python_function_name, NULL AS source, NULL AS shape,
    count(*) AS held_count,
    CASE
      WHEN count(programs.code_bytes) = count(*)
        THEN CAST(sum(programs.code_bytes) AS BIGINT)
    END AS held_bytes,
    NULL AS holder_name, NULL AS holder_source
  FROM programs
  GROUP BY
    programs.run_name, programs.account_name, programs.place, programs.python_function_name
),
holders AS (
  SELECT
    held.run_name, held.account_name, held.kind, held.device, held.python_function_name,
    held.source, held.shape, held.held_bytes, held.holder_name, held.holder_source,
    row_number() OVER (
      PARTITION BY
        held.run_name, held.account_name, held.kind, held.device, held.python_function_name,
        held.source, held.shape
      ORDER BY CASE WHEN held.holder_name IS NULL THEN 1 ELSE 0 END, held.place DESC
    ) AS holder_place
  FROM held
),
things AS (
  SELECT
    holders.run_name, holders.account_name, holders.kind, holders.device,
    holders.python_function_name, holders.source, holders.shape,
    count(holders.held_bytes) = count(*) AS is_known,
    max(CASE WHEN holders.holder_place = 1 THEN holders.holder_name END) AS holder_name,
    max(CASE WHEN holders.holder_place = 1 THEN holders.holder_source END) AS holder_source
  FROM holders
  GROUP BY
    holders.run_name, holders.account_name, holders.kind, holders.device,
    holders.python_function_name, holders.source, holders.shape
),
counted AS (
  SELECT
    things.run_name, things.account_name, things.kind, things.device,
    things.python_function_name, things.source, things.shape, things.is_known,
    things.holder_name, things.holder_source,
    moments.place, moments.snapshot_count, moments.elapsed_seconds, moments.mark,
    coalesce(held.held_count, 0) AS held_count,
    coalesce(held.held_bytes, 0) AS held_bytes
  FROM things
  JOIN moments
    ON moments.run_name = things.run_name
    AND moments.account_name = things.account_name
  LEFT JOIN held
    ON held.run_name = things.run_name
    AND held.account_name = things.account_name
    AND held.place = moments.place
    AND held.kind = things.kind
    AND held.device IS NOT DISTINCT FROM things.device
    AND held.python_function_name IS NOT DISTINCT FROM things.python_function_name
    AND held.source IS NOT DISTINCT FROM things.source
    AND held.shape IS NOT DISTINCT FROM things.shape
),
changes AS (
  SELECT
    counted.run_name, counted.account_name, counted.kind, counted.device,
    counted.python_function_name, counted.source, counted.shape, counted.is_known,
    counted.holder_name, counted.holder_source, counted.place, counted.snapshot_count,
    counted.elapsed_seconds, counted.mark, counted.held_count, counted.held_bytes,
    lead(counted.held_count) OVER (
      PARTITION BY
        counted.run_name, counted.account_name, counted.kind, counted.device,
        counted.python_function_name, counted.source, counted.shape
      ORDER BY counted.place
    ) - counted.held_count AS change_count
  FROM counted
),
grown AS (
  SELECT
    changes.run_name, changes.account_name, changes.kind, changes.device,
    changes.python_function_name, changes.source, changes.shape, changes.is_known,
    changes.holder_name, changes.holder_source, changes.snapshot_count,
    max(CASE WHEN changes.place = 1 THEN changes.held_count END) AS first_count,
    max(CASE WHEN changes.place = changes.snapshot_count THEN changes.held_count END)
      AS last_count,
    max(CASE WHEN changes.place = 1 THEN changes.held_bytes END) AS first_bytes,
    max(CASE WHEN changes.place = changes.snapshot_count THEN changes.held_bytes END)
      AS last_bytes,
    count(*) FILTER (WHERE changes.change_count > 0) AS grown_count,
    count(*) FILTER (WHERE changes.change_count < 0) AS shrunk_count,
    min(changes.place) FILTER (WHERE changes.change_count > 0) AS since_place,
    max(changes.place) FILTER (WHERE changes.change_count > 0) AS latest_place
  FROM changes
  GROUP BY
    changes.run_name, changes.account_name, changes.kind, changes.device,
    changes.python_function_name, changes.source, changes.shape, changes.is_known,
    changes.holder_name, changes.holder_source, changes.snapshot_count
),
judged AS (
  SELECT
    grown.run_name, grown.account_name, grown.device, grown.kind, grown.python_function_name,
    grown.source, grown.shape, grown.snapshot_count, grown.first_count, grown.last_count,
    if(grown.is_known, grown.first_bytes, NULL) AS first_bytes,
    if(grown.is_known, grown.last_bytes, NULL) AS last_bytes,
    if(grown.is_known, grown.last_bytes - grown.first_bytes, NULL) AS growth_bytes,
    grown.grown_count, grown.shrunk_count,
    since.elapsed_seconds AS since_seconds,
    since.mark AS since_mark,
    latest.elapsed_seconds AS last_seconds,
    latest.mark AS last_mark,
    grown.holder_name, grown.holder_source,
    CASE
      WHEN grown.last_count <= grown.first_count OR grown.grown_count < 2 THEN NULL
      WHEN grown.shrunk_count = 0
        AND grown.grown_count >= params.least_count
        AND 2 * grown.latest_place >= grown.snapshot_count
        THEN 'likely'
      ELSE 'possible'
    END AS sureness
  FROM grown
  CROSS JOIN params
  LEFT JOIN moments AS since
    ON since.run_name = grown.run_name
    AND since.account_name = grown.account_name
    AND since.place = grown.since_place
  LEFT JOIN moments AS latest
    ON latest.run_name = grown.run_name
    AND latest.account_name = grown.account_name
    AND latest.place = grown.snapshot_count
  WHERE grown.snapshot_count > 1
    AND (grown.last_count > grown.first_count OR params.every_line)
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
