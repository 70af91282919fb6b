-- title: What values hold at the peak adds up to the peak
-- group: overview
--
-- The view peak_values says every byte once, so held_bytes of a module and memory space add up to
-- memory_figures.peak_bytes.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH held AS (
  SELECT peak_values.module_id, peak_values.color, sum(peak_values.held_bytes) AS held_bytes
  FROM peak_values
  GROUP BY peak_values.module_id, peak_values.color
)
SELECT
  memory_figures.module_id,
  'memory space ' || memory_figures.color || ': peak ' || memory_figures.peak_bytes
    || ', held ' || coalesce(held.held_bytes, 0) AS finding
FROM memory_figures
LEFT JOIN held
  ON held.module_id = memory_figures.module_id
  AND held.color = memory_figures.color
WHERE memory_figures.peak_bytes <> coalesce(held.held_bytes, 0)
ORDER BY memory_figures.module_id, memory_figures.color;
