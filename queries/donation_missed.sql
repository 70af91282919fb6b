-- title: Arguments that could give their buffer to an output
-- group: saving
-- engines: duckdb, spark, sail
--
-- Pairs an argument that is not donated with an output of the same dtype and dimensions in an
-- allocation of its own: with donate_argnums the output could overwrite the argument, which saves
-- its bytes for the whole execution. For each run and function (its compilation with the largest
-- need), arguments and outputs of equal shape are paired, one row per buffer that could be saved,
-- largest lower bound first. The saving is usually the size of the buffer, and less where the
-- output's allocation holds something before the last read of the argument: gradients that a loop
-- stacks there then need their own bytes.
--
-- wrong when: The caller still needs the argument after the call: usual for a model's parameters in
-- an evaluation step or in a function that returns gradients. Arguments and outputs are matched by
-- shape alone, so the pair may differ if several shapes are equal. An output is compared by the
-- shape of the last value in its allocation; if a bitcast reshapes it at the end, a pair is missed.
-- XLA may still refuse to alias when layouts or shardings differ. If a product, a sort or a custom
-- call without output_to_operand_aliasing reads the argument last, XLA writes the output elsewhere
-- and copies it: such rows are unlikely. The same holds for a fusion that moves elements (a
-- transpose, a roll), which a dump does not show. A fusion with a product (TPU) is possible, if the
-- argument is not a factor.
--
-- param run, function, platform, color, module, top_n = 20
--
-- column run_name, function_name, platform, color
-- column low_saving_bytes HUGEINT: Lower bound of how far the peak falls with this donation alone
--   [bytes]: in the current schedule, without the argument if a product may read it, 0 where
--   sureness is unlikely; NULL if the last read of the parameter is unknown.
-- column saving_bytes HUGEINT: Upper bound [bytes]: the size of the buffer, because the limiting
--   instant may be scheduled differently; NULL where low_saving_bytes is.
-- column together_low_saving_bytes HUGEINT: Lower bound for all rows of the module and memory space
--   together, except unlikely ones [bytes]; NULL where low_saving_bytes is.
-- column together_saving_bytes HUGEINT: Upper bound for the same rows [bytes]; NULL where
--   low_saving_bytes is.
-- column sureness VARCHAR: How sure the range is (advice_sureness), less if a fusion with a product
--   makes the output from the argument; unlikely if the instruction that makes the output reads the
--   argument and cannot overwrite it.
-- column size_bytes BIGINT: Size of the output's allocation [bytes].
-- column parameter_number BIGINT: Entry parameter that could be donated.
-- column parameter_shape_index VARCHAR: Index in that parameter's shape, in braces.
-- column parameter_name VARCHAR: Its op_name, in JAX the argument's path; the instruction if it has
--   none.
-- column shape VARCHAR: Shape of the parameter with layout.
-- column output_name VARCHAR: Instruction that defines the output.
-- column output_op_name VARCHAR: Scope path of that instruction; NULL if the dump has none.
-- column unknown_reason
WITH params AS (
  SELECT coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
functions AS (
  SELECT name_place, module_id, color, run_name, function_name, platform, unknown_reason
  FROM answered_functions
),
pairs AS (
  SELECT
    donations.module_id, donations.color, donations.size_bytes, donations.low_saving_bytes,
    donations.saving_bytes, donations.together_low_saving_bytes, donations.together_saving_bytes,
    donations.is_copied, donations.is_in_product, donations.parameter_number,
    donations.parameter_shape_index,
    donations.parameter_name, donations.shape, donations.output_name, donations.output_op_name,
    row_number() OVER (
      ORDER BY
        donations.low_saving_bytes DESC NULLS LAST, donations.saving_bytes DESC,
        donations.size_bytes DESC, functions.name_place, donations.parameter_number,
        donations.parameter_shape_index, donations.output_allocation_index
    ) AS place
  FROM answered_donations AS donations
  JOIN functions
    ON functions.module_id = donations.module_id
    AND functions.color = donations.color
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  pairs.low_saving_bytes, pairs.saving_bytes, pairs.together_low_saving_bytes,
  pairs.together_saving_bytes, advice_sureness.sureness, pairs.size_bytes,
  pairs.parameter_number, pairs.parameter_shape_index, pairs.parameter_name, pairs.shape,
  pairs.output_name, pairs.output_op_name, functions.unknown_reason
FROM functions
CROSS JOIN params
LEFT JOIN pairs
  ON pairs.module_id = functions.module_id
  AND pairs.color = functions.color
  AND pairs.place <= params.top_n
LEFT JOIN advice_sureness
  ON advice_sureness.kind = CASE
    WHEN pairs.is_copied THEN 'copied_donation'
    WHEN pairs.is_in_product THEN 'donation_in_product'
    WHEN pairs.place IS NOT NULL THEN 'donate'
  END
  AND advice_sureness.platform = coalesce(functions.platform, '')
  AND advice_sureness.is_from_zero = (coalesce(pairs.low_saving_bytes, 1) <= 0)
WHERE pairs.place IS NOT NULL OR functions.unknown_reason IS NOT NULL
ORDER BY pairs.place NULLS FIRST, functions.name_place;
