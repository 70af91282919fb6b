-- title: Recompute costs are of large values, and agree with their shapes
-- group: store
--
-- recompute_costs is computed when a module is stored, from the HLO text. Here it is compared with
-- the buffer files: it has temp values of at least 1/100 of the peak; for a stack that a loop
-- fills, the operations are those of one slice times the slices; and an elementwise instruction
-- that is scheduled by itself takes one per element.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH stored AS (
  SELECT
    recompute_costs.module_id, recompute_costs.value_id, recompute_costs.operation_count,
    "values".size_bytes, allocations.kind,
    memory_sums.fixed_bytes + occupied_peaks.occupied_temp_bytes AS peak_bytes,
    value_origins.slice_count,
    CASE
      WHEN value_origins.origin_kind IS DISTINCT FROM 'stacked'
        AND instructions.opcode IN ('add', 'exponential', 'multiply', 'negate', 'subtract', 'tanh')
        THEN shapes.element_count
    END AS element_count
  FROM recompute_costs
  LEFT JOIN "values"
    ON "values".module_id = recompute_costs.module_id
    AND "values".value_id = recompute_costs.value_id
  LEFT JOIN shapes ON shapes.shape = "values".shape
  LEFT JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
  LEFT JOIN memory_sums
    ON memory_sums.module_id = allocations.module_id
    AND memory_sums.color = allocations.color
  LEFT JOIN occupied_peaks
    ON occupied_peaks.module_id = allocations.module_id
    AND occupied_peaks.color = allocations.color
  LEFT JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  LEFT JOIN value_origins
    ON value_origins.module_id = recompute_costs.module_id
    AND value_origins.value_id = recompute_costs.value_id
)
SELECT
  stored.module_id,
  'value ' || stored.value_id || ': ' || stored.operation_count || ' operations for '
    || coalesce(stored.size_bytes::VARCHAR, 'no') || ' bytes of ' || coalesce(stored.kind, 'nothing')
    || ' with a peak of ' || coalesce(stored.peak_bytes::VARCHAR, 'NULL')
    || coalesce(', slices: ' || stored.slice_count, '')
    || coalesce(', elements: ' || stored.element_count, '') AS finding
FROM stored
WHERE stored.operation_count < 0
  OR stored.kind IS DISTINCT FROM 'temp'
  OR stored.peak_bytes IS NULL
  OR stored.size_bytes::HUGEINT * 100 < stored.peak_bytes
  OR stored.operation_count % stored.slice_count <> 0
  OR stored.operation_count <> stored.element_count
ORDER BY stored.module_id, stored.value_id;
