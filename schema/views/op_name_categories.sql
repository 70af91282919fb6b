-- One row per op_name of a module that a rule of op_categories matches, with the first such rule.
CREATE OR REPLACE VIEW op_name_categories AS
WITH op_names AS (
  SELECT DISTINCT
    instructions.module_id, instructions.op_name
  FROM instructions
  WHERE instructions.op_name IS NOT NULL
  UNION
  SELECT
    value_origins.module_id, value_origins.op_name
  FROM value_origins
  WHERE value_origins.op_name IS NOT NULL
),
module_rules AS (
  SELECT DISTINCT
    op_names.module_id, op_categories.rule_order
  FROM op_names
  JOIN op_categories ON op_names.op_name GLOB op_categories.module_glob
),
matches AS (
  SELECT
    op_names.module_id, op_names.op_name,
    min(op_categories.rule_order) AS rule_order
  FROM op_names
  JOIN op_categories ON op_names.op_name GLOB op_categories.op_glob
  LEFT JOIN module_rules
    ON module_rules.module_id = op_names.module_id
    AND module_rules.rule_order = op_categories.rule_order
  WHERE op_categories.module_glob IS NULL OR module_rules.rule_order IS NOT NULL
  GROUP BY op_names.module_id, op_names.op_name
)
SELECT
  matches.module_id, matches.op_name, matches.rule_order, op_categories.category
FROM matches
JOIN op_categories ON op_categories.rule_order = matches.rule_order;
COMMENT ON VIEW op_name_categories IS
  'One row per op_name of a module that a rule of op_categories matches. Key: module_id, op_name.';
COMMENT ON COLUMN op_name_categories.rule_order IS 'The first rule that matches: op_categories.rule_order.';
