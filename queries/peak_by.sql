-- title: Bytes held at the peak by source line, op, shape, role, …
-- group: peak
-- engines: duckdb, spark, sail
--
-- Attributes every byte occupied at the peak to a part of the program, so that the parts of a
-- module add up to its peak. The peak is the largest number of bytes occupied at one instant,
-- shared bytes counted once (see query peak). Shows the module with the largest need for each run
-- and function.
--
-- The parameter by selects the parts:
--
-- line: the source line of the instruction that defined the value. function is the Python function
-- around that line, known from jaxlib 0.8.2 if the HLO text was dumped too; before, only the file
-- is known. Bytes without a known line, such as those of parameters, are summed by kind of
-- allocation: (parameter). Library code is installed packages and Python itself, except what bufdb
-- ingest --own names. If a call stack has only library code, its innermost line counts, marked as
-- library and with the path below the installed packages: library flax/linen/linear.py:271.
--
-- op: the scope path (op_name) of the operation, in one form for all versions of JAX: no primitive
-- parameters, no jit(main), the first of several merged names; an argument such as
-- opt_state[0].mu['w'] becomes opt_state/0/mu/w. wrappers = 'strip' also removes what JAX adds:
-- jit(f), while/body, cond/branch_0_fun, checkpoint, rematted_computation, closed_call, shard_map,
-- and jvp(), transpose(), vmap() around a scope, so that forward, backward and recomputed values of
-- a layer are one part; use category to separate them. Then depth truncates it: 1 shows whole
-- modules and arguments, 2 their parts. jit is the chain of jitted functions in the op_name,
-- outermost first: step/_where for jit(step)/jit(_where)/select_n.
--
-- dtype, opcode, shape: those of the value. Many bytes under copy, broadcast or transpose are
-- memory that computes nothing. layout = true separates the same dimensions in different layouts:
-- large arrays that occur in two layouts at once are copies or transposes of each other.
--
-- category: the kind of allocation and the phase: forward, backward, rematerialized, optimizer. It
-- comes from rules on the op_name in the table op_categories, which you can edit; [phases] in a
-- file given by --categories takes precedence.
--
-- role: role of the bytes in the model: weights, optimizer state, model state and inputs by the
-- names of arguments; activations, gradients and the optimizer's step by the phase in which they
-- are computed; constants. Rules are in the table role_rules. Your own file, given by --categories
-- or BUFDB_CATEGORIES, takes precedence.
--
-- The carry of a loop is attributed to what makes the data, not to the loop: saved layer.py:12 and
-- saved Layer/tanh are made there in each step and stacked by the loop, for example for the
-- backward pass; train.py:40 is what that line itself passes from step to step. This needs the HLO
-- text; without it, or if it leads to no line, the loop's own line counts. Query loop-residuals
-- lists the stacks.
--
-- XLA makes copies, conversions and broadcasts of its own, without an op_name, often half of the
-- temp bytes. By line, op and function, "for train.py:77" has those whose first use with an op_name
-- is on that line, and train.py:77 what the line itself makes, never both.
--
-- wrong when: a value that XLA made has several uses. It is named for the first one in program
-- order with an op_name, but another one may keep it alive. If none of its uses has an op_name, it
-- is named for the use of its first use, and so on, up to four steps. Code that JAX traces once for
-- several calls may have the line of the first call, even in another function or program: through
-- JAX 0.7 everything that jnp.where, jax.nn.relu and other jitted functions compute, since then
-- what a custom_jvp or custom_vjp calls in a layer (format section 7.1). By category, the rules may
-- not fit the program: in a function that takes a gradient, everything outside of it counts as
-- optimizer, including metrics and preparation of data. XLA fuses and merges: a fusion has only one
-- name, and a value of the forward pass that the backward pass reads may have either name. Through
-- jax 0.6 operations outside of any scope do not show their phase and have none here, and through
-- jax 0.4.15 the gradient of a rematerialized scope counts as rematerialized. By role, names can
-- mislead, see sureness: stated, for a rule of your file; likely, for the name of an argument, or a
-- constant; possible, for the phase. gradients are everything that the backward pass computes,
-- including those with respect to activations; activations are everything in the forward pass,
-- including values computed from weights, such as a bf16 copy or gathered weights, and everything
-- in a program that does not train. Phases do not determine the role of outputs.
--
-- param run, function, platform, color, module, peak, step
-- param by VARCHAR = 'line' | 'op' | 'function' | 'jit' | 'dtype' | 'opcode' | 'shape' | 'category'
--   | 'role' | 'python': The parts; python is the same as function.
-- param frame VARCHAR = 'own' | 'leaf': By line, the frame of the call stack: own is the innermost
--   that is not library code, leaf the innermost of all.
-- param wrappers VARCHAR = 'strip' | 'keep': By op, whether to strip or keep what JAX adds to a
--   scope.
-- param depth BIGINT = 100: By op, number of path elements to keep.
-- param merge_numbers BOOLEAN = false: By op, whether numbers become *, so that layer_0 and layer_1
--   are merged.
-- param layout BOOLEAN = false: By shape, whether to separate layouts.
-- param loops VARCHAR = 'origin' | 'carrier': Line, op, phase or role for the carry of a loop:
--   origin is that of what makes the data, carrier that of the loop itself.
-- param unnamed VARCHAR = 'use' | 'none': For values that XLA made without an op_name: use names
--   them for their first use that has one, none counts them by kind of allocation.
-- param top_functions
-- param top_n BIGINT = 10: Parts to show for each.
--
-- column run_name, function_name, platform, color, peak_bytes
-- column held_bytes HUGEINT: Bytes held at the peak by values of this part [bytes].
-- column low_saving_bytes
-- column saving_bytes HUGEINT: How far the peak would fall without them (query savings) [bytes];
--   NULL where no line or op is known, for other values of by, and unless frame, wrappers, depth,
--   merge_numbers, loops and unnamed have their defaults.
-- column held_ratio DOUBLE: held_bytes as a share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column slice_count BIGINT: By line, slices of each stack that a loop fills from it; NULL without
--   a stack and for stacks with different numbers.
-- column slice_bytes HUGEINT: Bytes that one step adds to them [bytes]; NULL where slice_count is.
-- column part VARCHAR: file:line, scope path, function and so on; "saved file:line" for what a loop
--   stacks, a parameter's name; "for file:line" where XLA made the values; "library file:line" if
--   the whole call stack is library code; the kind of allocation in parentheses if no line, op or
--   function is known; tuple for the dtype of pointer tables. NULL if no shape, opcode, phase or
--   role is known, and by function if only the file is.
-- column allocation_kind VARCHAR: By category and role, parameter, donated_parameter, output,
--   constant or temp; NULL otherwise.
-- column sureness VARCHAR: By role, how sure it is: stated, likely or possible; NULL where the role
--   is, and for other values of by.
-- column source_file VARCHAR: By function, the file of the Python function; NULL if unknown, and
--   for other values of by.
-- column unknown_reason
--
-- alias peak-by-source-line = peak-by -p by line: run_name, function_name, platform, color,
--   peak_bytes, held_bytes, low_saving_bytes, saving_bytes, held_ratio, value_count,
--   slice_count, slice_bytes, part AS source, unknown_reason
-- alias peak-by-op = peak-by -p by op: run_name, function_name, platform, color, peak_bytes,
--   held_bytes, low_saving_bytes, saving_bytes, held_ratio, value_count, part AS op_path,
--   unknown_reason
-- alias peak-by-function = peak-by -p by function|jit|python: run_name, function_name, platform,
--   color, peak_bytes, held_bytes, held_ratio, value_count, part AS source_function, source_file,
--   unknown_reason
-- alias peak-by-dtype = peak-by -p by dtype: run_name, function_name, platform, color,
--   peak_bytes, held_bytes, held_ratio, value_count, part AS dtype, unknown_reason
-- alias peak-by-opcode = peak-by -p by opcode: run_name, function_name, platform, color,
--   peak_bytes, held_bytes, held_ratio, value_count, part AS opcode, unknown_reason
-- alias peak-by-shape = peak-by -p by shape: run_name, function_name, platform, color,
--   peak_bytes, held_bytes, held_ratio, value_count, part AS shape, unknown_reason
-- alias peak-by-category = peak-by -p by category -p top_n 20: run_name, function_name,
--   platform, color, peak_bytes, held_bytes, held_ratio, value_count, allocation_kind, part AS
--   category, unknown_reason
-- alias peak-by-role = peak-by -p by role -p top_n 20: run_name, function_name, platform, color,
--   peak_bytes, held_bytes, held_ratio, value_count, part AS role, allocation_kind, sureness,
--   unknown_reason
WITH params AS (
  SELECT
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n,
    coalesce(getvariable('by')::VARCHAR, 'line') AS "by"
),
parts AS (
  SELECT
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, module_id, part, allocation_kind, sureness, source_file, saving_of,
    sum(held_bytes) AS held_bytes,
    nullif(count(held_bytes), 0) AS value_count,
    CASE WHEN min(slice_count) = max(slice_count) THEN min(slice_count) END AS slice_count,
    sum(slice_bytes) AS slice_bytes,
    row_number() OVER (
      PARTITION BY function_place
      ORDER BY
        sum(held_bytes) DESC,
        CASE WHEN params."by" = 'category' THEN allocation_kind END NULLS LAST,
        part NULLS LAST, allocation_kind NULLS LAST, sureness NULLS LAST, source_file NULLS LAST
    ) AS place
  FROM peak_parts
  CROSS JOIN params
  WHERE function_place <= params.top_functions
  GROUP BY
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, module_id, part, allocation_kind, sureness, source_file, saving_of, params."by"
)
SELECT
  parts.run_name, parts.function_name, parts.platform, parts.color, parts.peak_bytes,
  parts.held_bytes, savings.low_saving_bytes, savings.saving_bytes,
  CAST(parts.held_bytes AS DOUBLE) / nullif(parts.peak_bytes, 0) AS held_ratio,
  parts.value_count, parts.slice_count,
  CASE WHEN parts.slice_count IS NOT NULL THEN parts.slice_bytes END AS slice_bytes,
  parts.part, parts.allocation_kind, parts.sureness, parts.source_file, parts.unknown_reason
FROM parts
CROSS JOIN params
LEFT JOIN peak_savings AS savings
  ON savings.module_id = parts.module_id
  AND savings.color = parts.color
  AND savings.what = parts.saving_of
  AND savings.name = parts.part
WHERE parts.place <= params.top_n OR parts.unknown_reason IS NOT NULL
ORDER BY parts.function_place, parts.name_place, parts.place;
