-- title: Allocations are numbered 0, 1, 2, … without gaps
-- group: store
--
-- Format section 8, rule 1.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  allocations.module_id,
  'expected allocations 0 to ' || (count(*) - 1) || ', found ' || count(DISTINCT
    allocations.allocation_index) || ' from ' || min(allocations.allocation_index) || ' to '
    || max(allocations.allocation_index) AS finding
FROM allocations
GROUP BY allocations.module_id
HAVING min(allocations.allocation_index) <> 0
  OR max(allocations.allocation_index) <> count(*) - 1
  OR count(DISTINCT allocations.allocation_index) <> count(*)
ORDER BY allocations.module_id;
