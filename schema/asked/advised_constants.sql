-- Constants at the peaks of the requested functions, with their lines.
CREATE OR REPLACE VIEW advised_constants AS
SELECT
  allocations.module_id, allocations.color,
  coalesce(
    value_details.own_source, value_details.library_source, value_details.op_name,
    value_details.instruction_name,
    'allocation ' || allocations.allocation_index
  ) AS name,
  allocations.size_bytes AS saving_bytes
FROM answered_functions AS functions
JOIN peak_values
  ON peak_values.module_id = functions.module_id
  AND peak_values.color = functions.color
JOIN allocations
  ON allocations.module_id = peak_values.module_id
  AND allocations.allocation_index = peak_values.allocation_index
LEFT JOIN value_details
  ON value_details.module_id = peak_values.module_id
  AND value_details.value_id = peak_values.value_id
WHERE peak_values.allocation_kind = 'constant'
  AND allocations.size_bytes
    >= coalesce(getvariable('min_ratio')::DOUBLE, 0.01) * functions.peak_bytes;
COMMENT ON VIEW advised_constants IS
  'One row per constant of a program that is held at its peak and takes at least min_ratio of it (query advice). Key: module_id, color, name.';
COMMENT ON COLUMN advised_constants.name IS 'Line of user code, else of a library, that it is attributed to; else its op_name, its instruction, or its allocation.';
COMMENT ON COLUMN advised_constants.saving_bytes IS 'allocations.size_bytes.';
