-- The modules of both sides of a comparison, with what must be equal for a pair.
CREATE OR REPLACE MACRO diff_members(base_run, new_run, asked_pairs := NULL) AS TABLE
WITH chosen_runs AS (
  SELECT 'base' AS side, chosen.run_name
  FROM selected_runs(base_run) AS chosen
  UNION ALL
  SELECT 'new' AS side, chosen.run_name
  FROM selected_runs(new_run) AS chosen
),
labelled_runs AS (
  SELECT
    chosen_runs.side, chosen_runs.run_name,
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
  -- Compared with an unnamed side, everything would be new or gone.
  WHERE base_run IS NOT NULL AND new_run IS NOT NULL
  GROUP BY chosen_runs.side, chosen_runs.run_name
),
sizes AS (
  SELECT memory_sums.module_id, sum(memory_sums.total_bytes) AS size_bytes
  FROM memory_sums
  GROUP BY memory_sums.module_id
),
members AS (
  SELECT
    labelled_runs.side, labelled_runs.run_name, modules.module_id, modules.module_key,
    coalesce(modules.function_name, modules.module_key) AS function_name,
    -- The name that the author gave, if any.
    CASE
      WHEN modules.function_name IS NOT NULL OR modules.module_name IS NULL
        THEN coalesce(modules.function_name, modules.module_key)
    END AS given_name,
    module_signatures.pairing_name,
    list_filter(
      asked.pairs,
      -- A name may contain "=", so the request is compared with existing names and never split.
      lambda pair: CASE labelled_runs.side
        WHEN 'base'
          THEN starts_with(pair, modules.function_name || '=')
            OR starts_with(pair, modules.module_name || '=')
            OR starts_with(pair, modules.module_key || '=')
        ELSE suffix(pair, '=' || modules.function_name)
          OR suffix(pair, '=' || modules.module_name)
          OR suffix(pair, '=' || modules.module_key)
      END
    )[1] AS asked_pair,
    module_signatures.entry_signature,
    coalesce(sizes.size_bytes, 0) AS size_bytes,
    modules.module_number,
    -- Labels and platform separate modules only where both sides have them: cpu can be compared
    -- with gpu, and batch=8 with batch=16 whatever the other labels.
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
  CROSS JOIN (SELECT regexp_split_to_array(trim(asked_pairs::VARCHAR), '\s*,\s*') AS pairs) AS asked
  JOIN modules ON modules.run_name = labelled_runs.run_name
  JOIN module_signatures ON module_signatures.module_id = modules.module_id
  LEFT JOIN sizes ON sizes.module_id = modules.module_id
)
SELECT
  known.* REPLACE (coalesce('=' || known.asked_pair, known.pairing_name) AS pairing_name)
FROM (
  SELECT
    members.*
      REPLACE (
        -- A requested pair needs modules on both sides.
        CASE
          WHEN min(members.side) OVER (PARTITION BY members.asked_pair)
            <> max(members.side) OVER (PARTITION BY members.asked_pair)
            THEN members.asked_pair
        END AS asked_pair
      )
  FROM members
) AS known;
COMMENT ON MACRO TABLE diff_members IS
  'The modules in a comparison. One row per side (base or new) and module of the runs that base_run and new_run name (see selected_runs), with what must be equal for two to be paired: shared_labels, the other labels of its run (without metadata) if a run of the other side has the same, else empty; shared_platform, its platform if the other side has it, else empty; and pairing_name (module_signatures), unless asked_pairs (OLD=NEW, separated by commas: names of functions or modules in base and in new) names it, which sets asked_pair. given_name is NULL for programs without a name from their author (torch_xla).';
