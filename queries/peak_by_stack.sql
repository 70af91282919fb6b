-- title: Bytes held at the peak by Python call stack
-- group: peak
-- engines: duckdb, spark, sail
--
-- Attributes every byte occupied at the peak to the call stack of the instruction that defined the
-- value, so that the rows of a module add up to its peak (counted as in query peak). Shows the
-- module with the largest need for each run and function. A line called from two places has a row
-- for each.
--
-- Stacks are known from jaxlib 0.8.2 if the HLO text was dumped too; before, only the innermost
-- line. Bytes without either, such as those of parameters, are summed by kind of allocation.
--
-- XLA makes copies, conversions and broadcasts of its own, without an op_name, often half of the
-- temp bytes. A row "for STACK" has those whose first use with an op_name has that stack. The row
-- STACK has only what is made there itself.
--
-- wrong when: a value that XLA made has several uses. It is named for the first one in program
-- order with an op_name, but another one may keep it alive. If none of its uses has an op_name, it
-- is named for the use of its first use, and so on, up to four steps.
--
-- param run, function, platform, color, module, peak, step
-- param frames VARCHAR = 'own' | 'all': Frames to show: own omits library code, all keeps it.
-- param depth BIGINT = 100: Number of frames of the call stack, from the innermost.
-- param loops
-- param unnamed VARCHAR = 'use' | 'none': For values that XLA made without an op_name: use names
--   them for their first use that has one, none counts them by kind of allocation.
-- param top_functions
-- param top_n BIGINT = 10: Stacks to show for each.
--
-- column run_name, function_name, platform, color
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column held_bytes HUGEINT: Bytes held at the peak by values of this stack [bytes].
-- column held_ratio DOUBLE: The same as a share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column call_stack VARCHAR: FILE:LINE FUNCTION of each frame, innermost first, separated by " < ",
--   without the functions around a local one. Repeated frames, as flax's scan traces them, are
--   there once, with the largest number of repetitions as (×3). "for STACK" where XLA made the
--   values; "library FILE:LINE", the innermost line, if all frames are omitted; the kind of
--   allocation in parentheses if none is known.
-- column unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('frames')::VARCHAR, 'own') AS frames,
    coalesce(getvariable('depth')::BIGINT, 100) AS depth,
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
held AS (
  SELECT
    attributed.module_id, attributed.function_place, attributed.name_place, attributed.run_name,
    attributed.function_name, attributed.platform, attributed.color, attributed.peak_bytes,
    attributed.unknown_reason, attributed.held_bytes, attributed.allocation_kind,
    attributed.attributed_library_source,
    attributed.stack_frame_id, attributed.source_file, attributed.source_line,
    attributed.origin_relation, attributed.origin_stack_frame_id, attributed.origin_source_file,
    attributed.origin_source_line,
    attributed.use_stack_frame_id, attributed.use_source_file, attributed.use_source_line
  FROM attributed_peak_values AS attributed
  CROSS JOIN params
  WHERE attributed.function_place <= params.top_functions
),
-- UNION also keeps DuckDB from making the stacks of all frames first, which took three times as
-- long for 20,000 frames.
named_frame_ids AS (
  SELECT module_id, stack_frame_id
  FROM held
  UNION
  SELECT module_id, origin_stack_frame_id
  FROM held
  UNION
  SELECT module_id, use_stack_frame_id
  FROM held
),
framed AS (
  SELECT
    stack_frames.module_id, stack_frames.stack_frame_id, stack_frames.depth,
    stack_frames.tree_ordinal
  FROM named_frame_ids
  JOIN stack_frames
    ON stack_frames.module_id = named_frame_ids.module_id
    AND stack_frames.stack_frame_id = named_frame_ids.stack_frame_id
),
stack_rows AS (
  SELECT
    framed.module_id, framed.stack_frame_id, callers.label,
    row_number() OVER (
      PARTITION BY framed.module_id, framed.stack_frame_id ORDER BY callers.depth DESC
    ) AS place
  FROM framed
  CROSS JOIN params
  JOIN named_frames AS callers
    ON callers.module_id = framed.module_id
    AND callers.tree_ordinal <= framed.tree_ordinal
    AND callers.last_tree_ordinal >= framed.tree_ordinal
    AND framed.depth - callers.depth < greatest(params.depth, 1)
  WHERE params.frames = 'all' OR callers.is_own
),
-- Frames that repeat one period further out, and runs of such frames.
repeats AS (
  SELECT
    near.module_id, near.stack_frame_id, near.place, far.place - near.place AS period,
    near.place - row_number() OVER (
      PARTITION BY near.module_id, near.stack_frame_id, far.place - near.place ORDER BY near.place
    ) AS series
  FROM stack_rows AS near
  JOIN stack_rows AS far
    ON far.module_id = near.module_id
    AND far.stack_frame_id = near.stack_frame_id
    AND far.label = near.label
    AND far.place > near.place
),
-- The outermost of the full repetitions stays.
rounds AS (
  SELECT
    module_id, stack_frame_id, max(place) - count(*) + count(*) % period AS before_place,
    max(place) AS last_place
  FROM repeats
  GROUP BY module_id, stack_frame_id, period, series
  HAVING count(*) >= period
),
again_rows AS (
  SELECT
    stack_rows.module_id, stack_rows.stack_frame_id, stack_rows.place, stack_rows.label,
    count(rounds.last_place) > 0 AS is_again
  FROM stack_rows
  LEFT JOIN rounds
    ON rounds.module_id = stack_rows.module_id
    AND rounds.stack_frame_id = stack_rows.stack_frame_id
    AND rounds.before_place < stack_rows.place
    AND rounds.last_place >= stack_rows.place
  GROUP BY
    stack_rows.module_id, stack_rows.stack_frame_id, stack_rows.place, stack_rows.label
),
counted_rows AS (
  SELECT
    module_id, stack_frame_id, place, label, is_again,
    row_number() OVER (
      PARTITION BY module_id, stack_frame_id, label ORDER BY place
    ) AS label_place
  FROM again_rows
),
folded_rows AS (
  SELECT
    module_id, stack_frame_id, place, label,
    label_place - coalesce(
      lag(label_place) OVER (PARTITION BY module_id, stack_frame_id, label ORDER BY place), 0
    ) AS round_count
  FROM counted_rows
  WHERE NOT is_again
),
folded_stacks AS (
  SELECT
    module_id, stack_frame_id,
    string_agg(label, ' < ' ORDER BY place) AS call_stack,
    max(place) AS frame_count,
    string_agg(
      label || CASE WHEN round_count > 1 THEN ' (×' || round_count || ')' ELSE '' END,
      ' < ' ORDER BY place
    ) AS counted_stack
  FROM folded_rows
  GROUP BY module_id, stack_frame_id
),
-- Stacks that differ only in the number of repetitions are merged, with the largest number.
ranked_stacks AS (
  SELECT
    module_id, call_stack, counted_stack,
    row_number() OVER (
      PARTITION BY module_id, call_stack ORDER BY frame_count DESC, counted_stack
    ) AS rank
  FROM folded_stacks
),
call_stacks AS (
  SELECT
    folded_stacks.module_id, folded_stacks.stack_frame_id, longest.counted_stack AS call_stack
  FROM folded_stacks
  JOIN ranked_stacks AS longest
    ON longest.module_id = folded_stacks.module_id
    AND longest.call_stack = folded_stacks.call_stack
    AND longest.rank = 1
),
walked AS (
  SELECT
    coalesce(
      held.origin_relation || coalesce(
        origin_stacks.call_stack,
        CASE
          WHEN params.frames = 'all'
            OR NOT is_library_path(held.origin_source_file, modules.own_pattern)
            THEN base_name(held.origin_source_file) || ':' || held.origin_source_line
        END
      ),
      call_stacks.call_stack,
      CASE
        WHEN params.frames = 'all' OR NOT is_library_path(held.source_file, modules.own_pattern)
          THEN base_name(held.source_file) || ':' || held.source_line
      END,
      'for ' || coalesce(
        use_stacks.call_stack,
        CASE
          WHEN params.frames = 'all'
            OR NOT is_library_path(held.use_source_file, modules.own_pattern)
            THEN base_name(held.use_source_file) || ':' || held.use_source_line
        END
      ),
      held.attributed_library_source,
      CASE
        WHEN held.held_bytes IS NOT NULL
          THEN '(' || coalesce(held.allocation_kind, 'kind unknown') || ')'
      END
    ) AS call_stack,
    held.function_place, held.name_place, held.run_name, held.function_name, held.platform,
    held.color, held.peak_bytes, held.unknown_reason, held.held_bytes
  FROM held
  CROSS JOIN params
  LEFT JOIN modules ON modules.module_id = held.module_id
  LEFT JOIN call_stacks AS origin_stacks
    ON origin_stacks.module_id = held.module_id
    AND origin_stacks.stack_frame_id = held.origin_stack_frame_id
  LEFT JOIN call_stacks
    ON call_stacks.module_id = held.module_id
    AND call_stacks.stack_frame_id = held.stack_frame_id
  LEFT JOIN call_stacks AS use_stacks
    ON use_stacks.module_id = held.module_id
    AND use_stacks.stack_frame_id = held.use_stack_frame_id
),
stacks AS (
  SELECT
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, call_stack,
    sum(held_bytes) AS held_bytes,
    nullif(count(held_bytes), 0) AS value_count,
    row_number() OVER (
      PARTITION BY function_place
      ORDER BY sum(held_bytes) DESC, call_stack NULLS LAST
    ) AS place
  FROM walked
  GROUP BY
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, call_stack
)
SELECT
  run_name, function_name, platform, color, peak_bytes, held_bytes,
  CAST(held_bytes AS DOUBLE) / nullif(peak_bytes, 0) AS held_ratio,
  value_count, call_stack, unknown_reason
FROM stacks
CROSS JOIN params
WHERE place <= params.top_n OR unknown_reason IS NOT NULL
ORDER BY function_place, name_place, place;
