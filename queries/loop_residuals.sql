-- title: What loops keep at the peak: residuals, carries, and the lines that make them
-- group: peak
-- engines: duckdb, spark, sail
--
-- A train step that scans over layers stores what the backward pass needs of each layer in stacked
-- arrays that the loop carries. XLA names the scan for them; this names the line of the layer. One
-- row for each value at the peak that a loop carries or that comes out of one, largest first: a
-- stack of slice_count slices of slice_bytes, a slice read back from one, or a carry. With
-- is_layer_input the stack is an input of the layer, which a scan saves whatever the checkpoint
-- policy; the others are what a policy, or jax.checkpoint, can leave out: where operation_count is
-- small beside the bytes (a tanh, not the product before it) that costs little. By how much the
-- peak falls is a range, low_saving_bytes to saving_bytes, as in query savings. It is read from the
-- HLO text: without that there are no rows. For each run and function the module with the largest
-- need is shown.
--
-- wrong when: is_exact is FALSE where the walk crossed an instruction of XLA's own with several
-- operands and took the largest, or a conditional of which several branches make data and took the
-- last. A stacked output of the user's own scan looks like a residual. The line of a gradient is
-- that of the operation that uses the array. What XLA fuses into one instruction bears one line.
-- What JAX traces once for several calls may bear the line of the first, of another function or
-- program even: up to JAX 0.7 whatever jnp.where, jax.nn.relu and other jitted functions compute,
-- since then what a custom_jvp or custom_vjp calls in a layer (format section 7.1).
--
-- param run, function, platform, color, module, peak, step
-- param kind VARCHAR = 'all' | 'stacked' | 'slice' | 'carry' | 'invariant' | 'parameter': Which
--   kind to show (value_origins.origin_kind).
-- param top_functions = 1
-- param top_n BIGINT = 20: Values to show of each.
--
-- column run_name, function_name, platform, color
-- column held_bytes HUGEINT: Bytes held at the peak [bytes].
-- column saving_bytes HUGEINT: By how much the peak falls without it [bytes]; NULL if it is held in
--   no temp allocation.
-- column low_saving_bytes HUGEINT: The least by which it falls if the scan leaves it out, in the
--   form of saving_form [bytes]; 0 for an input of the layer, which is saved all the same, below 0
--   where that costs more than it frees; NULL for what is no stack, and for stacks of gradients.
-- column sureness VARCHAR: How sure the range is (advice_sureness); unlikely for an input of the
--   layer; NULL for what is no stack, and for stacks of gradients.
-- column saving_form VARCHAR: wrap (jax.checkpoint around the expression alone) or policy (one name
--   less in the policy that is there); NULL as low_saving_bytes.
-- column kept_name VARCHAR: Lines whose values are kept instead at the low end; NULL if there are
--   none.
-- column low_operation_count BIGINT: Operations that it takes to compute all slices again at the
--   low end; NULL as low_saving_bytes, and if not known.
-- column operation_count BIGINT: The same at the high end; of what is no such stack as
--   recompute_costs has it; NULL if not known.
-- column slice_count BIGINT: Slices of a stack, one per step of the loop or several; NULL for what
--   is no stack, or holds more than that (value_origins.slice_count).
-- column slice_bytes BIGINT: One of them, without padding [bytes]; NULL as slice_count.
-- column kind VARCHAR: stacked, slice (one step's slice of a stack), carry (handed from step to
--   step), invariant (not written by the loop) or parameter (of the program).
-- column is_layer_input BOOLEAN: Whether a stack is an input of the layer, which the loop carries.
-- column shape VARCHAR: Shape of the value with layout.
-- column source VARCHAR: Line that makes the data, "saved" if a loop stacks it; of a parameter its
--   name; the loop's own line or the kind of allocation in parentheses if none is known.
-- column op_path VARCHAR: Operation that makes the data, likewise.
-- column is_exact BOOLEAN: FALSE if the walk to it had to choose.
-- column loop_name VARCHAR: The loop; NULL for a slice of what no loop carries.
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
    savings.low_saving_bytes, savings.saving_form, savings.kept_name,
    savings.low_operation_count,
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
WHERE ranked.place <= params.top_n OR ranked.unknown_reason IS NOT NULL
ORDER BY ranked.function_place, ranked.name_place, ranked.place;
