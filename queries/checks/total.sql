-- title: The allocations add up to "Total bytes used"
-- group: store
--
-- Format section 8, rule 5: modulo 2^64, including thread-local and constant allocations.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  modules.module_id,
  'expected ' || modules.reported_total_bytes || ' bytes, found '
    || wrapped_int64(coalesce(sum(allocations.size_bytes), 0)) AS finding
FROM modules
LEFT JOIN allocations ON allocations.module_id = modules.module_id
WHERE modules.reported_total_bytes IS NOT NULL
GROUP BY modules.module_id, modules.reported_total_bytes
HAVING wrapped_int64(coalesce(sum(allocations.size_bytes), 0)) <> modules.reported_total_bytes
ORDER BY modules.module_id;
