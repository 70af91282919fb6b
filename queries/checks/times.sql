-- title: Times of an instruction add up
-- group: store
--
-- Of profiles (table instruction_times). The time of all executions is between that of as many
-- shortest ones and that of as many longest ones, and has the time without what ran within them.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  times.module_id,
  'time of ' || times.instruction_name || ' on ' || times.device || ': expected '
    || times.execution_count || ' executions of ' || times.least_ns || ' to ' || times.largest_ns
    || ' ns, found ' || times.total_ns || ' ns, ' || times.self_ns || ' ns of its own, in '
    || times.run_count || ' runs' AS finding
FROM instruction_times AS times
WHERE times.run_count < 1
  OR times.execution_count < 1
  OR times.self_ns NOT BETWEEN 0 AND times.total_ns
  OR times.least_ns < 0
  -- Products of 64 bits may not fit.
  OR times.total_ns NOT BETWEEN times.execution_count::HUGEINT * times.least_ns
    AND times.execution_count::HUGEINT * times.largest_ns
ORDER BY times.module_id, finding;
