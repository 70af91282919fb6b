-- title: Large f32 values at the peak of a program that computes in bf16
-- group: saving
-- engines: duckdb, spark, sail
--
-- In a program that is meant to run in bf16, an f32 activation takes twice the necessary bytes: an
-- f32 constant or mask promotes what it touches, a norm or a softmax returns f32, a loss keeps its
-- logits. For each run and function (its compilation with the largest need) that computes in bf16,
-- lists the f32 temps held at the peak, largest first. A program computes in bf16 if at least
-- min_bf16_ratio of its floating-point temp values (bf16, f16, f32, f64) are bf16 and, on TPU,
-- whose compiler multiplies f32 as bf16, an argument, an output or a conversion in user code is
-- bf16 (view module_precisions). An f32 program has no rows; see query advice.
--
-- wrong when: f32 is often intended: master weights, moments of an optimizer, sums, softmax, the
-- loss. The CPU backend computes many bf16 operations in f32 and converts, so a CPU dump shows f32
-- temps that a GPU or TPU would not have. Arguments and outputs are left out; the caller chooses
-- their dtype.
--
-- param run, function, platform, color, module, peak, step
-- param min_bf16_ratio DOUBLE = 0.1: Smallest share of bf16 among the floating-point temp values (0
--   to 1).
-- param min_bytes BIGINT = 1: Smallest value to show [bytes].
-- param top_n = 20
--
-- column run_name, function_name, platform, color
-- column bf16_ratio DOUBLE: Share of bf16 among the floating-point temp values (0 to 1).
-- column peak_bytes
-- column f32_bytes HUGEINT: All f32 temps held at the peak [bytes].
-- column held_bytes HUGEINT: Bytes that this value holds [bytes]; bf16 would halve them.
-- column low_saving_bytes HUGEINT: Lower bound of how far the highest peak falls [bytes]:
--   saving_bytes, because half of the bytes is exact.
-- column saving_bytes HUGEINT: How far the highest peak would fall [bytes] (query savings); 0 for
--   what a loop stacks on the CPU, where the compiler converts the whole stack to f32 before it is
--   read; NULL if it holds nothing at the highest peak.
-- column sureness VARCHAR: How sure that is (advice_sureness); separate for what a loop stacks.
-- column shape, opcode, instruction_name, op_name
-- column source VARCHAR: Line as in query savings: innermost file:line that is not library code,
--   "saved file:line" for what a loop stacks, "for file:line" for what the compiler made for that
--   line, "library file:line" if everything is library code; NULL if unknown.
-- column unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('min_bf16_ratio')::DOUBLE, 0.1) AS min_bf16_ratio,
    coalesce(getvariable('min_bytes')::BIGINT, 1) AS min_bytes,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
f32_values AS (
  SELECT
    module_id, color, name_place, bf16_ratio, value_id, held_bytes, is_stack, saving_bytes,
    sum(held_bytes) OVER (PARTITION BY module_id, color) AS f32_bytes
  FROM answered_f32_values
),
ranked_values AS (
  SELECT
    module_id, color, bf16_ratio, value_id, held_bytes, is_stack, saving_bytes, f32_bytes,
    row_number() OVER (ORDER BY held_bytes DESC, name_place, value_id) AS place
  FROM f32_values
  CROSS JOIN params
  WHERE bf16_ratio >= params.min_bf16_ratio
    AND held_bytes >= params.min_bytes
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  ranked_values.bf16_ratio, functions.peak_bytes, ranked_values.f32_bytes, ranked_values.held_bytes,
  ranked_values.saving_bytes AS low_saving_bytes, ranked_values.saving_bytes,
  advice_sureness.sureness, value_details.shape,
  value_details.opcode, value_details.instruction_name, value_details.op_name,
  value_sources.source_line AS source, functions.unknown_reason
FROM answered_instants AS functions
CROSS JOIN params
LEFT JOIN ranked_values
  ON ranked_values.module_id = functions.module_id
  AND ranked_values.color = functions.color
  AND ranked_values.place <= params.top_n
LEFT JOIN value_details
  ON value_details.module_id = ranked_values.module_id
  AND value_details.value_id = ranked_values.value_id
LEFT JOIN value_sources
  ON value_sources.module_id = ranked_values.module_id
  AND value_sources.value_id = ranked_values.value_id
LEFT JOIN advice_sureness
  ON advice_sureness.kind = CASE
    WHEN ranked_values.is_stack THEN 'dtype_of_stack'
    WHEN ranked_values.place IS NOT NULL THEN 'dtype'
  END
  AND advice_sureness.platform = coalesce(functions.platform, '')
  AND advice_sureness.is_from_zero = (coalesce(ranked_values.saving_bytes, 1) <= 0)
WHERE ranked_values.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY ranked_values.place NULLS FIRST, functions.name_place;
