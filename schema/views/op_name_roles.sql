-- One row per op_name of a module that a rule of role_rules matches, with the first such rule.
CREATE OR REPLACE VIEW op_name_roles AS
WITH op_names AS (
  SELECT DISTINCT
    instructions.module_id, instructions.op_name,
    CASE WHEN instructions.opcode = 'parameter' THEN TRUE ELSE FALSE END AS is_parameter
  FROM instructions
  WHERE instructions.op_name IS NOT NULL
  UNION
  SELECT
    value_origins.module_id, value_origins.op_name,
    CASE WHEN value_origins.opcode = 'parameter' THEN TRUE ELSE FALSE END AS is_parameter
  FROM value_origins
  WHERE value_origins.op_name IS NOT NULL
),
matches AS (
  SELECT op_names.module_id, op_names.op_name, op_names.is_parameter, role_rules.rule_order
  FROM op_names
  JOIN role_rules ON op_names.op_name GLOB role_rules.name_glob
  WHERE role_rules.subject = CASE WHEN op_names.is_parameter THEN 'parameter' ELSE 'operation' END
  UNION ALL
  SELECT op_names.module_id, op_names.op_name, op_names.is_parameter, role_rules.rule_order
  FROM op_names
  JOIN op_name_categories
    ON op_name_categories.module_id = op_names.module_id
    AND op_name_categories.op_name = op_names.op_name
  JOIN role_rules ON op_name_categories.category GLOB role_rules.name_glob
  WHERE role_rules.subject = 'phase'
    AND NOT op_names.is_parameter
),
firsts AS (
  SELECT
    matches.module_id, matches.op_name, matches.is_parameter,
    min(matches.rule_order) AS rule_order
  FROM matches
  GROUP BY matches.module_id, matches.op_name, matches.is_parameter
)
SELECT
  firsts.module_id, firsts.op_name, firsts.is_parameter, firsts.rule_order, role_rules.role,
  CASE
    WHEN role_rules.role IS NULL THEN NULL
    WHEN firsts.rule_order < 0 THEN 'stated'
    WHEN role_rules.subject = 'phase' THEN 'possible'
    ELSE 'likely'
  END AS sureness
FROM firsts
JOIN role_rules ON role_rules.rule_order = firsts.rule_order;
COMMENT ON VIEW op_name_roles IS
  'One row per op_name of a module that a rule of role_rules matches. Key: module_id, op_name, is_parameter.';
COMMENT ON COLUMN op_name_roles.module_id IS 'The module: modules.module_id.';
COMMENT ON COLUMN op_name_roles.op_name IS 'Scope path or path of an argument: instructions.op_name.';
COMMENT ON COLUMN op_name_roles.is_parameter IS 'Whether it belongs to a parameter instruction; rules for parameters match only these.';
COMMENT ON COLUMN op_name_roles.rule_order IS 'The first rule that matches: role_rules.rule_order.';
COMMENT ON COLUMN op_name_roles.sureness IS 'stated, by a rule of the user''s file; likely, by a usual name of such arguments or operations; possible, by the phase in which it is computed; NULL where role is.';
