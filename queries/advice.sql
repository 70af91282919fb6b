-- title: Changes that lower the peak, largest saving or lowest cost first
-- group: saving
-- engines: duckdb, spark, sail
--
-- Combines the findings of the other queries on waste, ranked by how far the peak would fall. Shows
-- the module with the largest need for each run and function. Kinds:
--
-- donate: arguments that could give their buffer to an output, all of them together.
-- residual: values that a scan stacks for the backward pass and could recompute, slice by slice.
-- recompute: values of the forward pass that wait across the peak and are cheap to recompute.
-- block: everything that calls of a function, or rounds of a scan, keep for the backward pass.
-- offload: values that wait across the peak and are costly, or inputs of a scanned layer.
-- dtype: f32 values in a program that computes in bf16, and programs entirely in f32.
-- copy: copies made by XLA that are live together with their source.
-- carry: stacks of a loop that reads arguments of the same shape and could carry them instead.
-- chunk: logits and their gradients, for all tokens at once.
-- scores: scores of all pairs of an attention, and their gradients.
-- batch: what a vmap makes for its whole axis at once.
-- early: results of one instruction that all wait across the peak for their first use.
-- late_free: values that something keeps after their last use.
-- gather: results of all-gathers that are live together.
-- shard: arguments that several devices hold in full (query replicated).
-- padding: bytes that layouts add as padding.
-- constant: arrays that are part of the program.
--
-- Values of one source line are one row, with the range for all of them together; query_name lists
-- them one by one. The saving is between low_saving_bytes and saving_bytes; rows are ranked by the
-- lower bound. Left out, because they save nothing: inputs of a scanned layer as residuals, values
-- of the backward pass, copies to another memory space, values that are already bf16, carries on
-- TPU; on the CPU also offloading, f32 stacks of a scan, and recomputing what no loop stacks
-- (recompute, block of calls), because that compiler merges what is computed twice. The page has
-- the code to type; bufdb advice --code prints it.
--
-- wrong when: saving_bytes is the saving in the current schedule; XLA makes a new one for a changed
-- program, and rows do not add up (bufdb what-if combines several). sureness says how often such a
-- prediction came true: likely, within a few percent of the peak in nearly all recompiled changes
-- (data/studies/recompiled.md); possible, where the compiler or the meaning of the program may
-- prevent it, and where low_saving_bytes is 0 or less. Only you know whether the caller still needs
-- an argument, or a value needs 32 bits.
--
-- param run, function, platform, color, module
-- param peak BIGINT = 1: Rank among the distinct peaks (query peaks), 1 is the highest: shows what
--   is held there; saving_bytes is always for the highest.
-- param step
-- param min_ratio DOUBLE = 0.01: Smallest saving to show, as a share of the peak (0 to 1).
-- param min_lifetime_ratio DOUBLE = 0.1: Shortest lifetime of values to recompute or offload, as a
--   share of the schedule (0 to 1).
-- param min_bf16_ratio DOUBLE = 0.1: Smallest share of bf16 among the floating-point temp values of
--   a program that counts as bf16 (0 to 1).
-- param rank_by VARCHAR = 'auto' | 'saving' | 'cost': What comes first: saving is the largest
--   lower bound. cost is changes that take no time (donate, dtype, copy, carry, late_free,
--   padding), then the most bytes per millisecond that a profile measured for the recomputation,
--   without a profile per operation, then changes of unknown cost, and last those that may save
--   nothing. auto is cost where the module was timed, else saving.
-- param top_functions = 1
-- param top_n BIGINT = 10: Rows to show for each.
--
-- column run_name, function_name, platform, color
-- column peak_bytes HUGEINT: Peak of the module [bytes].
-- column low_saving_bytes HUGEINT: Lower bound of how far the highest peak falls [bytes]. residual:
--   with saving_form (query savings), negative where that costs more than it frees, NULL if
--   unknown; recompute, early and constant: 0, because they may save nothing; donate: without what
--   a product may read; carry: without a slice of each, on CPU without the largest and a slice of
--   it, which may be copied (then negative); chunk, scores and batch: in two pieces; block: half of
--   the saving when one call is recomputed at a time, for a scan without one round and its carry;
--   shard: with the largest argument gathered; an f32 program: a quarter of it, in training without
--   arguments.
-- column saving_bytes HUGEINT: Upper bound [bytes]: the saving in the current schedule; donate,
--   gather, chunk, scores, padding: everything that they hold at the peak, because the limiting
--   instant may be scheduled differently; batch: with one element of the axis at a time; carry:
--   with the slices that a round copies; shard: with values of the same shape made from the
--   arguments; an f32 program: half of it.
-- column saving_ratio DOUBLE: saving_bytes as a share of the peak (0 to 1).
-- column kind VARCHAR: donate, residual, recompute, block, offload, dtype, copy, carry, chunk,
--   scores, batch, early, late_free, gather, shard, padding or constant.
-- column sureness VARCHAR: likely or possible, see above (advice_sureness).
-- column saving_form VARCHAR: Change that low_saving_bytes of residual is for: wrap (jax.checkpoint
--   around the expression alone) or policy (one name fewer in the existing policy); NULL for other
--   kinds, and if unknown.
-- column kept_name VARCHAR: For residual, lines whose values are kept instead, at the lower bound;
--   NULL if there are none, and for other kinds.
-- column low_operation_count BIGINT: Cost of recomputing a residual, at the lower bound
--   [operations]; NULL if unknown, and for other kinds.
-- column operation_count HUGEINT: Cost of recomputing residual, recompute and offload, at the upper
--   bound [operations] (recompute_costs); NULL if unknown for some values, and for other kinds.
-- column low_recompute_ns BIGINT: Measured time of the instructions that recompute a residual in
--   one run, at the lower bound, each instruction once [nanoseconds] (recompute_instructions); NULL
--   if one was not timed, and for other kinds.
-- column recompute_ns BIGINT: The same for residual, recompute and offload, at the upper bound
--   [nanoseconds]; NULL if one was not timed, and for other kinds.
-- column saving_bytes_per_ms DOUBLE: Bytes saved per millisecond of recompute_ns, for residual and
--   recompute, at the lower bound if it is known, else at the upper; NULL without times.
-- column ranked_by VARCHAR: What the rows of the module are ranked by: time, work or saving.
-- column value_count BIGINT: Number of values in the row.
-- column name VARCHAR: Their line, "saved file:line" for what a loop stacks; their op_name or
--   instruction if no line is known. donate and shard: the parameters; padding: the shape; block:
--   the function and its file; batch: the size of the axis; early: the instruction; an f32 program:
--   f32.
-- column advice VARCHAR: What to do.
-- column query_name VARCHAR: The query that shows more.
-- column page VARCHAR: The page with the code to type, in bufdb's folder.
-- column unknown_reason VARCHAR: Why the peak of the function is unknown, there is no such instant,
--   or why savings are unknown (a message in a log), in a row of its own that has no advice,
--   comes first and does not count in top_n; NULL in all other rows.
WITH params AS (
  SELECT
    coalesce(getvariable('min_ratio')::DOUBLE, 0.01) AS min_ratio,
    coalesce(getvariable('rank_by')::VARCHAR, 'auto') AS rank_by,
    coalesce(getvariable('top_functions')::BIGINT, 1) AS top_functions,
    coalesce(getvariable('top_n')::BIGINT, 10) AS top_n
),
peak_values_held AS (
  SELECT module_id, color, value_id, allocation_kind, held_bytes
  FROM asked_peak_values
),
timed AS (
  SELECT DISTINCT module_id
  FROM instruction_times
),
functions AS (
  SELECT
    answered.run_name, answered.function_name, answered.platform, answered.color,
    answered.module_id, answered.peak_bytes,
    CASE
      WHEN params.rank_by = 'saving' THEN 'saving'
      WHEN timed.module_id IS NOT NULL THEN 'time'
      WHEN params.rank_by = 'cost' THEN 'work'
      ELSE 'saving'
    END AS ranked_by,
    coalesce(
      answered.unknown_reason, asked_instants.missing_reason,
      CASE
        WHEN modules.format_era = 'M' THEN 'an out-of-memory message has no live ranges, from '
          || 'which savings follow'
        WHEN modules.format_era = 'L' THEN 'a log''s sums have no live ranges, from which savings '
          || 'follow'
      END
    ) AS unknown_reason,
    answered.place, answered.name_place
  FROM answered_functions AS answered
  CROSS JOIN params
  LEFT JOIN modules ON modules.module_id = answered.module_id
  LEFT JOIN timed ON timed.module_id = answered.module_id
  LEFT JOIN asked_instants
    ON asked_instants.module_id = answered.module_id
    AND asked_instants.color = answered.color
  WHERE answered.place <= params.top_functions
),
-- Of values that one instruction makes its operations count once.
shared_counts AS (
  SELECT
    items.module_id, items.color, items.kind, items.name,
    coalesce(single_makers.instruction_name, CAST(items.value_id AS VARCHAR)) AS maker,
    count(*) AS value_count,
    count(items.operation_count) AS known_count,
    max(items.operation_count) AS operation_count
  FROM advised_items AS items
  LEFT JOIN (
    SELECT
      made.module_id, made.value_id, min(made.instruction_name) AS instruction_name
    FROM recompute_instructions AS made
    GROUP BY made.module_id, made.value_id
    HAVING count(*) = 1
  ) AS single_makers
    ON single_makers.module_id = items.module_id
    AND single_makers.value_id = items.value_id
  GROUP BY
    items.module_id, items.color, items.kind, items.name,
    coalesce(single_makers.instruction_name, CAST(items.value_id AS VARCHAR))
),
line_counts AS (
  SELECT
    module_id, color, kind, name,
    CASE
      WHEN sum(known_count) = sum(value_count) THEN sum(operation_count)
    END AS operation_count
  FROM shared_counts
  GROUP BY module_id, color, kind, name
),
-- For what a scan saves, the range is that of its line (query savings).
of_values AS (
  SELECT
    lines.module_id, lines.color, lines.kind, lines.name, lines.value_count,
    CASE
      WHEN lines.kind <> 'residual' OR line_savings.saving_form IS NULL
        THEN line_counts.operation_count
      ELSE line_savings.operation_count
    END AS operation_count,
    line_savings.low_operation_count, times.low_recompute_ns, times.recompute_ns,
    line_savings.saving_form, line_savings.kept_name,
    CASE lines.kind
      WHEN 'residual' THEN coalesce(line_savings.low_saving_bytes, lines.low_bytes)
      WHEN 'recompute' THEN lines.low_bytes
      ELSE greatest(coalesce(whole.saving_bytes, lines.best_bytes), lines.best_bytes)
    END AS low_saving_bytes,
    CASE lines.kind
      WHEN 'residual' THEN coalesce(line_savings.saving_bytes, lines.most_bytes)
      WHEN 'gather' THEN lines.sum_bytes
      -- Nothing stays on the device: the host has all slices.
      WHEN 'offload'
        THEN greatest(coalesce(whole.saving_bytes + lines.kept_bytes, 0), lines.most_bytes)
      ELSE greatest(coalesce(whole.saving_bytes, lines.best_bytes), lines.best_bytes)
    END AS saving_bytes
  FROM advised_lines AS lines
  JOIN line_counts
    ON line_counts.module_id = lines.module_id
    AND line_counts.color = lines.color
    AND line_counts.kind = lines.kind
    AND line_counts.name = lines.name
  LEFT JOIN advised_times AS times
    ON times.module_id = lines.module_id
    AND times.color = lines.color
    AND times.kind = lines.kind
    AND times.name = lines.name
  LEFT JOIN peak_savings AS line_savings
    ON lines.kind = 'residual'
    AND line_savings.module_id = lines.module_id
    AND line_savings.color = lines.color
    AND line_savings.what = 'source_line'
    AND line_savings.name = lines.name
  LEFT JOIN advised_whole_lines AS whole
    ON whole.module_id = lines.module_id
    AND whole.color = lines.color
    AND whole.kind = lines.kind
    AND whole.name = lines.name
),
findings AS (
  SELECT
    module_id, color, kind, kind AS sureness_kind, name, value_count, saving_form, kept_name,
    low_operation_count, operation_count, low_recompute_ns, recompute_ns, low_saving_bytes,
    saving_bytes, NULL AS reader, NULL AS obstacle,
    CASE
      WHEN kind IN ('residual', 'recompute') THEN coalesce(
        1e6 * low_saving_bytes / nullif(low_recompute_ns, 0),
        1e6 * saving_bytes / nullif(recompute_ns, 0)
      )
    END AS saving_bytes_per_ms,
    CASE
      WHEN kind IN ('residual', 'recompute') THEN coalesce(
        CAST(low_saving_bytes AS DOUBLE) / nullif(low_operation_count, 0),
        CAST(saving_bytes AS DOUBLE) / nullif(operation_count, 0)
      )
    END AS bytes_per_operation
  FROM of_values
  UNION ALL
  SELECT
    module_id, color,
    CASE kind WHEN 'scan' THEN 'block' ELSE kind END,
    CASE kind WHEN 'scan' THEN 'block_of_scan' ELSE kind END,
    name, value_count, NULL, NULL, NULL, NULL, NULL, NULL, low_saving_bytes, saving_bytes,
    reader, obstacle, NULL, NULL
  FROM advised_groups
  UNION ALL
  SELECT
    module_id, color, kind, sureness_kind, name, value_count, NULL, NULL, NULL, NULL, NULL, NULL,
    low_saving_bytes, saving_bytes, NULL, NULL, NULL, NULL
  FROM advised_others
),
program_frameworks AS (
  SELECT module_id, place
  FROM advised_frameworks
  WHERE name IS NULL
),
found AS (
  SELECT
    functions.place AS function_place,
    functions.name_place, functions.run_name, functions.function_name, functions.platform,
    functions.color, functions.peak_bytes, functions.unknown_reason, findings.low_saving_bytes,
    findings.saving_bytes, findings.reader, findings.obstacle,
    -- Settings are of the whole program, and so is the jit; code is changed line by line.
    CASE
      WHEN findings.kind IN ('donate', 'dtype') OR program_words.has_settings
        THEN program_frameworks.place
      ELSE name_frameworks.place
    END AS framework_place,
    CAST(findings.saving_bytes AS DOUBLE) / nullif(functions.peak_bytes, 0) AS saving_ratio,
    findings.kind, findings.sureness_kind, findings.name, findings.value_count,
    findings.saving_form, findings.kept_name, findings.low_operation_count,
    findings.operation_count, findings.low_recompute_ns, findings.recompute_ns,
    findings.saving_bytes_per_ms, functions.ranked_by,
    CASE
      WHEN functions.ranked_by = 'saving' THEN 0
      WHEN coalesce(findings.low_saving_bytes, findings.saving_bytes) <= 0
          AND findings.kind <> 'recompute'
        THEN 3
      WHEN findings.kind IN ('donate', 'dtype', 'copy', 'carry', 'late_free', 'padding') THEN 0
      WHEN CASE functions.ranked_by
          WHEN 'time' THEN findings.saving_bytes_per_ms
          ELSE findings.bytes_per_operation
        END IS NOT NULL
        THEN 1
      ELSE 2
    END AS rank_group,
    CASE functions.ranked_by
      WHEN 'saving' THEN -1
      WHEN 'time' THEN coalesce(findings.saving_bytes_per_ms, -1)
      ELSE coalesce(findings.bytes_per_operation, -1)
    END AS rank_figure
  FROM functions
  CROSS JOIN params
  LEFT JOIN findings
    ON findings.module_id = functions.module_id
    AND findings.color = functions.color
    AND functions.unknown_reason IS NULL
    AND findings.saving_bytes > 0
    AND findings.saving_bytes >= params.min_ratio * functions.peak_bytes
  LEFT JOIN program_frameworks ON program_frameworks.module_id = functions.module_id
  LEFT JOIN framework_words AS program_words ON program_words.place = program_frameworks.place
  LEFT JOIN advised_frameworks AS name_frameworks
    ON name_frameworks.module_id = functions.module_id
    AND name_frameworks.name = regexp_replace(findings.name, '^(saved|for|scan of) ', '')
  WHERE findings.kind IS NOT NULL OR functions.unknown_reason IS NOT NULL
),
ranked AS (
  SELECT
    function_place, name_place, run_name, function_name, platform, color, peak_bytes,
    unknown_reason, low_saving_bytes, saving_bytes, saving_ratio, kind, sureness_kind, name,
    value_count, saving_form, kept_name, low_operation_count, operation_count, low_recompute_ns,
    recompute_ns, saving_bytes_per_ms, ranked_by, reader, obstacle, framework_place,
    -- Sail sorts a window by columns alone.
    row_number() OVER (
      PARTITION BY function_place
      ORDER BY
        rank_group, rank_figure DESC,
        coalesce(low_saving_bytes, 0) DESC, saving_bytes DESC, kind, name
    ) AS place
  FROM found
)
SELECT
  ranked.run_name, ranked.function_name, ranked.platform, ranked.color, ranked.peak_bytes,
  ranked.low_saving_bytes, ranked.saving_bytes, ranked.saving_ratio, ranked.kind,
  advice_sureness.sureness,
  ranked.saving_form, ranked.kept_name, ranked.low_operation_count, ranked.operation_count,
  ranked.low_recompute_ns, ranked.recompute_ns, ranked.saving_bytes_per_ms, ranked.ranked_by,
  ranked.value_count, ranked.name,
  CASE ranked.kind
    WHEN 'donate' THEN 'donate them (' || coalesce(nullif(words.donation, ''), 'donate_argnums')
      || '), if the caller may'
    WHEN 'residual' THEN
      CASE
        WHEN words.has_settings THEN 'recompute: ' || words.checkpoint
        WHEN ranked.saving_form = 'wrap'
          THEN 'recompute: ' || words.checkpoint || ' around it, or a policy'
        ELSE 'leave its name out of the checkpoint policy'
      END
    WHEN 'recompute' THEN 'compute it again: ' || words.checkpoint
      || CASE WHEN words.has_settings THEN '' ELSE ' around the line' END
    WHEN 'block' THEN
      CASE ranked.sureness_kind
        WHEN 'block_of_scan' THEN 'recompute rounds: ' || words.checkpoint
          || CASE WHEN words.has_settings THEN '' ELSE ' of the body' END
        ELSE 'compute each call of it again: ' || words.checkpoint
      END
    WHEN 'offload' THEN 'offload it by ' || coalesce(nullif(words.offload, ''), 'a policy')
      || CASE WHEN words.has_settings THEN '' ELSE ', or use it earlier' END
    WHEN 'dtype' THEN
      CASE ranked.name
        WHEN 'f32' THEN 'all of it is f32: bf16 would halve it'
          || coalesce(' (' || nullif(words.dtype, '') || ')', '')
        ELSE 'keep it in bf16: find what promotes it to f32'
      END
    WHEN 'copy' THEN 'avoid the copy: donate, or keep one layout'
    WHEN 'carry' THEN 'make it the carry of the loop and donate it'
    WHEN 'chunk' THEN
      CASE
        WHEN words.chunks <> '' THEN 'compute the loss in chunks: ' || words.chunks
        ELSE 'compute the loss in chunks under jax.checkpoint' || coalesce(
          ', and return metrics from it, not the logits that ' || ranked.reader || ' reads', ''
        ) || coalesce(', by hand: ' || ranked.obstacle, '')
      END
    WHEN 'scores' THEN
      CASE
        WHEN words.attention <> '' THEN 'never hold all scores: ' || words.attention
        WHEN words.has_settings THEN 'never hold all scores: a setting for flash attention'
        ELSE CASE ranked.platform
          WHEN 'gpu' THEN 'never hold all scores: jax.nn.dot_product_attention(…, '
            || 'implementation="cudnn") in bf16, or '
          WHEN 'tpu' THEN 'never hold all scores: splash attention (Pallas), or '
          ELSE ''
        END || 'parts of the heads, by bufdb fit --also attention'
      END
    WHEN 'batch' THEN 'in batches, by lax.map(f, xs, batch_size=k), it holds about k/'
      || replace(ranked.name, 'vmap over ', '') || ' of this'
    WHEN 'early' THEN
      CASE ranked.platform
        WHEN 'gpu' THEN 'make them one at a time: an outer scan over equal blocks, or '
          || 'XLA_FLAGS=--xla_disable_hlo_passes=priority-fusion'
        ELSE 'make them one at a time: an outer scan over equal blocks'
      END
    WHEN 'late_free' THEN 'find what keeps it: nothing uses it any more'
    WHEN 'gather' THEN 'gather one layer at a time'
    WHEN 'shard' THEN 'divide them among the devices that hold them'
    WHEN 'padding' THEN 'choose dimensions that fill the tiles, or merge small ones'
    WHEN 'constant' THEN 'compute it where it is used'
  END AS advice,
  CASE ranked.kind
    WHEN 'donate' THEN 'donation-missed'
    WHEN 'residual' THEN 'loop-residuals'
    WHEN 'recompute' THEN 'remat-candidates'
    WHEN 'block' THEN
      CASE ranked.sureness_kind
        WHEN 'block_of_scan' THEN 'loop-residuals'
        ELSE 'peak-by-function'
      END
    WHEN 'offload' THEN 'offload-candidates'
    WHEN 'dtype' THEN CASE ranked.name WHEN 'f32' THEN 'peak-by-dtype' ELSE 'f32-large' END
    WHEN 'copy' THEN 'copies'
    WHEN 'carry' THEN 'loop-residuals'
    WHEN 'chunk' THEN 'savings'
    WHEN 'scores' THEN 'savings'
    WHEN 'batch' THEN 'peak-by-op'
    WHEN 'early' THEN 'late-free'
    WHEN 'late_free' THEN 'late-free'
    WHEN 'gather' THEN 'gathers-live'
    WHEN 'shard' THEN 'replicated'
    WHEN 'padding' THEN 'padding'
    WHEN 'constant' THEN 'constants'
  END AS query_name,
  CASE WHEN ranked.kind IS NOT NULL THEN 'queries/advice/' || ranked.kind || '.md' END AS page,
  ranked.unknown_reason
FROM ranked
CROSS JOIN params
LEFT JOIN framework_words AS words
  ON words.place = ranked.framework_place
  OR (ranked.framework_place IS NULL AND words.framework = 'jax')
LEFT JOIN advice_sureness
  ON advice_sureness.kind = ranked.sureness_kind
  AND advice_sureness.platform = coalesce(ranked.platform, '')
  AND advice_sureness.is_from_zero = (coalesce(ranked.low_saving_bytes, 1) <= 0)
WHERE ranked.place <= params.top_n OR ranked.unknown_reason IS NOT NULL
ORDER BY ranked.function_place, ranked.name_place, ranked.place;
