-- title: Every part of an entry parameter has one allocation of its own
-- group: store
--
-- Format section 8, rule 13.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  allocations.module_id,
  'parameter ' || allocations.parameter_number || ' at ' || allocations.parameter_shape_index
    || ' has ' || count(*) || ' allocations' AS finding
FROM allocations
WHERE allocations.parameter_number IS NOT NULL
GROUP BY
  allocations.module_id, allocations.parameter_number, allocations.parameter_shape_index
HAVING count(*) > 1
UNION ALL
SELECT
  allocations.module_id,
  'expected parameters 0 to ' || max(allocations.parameter_number) || ', found '
    || count(DISTINCT allocations.parameter_number) FILTER (
      WHERE allocations.parameter_shape_index = '{}'
    ) AS finding
FROM allocations
WHERE allocations.parameter_number IS NOT NULL
GROUP BY allocations.module_id
HAVING count(DISTINCT allocations.parameter_number) FILTER (
    WHERE allocations.parameter_shape_index = '{}'
  ) <> max(allocations.parameter_number) + 1
ORDER BY module_id, finding;
