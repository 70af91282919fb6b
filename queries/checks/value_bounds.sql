-- title: Values are inside their allocation and fill it from 0 to its end
-- group: store
--
-- Format section 8, rule 4: only values of temp allocations have an offset other than 0, and the
-- value that reaches furthest ends where the allocation ends. A value has an offset if it has an
-- allocation; XLA aligns it to 16 bytes on CPU and to 64 on GPU, or to more.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH extents AS (
  SELECT
    "values".module_id, "values".allocation_index,
    min("values".offset_bytes) AS begin_bytes,
    max("values".offset_bytes) AS last_begin_bytes,
    max("values".offset_bytes::HUGEINT + "values".size_bytes) AS end_bytes,
    min("values".size_bytes) AS smallest_bytes,
    count(*) - count("values".offset_bytes) AS unplaced_count,
    bit_or("values".offset_bytes) AS offset_bits
  FROM "values"
  GROUP BY "values".module_id, "values".allocation_index
)
SELECT
  extents.module_id,
  'allocation ' || extents.allocation_index || ' (' || allocations.kind || ', '
    || allocations.size_bytes || ' bytes): its values span ' || extents.begin_bytes || ' to '
    || extents.end_bytes || CASE WHEN extents.offset_bits % 64 = 0 THEN '' ELSE ', unaligned' END
    AS finding
FROM extents
JOIN modules ON modules.module_id = extents.module_id
JOIN allocations
  ON allocations.module_id = extents.module_id
  AND allocations.allocation_index = extents.allocation_index
WHERE extents.begin_bytes < 0
  OR extents.smallest_bytes < 0
  OR extents.unplaced_count > 0
  OR extents.offset_bits % CASE modules.platform WHEN 'cpu' THEN 16 WHEN 'gpu' THEN 64 END <> 0
  OR extents.end_bytes <> allocations.size_bytes
  OR (allocations.kind <> 'temp' AND extents.last_begin_bytes > 0)
ORDER BY extents.module_id, extents.allocation_index;
