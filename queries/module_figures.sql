-- title: All memory figures of every module, by memory space
-- group: store
-- engines: duckdb, spark, sail
--
-- One row per module and memory space, unknown peaks first, then largest peak first. With color =
-- 'all', shows all spaces: on a TPU space 0 is the large memory (HBM) and space 1 the fast one
-- (VMEM), on a GPU space 5 is the host. Names come from the table memory_spaces, which you can
-- edit.
--
-- The peak by occupied bytes, XLA's printed peak, the naive sum, and the sums of JAX's
-- memory_analysis() differ by design. peak_bytes counts what is held for the whole run plus the
-- bytes of temp allocations that live values occupy, including padding, shared bytes once.
-- printed_peak_bytes is the sum of XLA's peak listing: bare shape sizes of the values live at an
-- instant that XLA chose, shared bytes counted once per value, all memory spaces together; so it
-- can be above or below the peak. naive_live_bytes adds the sizes of all live values, shared bytes
-- once per value. In memory_analysis(), both arguments and outputs count donated buffers.
--
-- wrong when: printed figures and reported_total_bytes are for the whole module and repeat for each
-- of its memory spaces. memory_analysis() adds up the device's memory spaces; with color = 'all'
-- add the rows. thread_local_bytes are on a stack at run time, not in device memory, though XLA's
-- total counts them. No figure includes the other needs of the runtime (code, scratch space of
-- library calls that is not in the dump, other programs, the allocator's own fragmentation).
--
-- param run, function, platform, color, module, top_n = 100
--
-- column run_name
-- column function_name VARCHAR: Jitted function; NULL if unknown.
-- column platform
-- column module_key VARCHAR: The dump's path in its run.
-- column color BIGINT: Memory space; NULL for a module without allocations.
-- column memory_space_name VARCHAR: Its name; NULL if the platform or its name is unknown.
-- column peak_bytes HUGEINT: The peak: fixed_bytes plus occupied_temp_bytes [bytes]; NULL if the
--   peak is unknown.
-- column module_peak_ratio DOUBLE: peak_bytes as a share of the sum over all memory spaces of the
--   module, whose peaks need not coincide (0 to 1); NULL where peak_bytes is.
-- column peak_time BIGINT: First instant of the peak [program order]; NULL where peak_bytes is.
-- column printed_peak_bytes HUGEINT: Sum of XLA's peak listing, for the whole module [bytes]; NULL
--   if none is printed.
-- column printed_peak_time BIGINT: Instant of that listing [program order]; NULL where
--   printed_peak_bytes is.
-- column naive_live_bytes HUGEINT: Largest sum of the sizes of live values [bytes]; NULL if the
--   peak is unknown.
-- column fixed_bytes HUGEINT: Allocations that are neither temp nor thread-local [bytes].
-- column occupied_temp_bytes HUGEINT: Most bytes of temp allocations occupied at once [bytes]; NULL
--   where peak_bytes is.
-- column need_bytes HUGEINT: What a device must hold: fixed_bytes plus temp_bytes [bytes].
-- column fragmentation_bytes HUGEINT: temp_bytes minus occupied_temp_bytes [bytes]; NULL where
--   peak_bytes is.
-- column argument_bytes HUGEINT: Parameters, including donated ones [bytes]: argument_size_in_bytes
--   of memory_analysis().
-- column output_bytes HUGEINT: Outputs, including donated parameters [bytes]: output_size_in_bytes.
-- column alias_bytes HUGEINT: Donated parameters [bytes]: alias_size_in_bytes.
-- column temp_bytes HUGEINT: Temp allocations [bytes]: temp_size_in_bytes.
-- column constant_bytes HUGEINT: Constants [bytes].
-- column thread_local_bytes HUGEINT: Thread-local allocations [bytes].
-- column total_bytes HUGEINT: All allocations of the memory space [bytes].
-- column reported_total_bytes BIGINT: "Total bytes used" of the whole module [bytes], modulo 2^64;
--   NULL if the dump has no such line.
-- column unknown_reason VARCHAR: Why the peak is unknown; NULL if it is known.
--
-- alias peak-figures = module-figures: run_name, function_name, platform, module_key, color,
--   peak_bytes, peak_time, printed_peak_bytes, printed_peak_time, naive_live_bytes, fixed_bytes,
--   occupied_temp_bytes, need_bytes, fragmentation_bytes, argument_bytes, output_bytes,
--   alias_bytes, temp_bytes, constant_bytes, thread_local_bytes, total_bytes, reported_total_bytes,
--   unknown_reason
-- alias memory-by-space = module-figures -p color all -p top_n 50: run_name, function_name,
--   platform, module_key, color, memory_space_name, peak_bytes, need_bytes, module_peak_ratio,
--   argument_bytes, output_bytes, alias_bytes, temp_bytes, constant_bytes, thread_local_bytes,
--   fragmentation_bytes, unknown_reason
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
),
module_sums AS (
  SELECT
    module_id,
    CASE WHEN count(*) = count(peak_bytes) THEN sum(peak_bytes) END AS peak_bytes
  FROM memory_figures
  GROUP BY module_id
),
printed_peaks AS (
  SELECT
    peak_contributors.module_id,
    sum(peak_contributors.logical_bytes) AS printed_peak_bytes
  FROM peak_contributors
  GROUP BY peak_contributors.module_id
)
SELECT
  figures.run_name, figures.function_name, figures.platform, figures.module_key, figures.color,
  figures.memory_space_name, figures.peak_bytes,
  CAST(figures.peak_bytes AS DOUBLE) / nullif(module_sums.peak_bytes, 0) AS module_peak_ratio,
  figures.peak_time,
  CASE
    WHEN modules.reported_peak_status = 'printed'
      THEN coalesce(printed_peaks.printed_peak_bytes, 0)
  END AS printed_peak_bytes,
  modules.reported_peak_time AS printed_peak_time,
  figures.naive_live_bytes, figures.fixed_bytes, figures.occupied_temp_bytes,
  figures.need_bytes, figures.fragmentation_bytes, figures.argument_bytes, figures.output_bytes,
  figures.alias_bytes, figures.temp_bytes, figures.constant_bytes, figures.thread_local_bytes,
  figures.total_bytes, modules.reported_total_bytes, figures.peak_unknown_reason AS unknown_reason
FROM asked_modules AS figures
JOIN modules ON modules.module_id = figures.module_id
JOIN module_sums ON module_sums.module_id = figures.module_id
LEFT JOIN printed_peaks ON printed_peaks.module_id = figures.module_id
ORDER BY
  figures.peak_bytes DESC NULLS FIRST, figures.total_bytes DESC, figures.run_name,
  figures.module_key, figures.color
LIMIT (SELECT top_n FROM params);
