-- title: Loop residuals and carries at the peak, with the lines that make them
-- group: peak
-- engines: duckdb, spark, sail
--
-- A train step that scans over layers stores what the backward pass needs from each layer in
-- stacked arrays that the loop carries. XLA attributes them to the scan; this query finds the line
-- of the layer. One row per value at the peak that a loop carries or returns, largest first: a
-- stack of slice_count slices of slice_bytes, a slice read from one, or a carry. With
-- is_layer_input the stack is an input of the layer, which a scan saves under any checkpoint
-- policy; a policy or jax.checkpoint can drop the others, at low cost if operation_count is small
-- compared to the bytes (a tanh, not the product before it). The saving is a range,
-- low_saving_bytes to saving_bytes, as in query savings. Needs the HLO text: there are no rows
-- without it. Shows the module with the largest need for each run and function.
--
-- wrong when: is_exact is FALSE where the walk crossed an instruction added by XLA with several
-- operands and followed the largest, or a conditional with several branches that make data and
-- followed the last. A stacked output of a user's scan looks like a residual. The line of a
-- gradient is that of the operation that uses the array. A fused instruction has only one line.
-- Code that JAX traces once for several calls may have the line of the first call, even in another
-- function or program: through JAX 0.7 everything that jnp.where, jax.nn.relu and other jitted
-- functions compute, since then what a custom_jvp or custom_vjp calls in a layer (format section
-- 7.1).
--
-- param run, function, platform, color, module, peak, step
-- param kind VARCHAR = 'all' | 'stacked' | 'slice' | 'carry' | 'invariant' | 'parameter': Kind to
--   show (value_origins.origin_kind).
-- param top_functions = 1
-- param top_n BIGINT = 20: Values to show for each.
--
-- column run_name, function_name, platform, color
-- column held_bytes HUGEINT: Bytes held at the peak [bytes].
-- column saving_bytes HUGEINT: By how much the peak falls without it [bytes]; NULL if it is held in
--   no temp allocation.
-- column low_saving_bytes HUGEINT: Lower bound of how far it falls if the scan does not save it,
--   with saving_form [bytes]; 0 for an input of the layer, which is saved anyway, negative where
--   that costs more than it frees; NULL for other values than stacks, and for stacks of gradients.
-- column sureness VARCHAR: How sure the range is (advice_sureness); unlikely for an input of the
--   layer; NULL for other values than stacks, and for stacks of gradients.
-- column saving_form VARCHAR: wrap (jax.checkpoint around the expression alone) or policy (one name
--   fewer in the existing policy); NULL where low_saving_bytes is.
-- column kept_name VARCHAR: Lines whose values are kept instead, at the lower bound; NULL if there
--   are none.
-- column low_operation_count BIGINT: Operations that recompute all slices, at the lower bound; NULL
--   where low_saving_bytes is, and if unknown.
-- column operation_count BIGINT: The same at the upper bound; for other values as in
--   recompute_costs; NULL if unknown.
-- column slice_count BIGINT: Slices of a stack, one per step of the loop or several; NULL if the
--   value is not a stack, or holds more than one (value_origins.slice_count).
-- column slice_bytes BIGINT: Size of one slice, without padding [bytes]; NULL where slice_count is.
-- column kind VARCHAR: stacked, slice (of one step, from a stack), carry (passed from step to
--   step), invariant (not written by the loop) or parameter (of the program).
-- column is_layer_input BOOLEAN: Whether a stack is an input of the layer, which the loop carries.
-- column shape VARCHAR: Shape of the value with layout.
-- column source VARCHAR: Line that makes the data, with "saved" if a loop stacks it; the name of a
--   parameter; the loop's own line or the kind of allocation in parentheses if none is known.
-- column op_path VARCHAR: Operation that makes the data, in the same form.
-- column is_exact BOOLEAN: FALSE if the walk to it had to choose.
-- column loop_name VARCHAR: The loop; NULL for a slice of an array that no loop carries.
-- column unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('kind')::VARCHAR, 'all') AS kind,
    coalesce(getvariable('top_functions')::BIGINT, 1) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
ranked AS (
  SELECT
    held.function_place, held.name_place, held.run_name, held.function_name, held.platform,
    held.color, held.unknown_reason, held.held_bytes, savings.saving_bytes,
    savings.low_saving_bytes, savings.saving_form, savings.kept_name, savings.low_operation_count,
    CASE
      WHEN savings.saving_form IS NULL THEN costs.operation_count
      ELSE savings.operation_count
    END AS operation_count,
    origins.is_residual,
    origins.slice_count, origins.slice_bytes, origins.origin_kind AS kind,
    origins.is_layer_input, held.shape,
    coalesce(
      origins.relation || origins.own_source, held.own_source,
      origins.relation || origins.library_source, held.library_source,
      '(' || held.allocation_kind || ')'
    ) AS source,
    coalesce(origins.relation || origins.stripped_op_path, held.stripped_op_path) AS op_path,
    origins.is_exact, origins.loop_instruction_name,
    row_number() OVER (
      PARTITION BY held.function_place
      ORDER BY held.held_bytes DESC, held.allocation_index, held.value_id
    ) AS place
  FROM answered_peak_values AS held
  CROSS JOIN params
  LEFT JOIN value_origin_details AS origins
    ON origins.module_id = held.module_id
    AND origins.value_id = held.value_id
    AND (params.kind = 'all' OR origins.origin_kind = params.kind)
  LEFT JOIN peak_savings AS savings
    ON savings.module_id = held.module_id
    AND savings.color = held.color
    AND savings.value_id = held.value_id
  LEFT JOIN recompute_costs AS costs
    ON costs.module_id = held.module_id
    AND costs.value_id = held.value_id
  WHERE held.function_place <= params.top_functions
    AND (origins.value_id IS NOT NULL OR held.unknown_reason IS NOT NULL)
)
SELECT
  ranked.run_name, ranked.function_name, ranked.platform, ranked.color, ranked.held_bytes,
  ranked.saving_bytes, ranked.low_saving_bytes, advice_sureness.sureness,
  ranked.saving_form, ranked.kept_name, ranked.low_operation_count, ranked.operation_count,
  ranked.slice_count, ranked.slice_bytes, ranked.kind,
  ranked.is_layer_input, ranked.shape,
  CASE WHEN ranked.unknown_reason IS NULL THEN ranked.source END AS source,
  ranked.op_path, ranked.is_exact, ranked.loop_instruction_name AS loop_name, ranked.unknown_reason
FROM ranked
CROSS JOIN params
LEFT JOIN advice_sureness
  ON advice_sureness.kind = CASE
    WHEN ranked.is_residual IS NOT TRUE THEN NULL
    WHEN ranked.is_layer_input THEN 'layer_input'
    ELSE 'residual'
  END
  AND advice_sureness.platform = coalesce(ranked.platform, '')
  AND advice_sureness.is_from_zero = (coalesce(ranked.low_saving_bytes, 1) <= 0)
WHERE ranked.place <= params.top_n OR ranked.unknown_reason IS NOT NULL
ORDER BY ranked.function_place, ranked.name_place, ranked.place;
