-- title: Bytes held at the peak by source line, op, shape, role, …
-- group: peak
-- engines: duckdb, spark, sail
--
-- Attributes every byte that is occupied at the peak to a part of the program, so that the parts of
-- a module add up to its peak. The peak is the largest number of bytes occupied at one instant,
-- bytes shared by several values counted once (query peak says more). For each run and function the
-- module with the largest need is shown.
--
-- The parameter by says which parts:
--
-- line: the source line of the instruction that defined the value. function is the Python function
-- around that line, known from jaxlib 0.8.2 on where the HLO text was dumped too; before, only the
-- file is. Bytes without a known line, such as those of parameters, are summed by kind of
-- allocation: (parameter). Library code is what is installed, and Python itself, but for what bufdb
-- ingest --own says. Where a call stack has nothing else, its innermost line is taken, marked as a
-- library's and with the path from the installed packages on: library flax/linen/linear.py:271.
--
-- op: the scope path (op_name) of the operation, in one spelling, whichever version of JAX wrote
-- it: no primitive parameters, no jit(main), of several merged names the first; an argument such as
-- opt_state[0].mu['w'] becomes opt_state/0/mu/w. With wrappers = 'strip' what JAX adds goes away as
-- well: jit(f), while/body, cond/branch_0_fun, checkpoint, rematted_computation, closed_call,
-- shard_map, and jvp(), transpose(), vmap() around a scope, so that forward, backward and
-- recomputed values of a layer come together; category keeps these apart. Then depth cuts it: 1
-- shows whole modules and arguments, 2 their parts. jit is the chain of jitted functions in the
-- op_name, outermost first: step/_where for jit(step)/jit(_where)/select_n.
--
-- dtype, opcode, shape: those of the value. Much under copy, broadcast or transpose is memory that
-- computes nothing. With layout = true the same dimensions in different layouts are apart: large
-- arrays that occur in two layouts at once are copies or transposes of each other.
--
-- category: the kind of allocation and the phase: forward, backward, rematerialised, optimizer. It
-- comes from rules on the op_name in the table op_categories, which is yours to edit; [phases] of a
-- file given by --categories goes before them.
--
-- role: what the bytes are for the model: weights, optimizer state, model state and inputs by the
-- names of arguments; activations, gradients and the optimizer's step by the phase in which they
-- are computed; constants. Rules are in the table role_rules. A file of your own, given by
-- --categories or BUFDB_CATEGORIES, goes before them.
--
-- What a loop carries is attributed to what makes the data, not to the loop: saved layer.py:12 and
-- saved Layer/tanh have what each step makes there and the loop stacks, for the backward pass say;
-- train.py:40 what that line itself hands from step to step. This is read from the HLO text;
-- without it, and where it leads to no line, the loop's own line is taken. Query loop-residuals
-- lists the stacks.
--
-- XLA makes copies, conversions and broadcasts of its own, without an op_name. They are often half
-- of the temp bytes. By line, op and function "for train.py:77" has those whose first use that has
-- an op_name is of that line, and train.py:77 what the line itself makes, never both in one.
--
-- wrong when: a value that XLA made has several uses. It is named for the first in program order
-- that has an op_name, and another one may be what keeps it alive. Where no use of its own has an
-- op_name, it is named for what its first use is used for, and so on, at most four steps away.
-- What JAX traces once for several calls may have the line of the first, of another function or
-- program even: up to JAX 0.7 whatever jnp.where, jax.nn.relu and other jitted functions compute,
-- since then what a custom_jvp or custom_vjp calls in a layer (format section 7.1).
-- By category, the rules do not fit the program: in a function that takes a gradient, everything
-- outside of it counts as optimizer, metrics and preparation of data included. XLA fuses and
-- merges: a fusion has one name only, and a value of the forward pass that the backward pass reads
-- may have a name of either. To jax 0.6 operations outside of any scope do not show their phase and
-- have none here, and to jax 0.4.15 the gradient of a rematerialised scope counts as
-- rematerialised. By role, names mislead, which sureness says: told, by a rule of your file;
-- likely, by the name of an argument, or a constant; possible, by the phase. gradients are all that
-- the backward pass computes, also with regard to activations; activations all of the forward pass,
-- with what is computed there of weights, such as a copy in bf16 or what is gathered of them; in a
-- program that does not train all that it computes. Phases say nothing of what outputs are.
--
-- param run, function, platform, color, module, peak, step
-- param by VARCHAR = 'line' | 'op' | 'function' | 'jit' | 'dtype' | 'opcode' | 'shape' |
--   'category' | 'role' | 'python': The parts; python is another name of function.
-- param frame VARCHAR = 'own' | 'leaf': By line, which one of the call stack: own is the innermost
--   that is not library code, leaf the innermost of all.
-- param wrappers VARCHAR = 'strip' | 'keep': By op, what to do with what JAX adds to a scope.
-- param depth BIGINT = 100: By op, elements of the path to keep.
-- param merge_numbers BOOLEAN = false: By op, whether numbers become *, so that layer_0 and layer_1
--   are one.
-- param layout BOOLEAN = false: By shape, whether layouts are apart.
-- param loops VARCHAR = 'origin' | 'carrier': Whose line, op, phase or role counts for what a loop
--   carries: origin is that of what makes the data, carrier that of the loop itself.
-- param unnamed VARCHAR = 'use' | 'none': What to do with values that XLA made without an op_name:
--   use names them for their first use that has one, none counts them by kind of allocation.
-- param top_functions
-- param top_n BIGINT = 10: Parts to show of each.
--
-- column run_name, function_name, platform, color, peak_bytes
-- column held_bytes HUGEINT: Bytes held at the peak by values of this part [bytes].
-- column low_saving_bytes
-- column saving_bytes HUGEINT: By how much the peak would fall without them (query savings)
--   [bytes]; NULL where no line or op is known, by others than these, and with other frame,
--   wrappers, depth, merge_numbers, loops or unnamed than by default.
-- column held_ratio DOUBLE: held_bytes as share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column slice_count BIGINT: By line, slices of each stack that a loop fills from it; NULL without
--   one and for stacks of different numbers.
-- column slice_bytes HUGEINT: What one step adds to them [bytes]; NULL as slice_count.
-- column part VARCHAR: file:line, scope path, function and so on; "saved file:line" for what a loop
--   stacks, of a parameter its name; "for file:line" where XLA made the values; "library file:line"
--   where all of the call stack is library code; the kind of allocation in parentheses where no
--   line, op or function is known; tuple for the dtype of tables of pointers. NULL where no shape,
--   opcode, phase or role is known, and by function where only the file is.
-- column allocation_kind VARCHAR: By category and role parameter, donated_parameter, output,
--   constant or temp; NULL by others.
-- column sureness VARCHAR: By role how sure it is: told, likely or possible; NULL as the role, and
--   by others.
-- column source_file VARCHAR: By function the file of the Python function; NULL if unknown, and by
--   others.
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
