-- Values of temp allocations at the peak that a change of one line would remove.
CREATE OR REPLACE VIEW advised_items AS
WITH held AS (
  SELECT
    values_held.module_id, values_held.color, values_held.value_id, values_held.held_bytes,
    coalesce(value_sources.source_line, value_sources.op_name, value_details.instruction_name)
      AS name,
    savings.saving_bytes, costs.operation_count, functions.platform,
    gathered_values.low_saving_bytes AS gather_low_saving_bytes,
    gathered_values.saving_bytes AS gather_saving_bytes,
    coalesce(value_details.opcode IN ('copy', 'copy-start', 'copy-done'), FALSE) AS is_copy,
    gathered_values.value_id IS NOT NULL AS is_gathered
  FROM answered_functions AS functions
  JOIN asked_peak_values AS values_held
    ON values_held.module_id = functions.module_id
    AND values_held.color = functions.color
  JOIN peak_savings AS savings
    ON savings.module_id = values_held.module_id
    AND savings.color = values_held.color
    AND savings.value_id = values_held.value_id
  JOIN value_details
    ON value_details.module_id = values_held.module_id
    AND value_details.value_id = values_held.value_id
  LEFT JOIN gathered_values
    ON gathered_values.module_id = values_held.module_id
    AND gathered_values.value_id = values_held.value_id
  JOIN value_sources
    ON value_sources.module_id = values_held.module_id
    AND value_sources.value_id
      = coalesce(gathered_values.result_value_id, values_held.value_id)
  LEFT JOIN recompute_costs AS costs
    ON costs.module_id = values_held.module_id
    AND costs.value_id = values_held.value_id
),
idle AS (
  SELECT
    idle_values.module_id, idle_values.value_id, idle_values.is_stack, idle_values.is_layer_input,
    coalesce(idle_values.is_cheap, FALSE) AS is_cheap, idle_values.is_late,
    idle_values.kept_bytes, idle_values.low_saving_bytes, idle_values.saving_bytes,
    idle_values.offload_kept_bytes, idle_values.offload_low_saving_bytes,
    idle_values.offload_saving_bytes,
    idle_values.is_stack
      OR idle_values.lifetime_ratio
        >= coalesce(getvariable('min_lifetime_ratio')::DOUBLE, 0.1) AS is_long,
    coalesce(idle_values.is_forward, TRUE) AS is_forward
  FROM answered_idle_values AS idle_values
),
twins AS (
  SELECT copy_details.module_id, copy_details.value_id
  FROM copy_details
  JOIN answered_functions AS functions
    ON functions.module_id = copy_details.module_id
    AND functions.color = copy_details.color
  WHERE copy_details.is_avoidable
),
idle_items AS (
  SELECT
    held.module_id, held.color, held.value_id, held.name, held.held_bytes, held.saving_bytes,
    held.operation_count, idle.kept_bytes, idle.low_saving_bytes AS recompute_low_saving_bytes,
    idle.saving_bytes AS recompute_saving_bytes, idle.offload_kept_bytes,
    idle.offload_low_saving_bytes, idle.offload_saving_bytes,
    CASE
      WHEN idle.is_stack AND NOT idle.is_layer_input THEN 'residual'
      WHEN idle.is_late THEN 'late_free'
      WHEN NOT idle.is_long OR NOT idle.is_forward OR held.platform = 'cpu' OR held.is_copy
        THEN NULL
      WHEN idle.is_cheap AND NOT idle.is_layer_input THEN 'recompute'
      WHEN held.color = 0 THEN 'offload'
    END AS kind
  FROM held
  JOIN idle ON idle.module_id = held.module_id AND idle.value_id = held.value_id
),
other_items AS (
  SELECT
    held.module_id, held.color, held.value_id, held.name, held.held_bytes, held.saving_bytes,
    held.gather_low_saving_bytes, held.gather_saving_bytes,
    f32_values.saving_bytes AS f32_saving_bytes,
    CASE
      WHEN held.is_gathered THEN 'gather'
      WHEN twins.value_id IS NOT NULL THEN 'copy'
      WHEN f32_values.bf16_ratio >= coalesce(getvariable('min_bf16_ratio')::DOUBLE, 0.1)
          AND NOT f32_values.is_kept_wide
        THEN 'dtype'
    END AS kind
  FROM held
  LEFT JOIN twins ON twins.module_id = held.module_id AND twins.value_id = held.value_id
  LEFT JOIN answered_f32_values AS f32_values
    ON f32_values.module_id = held.module_id
    AND f32_values.color = held.color
    AND f32_values.value_id = held.value_id
),
items AS (
  SELECT
    module_id, color, value_id, name, held_bytes, kind, operation_count,
    CASE kind WHEN 'recompute' THEN kept_bytes WHEN 'offload' THEN offload_kept_bytes ELSE 0 END
      AS kept_bytes,
    CASE kind
      WHEN 'late_free' THEN saving_bytes
      WHEN 'offload' THEN offload_low_saving_bytes
      ELSE recompute_low_saving_bytes
    END AS low_saving_bytes,
    CASE kind
      WHEN 'late_free' THEN saving_bytes
      WHEN 'offload' THEN offload_saving_bytes
      ELSE recompute_saving_bytes
    END AS saving_bytes
  FROM idle_items
  UNION ALL
  SELECT
    module_id, color, value_id, name, held_bytes, kind, NULL AS operation_count, 0 AS kept_bytes,
    CASE kind
      WHEN 'gather' THEN gather_low_saving_bytes
      WHEN 'dtype' THEN f32_saving_bytes
      ELSE saving_bytes
    END AS low_saving_bytes,
    CASE kind
      WHEN 'gather' THEN gather_saving_bytes
      WHEN 'dtype' THEN f32_saving_bytes
      ELSE saving_bytes
    END AS saving_bytes
  FROM other_items
)
SELECT
  items.module_id, items.color, items.value_id, items.name, items.held_bytes,
  items.low_saving_bytes, items.saving_bytes, items.operation_count, items.kept_bytes, items.kind,
  row_number() OVER (
    PARTITION BY items.module_id, items.color, items.kind, items.name
    ORDER BY items.low_saving_bytes DESC, items.saving_bytes DESC, items.value_id
  ) AS place
