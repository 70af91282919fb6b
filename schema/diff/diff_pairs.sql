-- Pairs of modules of two sides that are compared with each other.
CREATE OR REPLACE MACRO diff_pairs(base_run, new_run, asked_pairs := NULL) AS TABLE
WITH known_members AS (
  SELECT
    members.*,
    row_number() OVER (
      PARTITION BY members.shared_labels, members.shared_platform, members.pairing_name
      ORDER BY
        members.size_bytes DESC, members.module_number NULLS LAST, members.module_key,
        members.run_name
    ) AS function_place,
    min(members.side) OVER same_function = max(members.side) OVER same_function AS is_lone
  FROM diff_members(base_run, new_run, asked_pairs) AS members
  WINDOW same_function AS (
    PARTITION BY members.shared_labels, members.shared_platform, members.pairing_name
  )
),
-- Functions that the other side lacks, each with its largest compilation.
lone AS (
  SELECT
    known_members.side, known_members.shared_labels, known_members.shared_platform,
    known_members.pairing_name, known_members.entry_signature,
    -- Without words for how a function is run rather than what it computes.
    trim(
      regexp_replace(
        '_' || replace(lower(known_members.given_name), '_', '__') || '_',
        '_(checkpoint|checkpointed|remat|rematted|noremat|shard|sharded|spmd|donated)_', '', 'g'
      ),
      '_'
    ) AS plain_name,
    regexp_extract_all(known_members.entry_signature, '[a-z][a-z0-9]*[[][^]]*[]]') AS shapes
  FROM known_members
  WHERE known_members.is_lone
    AND known_members.function_place = 1
    AND known_members.asked_pair IS NULL
    AND known_members.entry_signature IS NOT NULL
),
candidates AS (
  SELECT
    base_lone.shared_labels, base_lone.shared_platform, base_lone.pairing_name AS base_pairing_name,
    new_lone.pairing_name AS new_pairing_name, base_lone.shapes AS base_shapes,
    new_lone.shapes AS new_shapes,
    base_lone.entry_signature = new_lone.entry_signature AS has_same_signature,
    common_shape_count(base_lone.shapes, new_lone.shapes)
      / greatest(len(base_lone.shapes), len(new_lone.shapes), 1) AS shape_likeness,
    name_likeness(base_lone.plain_name, new_lone.plain_name) AS name_likeness,
    -- Scalars are everywhere and distinguish nothing.
    len(regexp_extract_all(base_lone.entry_signature, '[[][^]]')) AS array_count
  FROM (SELECT lone.* FROM lone WHERE lone.side = 'base') AS base_lone
  JOIN (SELECT lone.* FROM lone WHERE lone.side = 'new') AS new_lone
    ON new_lone.shared_labels = base_lone.shared_labels
    AND new_lone.shared_platform = base_lone.shared_platform
),
weighed AS (
  SELECT
    candidates.*,
    -- Sharded, or for another batch.
    (candidates.name_likeness >= 0.75 OR candidates.array_count >= 8)
      AND (
        are_multiples(candidates.base_shapes, candidates.new_shapes)
        OR are_multiples(candidates.new_shapes, candidates.base_shapes)
      ) AS is_multiple
  FROM candidates
),
scored AS (
  SELECT
    weighed.*,
    weighed.name_likeness
      + CASE
        WHEN weighed.has_same_signature THEN 1.3
        WHEN weighed.is_multiple THEN greatest(weighed.shape_likeness, 0.9)
        ELSE weighed.shape_likeness
      END AS score,
    CASE
      WHEN weighed.name_likeness >= 0.75
        THEN weighed.has_same_signature OR weighed.is_multiple OR weighed.shape_likeness >= 0.6
      -- Without similar names, enough shapes must be equal to rule out coincidence.
      ELSE (weighed.has_same_signature AND weighed.array_count >= 4)
        OR (weighed.shape_likeness >= 0.9 AND weighed.array_count >= 8)
        OR (weighed.is_multiple AND weighed.shape_likeness >= 0.5)
    END AS is_likely
  FROM weighed
),
ranked AS (
  SELECT
    scored.*,
    row_number() OVER of_base AS base_place,
    row_number() OVER of_new AS new_place,
    lead(scored.score) OVER of_base AS next_base_score,
    lead(scored.score) OVER of_new AS next_new_score
  FROM scored
  WINDOW
    of_base AS (
      PARTITION BY scored.shared_labels, scored.shared_platform, scored.base_pairing_name
      ORDER BY scored.score DESC
    ),
    of_new AS (
      PARTITION BY scored.shared_labels, scored.shared_platform, scored.new_pairing_name
      ORDER BY scored.score DESC
    )
),
renames AS (
  SELECT
    ranked.shared_labels, ranked.shared_platform, ranked.base_pairing_name, ranked.new_pairing_name,
    CASE WHEN ranked.has_same_signature THEN 'signature alone' ELSE 'likeness' END AS renamed_by
  FROM ranked
  WHERE ranked.is_likely
    AND ranked.base_place = 1
    AND ranked.new_place = 1
    -- Another candidate that is almost as close could be the right one.
    AND ranked.score - coalesce(greatest(ranked.next_base_score, ranked.next_new_score), 0) >= 0.2
),
members AS (
  SELECT
    known_members.* EXCLUDE (function_place, is_lone)
      REPLACE (
        CASE known_members.side
          WHEN 'base' THEN coalesce(renames.new_pairing_name, known_members.pairing_name)
          ELSE known_members.pairing_name
        END AS pairing_name
      ),
    CASE WHEN known_members.asked_pair IS NULL THEN renames.renamed_by ELSE 'asked' END
      AS renamed_by
  FROM known_members
  LEFT JOIN renames
    ON known_members.is_lone
    AND renames.shared_labels = known_members.shared_labels
    AND renames.shared_platform = known_members.shared_platform
    AND CASE known_members.side WHEN 'base' THEN renames.base_pairing_name
      ELSE renames.new_pairing_name END = known_members.pairing_name
),
alike AS (
  SELECT
    members.*,
    row_number() OVER (
      PARTITION BY side, shared_labels, shared_platform, pairing_name, entry_signature
      ORDER BY size_bytes DESC, module_number NULLS LAST, module_key, run_name
    ) AS place,
    count(*) OVER (
      PARTITION BY side, shared_labels, shared_platform, pairing_name, entry_signature
    ) AS place_count
  FROM members
),
same_signature AS (
  SELECT
    base_members.module_id AS base_module_id, new_members.module_id AS new_module_id,
    coalesce(new_members.renamed_by, 'signature')
      || CASE
        WHEN base_members.place_count = 1 AND new_members.place_count = 1 THEN ''
        ELSE ', rank of size'
      END AS paired_by
  FROM alike AS base_members
  JOIN alike AS new_members
    ON new_members.shared_labels = base_members.shared_labels
    AND new_members.shared_platform = base_members.shared_platform
    AND new_members.pairing_name = base_members.pairing_name
    AND new_members.entry_signature = base_members.entry_signature
    AND new_members.place = base_members.place
  WHERE base_members.side = 'base'
    AND new_members.side = 'new'
),
left_over AS (
  SELECT
    members.*,
    row_number() OVER (
      PARTITION BY side, shared_labels, shared_platform, pairing_name
      ORDER BY size_bytes DESC, module_number NULLS LAST, module_key, run_name
    ) AS place,
    count(*) OVER (
      PARTITION BY side, shared_labels, shared_platform, pairing_name
    ) AS place_count
  FROM members
  WHERE NOT EXISTS (
    SELECT 1
    FROM same_signature
    WHERE CASE members.side
      WHEN 'base' THEN same_signature.base_module_id
      ELSE same_signature.new_module_id
    END = members.module_id
  )
),
same_name AS (
  SELECT
    base_members.module_id AS base_module_id, new_members.module_id AS new_module_id,
    CASE
      WHEN base_members.module_id IS NULL THEN 'only in new'
      WHEN new_members.module_id IS NULL THEN 'only in base'
      ELSE
        -- Compilations of a renamed function whose shapes differ are not paired by signature.
        coalesce(replace(new_members.renamed_by, 'signature alone', 'likeness'), 'name')
        || CASE
          WHEN base_members.place_count = 1 AND new_members.place_count = 1 THEN ''
          ELSE ', rank of size'
        END
    END AS paired_by
  FROM (SELECT left_over.* FROM left_over WHERE left_over.side = 'base') AS base_members
  FULL JOIN (SELECT left_over.* FROM left_over WHERE left_over.side = 'new') AS new_members
    ON new_members.shared_labels = base_members.shared_labels
    AND new_members.shared_platform = base_members.shared_platform
    AND new_members.pairing_name = base_members.pairing_name
    AND new_members.place = base_members.place
),
pairs AS (
  SELECT same_signature.base_module_id, same_signature.new_module_id, same_signature.paired_by
  FROM same_signature
  UNION ALL
  SELECT same_name.base_module_id, same_name.new_module_id, same_name.paired_by
  FROM same_name
)
SELECT
  coalesce(new_members.function_name, base_members.function_name) AS function_name,
  base_members.function_name AS base_function_name, new_members.function_name AS new_function_name,
  pairs.paired_by, pairs.base_module_id, pairs.new_module_id,
  base_members.run_name AS base_run_name, new_members.run_name AS new_run_name,
  base_members.module_key AS base_module_key, new_members.module_key AS new_module_key,
  base_members.entry_signature AS base_signature, new_members.entry_signature AS new_signature
