-- One row per module with floating-point temp values: share of bf16, and whether it was chosen.
CREATE OR REPLACE VIEW module_precisions AS
WITH floats AS (
  SELECT
    "values".module_id,
    shapes.dtype = 'bf16' AS is_bf16,
    shapes.dtype = 'f32' AS is_f32,
    allocations.kind = 'temp' AND NOT "values".is_phi AS is_temp,
    allocations.kind IN ('parameter', 'donated_parameter', 'output')
    OR coalesce(instructions.op_name, '') GLOB '*/convert_element_type*' AS is_asked
  FROM "values"
  JOIN shapes ON shapes.shape = "values".shape
  JOIN allocations
    ON allocations.module_id = "values".module_id
    AND allocations.allocation_index = "values".allocation_index
  LEFT JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  WHERE shapes.dtype IN ('bf16', 'f16', 'f32', 'f64')
),
counted AS (
  SELECT
    floats.module_id,
    CAST(sum(CASE WHEN floats.is_temp AND floats.is_bf16 THEN 1 ELSE 0 END) AS DOUBLE)
      / nullif(sum(CASE WHEN floats.is_temp THEN 1 ELSE 0 END), 0) AS bf16_ratio,
    max(CASE WHEN floats.is_bf16 AND floats.is_asked THEN 1 ELSE 0 END) AS asked_count,
    max(CASE WHEN floats.is_asked AND NOT floats.is_f32 THEN 1 ELSE 0 END) AS other_count
  FROM floats
  GROUP BY floats.module_id
  HAVING sum(CASE WHEN floats.is_temp THEN 1 ELSE 0 END) > 0
)
SELECT
  counted.module_id,
  counted.bf16_ratio,
  counted.bf16_ratio > 0
    AND (coalesce(modules.platform, '') <> 'tpu' OR counted.asked_count > 0) AS is_own,
  counted.other_count = 0 AS is_wide
FROM counted
JOIN modules ON modules.module_id = counted.module_id;
COMMENT ON VIEW module_precisions IS
  'One row per module with floating-point values in temp allocations: how many of them are bf16, and whether the program asks for bf16. Key: module_id.';
COMMENT ON COLUMN module_precisions.bf16_ratio IS 'Share of bf16 among floating-point temp values, without merged ones (phi) (0 to 1).';
COMMENT ON COLUMN module_precisions.is_own IS 'Whether the program chose bf16: there are bf16 values and, on TPU, an argument or output is bf16 or a conversion in user code makes it (convert_element_type). The TPU compiler itself converts what it multiplies to bf16 in an f32 program.';
COMMENT ON COLUMN module_precisions.is_wide IS 'Whether all floating-point arguments, outputs and results of conversions in user code are f32.';
