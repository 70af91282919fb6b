-- title: Library lines that hold the bytes of a line of yours at the peak
-- group: peak
-- engines: duckdb, spark, sail
--
-- A call such as diffrax.diffeqsolve(...), or of a trainer, is one line of yours, to which peak-by
-- attributes everything that the library computes below it. This shows the lines below: of one
-- library each, the innermost ones in the call stacks, which ingest --own PACKAGE would attribute
-- the bytes to. It is the library under the line that most bytes are of; one that only wraps calls
-- (jax, equinox, …) only if there is no other one. Stacks need the HLO text (jaxlib 0.8.2).
--
-- wrong when: JAX writes at most 10 frames of a stack by default in some versions: a line of yours
-- above them is not known, and the library's line has the bytes in peak-by itself.
--
-- param run, function, platform, color, module, peak, step
-- param loops, top_functions
-- param unnamed VARCHAR = 'use' | 'none': For values that XLA made without an op_name: use names
--   them for their first use that has one, none leaves them out.
-- param top_n BIGINT = 10: Lines to show for each function.
--
-- column run_name, function_name, platform, color, peak_bytes
-- column source VARCHAR: Line of yours as FILE:LINE.
-- column source_bytes HUGEINT: Bytes attributed to it at the peak, also as "saved" or "for"
--   [bytes].
-- column library_source VARCHAR: Line of the library below it as in peak-by: "library file:line",
--   with "saved" or "for" in front.
-- column package VARCHAR: Package or module of the library, for --own.
-- column held_bytes HUGEINT: Bytes of that line [bytes].
-- column held_ratio DOUBLE: held_bytes as a share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
held AS (
  SELECT
    attributed.function_place, attributed.name_place, attributed.run_name,
    attributed.function_name, attributed.platform, attributed.color, attributed.peak_bytes,
    attributed.unknown_reason, attributed.module_id, attributed.allocation_index,
    attributed.value_id, attributed.held_bytes, attributed.attributed_source,
    attributed.origin_relation, attributed.origin_stack_frame_id, attributed.stack_frame_id,
    attributed.use_stack_frame_id
  FROM attributed_peak_values AS attributed
  CROSS JOIN params
  WHERE attributed.function_place <= params.top_functions
),
-- The frames that a value may be attributed to, first the one that goes before the others.
candidates AS (
  SELECT
    function_place, module_id, allocation_index, value_id, held_bytes, attributed_source,
    1 AS choice, origin_relation AS relation, origin_stack_frame_id AS frame_id
  FROM held
  UNION ALL
  SELECT
    function_place, module_id, allocation_index, value_id, held_bytes, attributed_source,
    2 AS choice, '' AS relation, stack_frame_id AS frame_id
  FROM held
  UNION ALL
  SELECT
    function_place, module_id, allocation_index, value_id, held_bytes, attributed_source,
    3 AS choice, 'for ' AS relation, use_stack_frame_id AS frame_id
  FROM held
),
-- That which it is attributed to, where that is a line of the user's.
framed AS (
  SELECT
    candidates.function_place, candidates.module_id, candidates.allocation_index,
    candidates.value_id, candidates.held_bytes, candidates.relation,
    own_frames.source_file || ':' || own_frames.source_line AS source,
    own_frames.depth AS own_depth, own_frames.tree_ordinal AS own_ordinal,
    stack_frames.tree_ordinal, modules.own_pattern,
    row_number() OVER (
      PARTITION BY
        candidates.function_place, candidates.module_id, candidates.allocation_index,
        candidates.value_id
      ORDER BY candidates.choice
    ) AS place
  FROM candidates
  JOIN modules ON modules.module_id = candidates.module_id
  JOIN stack_frames
    ON stack_frames.module_id = candidates.module_id
    AND stack_frames.stack_frame_id = candidates.frame_id
  JOIN stack_frames AS own_frames
    ON own_frames.module_id = stack_frames.module_id
    AND own_frames.stack_frame_id = stack_frames.own_frame_id
  WHERE candidates.attributed_source
    = candidates.relation || own_frames.source_file || ':' || own_frames.source_line
),
own_lines AS (
  SELECT function_place, source, sum(held_bytes) AS source_bytes
  FROM framed
  WHERE framed.place = 1
  GROUP BY function_place, source
),
called AS (
  SELECT
    framed.function_place, framed.module_id, framed.allocation_index, framed.value_id,
    framed.held_bytes, framed.relation, framed.source, frames.depth,
    library_source(frames.source_file, frames.source_line, framed.own_pattern) AS library_source
  FROM framed
  JOIN stack_frames AS frames
    ON frames.module_id = framed.module_id
    AND frames.tree_ordinal <= framed.tree_ordinal
    AND frames.last_tree_ordinal >= framed.tree_ordinal
    AND frames.tree_ordinal > framed.own_ordinal
    AND frames.depth > framed.own_depth
  WHERE framed.place = 1
),
packaged AS (
  SELECT
    function_place, module_id, allocation_index, value_id, held_bytes, relation, source, depth,
    library_source,
    regexp_extract(library_source, '^library ([^/:.]+)', 1) AS package
  FROM called
  WHERE library_source IS NOT NULL
),
innermost AS (
  SELECT
    function_place, held_bytes, relation, source, depth, library_source, package,
    row_number() OVER (
      PARTITION BY
        function_place, module_id, allocation_index, value_id, relation, source, package
      ORDER BY depth DESC
    ) AS place
  FROM packaged
),
packages AS (
  SELECT
    function_place, source, package,
    row_number() OVER (
      PARTITION BY function_place, source
      ORDER BY
        package IN ('jax', 'equinox', 'jaxtyping', 'beartype', 'contextlib', 'functools'),
        sum(held_bytes) DESC, min(depth), package
    ) AS place
  FROM innermost
  WHERE innermost.place = 1
  GROUP BY function_place, source, package
),
lines AS (
  SELECT
    innermost.function_place, innermost.source, innermost.package,
    innermost.relation || innermost.library_source AS library_source,
    sum(innermost.held_bytes) AS held_bytes,
    count(*) AS value_count
  FROM innermost
  JOIN packages
    ON packages.function_place = innermost.function_place
    AND packages.source = innermost.source
    AND packages.package = innermost.package
    AND packages.place = 1
  WHERE innermost.place = 1
  GROUP BY
    innermost.function_place, innermost.source, innermost.package, innermost.relation,
    innermost.library_source
),
ranked AS (
  SELECT
    lines.function_place, lines.source, lines.package, lines.library_source, lines.held_bytes,
    lines.value_count, own_lines.source_bytes,
    row_number() OVER (
      PARTITION BY lines.function_place
      ORDER BY
        own_lines.source_bytes DESC, lines.source, lines.held_bytes DESC, lines.library_source
    ) AS place
  FROM lines
  JOIN own_lines
    ON own_lines.function_place = lines.function_place
    AND own_lines.source = lines.source
),
functions AS (
  SELECT DISTINCT
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason
  FROM held
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  functions.peak_bytes, ranked.source, ranked.source_bytes, ranked.library_source, ranked.package,
  ranked.held_bytes,
  CAST(ranked.held_bytes AS DOUBLE) / nullif(functions.peak_bytes, 0) AS held_ratio,
  ranked.value_count, functions.unknown_reason
FROM functions
CROSS JOIN params
LEFT JOIN ranked ON ranked.function_place = functions.function_place
WHERE
  (ranked.place <= params.top_n AND functions.unknown_reason IS NULL)
  OR functions.unknown_reason IS NOT NULL
ORDER BY functions.function_place, functions.name_place, ranked.place;
