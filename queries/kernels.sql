-- title: Scratch memory of kernels, used of what they may use
-- group: peak
-- engines: duckdb, spark, sail
--
-- A kernel has memory of its own that no arena shows: vector memory (vmem) of a TPU, shared memory
-- of a block on a GPU. One row per kernel of every compilation: custom calls of Pallas, then on a
-- GPU also what XLA compiled itself if it uses shared memory; in both the fullest first, unknown
-- ones last. A kernel that needs too much is not compiled: 'bufdb summary' has the compiler's
-- message, and 'bufdb fit --also vmem' or 'bufdb explain --sweep' what would fit.
--
-- wrong when: used_bytes is what the compiled kernel uses: on TPU the least vmem_limit_bytes that
-- compiles is the same in all kernels that were tried but those that use nothing, which need some
-- KiB. Arrays that XLA itself puts into vmem are not part of it, and take from the same memory.
-- Shared memory that a library reserves in its own kernels does not show, nor what XLA compiled
-- itself where thunk_metadata.txt does not name its thunk.
--
-- param run, function, platform, color, module, top_n = 100
--
-- column run_name, function_name, platform
-- column instruction_name VARCHAR: The kernel's custom call, or the fusion.
-- column target VARCHAR: Target of the custom call, such as tpu_custom_call; NULL for a fusion.
-- column memory_space_name VARCHAR: vmem (TPU), or shared (one block on a GPU).
-- column used_bytes BIGINT: What it uses: blocks in flight, scratch operands, spilled registers
--   [bytes]; NULL if unknown (unknown_reason).
-- column limit_bytes BIGINT: What it may use: vmem_limit_bytes, the compiler's limit where the dump
--   prints it, or what the GPU allows a block [bytes]; NULL if unknown (unknown_reason).
-- column used_ratio DOUBLE: used_bytes as a share of limit_bytes (0 to 1); NULL if one is unknown.
-- column op_name
-- column source
-- column unknown_reason VARCHAR: Why used_bytes is NULL, else why limit_bytes is; NULL if both are
--   known.
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
compilations AS (
  SELECT DISTINCT run_name, function_name, module_key, platform, module_id
  FROM asked_modules
),
ranked AS (
  SELECT
    compilations.run_name,
    coalesce(compilations.function_name, compilations.module_key) AS function_name,
    compilations.platform, kernels.instruction_name, kernels.target, kernels.memory_space_name,
    kernels.used_bytes, kernels.limit_bytes,
    CAST(kernels.used_bytes AS DOUBLE) / nullif(kernels.limit_bytes, 0) AS used_ratio,
    instructions.op_name, instruction_sources.source,
    coalesce(kernels.used_unknown_reason, kernels.limit_unknown_reason) AS unknown_reason,
    row_number() OVER (
      ORDER BY
        CASE WHEN kernels.target IS NULL THEN 1 ELSE 0 END,
        CAST(kernels.used_bytes AS DOUBLE) / nullif(kernels.limit_bytes, 0) DESC NULLS LAST,
        kernels.used_bytes DESC NULLS LAST, compilations.run_name, compilations.module_key,
        kernels.instruction_name
    ) AS place
  FROM compilations
  JOIN kernels ON kernels.module_id = compilations.module_id
  LEFT JOIN instructions
    ON instructions.module_id = kernels.module_id
    AND instructions.instruction_name = kernels.instruction_name
  LEFT JOIN instruction_sources
    ON instruction_sources.module_id = kernels.module_id
    AND instruction_sources.instruction_name = kernels.instruction_name
)
SELECT
  ranked.run_name, ranked.function_name, ranked.platform, ranked.instruction_name, ranked.target,
  ranked.memory_space_name, ranked.used_bytes, ranked.limit_bytes, ranked.used_ratio,
  ranked.op_name, ranked.source, ranked.unknown_reason
FROM ranked
CROSS JOIN params
WHERE ranked.place <= params.top_n
ORDER BY ranked.place;
