-- title: Memory of a set of programs that share weights: what is left for a cache
-- group: peak
-- engines: duckdb (spark, sail: it casts to an integer)
--
-- A server keeps several programs: prefill and decode, each for buckets of sizes. Weights and
-- caches are there once, one program runs at a time, and the code of all stays. For each run: the
-- arrays that its programs share, once, those that a program updates in place (donated arguments,
-- such as a key-value cache), what the program with the largest need takes in addition (arena,
-- outputs, arguments of its own), code, what is reserved, and with budget (the memory of the
-- device) what is left: cache_bytes is how large the caches may be in all, with token_bytes in
-- tokens (-p budget 16GiB -p token_bytes 128KiB). Then each program, largest first, those of
-- unknown need last: with one of those, the most of each part is unknown.
--
-- Programs share an argument if it has the same name and shape in several of them; with the same
-- shape alone it may be the same array or another, and the sum is a range. An argument that one
-- program alone has may be alive all the time, or be made for each call.
--
-- wrong when: Programs that do not serve (that make the weights, say) count too: choose with
-- function or module, or leave some out with skip. Two arrays of one name and shape may be
-- different ones: several models. Programs that run at the same time need more.
--
-- param run, function, platform, color, module
-- param skip VARCHAR = NULL: Leave out functions whose name matches this glob.
-- param budget BIGINT = NULL: Memory of the device that the server may use [bytes].
-- param token_bytes BIGINT = NULL: Bytes of cache that a token takes [bytes].
-- param reserved_bytes BIGINT = 0: What the runtime or other libraries keep [bytes].
-- param top_n BIGINT = 20: Programs to show of each run.
--
-- column run_name, platform, color
-- column part VARCHAR: weights (and what else is shared); cache (updated in place); own (arguments
--   of other programs alone); program (the largest, what it takes in addition); code; reserved;
--   left; then bucket: each program.
-- column function_name VARCHAR: The program of a program or bucket; NULL for other parts.
-- column module_key VARCHAR: Its module.
-- column low_bytes HUGEINT: The least that the part takes, of what is left the least [bytes]; NULL
--   if not known.
-- column held_bytes HUGEINT: The most [bytes]; NULL if not known.
-- column array_count BIGINT: Number of arrays, at the most; NULL for parts that are none.
-- column low_cache_bytes HUGEINT: In the row left: the least that caches may take in all, with
--   those that are there [bytes]; NULL without budget, and where a part is not known.
-- column cache_bytes HUGEINT: The most [bytes]; NULL where low_cache_bytes is.
-- column low_token_count HUGEINT: The least number of tokens of token_bytes in it; NULL without
--   token_bytes, or where low_cache_bytes is.
-- column token_count HUGEINT: The most; NULL where low_token_count is.
-- column sharing VARCHAR: How it is known what is shared: same name and shape; same shape (in part,
--   which is the range); NULL for parts that are not about that.
-- column unknown_reason VARCHAR: Why the part is not known; NULL if it is.
WITH params AS (
  SELECT
    getvariable('skip')::VARCHAR AS skip,
    getvariable('budget')::BIGINT AS budget,
    getvariable('token_bytes')::BIGINT AS token_bytes,
    coalesce(getvariable('reserved_bytes')::BIGINT, 0) AS reserved_bytes,
    coalesce(getvariable('top_n')::BIGINT, 20) AS top_n
),
chosen AS (
  SELECT
    asked_modules.run_name, asked_modules.platform, asked_modules.color, asked_modules.module_id,
    asked_modules.module_key,
    coalesce(asked_modules.function_name, asked_modules.module_key) AS function_name,
    asked_modules.need_bytes, asked_modules.peak_unknown_reason
  FROM asked_modules
  CROSS JOIN params
  WHERE params.skip IS NULL
    OR NOT coalesce(asked_modules.function_name, asked_modules.module_key) GLOB params.skip
),
programs AS (
  SELECT
    chosen.run_name, chosen.platform, chosen.color, chosen.module_id, chosen.module_key,
    chosen.function_name, chosen.need_bytes
  FROM chosen
  WHERE chosen.need_bytes IS NOT NULL
),
unread AS (
  SELECT
    chosen.run_name, chosen.platform, chosen.color, chosen.function_name, chosen.module_key,
    chosen.peak_unknown_reason AS unknown_reason,
    row_number() OVER (
      PARTITION BY chosen.run_name, chosen.platform ORDER BY chosen.function_name, chosen.module_key
    ) AS place
  FROM chosen
  WHERE chosen.need_bytes IS NULL
),
arguments AS (
  SELECT
    programs.run_name, programs.platform, programs.color, programs.module_id,
    parameter_shardings.allocation_index,
    -- Layouts are the compiler's.
    regexp_replace(parameter_shardings.shape, '[{].*$', '') AS shape,
    parameter_shardings.size_bytes,
    CASE
      WHEN parameter_shardings.parameter_name <> parameter_shardings.instruction_name
        THEN parameter_shardings.parameter_name
    END AS name,
    allocations.kind = 'donated_parameter' AS is_donated
  FROM programs
  JOIN parameter_shardings
    ON parameter_shardings.module_id = programs.module_id
    AND parameter_shardings.color = programs.color
  JOIN allocations
    ON allocations.module_id = parameter_shardings.module_id
    AND allocations.allocation_index = parameter_shardings.allocation_index
),
named AS (
  SELECT
    arguments.run_name, arguments.platform, arguments.color, arguments.module_id,
    arguments.shape, arguments.size_bytes, arguments.name,
    bool_or(arguments.is_donated) OVER same_name AS is_donated,
    arguments.name IS NOT NULL
      AND min(arguments.module_id) OVER same_name < max(arguments.module_id) OVER same_name
      AS is_named,
    row_number() OVER (same_name ORDER BY arguments.module_id, arguments.allocation_index)
      AS name_place
  FROM arguments
  WINDOW same_name AS (
    PARTITION BY
      arguments.run_name, arguments.platform, arguments.color, arguments.name, arguments.shape,
      arguments.size_bytes
  )
),
-- Without a name that another program has, arrays of a shape may be those of another program.
shaped AS (
  SELECT
    named.run_name, named.platform, named.color, named.module_id, named.shape, named.size_bytes,
    bool_or(named.is_donated) AS is_donated,
    count(*) AS array_count
  FROM named
  WHERE NOT named.is_named
  GROUP BY
    named.run_name, named.platform, named.color, named.module_id, named.shape, named.size_bytes
),
alike AS (
  SELECT
    shaped.run_name, shaped.platform, shaped.color, shaped.size_bytes,
    bool_or(shaped.is_donated) AS is_donated,
    count(*) AS program_count,
    max(shaped.array_count) AS most_count,
    sum(shaped.array_count)::BIGINT AS array_count
  FROM shaped
  GROUP BY shaped.run_name, shaped.platform, shaped.color, shaped.shape, shaped.size_bytes
),
shared AS (
  SELECT
    named.run_name, named.platform, named.color, named.is_donated,
    sum(named.size_bytes) AS low_bytes,
    sum(named.size_bytes) AS held_bytes,
    count(*) AS array_count,
    FALSE AS is_by_shape
  FROM named
  WHERE named.is_named
    AND named.name_place = 1
  GROUP BY named.run_name, named.platform, named.color, named.is_donated
  UNION ALL
  SELECT
    alike.run_name, alike.platform, alike.color, alike.is_donated,
    sum(alike.most_count::HUGEINT * alike.size_bytes) AS low_bytes,
    sum(alike.array_count::HUGEINT * alike.size_bytes) AS held_bytes,
    sum(alike.array_count)::BIGINT AS array_count,
    TRUE AS is_by_shape
  FROM alike
  WHERE alike.program_count > 1
  GROUP BY alike.run_name, alike.platform, alike.color, alike.is_donated
),
sums AS (
  SELECT
    shared.run_name, shared.platform, shared.color, shared.is_donated,
    sum(shared.low_bytes) AS low_bytes,
    sum(shared.held_bytes) AS held_bytes,
    sum(shared.array_count)::BIGINT AS array_count,
    bool_or(shared.is_by_shape) AS is_by_shape
  FROM shared
  GROUP BY shared.run_name, shared.platform, shared.color, shared.is_donated
),
-- What each program takes in addition: its need without what it shares.
shares AS (
  SELECT
    named.module_id, named.color,
    sum(named.size_bytes) FILTER (WHERE named.is_named OR alike_shapes.shape IS NOT NULL)
      AS shared_bytes,
    sum(named.size_bytes) FILTER (WHERE NOT named.is_named AND alike_shapes.shape IS NULL)
      AS own_bytes
  FROM named
  LEFT JOIN (
    SELECT shaped.run_name, shaped.platform, shaped.color, shaped.shape, shaped.size_bytes
    FROM shaped
    GROUP BY shaped.run_name, shaped.platform, shaped.color, shaped.shape, shaped.size_bytes
    HAVING count(*) > 1
  ) AS alike_shapes
    ON alike_shapes.run_name = named.run_name
    AND alike_shapes.platform IS NOT DISTINCT FROM named.platform
    AND alike_shapes.color = named.color
    AND alike_shapes.shape = named.shape
    AND alike_shapes.size_bytes = named.size_bytes
  GROUP BY named.module_id, named.color
),
buckets AS (
  SELECT
    programs.run_name, programs.platform, programs.color, programs.function_name,
    programs.module_key,
    programs.need_bytes - coalesce(shares.shared_bytes, 0) AS held_bytes,
    coalesce(shares.own_bytes, 0) AS own_bytes,
    row_number() OVER (
      PARTITION BY programs.run_name, programs.platform, programs.color
      ORDER BY
        programs.need_bytes - coalesce(shares.shared_bytes, 0) DESC, programs.function_name,
        programs.module_key
    ) AS place
  FROM programs
  LEFT JOIN shares
    ON shares.module_id = programs.module_id
    AND shares.color = programs.color
),
runs_of AS (
  SELECT
    buckets.run_name, buckets.platform, buckets.color,
    max(CASE WHEN buckets.place = 1 THEN buckets.held_bytes END) AS program_bytes,
    max(CASE WHEN buckets.place = 1 THEN buckets.function_name END) AS function_name,
    max(CASE WHEN buckets.place = 1 THEN buckets.module_key END) AS module_key,
    coalesce(sum(CASE WHEN buckets.place > 1 THEN buckets.own_bytes END), 0) AS own_bytes,
    count(*) AS program_count
  FROM buckets
  GROUP BY buckets.run_name, buckets.platform, buckets.color
),
-- Programs of unknown need may share more, hold more of their own or be the largest.
unknowns AS (
  SELECT
    unread.run_name, unread.platform,
    unread.function_name || ': ' || unread.unknown_reason AS unknown_reason
  FROM unread
  WHERE unread.place = 1
),
codes AS (
  SELECT live_profiles.run_name, max(live_profiles.code_bytes) AS code_bytes
  FROM live_profiles
  GROUP BY live_profiles.run_name
  HAVING count(*) = count(live_profiles.code_bytes)
),
parts AS (
  SELECT
    runs_of.run_name, runs_of.platform, runs_of.color,
    unnest(['weights', 'cache', 'own', 'program', 'code', 'reserved']) AS part,
    unnest([1, 2, 3, 4, 5, 6]) AS part_place,
    unnest([NULL, NULL, NULL, runs_of.function_name, NULL, NULL]) AS function_name,
    unnest([NULL, NULL, NULL, runs_of.module_key, NULL, NULL]) AS module_key,
    unnest([
      coalesce(weights.low_bytes, 0), coalesce(caches.low_bytes, 0), 0, runs_of.program_bytes,
      codes.code_bytes, params.reserved_bytes
    ]) AS low_bytes,
    unnest([
      CASE WHEN unknowns.run_name IS NULL THEN coalesce(weights.held_bytes, 0) END,
      CASE WHEN unknowns.run_name IS NULL THEN coalesce(caches.held_bytes, 0) END,
      CASE WHEN unknowns.run_name IS NULL THEN runs_of.own_bytes END,
      CASE WHEN unknowns.run_name IS NULL THEN runs_of.program_bytes END,
      codes.code_bytes, params.reserved_bytes
    ]) AS held_bytes,
    unnest([
      coalesce(weights.array_count, 0), coalesce(caches.array_count, 0), NULL, NULL, NULL, NULL
    ]) AS array_count,
    unnest([
      CASE
        WHEN runs_of.program_count = 1 THEN NULL
        WHEN weights.is_by_shape THEN 'same shape'
        WHEN weights.run_name IS NOT NULL THEN 'same name and shape'
      END,
      CASE
        WHEN caches.is_by_shape THEN 'same shape'
        WHEN caches.run_name IS NOT NULL THEN 'same name and shape'
      END,
      NULL, NULL, NULL, NULL
    ]) AS sharing,
    unnest([
      CASE
        WHEN unknowns.run_name IS NOT NULL THEN unknowns.unknown_reason
        WHEN runs_of.program_count = 1
          THEN 'one program shares nothing: its weights are in the row program'
      END,
      unknowns.unknown_reason, unknowns.unknown_reason, unknowns.unknown_reason,
      CASE
        WHEN codes.code_bytes IS NULL
          THEN 'no memory profile of the run has the size of the loaded programs'' code'
      END,
      NULL
    ]) AS unknown_reason
  FROM runs_of
  CROSS JOIN params
  LEFT JOIN sums AS weights
    ON weights.run_name = runs_of.run_name
    AND weights.platform IS NOT DISTINCT FROM runs_of.platform
    AND weights.color = runs_of.color
    AND NOT weights.is_donated
  LEFT JOIN sums AS caches
    ON caches.run_name = runs_of.run_name
    AND caches.platform IS NOT DISTINCT FROM runs_of.platform
    AND caches.color = runs_of.color
    AND caches.is_donated
  LEFT JOIN codes ON codes.run_name = runs_of.run_name
  LEFT JOIN unknowns
    ON unknowns.run_name = runs_of.run_name
    AND unknowns.platform IS NOT DISTINCT FROM runs_of.platform
),
lefts AS (
  SELECT
    parts.run_name, parts.platform, parts.color,
    any_value(params.budget) - sum(parts.held_bytes) AS low_bytes,
    any_value(params.budget) - sum(parts.low_bytes) AS held_bytes,
    any_value(params.budget)
      - sum(CASE WHEN parts.part <> 'cache' THEN parts.held_bytes END) AS low_cache_bytes,
    any_value(params.budget)
      - sum(CASE WHEN parts.part <> 'cache' THEN parts.low_bytes END) AS cache_bytes,
    any_value(params.token_bytes) AS token_bytes,
    -- Code is small next to the rest: what is left is said without it, and the reason.
    coalesce(
      min(parts.unknown_reason) FILTER (WHERE parts.part = 'program'),
      min(parts.unknown_reason) FILTER (WHERE parts.part = 'code')
    ) AS unknown_reason
  FROM parts
  CROSS JOIN params
  GROUP BY parts.run_name, parts.platform, parts.color
),
answers AS (
  SELECT
    parts.run_name, parts.platform, parts.color, parts.part, parts.part_place, 0 AS place,
    parts.function_name, parts.module_key, parts.low_bytes, parts.held_bytes, parts.array_count,
    NULL AS low_cache_bytes, NULL AS cache_bytes, NULL AS low_token_count, NULL AS token_count,
    parts.sharing, parts.unknown_reason
  FROM parts
  WHERE parts.held_bytes > 0
    OR parts.unknown_reason IS NOT NULL
    OR parts.part IN ('weights', 'program')
  UNION ALL
  SELECT
    lefts.run_name, lefts.platform, lefts.color, 'left' AS part, 7 AS part_place, 0 AS place,
    NULL AS function_name, NULL AS module_key,
    CASE WHEN lefts.unknown_reason IS NULL THEN lefts.low_bytes END AS low_bytes,
    lefts.held_bytes, NULL AS array_count,
    CASE WHEN lefts.unknown_reason IS NULL THEN lefts.low_cache_bytes END AS low_cache_bytes,
    lefts.cache_bytes,
    CASE
      WHEN lefts.unknown_reason IS NULL AND lefts.token_bytes > 0
        THEN greatest(lefts.low_cache_bytes, 0) // lefts.token_bytes
    END AS low_token_count,
    CASE WHEN lefts.token_bytes > 0 THEN greatest(lefts.cache_bytes, 0) // lefts.token_bytes END
      AS token_count,
    NULL AS sharing, lefts.unknown_reason
  FROM lefts
  WHERE lefts.held_bytes IS NOT NULL
  UNION ALL
  SELECT
    unread.run_name, unread.platform, unread.color, 'bucket' AS part, 9 AS part_place,
    unread.place, unread.function_name, unread.module_key, NULL AS low_bytes, NULL AS held_bytes,
    NULL AS array_count, NULL AS low_cache_bytes, NULL AS cache_bytes, NULL AS low_token_count,
    NULL AS token_count, NULL AS sharing, unread.unknown_reason
  FROM unread
  UNION ALL
  SELECT
    buckets.run_name, buckets.platform, buckets.color, 'bucket' AS part, 8 AS part_place,
    buckets.place, buckets.function_name, buckets.module_key, buckets.held_bytes AS low_bytes,
    buckets.held_bytes, NULL AS array_count, NULL AS low_cache_bytes, NULL AS cache_bytes,
    NULL AS low_token_count, NULL AS token_count, NULL AS sharing, NULL AS unknown_reason
  FROM buckets
)
SELECT
  answers.run_name, answers.platform, answers.color, answers.part, answers.function_name,
  answers.module_key,
  answers.low_bytes::HUGEINT AS low_bytes,
  answers.held_bytes::HUGEINT AS held_bytes,
  answers.array_count,
  answers.low_cache_bytes::HUGEINT AS low_cache_bytes,
  answers.cache_bytes::HUGEINT AS cache_bytes,
  answers.low_token_count::HUGEINT AS low_token_count,
  answers.token_count::HUGEINT AS token_count,
  answers.sharing, answers.unknown_reason
FROM answers
CROSS JOIN params
WHERE answers.place <= params.top_n
ORDER BY
  answers.run_name, answers.platform NULLS LAST, answers.color, answers.part_place, answers.place;
