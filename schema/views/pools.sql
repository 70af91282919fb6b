-- One row per memory profile or log and device with an account of its memory: what its allocator may take, holds and has free.
CREATE OR REPLACE VIEW pools AS
WITH collectives AS (
  SELECT
    allocator_statistics.run_name, allocator_statistics.profile_name,
    regexp_extract(allocator_statistics.device, '[0-9]+') AS device_number,
    max(CASE WHEN statistic_name = 'bytes_limit' THEN statistic_value END) AS limit_bytes
  FROM allocator_statistics
  WHERE starts_with(allocator_statistics.device, 'GPU_collectivememory_')
  GROUP BY
    allocator_statistics.run_name, allocator_statistics.profile_name,
    regexp_extract(allocator_statistics.device, '[0-9]+')
),
devices AS (
  SELECT live_sums.run_name, live_sums.profile_name, live_sums.device
  FROM live_sums
  UNION
  SELECT allocator_figures.run_name, allocator_figures.profile_name, allocator_figures.device
  FROM allocator_figures
),
accounts AS (
  SELECT
    devices.run_name, devices.profile_name, devices.device,
    live_profiles.run_name IS NOT NULL AS has_profile,
    coalesce(live_profiles.limit_bytes, statistics.limit_bytes) AS limit_bytes,
    CASE
      WHEN live_profiles.limit_bytes IS NOT NULL THEN 'bufdb.watch'
      WHEN statistics.limit_bytes IS NOT NULL THEN 'allocator'
    END AS limit_source,
    CASE WHEN live_profiles.run_name IS NOT NULL THEN coalesce(alive.total_bytes, 0) END
      AS alive_bytes,
    live_profiles.code_bytes,
    coalesce(
      statistics.low_used_bytes,
      CASE
        WHEN live_profiles.run_name IS NOT NULL
          THEN coalesce(alive.total_bytes, 0) + coalesce(live_profiles.code_bytes, 0)
      END
    ) AS low_used_bytes,
    coalesce(
      statistics.used_bytes,
      CASE
        WHEN live_profiles.run_name IS NOT NULL
          THEN coalesce(alive.total_bytes, 0) + live_profiles.code_bytes
      END
    ) AS used_bytes,
    statistics.low_used_bytes - coalesce(alive.total_bytes, 0)
      - coalesce(live_profiles.code_bytes, 0) AS rest_bytes,
    statistics.low_pool_bytes, statistics.pool_bytes, statistics.peak_used_bytes,
    statistics.low_block_bytes AS low_largest_bytes, statistics.block_bytes AS largest_bytes,
    coalesce(statistics.requested_bytes, live_profiles.requested_bytes) AS requested_bytes,
    collectives.limit_bytes AS collective_bytes, statistics.device_total_bytes,
    statistics.device_total_bytes - statistics.device_free_bytes - statistics.pool_bytes
      AS outside_bytes,
    statistics.low_free_chunk_bytes, statistics.free_chunk_bytes
  FROM devices
  LEFT JOIN live_profiles
    ON live_profiles.run_name = devices.run_name
    AND live_profiles.profile_name = devices.profile_name
  LEFT JOIN allocator_figures AS statistics
    ON statistics.run_name = devices.run_name
    AND statistics.profile_name = devices.profile_name
    AND statistics.device = devices.device
  LEFT JOIN live_sums AS alive
    ON alive.run_name = devices.run_name
    AND alive.profile_name = devices.profile_name
    AND alive.device = devices.device
  LEFT JOIN collectives
    ON collectives.run_name = devices.run_name
    AND collectives.profile_name = devices.profile_name
    AND collectives.device_number = regexp_extract(devices.device, '([0-9]+)[^0-9]*$', 1)
)
SELECT
  accounts.run_name, accounts.profile_name, accounts.device, accounts.has_profile,
  accounts.limit_bytes, accounts.limit_source, accounts.alive_bytes, accounts.code_bytes,
  CASE
    WHEN accounts.has_profile AND accounts.rest_bytes IS NOT NULL
      THEN greatest(accounts.rest_bytes, 0)
  END AS rest_bytes,
  accounts.low_used_bytes, accounts.used_bytes,
  -- greatest() has no NULL of its arguments.
  CASE
    WHEN accounts.limit_bytes - accounts.used_bytes IS NOT NULL
      THEN greatest(accounts.limit_bytes - accounts.used_bytes, 0)
  END AS low_free_bytes,
  CASE
    WHEN accounts.limit_bytes - accounts.low_used_bytes IS NOT NULL
      THEN greatest(accounts.limit_bytes - accounts.low_used_bytes, 0)
  END AS free_bytes,
  CASE
    WHEN accounts.low_largest_bytes IS NOT NULL THEN greatest(accounts.low_largest_bytes, 0)
  END AS low_block_bytes,
  CASE
    WHEN accounts.limit_bytes IS NULL OR accounts.low_used_bytes IS NULL
      THEN accounts.largest_bytes
    WHEN accounts.largest_bytes IS NULL OR accounts.low_pool_bytes IS NULL
      THEN greatest(accounts.limit_bytes - accounts.low_used_bytes, 0)
    -- What the pool may still grow by, if it grows.
    ELSE greatest(accounts.largest_bytes, accounts.limit_bytes - accounts.low_pool_bytes)
  END AS block_bytes,
  accounts.pool_bytes, accounts.peak_used_bytes, accounts.requested_bytes,
  accounts.collective_bytes, accounts.device_total_bytes, accounts.outside_bytes,
  CASE
    WHEN coalesce(
        accounts.low_free_chunk_bytes, accounts.limit_bytes - accounts.used_bytes
      ) - accounts.largest_bytes IS NOT NULL
      THEN greatest(
        coalesce(accounts.low_free_chunk_bytes, accounts.limit_bytes - accounts.used_bytes)
          - accounts.largest_bytes,
        0
      )
  END AS low_split_bytes,
  CASE
    WHEN coalesce(
        accounts.free_chunk_bytes, accounts.limit_bytes - accounts.low_used_bytes
      ) - accounts.low_largest_bytes IS NOT NULL
      THEN greatest(
        coalesce(accounts.free_chunk_bytes, accounts.limit_bytes - accounts.low_used_bytes)
          - accounts.low_largest_bytes,
        0
      )
  END AS split_bytes
