-- One row per group of values that one change removes, with how far the peak falls without them.
CREATE OR REPLACE VIEW advised_groups AS
WITH call_values AS (
  SELECT module_id, color, value_id, held_bytes, name, parent_frame_id, repeat_count
  FROM advised_call_values
),
loop_values AS (
  SELECT module_id, color, value_id, kept_bytes, name, carried_bytes
  FROM advised_loop_values
),
chunk_values AS (
  SELECT module_id, color, value_id, source_line, reader, obstacle
  FROM advised_chunk_values
),
batch_values AS (
  SELECT module_id, color, value_id, axis_size
  FROM advised_batch_values
),
early_values AS (
  SELECT module_id, color, value_id, instruction_name
  FROM advised_early_values
),
score_values AS (
  SELECT module_id, color, value_id, coalesce(source_line, 'attention') AS name
  FROM advised_score_values
),
held_values AS (
  SELECT module_id, color, value_id, held_bytes
  FROM asked_peak_values
),
sites AS (
  SELECT
    call_values.module_id, call_values.color, call_values.name, call_values.parent_frame_id,
    sum(call_values.held_bytes) AS held_bytes,
    max(call_values.repeat_count) AS repeat_count
  FROM call_values
  GROUP BY call_values.module_id, call_values.color, call_values.name, call_values.parent_frame_id
),
blocks AS (
  SELECT
    sites.module_id, sites.color, sites.name,
    -- One call of it is recomputed at a time.
    max((sites.held_bytes + sites.repeat_count - 1) // sites.repeat_count) AS kept_bytes
  FROM sites
  GROUP BY sites.module_id, sites.color, sites.name
  HAVING count(*) > 1 OR max(sites.repeat_count) > 1
),
chunks AS (
  SELECT
    chunk_values.module_id, chunk_values.color,
    max(chunk_values.source_line) AS name, max(chunk_values.reader) AS reader,
    max(chunk_values.obstacle) AS obstacle
  FROM chunk_values
  JOIN held_values AS held
    ON held.module_id = chunk_values.module_id
    AND held.color = chunk_values.color
    AND held.value_id = chunk_values.value_id
  GROUP BY chunk_values.module_id, chunk_values.color
),
scans AS (
  SELECT
    loop_values.module_id, loop_values.color, loop_values.name,
    sum(loop_values.kept_bytes) + max(loop_values.carried_bytes) AS kept_bytes
  FROM loop_values
  GROUP BY loop_values.module_id, loop_values.color, loop_values.name
),
batches AS (
  SELECT module_id, color, max(axis_size) AS axis_size
  FROM batch_values
  GROUP BY module_id, color
),
block_members AS (
  SELECT
    blocks.module_id, blocks.color, 'block' AS kind, blocks.name, call_values.value_id
  FROM blocks
  JOIN call_values
    ON call_values.module_id = blocks.module_id
    AND call_values.color = blocks.color
    AND call_values.name = blocks.name
  UNION ALL
  SELECT module_id, color, 'scan' AS kind, name, value_id
  FROM loop_values
),
other_members AS (
  SELECT
    module_id, color, 'batch' AS kind, 'vmap over ' || axis_size AS name, value_id
  FROM batch_values
  UNION ALL
  SELECT module_id, color, 'early' AS kind, instruction_name, value_id
  FROM early_values
),
group_members AS (
  SELECT module_id, color, kind, name, value_id
  FROM block_members
  UNION ALL
  SELECT module_id, color, kind, name, value_id
  FROM other_members
),
product_members AS (
  SELECT chunks.module_id, chunks.color, 'chunk' AS kind, chunks.name, chunk_values.value_id
  FROM chunks
  JOIN chunk_values
    ON chunk_values.module_id = chunks.module_id
    AND chunk_values.color = chunks.color
  UNION ALL
  SELECT module_id, color, 'scores' AS kind, name, value_id
  FROM score_values
),
members AS (
  SELECT module_id, color, kind, name, value_id
  FROM group_members
  UNION ALL
  SELECT module_id, color, kind, name, value_id
  FROM product_members
),
-- Values that begin at the same byte each end where the next begins, so that bytes count once.
spans AS (
  SELECT
    members.module_id, members.color, members.kind, members.name, temp_values.value_id,
    temp_values.size_bytes, temp_values.start_time,
    least(
      temp_values.end_time + 1,
      lead(temp_values.start_time) OVER (
        PARTITION BY
          members.module_id, members.color, members.kind, members.name,
          temp_values.allocation_index, temp_values.begin_bytes
        ORDER BY temp_values.start_time, temp_values.value_id
      )
    ) AS free_time
  FROM members
  JOIN temp_values
    ON temp_values.module_id = members.module_id
    AND temp_values.value_id = members.value_id
),
counted AS (
  SELECT
    spans.module_id, spans.color, spans.kind, spans.name,
    count(held.value_id) AS value_count,
    coalesce(sum(held.held_bytes), 0) AS held_bytes
  FROM spans
  LEFT JOIN held_values AS held
    ON held.module_id = spans.module_id
    AND held.color = spans.color
    AND held.value_id = spans.value_id
  GROUP BY spans.module_id, spans.color, spans.kind, spans.name
),
-- The saving is at most what is held. Only the groups that hold most: in a module of 100,000 values
-- all groups at all instants would take a gigabyte.
ranked AS (
  SELECT
    counted.module_id, counted.color, counted.kind, counted.name, counted.value_count,
    counted.held_bytes,
    row_number() OVER (
      PARTITION BY counted.module_id, counted.color
      ORDER BY counted.held_bytes DESC, counted.kind, counted.name
    ) AS place
  FROM counted
  WHERE counted.held_bytes > 0
),
found AS (
  SELECT
    ranked.module_id, ranked.color, ranked.kind, ranked.name, ranked.value_count, ranked.held_bytes,
    occupied_peaks.occupied_temp_bytes AS peak_bytes
  FROM ranked
  JOIN occupied_peaks
    ON occupied_peaks.module_id = ranked.module_id
    AND occupied_peaks.color = ranked.color
  WHERE ranked.place <= 20
),
steps AS (
  SELECT
    occupancy_steps.module_id, occupancy_steps.color, occupancy_steps.start_time,
    lead(occupancy_steps.start_time) OVER (
      PARTITION BY occupancy_steps.module_id, occupancy_steps.color
      ORDER BY occupancy_steps.start_time
    ) AS next_time,
    occupancy_steps.occupied_temp_bytes
  FROM (SELECT DISTINCT module_id, color FROM found) AS asked
  JOIN occupancy_steps
    ON occupancy_steps.module_id = asked.module_id
    AND occupancy_steps.color = asked.color
),
-- Only instants above the peak without the group limit the saving.
high_steps AS (
  SELECT
    found.module_id, found.color, found.kind, found.name, steps.start_time, steps.next_time,
    steps.occupied_temp_bytes
  FROM found
  JOIN steps
    ON steps.module_id = found.module_id
    AND steps.color = found.color
    AND steps.occupied_temp_bytes > found.peak_bytes - found.held_bytes
),
span_changes AS (
  SELECT
    spans.module_id, spans.color, spans.kind, spans.name, spans.start_time, spans.free_time,
    spans.size_bytes
  FROM found
  JOIN spans
    ON spans.module_id = found.module_id
    AND spans.color = found.color
    AND spans.kind = found.kind
    AND spans.name = found.name
),
-- Unions of two each: DuckDB prints longer ones with other parentheses after a copy.
value_changes AS (
  SELECT
    module_id, color, kind, name, start_time AS change_time,
    CAST(-size_bytes AS HUGEINT) AS change_bytes
  FROM span_changes
  UNION ALL
  SELECT module_id, color, kind, name, free_time, CAST(size_bytes AS HUGEINT)
  FROM span_changes
),
step_changes AS (
  SELECT
    module_id, color, kind, name, start_time AS change_time,
    CAST(occupied_temp_bytes AS HUGEINT) AS change_bytes
  FROM high_steps
  UNION ALL
  SELECT module_id, color, kind, name, next_time, CAST(0 - occupied_temp_bytes AS HUGEINT)
  FROM high_steps
  WHERE next_time IS NOT NULL
),
changes AS (
  SELECT module_id, color, kind, name, change_time, change_bytes
  FROM value_changes
  UNION ALL
  SELECT module_id, color, kind, name, change_time, change_bytes
  FROM step_changes
),
changed AS (
  SELECT module_id, color, kind, name, change_time, sum(change_bytes) AS change_bytes
  FROM changes
  GROUP BY module_id, color, kind, name, change_time
),
instants AS (
  SELECT
    module_id, color, kind, name,
    sum(change_bytes) OVER (
      PARTITION BY module_id, color, kind, name ORDER BY change_time
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS occupied_bytes
  FROM changed
),
highest AS (
  SELECT module_id, color, kind, name, max(occupied_bytes) AS occupied_bytes
  FROM instants
  GROUP BY module_id, color, kind, name
),
away AS (
  SELECT
    found.module_id, found.color, found.kind, found.name, found.value_count, found.held_bytes,
    found.peak_bytes - highest.occupied_bytes AS away_bytes
  FROM found
  JOIN highest
    ON highest.module_id = found.module_id
    AND highest.color = found.color
    AND highest.kind = found.kind
    AND highest.name = found.name
)
SELECT
  away.module_id, away.color, away.kind, away.name, away.value_count,
  CASE away.kind
    WHEN 'chunk' THEN away.away_bytes // 2
    WHEN 'scores' THEN away.away_bytes // 2
    WHEN 'batch' THEN away.away_bytes // 2
    -- The compiler decides where they are made.
    WHEN 'early' THEN 0
    WHEN 'scan' THEN greatest(away.away_bytes - scans.kept_bytes, 0)
    ELSE greatest(away.away_bytes - blocks.kept_bytes, 0) // 2
  END AS low_saving_bytes,
  CASE away.kind
    WHEN 'chunk' THEN greatest(away.away_bytes, away.held_bytes)
    WHEN 'scores' THEN greatest(away.away_bytes, away.held_bytes)
    WHEN 'batch' THEN away.away_bytes - away.away_bytes // batches.axis_size
    ELSE away.away_bytes
  END AS saving_bytes,
  chunks.reader, chunks.obstacle
FROM away
LEFT JOIN chunks
  ON away.kind = 'chunk'
  AND chunks.module_id = away.module_id
  AND chunks.color = away.color
LEFT JOIN blocks
  ON away.kind = 'block'
  AND blocks.module_id = away.module_id
  AND blocks.color = away.color
  AND blocks.name = away.name
LEFT JOIN batches
  ON away.kind = 'batch'
  AND batches.module_id = away.module_id
  AND batches.color = away.color
LEFT JOIN scans
  ON away.kind = 'scan'
  AND scans.module_id = away.module_id
  AND scans.color = away.color
  AND scans.name = away.name;
COMMENT ON VIEW advised_groups IS
  'One row per group of values that one change removes together (advised_chunk_values; advised_score_values by line; advised_batch_values; advised_early_values by instruction; advised_call_values by function called several times; advised_loop_values by loop), with how far the peak of the current schedule falls without them. Key: module_id, color, kind, name.';
COMMENT ON COLUMN advised_groups.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_groups.color IS 'answered_functions.color.';
COMMENT ON COLUMN advised_groups.kind IS 'chunk, scores, batch, early, block or scan.';
COMMENT ON COLUMN advised_groups.name IS 'For a chunk, a line of the loss that holds bytes at the peak; for scores, the line of their product, "attention" if it is not known; for a block, the function and its file; for a scan, advised_loop_values.name; for a batch, "vmap over" and the size of the axis; for early, the instruction that makes them.';
COMMENT ON COLUMN advised_groups.value_count IS 'Its values that hold bytes at the peak.';
COMMENT ON COLUMN advised_groups.low_saving_bytes IS 'Lower bound of how far the peak falls [bytes]: a loss in two chunks, an attention in two parts, or a vmap in two batches; 0 for early, because the compiler decides where they are made; for a block, half of the saving when one call is recomputed at a time, because what its calls pass on stays; for a scan, without what one round recomputes and what the rounds pass on.';
COMMENT ON COLUMN advised_groups.saving_bytes IS 'Upper bound [bytes]: without any of these values; for a loss and for scores, at least what they hold at the peak; for a batch, when one element of the axis is computed at a time.';
COMMENT ON COLUMN advised_groups.reader IS 'For a chunk, what reads the logits outside of the gradient: advised_chunk_values.reader; else NULL.';
COMMENT ON COLUMN advised_groups.obstacle IS 'For a chunk, why bufdb fit does not do it: advised_chunk_values.obstacle; else NULL.';
