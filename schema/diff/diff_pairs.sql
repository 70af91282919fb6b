-- Which module of one side is compared with which of the other.
CREATE OR REPLACE MACRO diff_pairs(base_run, new_run) AS TABLE
WITH chosen_runs AS (
  SELECT 'base' AS side, chosen.run_name
  FROM selected_runs(base_run) AS chosen
  UNION ALL
  SELECT 'new' AS side, chosen.run_name
  FROM selected_runs(new_run) AS chosen
),
labelled_runs AS (
  SELECT
    chosen_runs.side,
    chosen_runs.run_name,
    coalesce(
      string_agg(
        run_labels.label || '=' || run_labels.label_value, ', ' ORDER BY run_labels.label
      ),
      ''
    ) AS other_labels
  FROM chosen_runs
  LEFT JOIN run_labels
    ON run_labels.run_name = chosen_runs.run_name
    AND NOT run_labels.is_metadata
    AND run_labels.label NOT IN (split_part(base_run, '=', 1), split_part(new_run, '=', 1))
  GROUP BY chosen_runs.side, chosen_runs.run_name
),
sizes AS (
  SELECT memory_sums.module_id, sum(memory_sums.total_bytes) AS size_bytes
  FROM memory_sums
  GROUP BY memory_sums.module_id
),
members AS (
  SELECT
    labelled_runs.side,
    labelled_runs.run_name,
    modules.module_id,
    modules.module_key,
    coalesce(modules.function_name, modules.module_key) AS function_name,
    module_signatures.entry_signature,
    coalesce(sizes.size_bytes, 0) AS size_bytes,
    modules.module_number,
    -- Labels and platform keep modules apart where both sides know them, and only there: cpu can
    -- be compared with gpu, and batch=8 with batch=16 without a look at other labels.
    CASE
      WHEN min(labelled_runs.side) OVER (PARTITION BY labelled_runs.other_labels)
        <> max(labelled_runs.side) OVER (PARTITION BY labelled_runs.other_labels)
        THEN labelled_runs.other_labels
      ELSE ''
    END AS shared_labels,
    CASE
      WHEN min(labelled_runs.side) OVER (PARTITION BY modules.platform)
        <> max(labelled_runs.side) OVER (PARTITION BY modules.platform)
        THEN coalesce(modules.platform, '')
      ELSE ''
    END AS shared_platform
  FROM labelled_runs
  JOIN modules ON modules.run_name = labelled_runs.run_name
  JOIN module_signatures ON module_signatures.module_id = modules.module_id
  LEFT JOIN sizes ON sizes.module_id = modules.module_id
),
alike AS (
  SELECT
    members.*,
    row_number() OVER (
      PARTITION BY side, shared_labels, shared_platform, function_name, entry_signature
      ORDER BY size_bytes DESC, module_number NULLS LAST, module_key, run_name
    ) AS place,
    count(*) OVER (
      PARTITION BY side, shared_labels, shared_platform, function_name, entry_signature
    ) AS place_count
  FROM members
),
same_signature AS (
  SELECT
    base_members.module_id AS base_module_id,
    new_members.module_id AS new_module_id,
    CASE
      WHEN base_members.place_count = 1 AND new_members.place_count = 1 THEN 'signature'
      ELSE 'signature, rank of size'
    END AS paired_by
  FROM alike AS base_members
  JOIN alike AS new_members
    ON new_members.shared_labels = base_members.shared_labels
    AND new_members.shared_platform = base_members.shared_platform
    AND new_members.function_name = base_members.function_name
    AND new_members.entry_signature = base_members.entry_signature
    AND new_members.place = base_members.place
  WHERE base_members.side = 'base'
    AND new_members.side = 'new'
),
left_over AS (
  SELECT
    members.*,
    row_number() OVER (
      PARTITION BY side, shared_labels, shared_platform, function_name
      ORDER BY size_bytes DESC, module_number NULLS LAST, module_key, run_name
    ) AS place,
    count(*) OVER (
      PARTITION BY side, shared_labels, shared_platform, function_name
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
    base_members.module_id AS base_module_id,
    new_members.module_id AS new_module_id,
    CASE
      WHEN base_members.module_id IS NULL THEN 'only in new'
      WHEN new_members.module_id IS NULL THEN 'only in base'
      WHEN base_members.place_count = 1 AND new_members.place_count = 1 THEN 'name'
      ELSE 'name, rank of size'
    END AS paired_by
  FROM (SELECT left_over.* FROM left_over WHERE left_over.side = 'base') AS base_members
  FULL JOIN (SELECT left_over.* FROM left_over WHERE left_over.side = 'new') AS new_members
    ON new_members.shared_labels = base_members.shared_labels
    AND new_members.shared_platform = base_members.shared_platform
    AND new_members.function_name = base_members.function_name
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
  pairs.paired_by,
  pairs.base_module_id,
  pairs.new_module_id,
  base_members.run_name AS base_run_name,
  new_members.run_name AS new_run_name,
  base_members.module_key AS base_module_key,
  new_members.module_key AS new_module_key,
  base_members.entry_signature AS base_signature,
  new_members.entry_signature AS new_signature
FROM pairs
LEFT JOIN members AS base_members
  ON base_members.side = 'base'
  AND base_members.module_id = pairs.base_module_id
LEFT JOIN members AS new_members
  ON new_members.side = 'new'
  AND new_members.module_id = pairs.new_module_id;
COMMENT ON MACRO TABLE diff_pairs IS
  'Which module of the runs base_run is compared with which of new_run (names of runs or LABEL=VALUE, see selected_runs). One row per pair and per module without a partner. paired_by says the rule: signature (same function, same shapes of arguments and result), name (same function, the only one left on both sides), each with "rank of size" where there were several, the largest with the largest; else only in base or only in new. asked_series follows functions over many runs by the same rule. Within that, runs that have their other labels (metadata left aside) in common are compared with each other, and so are platforms that both sides have.';
