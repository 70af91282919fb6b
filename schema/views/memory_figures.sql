-- One row per module and memory space: all its memory figures.
CREATE OR REPLACE VIEW memory_figures AS
WITH needs AS (
  SELECT
    memory_sums.module_id, memory_sums.color, memory_sums.argument_bytes, memory_sums.output_bytes,
    memory_sums.alias_bytes, memory_sums.temp_bytes, memory_sums.constant_bytes,
    memory_sums.thread_local_bytes, memory_sums.total_bytes, memory_sums.fixed_bytes,
    -- Of a message temp_bytes alone may be unknown, and is in fixed_bytes then.
    memory_sums.fixed_bytes + coalesce(memory_sums.temp_bytes, 0) AS need_bytes
  FROM memory_sums
),
-- No window function: Sail cannot plan its sort below so many joins.
mosts AS (
  SELECT
    needs.module_id,
    max(CASE WHEN needs.color = 0 AND coalesce(needs.need_bytes, 1) > 0 THEN 0 END)
      AS device_color,
    max(needs.need_bytes) AS most_bytes
  FROM needs
  GROUP BY needs.module_id
),
device_memories AS (
  SELECT
    needs.module_id,
    coalesce(
      max(mosts.device_color),
      min(CASE WHEN needs.need_bytes = mosts.most_bytes THEN needs.color END),
      min(needs.color)
    ) AS color
  FROM needs
  JOIN mosts ON mosts.module_id = needs.module_id
  GROUP BY needs.module_id
),
sums AS (
  SELECT
    needs.module_id, needs.color, needs.argument_bytes, needs.output_bytes, needs.alias_bytes,
    needs.temp_bytes, needs.constant_bytes, needs.thread_local_bytes, needs.total_bytes,
    needs.fixed_bytes, needs.need_bytes,
    needs.color = device_memories.color AS is_device_memory
  FROM needs
  JOIN device_memories ON device_memories.module_id = needs.module_id
)
SELECT
  modules.run_name, modules.module_id, modules.module_key, modules.module_name,
  modules.function_name, modules.platform, sums.color, memory_spaces.memory_space_name,
  sums.is_device_memory, sums.argument_bytes, sums.output_bytes, sums.alias_bytes, sums.temp_bytes,
  sums.constant_bytes, sums.thread_local_bytes, sums.total_bytes, sums.fixed_bytes, sums.need_bytes,
  occupied_peaks.occupied_temp_bytes, occupied_peaks.peak_time,
  sums.fixed_bytes + occupied_peaks.occupied_temp_bytes AS peak_bytes,
  sums.temp_bytes - occupied_peaks.occupied_temp_bytes AS fragmentation_bytes,
  occupied_peaks.naive_live_bytes,
  CASE
    WHEN occupied_peaks.module_id IS NULL THEN coalesce(
      modules.peak_unknown_reason,
      CASE
        WHEN sums.module_id IS NULL THEN 'the dump has no allocations'
        ELSE 'no peak is stored for this memory space'
      END
    )
  END AS peak_unknown_reason,
  modules.entry_hash, modules.shapes_name
FROM modules
LEFT JOIN sums ON sums.module_id = modules.module_id
LEFT JOIN memory_spaces
  ON memory_spaces.platform = modules.platform
  AND memory_spaces.color = sums.color
LEFT JOIN occupied_peaks
  ON occupied_peaks.module_id = sums.module_id
  AND occupied_peaks.color = sums.color;
COMMENT ON VIEW memory_figures IS
  'One row per module and memory space in which it has an allocation: all its memory figures; a module without allocations has one row with NULL for color and figures. Key: module_id, color.';
COMMENT ON COLUMN memory_figures.color IS 'Memory space: allocations.color; NULL for a module without allocations.';
COMMENT ON COLUMN memory_figures.memory_space_name IS 'Name of the memory space: memory_spaces; NULL if unknown.';
COMMENT ON COLUMN memory_figures.is_device_memory IS 'Whether it is the memory of the device, which answers are about unless the variable color selects another: color 0 or, if the module needs nothing there, the memory space with the largest need_bytes (then the lowest color). One per module; NULL for a module without allocations.';
COMMENT ON COLUMN memory_figures.need_bytes IS 'What a device must hold [bytes]: what XLA reserves there, fixed_bytes plus temp_bytes, that is, all allocations except thread-local ones, donated bytes once. At least the peak; the difference is holes in temp allocations (fragmentation_bytes). Known even if the peak is not; NULL where the sums are. For an out-of-memory message without the size of temporaries, its total.';
COMMENT ON COLUMN memory_figures.occupied_temp_bytes IS 'Most bytes of temp allocations occupied at one instant [bytes]: occupied_peaks; NULL if the peak is unknown.';
COMMENT ON COLUMN memory_figures.peak_time IS 'First instant of the peak [program order]: occupied_peaks.peak_time; NULL if the peak is unknown.';
COMMENT ON COLUMN memory_figures.peak_bytes IS 'The peak: fixed_bytes plus occupied_temp_bytes [bytes]; NULL if the peak is unknown.';
COMMENT ON COLUMN memory_figures.fragmentation_bytes IS 'temp_bytes minus occupied_temp_bytes [bytes]: temp space that is not occupied even at the peak; NULL if the peak is unknown.';
COMMENT ON COLUMN memory_figures.naive_live_bytes IS 'Largest sum of the sizes of all live values [bytes]: overcounts, because shared bytes count once per value; NULL if the peak is unknown.';
COMMENT ON COLUMN memory_figures.peak_unknown_reason IS 'Why the peak is unknown: modules.peak_unknown_reason; NULL if it is known.';
