-- One row per known memory space of a platform. Edit the names as you like; only the number matters. Key: platform, color.
CREATE TABLE memory_spaces (
  platform VARCHAR NOT NULL,
  color BIGINT NOT NULL,
  memory_space_name VARCHAR NOT NULL
);
COMMENT ON TABLE memory_spaces IS
  'One row per known memory space of a platform. Edit the names as you like; only the number matters. Key: platform, color.';
COMMENT ON COLUMN memory_spaces.platform IS
  'cpu, gpu or tpu.';
COMMENT ON COLUMN memory_spaces.color IS
  'Number of the memory space, as in allocations.color.';
COMMENT ON COLUMN memory_spaces.memory_space_name IS
  'Name that XLA and its profiler use.';
INSERT INTO memory_spaces VALUES
  ('cpu', 0, 'host'),
  ('gpu', 0, 'device'),
  ('gpu', 1, 'collective'),
  ('gpu', 2, 'temp'),
  ('gpu', 5, 'host'),
  ('tpu', 0, 'hbm'),
  ('tpu', 1, 'vmem'),
  ('tpu', 2, 'sync_flag'),
  ('tpu', 3, 'cmem'),
  ('tpu', 4, 'smem'),
  ('tpu', 5, 'host'),
  ('tpu', 6, 'on_chip_scalar'),
  ('tpu', 7, 'sparsecore_private_stack'),
  ('tpu', 8, 'sparsecore_sequencer_flag'),
  ('tpu', 9, 'pinned_hbm'),
  ('tpu', 10, 'sparsecore_tile_flag'),
  ('tpu', 201, 'tile_spmem'),
  ('tpu', 202, 'spmem'),
  ('gpu', 300, 'shared'),
  ('gpu', 301, 'tensor');
