-- title: Values that share bytes are not live together, except at an instant of handover
-- group: store
--
-- Format section 8, rule 10. Comparing all pairs would be quadratic, so a segment tree over time
-- finds the candidates: a live range is cut into at most two spans per level of the tree; values
-- with the same span must not share bytes, nor may a value share bytes with one whose span is
-- within its own. Both show in one pass over the values of a span in order of their offset. Times
-- are doubled, so that a range from 3 to 5 is the open interval (6, 10) and adjacent ones do not
-- meet. The contexts of asynchronous calls (from index {2}) may share bytes with each other: XLA
-- gives the scratch of calls on SparseCore one place, even if they overlap (format section 7.3).
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH scratch AS (
  SELECT "values".module_id, "values".value_id
  FROM "values"
  SEMI JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
    AND (instructions.opcode GLOB '*-start' OR instructions.opcode GLOB '*-update')
    AND instructions.opcode <> 'copy-start'
  WHERE "values".shape_index GLOB '{[2-9]*' OR "values".shape_index GLOB '{1[0-9]*'
),
boxes AS (
  SELECT
    "values".module_id, "values".allocation_index, "values".value_id,
    "values".offset_bytes AS begin_bytes,
    "values".offset_bytes::HUGEINT + "values".size_bytes AS end_bytes,
    live_ranges.start_time, live_ranges.end_time,
    scratch.value_id IS NOT NULL AS is_scratch,
    CASE
      WHEN live_ranges.start_time < live_ranges.end_time THEN 2 * live_ranges.start_time + 1
      ELSE 2 * live_ranges.start_time
    END AS first_instant,
    CASE
      WHEN live_ranges.start_time < live_ranges.end_time THEN 2 * live_ranges.end_time
      ELSE 2 * live_ranges.start_time + 1
    END AS end_instant
  FROM "values"
  JOIN live_ranges
    ON live_ranges.module_id = "values".module_id
    AND live_ranges.value_id = "values".value_id
  LEFT JOIN scratch
    ON scratch.module_id = "values".module_id
    AND scratch.value_id = "values".value_id
  WHERE "values".size_bytes > 0
    AND live_ranges.start_time >= 0
    AND live_ranges.start_time <= live_ranges.end_time
),
levels AS (
  SELECT level, 1::BIGINT << level AS width
  FROM (SELECT unnest(range(40)) AS level) AS numbers
  WHERE (1::BIGINT << level) <= 2 * (SELECT coalesce(max(end_instant), 0) FROM boxes)
),
edges AS (
  SELECT
    boxes.module_id, boxes.allocation_index, boxes.value_id, boxes.begin_bytes, boxes.end_bytes,
    levels.level,
    (boxes.first_instant + levels.width - 1) // levels.width AS first_inner,
    boxes.end_instant // levels.width AS end_inner,
    boxes.first_instant // levels.width AS first_outer,
    (boxes.end_instant - 1) // levels.width AS last_outer
  FROM boxes
  CROSS JOIN levels
),
spans AS (
  SELECT module_id, allocation_index, value_id, begin_bytes, end_bytes, level, first_inner AS span
  FROM edges
  WHERE first_inner < end_inner AND first_inner % 2 = 1
  UNION ALL
  SELECT module_id, allocation_index, value_id, begin_bytes, end_bytes, level, end_inner - 1 AS span
  FROM edges
  WHERE first_inner < end_inner AND end_inner % 2 = 1
),
used_spans AS (
  SELECT DISTINCT module_id, allocation_index, level, span FROM spans
),
within AS (
  SELECT module_id, allocation_index, value_id, begin_bytes, end_bytes, level, first_outer AS span
  FROM edges
  WHERE first_outer < first_inner
  UNION ALL
  SELECT module_id, allocation_index, value_id, begin_bytes, end_bytes, level, last_outer AS span
  FROM edges
  WHERE last_outer >= end_inner AND (last_outer <> first_outer OR first_outer >= first_inner)
),
members AS (
  SELECT
    spans.module_id, spans.allocation_index, spans.level, spans.span, spans.value_id,
    spans.begin_bytes, spans.end_bytes, spans.end_bytes AS own_end
  FROM spans
  UNION ALL
  SELECT
    within.module_id, within.allocation_index, within.level, within.span, within.value_id,
    within.begin_bytes, within.end_bytes,
    NULL AS own_end
  FROM within
  JOIN used_spans
    ON used_spans.module_id = within.module_id
    AND used_spans.allocation_index = within.allocation_index
    AND used_spans.level = within.level
    AND used_spans.span = within.span
),
swept AS (
  SELECT
    module_id,
    allocation_index,
    value_id,
    begin_bytes,
    own_end,
    max(end_bytes) OVER below AS any_end,
    max(own_end) OVER below AS spanning_end
  FROM members
  WINDOW below AS (
    PARTITION BY module_id, allocation_index, level, span
    ORDER BY begin_bytes, value_id
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  )
),
candidates AS (
  SELECT DISTINCT module_id, allocation_index, value_id
  FROM swept
  WHERE begin_bytes < CASE WHEN own_end IS NULL THEN spanning_end ELSE any_end END
)
SELECT
  boxes.module_id,
  'allocation ' || boxes.allocation_index || ': values ' || others.value_id || ' (live '
    || others.start_time || '-' || others.end_time || ') and ' || boxes.value_id || ' (live '
    || boxes.start_time || '-' || boxes.end_time || ') share bytes' AS finding
FROM candidates
JOIN boxes
  ON boxes.module_id = candidates.module_id
  AND boxes.value_id = candidates.value_id
JOIN boxes AS others
  ON others.module_id = boxes.module_id
  AND others.allocation_index = boxes.allocation_index
WHERE others.value_id <> boxes.value_id
  AND NOT (others.is_scratch AND boxes.is_scratch)
  AND others.begin_bytes <= boxes.begin_bytes
  AND others.end_bytes > boxes.begin_bytes
  AND others.start_time < boxes.end_time
  AND boxes.start_time < others.end_time
ORDER BY boxes.module_id, boxes.allocation_index, boxes.value_id, others.value_id;