FROM items
WHERE items.kind IS NOT NULL;
COMMENT ON VIEW advised_items IS
  'One row per value of a temp allocation at the peak of a requested function (answered_functions) and kind of advice for it: residual, late_free, recompute or offload (answered_idle_values), gather (gathered_values), copy (copy_details) or dtype (answered_f32_values). Reads the variables min_lifetime_ratio and min_bf16_ratio of the query advice. Key: module_id, color, value_id, kind.';
COMMENT ON COLUMN advised_items.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_items.color IS 'answered_functions.color.';
COMMENT ON COLUMN advised_items.value_id IS 'values.value_id.';
COMMENT ON COLUMN advised_items.name IS 'Its line: value_sources.source_line; its op_name or instruction if no line is known.';
COMMENT ON COLUMN advised_items.held_bytes IS 'asked_peak_values.held_bytes [bytes].';
COMMENT ON COLUMN advised_items.low_saving_bytes IS 'Lower bound of how far the highest peak falls [bytes]; NULL if it holds nothing there.';
COMMENT ON COLUMN advised_items.saving_bytes IS 'Upper bound [bytes]; NULL where low_saving_bytes is.';
COMMENT ON COLUMN advised_items.operation_count IS 'recompute_costs.operation_count [operations] for residual, late_free, recompute and offload; NULL if unknown, and for other kinds.';
COMMENT ON COLUMN advised_items.kept_bytes IS 'What stays on the device instead [bytes], for recompute and offload; 0 for other kinds.';
COMMENT ON COLUMN advised_items.kind IS 'residual, late_free, recompute, offload, gather, copy or dtype.';
COMMENT ON COLUMN advised_items.place IS 'Rank among those of the same kind and name by low_saving_bytes, largest first.';
