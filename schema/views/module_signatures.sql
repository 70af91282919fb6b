-- One row per module: the shapes that it was compiled for, and the name that pairs it with others.
CREATE OR REPLACE VIEW module_signatures AS
WITH shapes_of AS (
  -- One pass, of rows that matter: to read allocations again takes longer than all of this.
  SELECT
    allocations.module_id,
    -- Index {} holds the shape of the whole parameter in every format era; deeper ones do not.
    count(*) FILTER (WHERE allocations.parameter_shape_index = '{}') AS parameter_count,
    count(allocations.parameter_shape) FILTER (WHERE allocations.parameter_shape_index = '{}')
      AS shape_count,
    string_agg(allocations.parameter_shape, ', ' ORDER BY allocations.parameter_number)
      FILTER (WHERE allocations.parameter_shape_index = '{}') AS parameter_shapes,
    min(allocations.output_shape) AS output_shape
  FROM allocations
  WHERE allocations.parameter_shape_index = '{}'
    OR allocations.output_shape IS NOT NULL
  GROUP BY allocations.module_id
),
programs AS (
  SELECT
    modules.module_id, modules.run_name, modules.function_name, modules.module_name,
    modules.module_key,
    coalesce(shapes_of.parameter_count, 0) AS parameter_count,
    CASE
      WHEN coalesce(shapes_of.parameter_count, 0) = 0 THEN ''
      WHEN shapes_of.shape_count = shapes_of.parameter_count THEN shapes_of.parameter_shapes
    END AS parameter_shapes,
    shapes_of.output_shape
  FROM modules
  LEFT JOIN shapes_of ON shapes_of.module_id = modules.module_id
),
signatures AS (
  SELECT
    programs.module_id, programs.run_name, programs.function_name, programs.module_name,
    programs.module_key, programs.parameter_count, programs.parameter_shapes,
    programs.output_shape,
    -- XLA numbers the elements of long tuples in comments, but not in every version.
    regexp_replace(
      '(' || programs.parameter_shapes || ') -> ' || programs.output_shape,
      '/[*]index=[0-9]+[*]/', '', 'g'
    ) AS entry_signature
  FROM programs
)
SELECT
  signatures.module_id, signatures.run_name, signatures.function_name, signatures.parameter_count,
  signatures.parameter_shapes, signatures.output_shape, signatures.entry_signature,
  coalesce(
    signatures.function_name,
    -- torch_xla has one name for every program; its number and path differ from run to run.
    regexp_replace(signatures.module_name, '[.][0-9]+$', '') || signatures.entry_signature,
    signatures.module_key
  ) AS pairing_name
FROM signatures;
COMMENT ON VIEW module_signatures IS
  'One row per module: the shapes of its parameters and of its result, without layouts. Key: module_id.';
COMMENT ON COLUMN module_signatures.parameter_count IS 'Entry parameters that have an allocation; a tuple counts once.';
COMMENT ON COLUMN module_signatures.parameter_shapes IS
  'Shapes of the entry parameters in order, separated by ", ": allocations.parameter_shape at index {}; NULL if the dump lacks one (before 2019-12).';
COMMENT ON COLUMN module_signatures.output_shape IS
  'Shape of the result: allocations.output_shape; NULL if the dump does not give it (before 2019-12).';
COMMENT ON COLUMN module_signatures.entry_signature IS
  '"(parameter_shapes) -> output_shape" without the comments that number long tuples; NULL if either part is NULL. Sharded modules have the shapes of one device.';
COMMENT ON COLUMN module_signatures.pairing_name IS
  'The same for compilations of one function in two runs: function_name; without it, module_name minus its number, with entry_signature (torch_xla has one name for all programs, whose shapes differ); modules.module_key if either is unknown. Never NULL.';
