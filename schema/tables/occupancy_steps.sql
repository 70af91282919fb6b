-- One row per instant at which the occupied temp bytes of a memory space change: a step function. Computed from values and live_ranges. Key: module_id, color, start_time.
CREATE TABLE occupancy_steps (
  module_id BIGINT NOT NULL,
  color BIGINT NOT NULL,
  start_time BIGINT NOT NULL,
  occupied_temp_bytes HUGEINT NOT NULL
);
COMMENT ON TABLE occupancy_steps IS
  'One row per instant at which the occupied temp bytes of a memory space change: a step function. Computed from values and live_ranges. Key: module_id, color, start_time.';
COMMENT ON COLUMN occupancy_steps.module_id IS
  'The module; refers to modules.module_id. A module whose peak is unknown has no row.';
COMMENT ON COLUMN occupancy_steps.color IS
  'Memory space, as in allocations.color.';
COMMENT ON COLUMN occupancy_steps.start_time IS
  'First instant of the step [program order]; it lasts until the next row''s start_time minus 1, the last one until schedule_length. Nothing is occupied before the first row.';
COMMENT ON COLUMN occupancy_steps.occupied_temp_bytes IS
  'Union of the byte ranges of live values in temp allocations [bytes]; shared bytes count once.';
