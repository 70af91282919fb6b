-- title: Holes in the temp allocations at the peak
-- group: saving
-- engines: duckdb, spark, sail
--
-- XLA packs all values of a temp allocation over time; at the instant when most of it is occupied,
-- the rest is holes. For each run and function (its compilation with the largest need), lists every
-- hole in every temp allocation of the memory space at its peak, largest first, with the values on
-- both sides. The holes of a module and memory space add up to fragmentation_bytes, the most that
-- the temp allocations could shrink.
--
-- wrong when: The peak is that of the memory space; a module with several temp allocations may fill
-- one of them at another instant. Not every hole can be closed: values are aligned (64 bytes on the
-- CPU, 256 on the GPU, more on the TPU), which leaves many small ones, and values that must share
-- an address over time pin each other. TPU temp allocations in HBM are far larger than the values
-- that the dump lists in them; the rest (probably scratch space of instructions) shows as holes. A
-- hole costs nothing if the space would not be used anyway.
--
-- param run, function, platform, color, module, top_n
--
-- column run_name, function_name, platform, color
-- column fragmentation_bytes HUGEINT: All holes of the module and memory space [bytes].
-- column allocation_index BIGINT: The temp allocation.
-- column allocation_bytes BIGINT: Its size [bytes].
-- column hole_offset_bytes HUGEINT: First byte of the hole in the allocation [bytes].
-- column hole_bytes HUGEINT: Size of the hole [bytes].
-- column hole_ratio DOUBLE: Share of the allocation (0 to 1).
-- column value_below VARCHAR: Instruction whose value ends where the hole begins; NULL if the hole
--   begins the allocation.
-- column value_above VARCHAR: Instruction whose value begins where the hole ends; NULL if the hole
--   ends the allocation.
-- column unknown_reason
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 30) AS top_n
),
functions AS (
  SELECT
    name_place, module_id, color, fragmentation_bytes, run_name, function_name, platform,
    unknown_reason
  FROM answered_functions
),
temps AS (
  SELECT
    functions.name_place, allocations.module_id, allocations.color, allocations.allocation_index,
    allocations.size_bytes
  FROM functions
  JOIN allocations
    ON allocations.module_id = functions.module_id
    AND allocations.color = functions.color
  WHERE allocations.kind = 'temp'
    AND functions.fragmentation_bytes > 0
),
segments AS (
  -- The parts that peak_values gives to a temp allocation's values do not overlap: each ends where
  -- its value ends. A last, empty one marks the end of the allocation.
  SELECT
    temps.module_id, temps.allocation_index,
    value_details.end_bytes - peak_values.held_bytes AS begin_bytes,
    value_details.end_bytes, value_details.instruction_name
  FROM temps
  JOIN peak_values
    ON peak_values.module_id = temps.module_id
    AND peak_values.allocation_index = temps.allocation_index
  JOIN value_details
    ON value_details.module_id = peak_values.module_id
    AND value_details.value_id = peak_values.value_id
  UNION ALL
  SELECT
    module_id, allocation_index, size_bytes AS begin_bytes, size_bytes AS end_bytes,
    NULL AS instruction_name
  FROM temps
),
gaps AS (
  SELECT
    module_id, allocation_index, begin_bytes,
    coalesce(
      lag(end_bytes) OVER (
        PARTITION BY module_id, allocation_index ORDER BY end_bytes, begin_bytes
      ),
      0
    ) AS hole_offset_bytes,
    instruction_name AS value_above,
    lag(instruction_name) OVER (
      PARTITION BY module_id, allocation_index ORDER BY end_bytes, begin_bytes
    ) AS value_below
  FROM segments
),
holes AS (
  SELECT
    temps.module_id, temps.color, temps.allocation_index, temps.size_bytes AS allocation_bytes,
    gaps.hole_offset_bytes,
    gaps.begin_bytes - gaps.hole_offset_bytes AS hole_bytes,
    gaps.value_below, gaps.value_above,
    row_number() OVER (
      ORDER BY
        gaps.begin_bytes - gaps.hole_offset_bytes DESC, temps.name_place, temps.allocation_index,
        gaps.begin_bytes
    ) AS place
  FROM temps
  JOIN gaps ON gaps.module_id = temps.module_id AND gaps.allocation_index = temps.allocation_index
  WHERE gaps.begin_bytes > gaps.hole_offset_bytes
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  CASE WHEN holes.place IS NOT NULL THEN functions.fragmentation_bytes END AS fragmentation_bytes,
  holes.allocation_index, holes.allocation_bytes, holes.hole_offset_bytes, holes.hole_bytes,
  CAST(holes.hole_bytes AS DOUBLE) / nullif(holes.allocation_bytes, 0) AS hole_ratio,
  holes.value_below, holes.value_above, functions.unknown_reason
FROM functions
CROSS JOIN params
LEFT JOIN holes
  ON holes.module_id = functions.module_id
  AND holes.color = functions.color
  AND holes.place <= params.top_n
WHERE holes.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY holes.place NULLS FIRST, functions.name_place;
