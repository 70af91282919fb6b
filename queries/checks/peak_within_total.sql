-- title: The peak is at least what is fixed and at most what a device must hold
-- group: overview
--
-- By definition of the peak; so are the occupied temp bytes at most the temp allocations. What a
-- device must hold, fixed plus temp, is all but thread-local memory.
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
