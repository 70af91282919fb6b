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
-- Processes by number, so that what follows has no names in each row.
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
-- Of most lines as much is alive at the end as at the beginning: they need no other snapshot.
ends AS (
  SELECT
    moments.process_id, moments.snapshot_count, moments.place, moments.run_name,
    moments.profile_name
  FROM moments
  CROSS JOIN params
  WHERE moments.place IN (1, moments.snapshot_count)
    OR params.every_line
),
lines AS (
  SELECT
    ends.process_id, ends.snapshot_count, live_parts.kind, live_parts.device,
    live_parts.python_function_name, live_parts.source, live_parts.shape,
    CAST(
      sum(CASE WHEN ends.place = 1 THEN live_parts.part_count ELSE 0 END) AS BIGINT
    ) AS first_count,
    CAST(
      sum(CASE WHEN ends.place = ends.snapshot_count THEN live_parts.part_count ELSE 0 END)
      AS BIGINT
    ) AS last_count,
    CAST(
      sum(CASE WHEN ends.place = 1 THEN live_parts.part_bytes ELSE 0 END) AS BIGINT
    ) AS first_bytes,
    CAST(
      sum(CASE WHEN ends.place = ends.snapshot_count THEN live_parts.part_bytes ELSE 0 END)
      AS BIGINT
    ) AS last_bytes
  FROM ends
  JOIN live_parts
    ON live_parts.run_name = ends.run_name
    AND live_parts.profile_name = ends.profile_name
  GROUP BY
    ends.process_id, ends.snapshot_count, live_parts.kind, live_parts.device,
    live_parts.python_function_name, live_parts.source, live_parts.shape
),
-- Lines by number, so that what is sorted has no names in each row.
shown AS MATERIALIZED (
  SELECT
    row_number() OVER (
      ORDER BY
        lines.process_id, lines.kind, lines.device, lines.python_function_name, lines.source,
        lines.shape
    ) AS line_id,
    lines.process_id, lines.snapshot_count, lines.kind, lines.device, lines.python_function_name,
    lines.source, lines.shape, lines.first_count, lines.last_count, lines.first_bytes,
    lines.last_bytes
  FROM lines
  CROSS JOIN params
  WHERE lines.last_count > lines.first_count
    OR params.every_line
),
counts AS (
  SELECT
    shown.line_id, shown.process_id, shown.snapshot_count, moments.place,
    CAST(sum(live_parts.part_count) AS BIGINT) AS part_count,
    count(*) = count(live_parts.part_bytes) AS is_known,
    count(live_parts.holder_name) AS holder_count
  FROM moments
  JOIN live_parts
    ON live_parts.run_name = moments.run_name
    AND live_parts.profile_name = moments.profile_name
  JOIN shown
    ON shown.process_id = moments.process_id
    AND shown.kind = live_parts.kind
    AND shown.device IS NOT DISTINCT FROM live_parts.device
    AND shown.python_function_name IS NOT DISTINCT FROM live_parts.python_function_name
    AND shown.source IS NOT DISTINCT FROM live_parts.source
    AND shown.shape IS NOT DISTINCT FROM live_parts.shape
  GROUP BY shown.line_id, shown.process_id, shown.snapshot_count, moments.place
),
-- What a snapshot does not list is zero there.
changes AS (
  SELECT
    counts.line_id, counts.process_id, counts.place, counts.is_known, counts.holder_count,
    CASE
      WHEN counts.place = 1 THEN 0
      WHEN lag(counts.place) OVER line = counts.place - 1
        THEN counts.part_count - lag(counts.part_count) OVER line
      ELSE counts.part_count
    END AS change_count,
    CASE
      WHEN counts.part_count > 0
        AND counts.place < counts.snapshot_count
        AND coalesce(lead(counts.place) OVER line, 0) <> counts.place + 1
        THEN 1
    END AS end_mark
  FROM counts
  WINDOW line AS (PARTITION BY counts.line_id ORDER BY counts.place)
),
grown AS (
  SELECT
    changes.line_id, changes.process_id,
    count(CASE WHEN changes.change_count > 0 THEN 1 END) AS grown_count,
    count(CASE WHEN changes.change_count < 0 THEN 1 END) + count(changes.end_mark)
      AS shrunk_count,
    min(CASE WHEN changes.change_count > 0 THEN changes.place - 1 END) AS since_place,
    max(CASE WHEN changes.change_count > 0 THEN changes.place - 1 END) AS latest_place,
    count(CASE WHEN NOT changes.is_known THEN 1 END) AS unknown_count,
    max(CASE WHEN changes.holder_count > 0 THEN changes.place END) AS holder_place
  FROM changes
  GROUP BY changes.line_id, changes.process_id
),
-- Of the last snapshot that knows a holder, that of the most bytes.
holders AS (
  SELECT
    shown.line_id, live_parts.holder_name, live_parts.holder_source,
    row_number() OVER (
      PARTITION BY shown.line_id
      ORDER BY
        live_parts.part_bytes DESC, live_parts.holder_name, live_parts.holder_source NULLS LAST
    ) AS place
  FROM grown
  JOIN moments
    ON moments.process_id = grown.process_id
    AND moments.place = grown.holder_place
  JOIN shown ON shown.line_id = grown.line_id
  JOIN live_parts
    ON live_parts.run_name = moments.run_name
    AND live_parts.profile_name = moments.profile_name
    AND live_parts.kind = shown.kind
    AND live_parts.device IS NOT DISTINCT FROM shown.device
    AND live_parts.python_function_name IS NOT DISTINCT FROM shown.python_function_name
    AND live_parts.source IS NOT DISTINCT FROM shown.source
    AND live_parts.shape IS NOT DISTINCT FROM shown.shape
  WHERE live_parts.holder_name IS NOT NULL
),
judged AS (
  SELECT
    latest.run_name, latest.account_name, shown.device, shown.kind, shown.python_function_name,
    shown.source, shown.shape, shown.snapshot_count, shown.first_count, shown.last_count,
    CASE WHEN grown.unknown_count = 0 THEN shown.first_bytes END AS first_bytes,
    CASE WHEN grown.unknown_count = 0 THEN shown.last_bytes END AS last_bytes,
    CASE WHEN grown.unknown_count = 0 THEN shown.last_bytes - shown.first_bytes END
      AS growth_bytes,
    grown.grown_count, grown.shrunk_count,
    since.elapsed_seconds AS since_seconds,
    since.mark AS since_mark,
    latest.elapsed_seconds AS last_seconds,
    latest.mark AS last_mark,
    holders.holder_name, holders.holder_source,
    CASE
      WHEN shown.last_count <= shown.first_count OR grown.grown_count < 2 THEN NULL
      WHEN grown.shrunk_count = 0
        AND grown.grown_count >= params.least_count
        AND 2 * grown.latest_place >= shown.snapshot_count
        THEN 'likely'
      ELSE 'possible'
    END AS sureness
  FROM shown
  JOIN grown ON grown.line_id = shown.line_id
  JOIN moments AS latest
    ON latest.process_id = shown.process_id
    AND latest.place = shown.snapshot_count
  LEFT JOIN moments AS since
    ON since.process_id = shown.process_id
    AND since.place = grown.since_place
  LEFT JOIN holders
    ON holders.line_id = shown.line_id
    AND holders.place = 1
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
