-- One row per rule that assigns an array a role in the model: weights, gradients, … Rules are data to edit. Key: rule_order.
CREATE TABLE role_rules (
  rule_order BIGINT NOT NULL,
  subject VARCHAR NOT NULL CHECK (subject IN ('parameter', 'operation', 'phase')),
  name_glob VARCHAR NOT NULL,
  role VARCHAR
);
COMMENT ON TABLE role_rules IS
  'One row per rule that assigns an array a role in the model; the first rule that matches wins (op_name_roles). Rules are data: change them by INSERT, UPDATE and DELETE or, for one question, with a file (--categories). Key: rule_order.';
COMMENT ON COLUMN role_rules.rule_order IS
  'Order of the rule; the lowest that matches wins. Rules from a file are negative, those that come with bufdb positive.';
COMMENT ON COLUMN role_rules.subject IS
  'What the glob matches: parameter, the name of an entry parameter, which in JAX is the path of the argument (opt_state[0].mu[''w'']); operation, the op_name of any other instruction; phase, the category of such an op_name (op_categories).';
COMMENT ON COLUMN role_rules.name_glob IS
  'Glob that the whole name must match, case-sensitive; [[] matches a bracket, ? any character.';
COMMENT ON COLUMN role_rules.role IS
  'Role of what the rule matches: weights, optimizer state, gradients, activations or a word of yours; NULL for unknown: no later rule applies.';
INSERT INTO role_rules VALUES
  -- Arguments, by their usual names. Optimizer state contains the names of the weights, so it
  -- comes first.
  (100, 'parameter', '*[Gg]rads*', 'gradients'),
  (101, 'parameter', '*[Gg]radient*', 'gradients'),
  (110, 'parameter', '*opt_state*', 'optimizer state'),
  (111, 'parameter', '*[Oo]ptimizer*', 'optimizer state'),
  (112, 'parameter', '*[Aa]dam*', 'optimizer state'),
  (113, 'parameter', '*momentum*', 'optimizer state'),
  (114, 'parameter', '*velocity*', 'optimizer state'),
  (115, 'parameter', '*exp_avg*', 'optimizer state'),
  -- mu and nu: as an argument, an attribute or a key.
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
  -- Everything else, by the phase in which it is computed.
  (200, 'phase', 'forward', 'activations'),
  (201, 'phase', 'rematerialized', 'activations'),
  (202, 'phase', 'backward', 'gradients'),
  (203, 'phase', 'optimizer', 'optimizer step');