FROM accounts;
COMMENT ON VIEW pools IS
  'One row per memory profile or log and device with an account of its memory: what its allocator may take, holds and has free, from live_sums and allocator_figures; asked_accounts has the one that describes each process. Key: run_name, profile_name, device.';
COMMENT ON COLUMN pools.run_name IS 'The run: runs.run_name.';
COMMENT ON COLUMN pools.profile_name IS 'The profile or log: allocator_statistics.profile_name.';
COMMENT ON COLUMN pools.device IS 'The device, or the allocator''s name in a log: allocator_statistics.device.';
COMMENT ON COLUMN pools.has_profile IS 'Whether there is a memory profile (live_profiles); FALSE for a log alone, which does not say what arrays are alive.';
COMMENT ON COLUMN pools.limit_bytes IS 'Most that the allocator may take [bytes]: as bufdb.watch was given it, else bytes_limit of the allocator, which is its share of the device''s memory; NULL if neither is known. Of cuda_async it is what its pool keeps, and it may take more.';
COMMENT ON COLUMN pools.limit_source IS 'Where limit_bytes is from: bufdb.watch or allocator; NULL if it is not known.';
COMMENT ON COLUMN pools.alive_bytes IS 'Arrays that are alive [bytes]: sum of live_arrays.total_bytes; NULL without a profile.';
COMMENT ON COLUMN pools.code_bytes IS 'Code of loaded programs [bytes]: live_profiles.code_bytes; NULL if it is not known.';
COMMENT ON COLUMN pools.rest_bytes IS 'In use beyond arrays and code, with code whose size is not known [bytes]; NULL if the allocator does not say what is in use, or without a profile.';
COMMENT ON COLUMN pools.low_used_bytes IS 'The least that is in use [bytes]: bytes_in_use of the allocator; without it arrays and code, as far as known. NULL for a log that does not say.';
COMMENT ON COLUMN pools.used_bytes IS 'The most that is in use [bytes]; NULL if the size of the code is not known either.';
COMMENT ON COLUMN pools.low_free_bytes IS 'limit_bytes minus used_bytes [bytes], not below 0.';
COMMENT ON COLUMN pools.free_bytes IS 'limit_bytes minus low_used_bytes [bytes], not below 0: the most that is free.';
COMMENT ON COLUMN pools.low_block_bytes IS 'The least that is free in one piece [bytes]: largest_free_block_bytes of the allocator; NULL if it does not say.';
COMMENT ON COLUMN pools.block_bytes IS 'The most that may be had in one piece [bytes]: the largest free block, or what the pool may still grow by; everything that is free if the allocator does not say. NULL if what is free is not known either.';
COMMENT ON COLUMN pools.pool_bytes IS 'What the allocator has from the device [bytes]: its pool; NULL if it does not say.';
COMMENT ON COLUMN pools.peak_used_bytes IS 'Most that was in use at one time [bytes]; NULL if it does not say.';
COMMENT ON COLUMN pools.requested_bytes IS 'What there was no room for [bytes]: of the allocator, else of the error; NULL if nothing failed.';
COMMENT ON COLUMN pools.collective_bytes IS 'Most that the allocator of memory for collectives may take, in addition to limit_bytes [bytes]; NULL if no log has it.';
COMMENT ON COLUMN pools.device_total_bytes IS 'Memory of the whole device, by CUDA [bytes]; NULL if no log has it.';
COMMENT ON COLUMN pools.outside_bytes IS 'What of the device is in use outside of the pool [bytes]: CUDA''s context, NCCL, cuBLAS and cuDNN, and other processes; NULL if no log has what the device has free.';
COMMENT ON COLUMN pools.low_split_bytes IS 'The least that is free but not in the largest free block [bytes], not below 0; NULL if it is not known.';
COMMENT ON COLUMN pools.split_bytes IS 'The most that is free but not in the largest free block [bytes]: of the free pieces of the pool, else of free_bytes; NULL if the allocator does not say how large that block is.';
