-- One row per run, shape and literal of constants: how many programs have it.
CREATE OR REPLACE VIEW literal_programs AS
SELECT
  constant_literals.run_name, constant_literals.shape,
  coalesce(constant_literals.literal, '') AS literal,
  count(DISTINCT constant_literals.module_id) AS program_count
FROM constant_literals
WHERE constant_literals.shape IS NOT NULL
GROUP BY
  constant_literals.run_name, constant_literals.shape, coalesce(constant_literals.literal, '');
COMMENT ON VIEW literal_programs IS
  'One row per run, shape and literal of constants: how many programs of the run have it. Key: run_name, shape, literal.';
COMMENT ON COLUMN literal_programs.literal IS 'The literal: constant_literals.literal; empty if unknown.';
COMMENT ON COLUMN literal_programs.program_count IS 'Modules of the run that have such a constant.';
