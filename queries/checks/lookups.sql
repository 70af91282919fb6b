-- title: The lookup tables hold what bufdb ships
-- group: store
--
-- memory_spaces, op_categories and role_rules are data to edit: if you edited them, use
-- --skip lookups. schema_info has one row.
--
-- column module_id BIGINT: NULL: the tables belong to no module.
-- column finding VARCHAR: What was expected, what was found.
WITH shipped AS (
  SELECT
    'memory_spaces' AS table_name,
    concat_ws(', ', rows.platform, rows.color, rows.memory_space_name) AS row_text
  FROM (
    VALUES
      ('cpu', 0, 'host'),
      ('gpu', 0, 'device'),
      ('gpu', 1, 'collective'),
      ('gpu', 2, 'temp'),
      ('gpu', 5, 'host'),
      ('tpu', 0, 'hbm'),
      ('tpu', 1, 'vmem'),
      ('tpu', 2, 'sync_flag'),
      ('tpu', 3, 'cmem'),
      ('tpu', 4, 'smem'),
      ('tpu', 5, 'host'),
      ('tpu', 6, 'on_chip_scalar'),
      ('tpu', 7, 'sparsecore_private_stack'),
      ('tpu', 8, 'sparsecore_sequencer_flag'),
      ('tpu', 9, 'pinned_hbm'),
      ('tpu', 10, 'sparsecore_tile_flag'),
      ('tpu', 201, 'tile_spmem'),
      ('tpu', 202, 'spmem'),
      ('gpu', 300, 'shared'),
      ('gpu', 301, 'tensor')
  ) AS rows (platform, color, memory_space_name)
  UNION ALL
  SELECT
    'op_categories' AS table_name,
    concat_ws(
      ', ',
      rows.rule_order, rows.op_glob,
      coalesce(rows.module_glob, 'NULL'),
      coalesce(rows.category, 'NULL')
    ) AS row_text
  FROM (
    VALUES
      (10, '*/rematted_computation/*', NULL, 'rematerialized'),
      (20, '*transpose(*/remat/*', NULL, 'rematerialized'),
      (30, '*transpose(*', NULL, 'backward'),
      (31, '*gradient_tape/*', NULL, 'backward'),
      (32, '*gradients/*', NULL, 'backward'),
      (40, '*jvp(*', NULL, 'forward'),
      (50, '*opt_state*', NULL, 'optimizer'),
      (51, '*[Oo]ptimizer*', NULL, 'optimizer'),
      (52, '*[Aa]dam*', NULL, 'optimizer'),
      (53, '*tree_bias_correction*', NULL, 'optimizer'),
      (80, 'jit(*)/jit(main)/*', '*transpose(*', NULL),
      (90, '*jit(*/*', '*transpose(*', 'optimizer'),
      (91, '*jit(*/*', NULL, 'forward')
  ) AS rows (rule_order, op_glob, module_glob, category)
  UNION ALL
  SELECT
    'role_rules' AS table_name,
    concat_ws(', ', rows.rule_order, rows.subject, rows.name_glob, rows.role) AS row_text
  FROM (
    VALUES
      (100, 'parameter', '*[Gg]rads*', 'gradients'),
      (101, 'parameter', '*[Gg]radient*', 'gradients'),
      (110, 'parameter', '*opt_state*', 'optimizer state'),
      (111, 'parameter', '*[Oo]ptimizer*', 'optimizer state'),
      (112, 'parameter', '*[Aa]dam*', 'optimizer state'),
      (113, 'parameter', '*momentum*', 'optimizer state'),
      (114, 'parameter', '*velocity*', 'optimizer state'),
      (115, 'parameter', '*exp_avg*', 'optimizer state'),
      (116, 'parameter', '[mn]u', 'optimizer state'),
      (117, 'parameter', '[mn]u[[]*', 'optimizer state'),
      (118, 'parameter', '*[.''][mn]u', 'optimizer state'),
      (119, 'parameter', '*[.''][mn]u[[.'']*', 'optimizer state'),
      (130, 'parameter', '*batch_stats*', 'model state'),
      (131, 'parameter', '*cache*', 'model state'),
      (140, 'parameter', '*params*', 'weights'),
      (141, 'parameter', '*weights*', 'weights'),
      (142, 'parameter', '*kernel*', 'weights'),
      (143, 'parameter', '*bias*', 'weights'),
      (144, 'parameter', '*embedding*', 'weights'),
      (150, 'parameter', '*batch*', 'inputs'),
      (151, 'parameter', '*inputs*', 'inputs'),
      (152, 'parameter', '*tokens*', 'inputs'),
      (153, 'parameter', '*labels*', 'inputs'),
      (154, 'parameter', '*targets*', 'inputs'),
      (155, 'parameter', '*images*', 'inputs'),
      (156, 'parameter', '[xy]', 'inputs'),
      (157, 'parameter', '*rng*', 'inputs'),
      (158, 'parameter', 'key', 'inputs'),
      (159, 'parameter', 'seed', 'inputs'),
      (200, 'phase', 'forward', 'activations'),
      (201, 'phase', 'rematerialized', 'activations'),
      (202, 'phase', 'backward', 'gradients'),
      (203, 'phase', 'optimizer', 'optimizer step')
  ) AS rows (rule_order, subject, name_glob, role)
),
stored AS (
  SELECT
    'memory_spaces' AS table_name,
    concat_ws(', ', memory_spaces.platform, memory_spaces.color, memory_spaces.memory_space_name)
      AS row_text,
    count(*) AS row_count
  FROM memory_spaces
  GROUP BY ALL
  UNION ALL
  SELECT
    'op_categories' AS table_name,
    concat_ws(
      ', ',
      op_categories.rule_order, op_categories.op_glob,
      coalesce(op_categories.module_glob, 'NULL'),
      coalesce(op_categories.category, 'NULL')
    ) AS row_text,
    count(*) AS row_count
  FROM op_categories
  GROUP BY ALL
  UNION ALL
  SELECT
    'role_rules' AS table_name,
    concat_ws(
      ', ',
      role_rules.rule_order, role_rules.subject, role_rules.name_glob,
      coalesce(role_rules.role, 'NULL')
    ) AS row_text,
    count(*) AS row_count
  FROM role_rules
  GROUP BY ALL
)
SELECT
  NULL::BIGINT AS module_id,
  'table ' || coalesce(shipped.table_name, stored.table_name) || ': the row ('
    || coalesce(shipped.row_text, stored.row_text) || ') is ' || CASE
      WHEN stored.row_text IS NULL THEN 'missing'
      WHEN shipped.row_text IS NULL THEN 'not what bufdb ships; right if you have edited the table'
      ELSE 'there ' || stored.row_count || ' times'
    END AS finding
FROM shipped
FULL JOIN stored
  ON stored.table_name = shipped.table_name
  AND stored.row_text = shipped.row_text
WHERE shipped.row_text IS NULL
  OR stored.row_count IS DISTINCT FROM 1
UNION ALL
SELECT
  NULL::BIGINT AS module_id,
  'table schema_info: expected one row and the hash of views in 32 digits, found ' || count(*)
    || ' and ' || coalesce(min(schema_info.views_hash), 'none') AS finding
FROM schema_info
HAVING count(*) <> 1
  OR NOT regexp_full_match(min(schema_info.views_hash), '[0-9a-f]{32}')
ORDER BY finding;
