-- title: Memory that no plan of a program has, and how it is known
-- group: peak
-- engines: duckdb, spark, sail
--
-- A plan has a program's arguments, outputs, temporaries and constants. A process takes more: for
-- each memory profile and log with reports of an allocator, and each device, one row per kind of
-- such memory with what is known of it and where it was read; and for each run what the host holds.
-- A CPU's device memory is the host's.
-- What is not known is NULL, with the reason, and is not small for it.
--
-- In the plan, and so in no row: scratch memory of cuDNN's and cuBLAS's calls, which XLA passes to
-- them as results of custom calls (top-values shows them as u8 or s8 arrays), and collectives'
-- buffers in the default memory space.
--
-- wrong when: host_bytes is of the largest single process of the command, with its libraries and
-- data; the compiler's share of it is not known.
--
-- param run, function, platform, color, module
-- param profile VARCHAR = NULL: Only memory profiles and logs whose name matches this glob.
-- param top_n = 100
--
-- column run_name
-- column profile_name VARCHAR: The memory profile or log; NULL for the host.
-- column device VARCHAR: The device, or the allocator's name in a log; NULL for the host.
-- column kind VARCHAR: code (loaded programs); rest (in use beyond arrays and code: scratch memory
--   of autotuning, rounding, programs that run); collectives (an allocator of their own);
--   outside (of the pool: CUDA's context, NCCL, cuBLAS, cuDNN, Warp's pool, other processes);
--   split (free, but not in the largest free block); host (of the process: compiler, runtime,
--   data).
-- column held_bytes BIGINT: What is known of it, the least where a log rounds it [bytes]; NULL if
--   nothing is.
-- column source VARCHAR: How it was read; NULL if it is not known.
-- column unknown_reason VARCHAR: Why it is not known, and what has it; NULL if it is.
WITH params AS (
  SELECT
    getvariable('function')::VARCHAR AS function,
    getvariable('module')::VARCHAR AS module,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('profile')::VARCHAR AS profile,
    getvariable('color')::VARCHAR AS color,
    coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
accounts AS (
  SELECT
    pools.run_name, pools.profile_name, pools.device, pools.has_profile, pools.code_bytes,
    pools.rest_bytes, pools.collective_bytes, pools.outside_bytes, pools.low_split_bytes,
    lower(pools.device) GLOB 'cpu*' AS is_cpu
  FROM pools
  CROSS JOIN params
  JOIN asked_accounts
    ON asked_accounts.run_name = pools.run_name
    AND asked_accounts.profile_name = pools.profile_name
  WHERE coalesce(params.function, '*') = '*'
    AND coalesce(params.module, '*') = '*'
    AND coalesce(params.platform, '*') = '*'
    AND coalesce(params.color, '0') IN ('0', 'all')
),
found AS (
  SELECT
    accounts.run_name, accounts.profile_name, accounts.device, 'code' AS kind, 1 AS place,
    CASE WHEN NOT accounts.is_cpu THEN accounts.code_bytes END AS held_bytes,
    'the memory profile' AS source,
    CASE
      WHEN accounts.is_cpu THEN 'JAX does not count it on a CPU'
      WHEN accounts.has_profile
        THEN 'the runtime does not know the size of each loaded program'
      ELSE 'a log does not have it: a memory profile does'
    END AS reason
  FROM accounts
  UNION ALL
  SELECT
    accounts.run_name, accounts.profile_name, accounts.device, 'rest' AS kind, 2 AS place,
    accounts.rest_bytes AS held_bytes,
    CASE
      WHEN accounts.code_bytes IS NULL
        THEN 'bytes_in_use of the allocator without arrays, with code'
      ELSE 'bytes_in_use of the allocator without arrays and code'
    END AS source,
    CASE
      WHEN accounts.has_profile THEN 'the device has no statistics of its allocator, as a CPU'
      ELSE 'a log does not have the arrays that are alive: a memory profile does'
    END AS reason
  FROM accounts
  UNION ALL
  SELECT
    accounts.run_name, accounts.profile_name, accounts.device, 'collectives' AS kind, 3 AS place,
    accounts.collective_bytes AS held_bytes,
    'the most that it may take, by the log of the start' AS source,
    'no log has it: a GPU''s process prints it at its start with TF_CPP_MIN_LOG_LEVEL=0' AS reason
  FROM accounts
  WHERE NOT accounts.is_cpu
  UNION ALL
  SELECT
    accounts.run_name, accounts.profile_name, accounts.device, 'outside' AS kind, 4 AS place,
    accounts.outside_bytes AS held_bytes,
    'CUDA''s total without what is free and the pool, in a log' AS source,
    'no log has it: nvidia-smi, or the message of cuda_async when an allocation fails' AS reason
  FROM accounts
  WHERE NOT accounts.is_cpu
  UNION ALL
  SELECT
    accounts.run_name, accounts.profile_name, accounts.device, 'split' AS kind, 5 AS place,
    accounts.low_split_bytes AS held_bytes,
    'what is free without the largest free block, by the allocator' AS source,
    'the allocator does not say what is free in one piece: BFC''s dump in a log does' AS reason
  FROM accounts
  WHERE NOT accounts.is_cpu
  UNION ALL
  SELECT
    runs.run_name, NULL AS profile_name, NULL AS device, 'host' AS kind, 6 AS place,
    max(
      CASE
        WHEN run_labels.label = 'max_host_bytes'
          THEN try_cast(floor(try_cast(run_labels.label_value AS DOUBLE)) AS BIGINT)
      END
    ) AS held_bytes,
    'largest process of the command, by bufdb capture' AS source,
    'the run was not captured, or bufdb capture itself or an earlier command was larger' AS reason
  FROM runs
  CROSS JOIN params
  JOIN asked_runs ON asked_runs.run_name = runs.run_name
  LEFT JOIN run_labels ON run_labels.run_name = runs.run_name
  WHERE params.profile IS NULL
    AND coalesce(params.function, '*') = '*'
    AND coalesce(params.module, '*') = '*'
    AND coalesce(params.platform, '*') = '*'
  GROUP BY runs.run_name
),
ranked AS (
  SELECT
    found.run_name, found.profile_name, found.device, found.kind, found.held_bytes, found.source,
    found.reason,
    row_number() OVER (
      ORDER BY
        found.run_name, found.profile_name NULLS LAST, found.device NULLS LAST, found.place
    ) AS place
  FROM found
)
SELECT
  ranked.run_name, ranked.profile_name, ranked.device, ranked.kind, ranked.held_bytes,
  CASE WHEN ranked.held_bytes IS NOT NULL THEN ranked.source END AS source,
  CASE WHEN ranked.held_bytes IS NULL THEN ranked.reason END AS unknown_reason
FROM ranked
CROSS JOIN params
WHERE ranked.place <= params.top_n
ORDER BY ranked.place;
