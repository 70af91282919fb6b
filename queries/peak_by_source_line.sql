-- title: Bytes held at the peak by source line
-- group: meaning
-- engines: duckdb, spark, sail
--
-- Attributes every byte that is occupied at the peak to the source line of the instruction that
-- defined the value there, so that the lines of a module add up to its peak. The peak is the
-- largest number of bytes occupied at one instant, bytes shared by several values counted once
-- (query peak says more). For each run and function the module with the largest need is
-- shown. Bytes without a known line, such as those of parameters, are summed by kind of allocation.
--
-- What a loop carries is attributed to the line that makes the data, not to the loop: the row saved
-- layer.py:12 has what each step makes there and the loop stacks, for the backward pass say, and
-- the row train.py:40 what that line itself hands from step to step. This is read from the HLO
-- text; without it, and where it leads to no line, the loop's own line stands. Query loop-residuals
-- lists the stacks.
--
-- XLA makes copies, conversions and broadcasts of its own, which no line of the model stands for:
-- values without an op_name. They are often half of the temp bytes. A row for train.py:77 has those
-- that are made for line 77: their first use that has an op_name is of that line. They are never in
-- the row train.py:77, which has what the line itself makes.
--
-- Library code is what is installed, and Python itself, but for what bufdb ingest --own says. Where
-- a call stack has nothing else, its innermost line stands for it, marked as a library's and with
-- the path from the installed packages on: library flax/linen/linear.py:271.
--
-- wrong when: a value that XLA made has several uses. It is named for the first in program order
-- that has an op_name, and another one may be what keeps it alive. Where no use of its own has an
-- op_name, it is named for what its first use is used for, and so on, at most four steps away.
-- What JAX traces once for several calls may bear the line of the first, of another function or
-- program even: up to JAX 0.7 whatever jnp.where, jax.nn.relu and other jitted functions compute,
-- since then what a custom_jvp or custom_vjp calls in a layer (format section 7.1).
--
-- param run VARCHAR = NULL: Only runs whose name or a label as LABEL=VALUE matches this glob.
-- param function VARCHAR = NULL: Only jitted functions whose name matches this glob.
-- param platform VARCHAR = NULL: Only this platform: cpu, gpu or tpu.
-- param color VARCHAR = NULL: Memory space: its number, or all; NULL is the device's own memory
--   (color 0), where a module holds nothing there its largest.
-- param module VARCHAR = NULL: Only modules whose key (query modules shows it) matches this glob.
-- param peak BIGINT = 1: Which of the distinct peaks (query peaks), 1 is the highest.
-- param step BIGINT = NULL: Any instant instead of a peak [program order].
-- param frame VARCHAR = 'own' | 'leaf': Which line of the call stack: own is the innermost that is
--   not library code, leaf the innermost of all.
-- param loops VARCHAR = 'origin' | 'carrier': Whose line counts for what a loop carries: origin is
--   the one that makes the data, carrier that of the loop itself.
-- param unnamed VARCHAR = 'use' | 'none': What to do with values that XLA made without an op_name:
--   use names them for their first use that has one, none counts them by kind of allocation.
-- param top_functions BIGINT = 3: Functions (of one run and memory space) to show, largest peak
--   first.
-- param top_n BIGINT = 10: Lines to show of each.
--
-- column run_name VARCHAR: The run.
-- column function_name VARCHAR: Jitted function; the module's key if that is unknown.
-- column platform VARCHAR: Backend; NULL if unknown.
-- column color BIGINT: Memory space.
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column held_bytes HUGEINT: Bytes held at the peak by values of this line [bytes].
-- column low_saving_bytes HUGEINT: The least of the next (query savings) [bytes], below 0 where it
--   costs more than it frees; NULL where it is not known.
-- column saving_bytes HUGEINT: By how much the peak would fall without them (query savings)
--   [bytes]; NULL where no line is known and with other frame, loops or unnamed than by default.
-- column held_ratio DOUBLE: The same as share of the peak (0 to 1).
-- column value_count BIGINT: Number of values that hold them.
-- column slice_count BIGINT: Slices of each stack that a loop fills from this line; NULL without
--   one and for stacks of different numbers.
-- column slice_bytes HUGEINT: What one step adds to them [bytes]; NULL as slice_count.
-- column source VARCHAR: file:line; "saved file:line" for what a loop stacks, of a parameter its
--   name; "for file:line" where XLA made the values; "library file:line" where all of the call
--   stack is library code; the kind of allocation in parentheses where no line is known.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, in a row of its own that
--   has nothing else, comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('frame')::VARCHAR, 'own') AS frame,
    coalesce(getvariable('loops')::VARCHAR, 'origin') AS loops,
    coalesce(getvariable('unnamed')::VARCHAR, 'use') AS unnamed,
    coalesce(getvariable('top_functions')::BIGINT, 3) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
located AS (
  SELECT
    coalesce(
      CASE params.frame
        WHEN 'own' THEN held.attributed_source
        WHEN 'leaf' THEN held.attributed_leaf_source
      END,
      CASE
        WHEN held.held_bytes IS NOT NULL
          THEN '(' || coalesce(held.allocation_kind, 'kind unknown') || ')'
      END
    ) AS source,
    held.function_place, held.name_place, held.run_name, held.function_name, held.platform,
    held.color, held.peak_bytes, held.unknown_reason, held.held_bytes, held.slice_count,
    held.slice_bytes, held.module_id
  FROM attributed_peak_values AS held
  CROSS JOIN params
  WHERE held.function_place <= params.top_functions
),
lines AS (
  SELECT
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, module_id, source,
    sum(held_bytes) AS held_bytes,
    nullif(count(held_bytes), 0) AS value_count,
    CASE WHEN min(slice_count) = max(slice_count) THEN min(slice_count) END AS slice_count,
    sum(slice_bytes) AS slice_bytes,
    row_number() OVER (PARTITION BY function_place ORDER BY sum(held_bytes) DESC, source NULLS LAST)
      AS place
  FROM located
  GROUP BY
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, module_id, source
)
SELECT
  lines.run_name, lines.function_name, lines.platform, lines.color, lines.peak_bytes,
  lines.held_bytes, savings.low_saving_bytes, savings.saving_bytes,
  CAST(lines.held_bytes AS DOUBLE) / nullif(lines.peak_bytes, 0) AS held_ratio,
  lines.value_count, lines.slice_count,
  CASE WHEN lines.slice_count IS NOT NULL THEN lines.slice_bytes END AS slice_bytes,
  lines.source, lines.unknown_reason
FROM lines
CROSS JOIN params
LEFT JOIN peak_savings AS savings
  ON savings.module_id = lines.module_id
  AND savings.color = lines.color
  AND savings.what = 'source_line'
  AND savings.name = lines.source
  AND params.frame = 'own' AND params.loops = 'origin' AND params.unnamed = 'use'
WHERE lines.place <= params.top_n OR lines.unknown_reason IS NOT NULL
ORDER BY lines.function_place, lines.name_place, lines.place;
