-- title: The peak is at least the fixed bytes and at most what a device must hold
-- group: store
--
-- By definition of the peak; the occupied temp bytes are at most the temp allocations. A device
-- must hold fixed plus temp bytes, everything except thread-local memory.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  memory_figures.module_id,
  'memory space ' || memory_figures.color || ': peak ' || memory_figures.peak_bytes
    || ', fixed ' || memory_figures.fixed_bytes || ', need ' || memory_figures.need_bytes
    || ', total without thread-local '
    || (memory_figures.total_bytes - memory_figures.thread_local_bytes) AS finding
FROM memory_figures
WHERE memory_figures.peak_bytes > memory_figures.need_bytes
  OR memory_figures.need_bytes
    <> memory_figures.total_bytes - memory_figures.thread_local_bytes
  OR memory_figures.occupied_temp_bytes < 0
ORDER BY memory_figures.module_id, memory_figures.color;
