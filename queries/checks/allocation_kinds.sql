-- title: Every allocation has one role, and one of them holds the result
-- group: store
--
-- Format section 8, rule 6. A temp allocation has none of the other flags. Before 2019-12 dumps
-- print neither shapes nor the result. The head of the HLO text also has the shape of the result,
-- with layouts.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  allocations.module_id,
  'allocation ' || allocations.allocation_index || ': its flags do not make it a '
    || allocations.kind AS finding
FROM allocations
WHERE allocations.kind <> CASE
    WHEN allocations.is_constant THEN 'constant'
    WHEN allocations.is_thread_local THEN 'thread_local'
    WHEN allocations.parameter_number IS NOT NULL AND allocations.is_maybe_live_out
      THEN 'donated_parameter'
    WHEN allocations.parameter_number IS NOT NULL THEN 'parameter'
    WHEN allocations.is_maybe_live_out THEN 'output'
    ELSE 'temp'
  END
  OR allocations.is_constant::INTEGER + allocations.is_thread_local::INTEGER
    + allocations.is_preallocated_temp::INTEGER
    + (allocations.parameter_number IS NOT NULL OR allocations.is_maybe_live_out)::INTEGER > 1
UNION ALL
SELECT
  allocations.module_id,
  'expected one allocation with an output shape, found ' || count(allocations.output_shape)
    AS finding
FROM allocations
JOIN modules ON modules.module_id = allocations.module_id
GROUP BY allocations.module_id, modules.format_era
HAVING count(allocations.output_shape) > 1
  OR (
    count(allocations.output_shape) = 0
    AND (modules.format_era <> 'A' OR count(allocations.parameter_shape) > 0)
  )
UNION ALL
SELECT
  allocations.module_id,
  'allocation ' || allocations.allocation_index || ': output shape '
    || left(allocations.output_shape, 80) || ', by the HLO text '
    || left(modules.entry_computation_layout, 300) AS finding
FROM allocations
JOIN modules ON modules.module_id = allocations.module_id
WHERE regexp_replace(allocations.output_shape, '/\*.*?\*/', '', 'g') <> regexp_replace(
    regexp_extract(modules.entry_computation_layout, '->(.*)$', 1),
    '\{[^{}]*\}|/\*.*?\*/|\}$', '', 'g'
  )
ORDER BY module_id, finding;