FROM pairs
LEFT JOIN members AS base_members
  ON base_members.side = 'base'
  AND base_members.module_id = pairs.base_module_id
LEFT JOIN members AS new_members
  ON new_members.side = 'new'
  AND new_members.module_id = pairs.new_module_id;
COMMENT ON MACRO TABLE diff_pairs IS
  'Pairs of a module of base_run and one of new_run (names of runs or LABEL=VALUE, see selected_runs). One row per pair and per module without a partner. paired_by is the rule: signature (same function, same shapes of arguments and result), name (same function, the only one left on both sides), signature alone or likeness (a function only in base is the same as one only in new, renamed), asked (asked_pairs says so: OLD=NEW, separated by commas, names of functions or modules), each with "rank of size" where there were several, paired in order of size; else only in base or only in new. function_name is the name in new, or in base if new has no such module. A function counts as renamed if the largest compilations of both have the same signature (signature alone) or a similar one (likeness), and no other candidate is close. With similar names (name_likeness of 0.75 or more, without words such as remat or sharded) similar means six of ten shapes the same, or all shapes of one multiples of the other''s (are_multiples: sharded, another batch). Otherwise it takes the same signature of four arrays or more or, for eight arrays or more, nine of ten shapes the same or multiples with half of them the same. asked_series follows functions over many runs by the same rules, without renaming. In all of this, runs are compared with runs that have the same other labels (without metadata), and platforms that both sides have with each other.';
