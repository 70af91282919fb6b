-- One row per module: the shapes that it was compiled for, and the name that pairs it with others.
CREATE OR REPLACE VIEW module_signatures AS
WITH parameters AS (
  SELECT
    allocations.module_id,
    count(*) AS parameter_count,
    -- Index {} holds the shape of the whole parameter in every format era; deeper ones do not.
    CASE WHEN count(*) = count(allocations.parameter_shape)
      THEN string_agg(allocations.parameter_shape, ', ' ORDER BY allocations.parameter_number)
    END AS parameter_shapes
  FROM allocations
  WHERE allocations.parameter_shape_index = '{}'
  GROUP BY allocations.module_id
),
outputs AS (
  SELECT allocations.module_id, min(allocations.output_shape) AS output_shape
  FROM allocations
  GROUP BY allocations.module_id
),
signatures AS (
  SELECT
    modules.module_id, modules.run_name, modules.function_name, modules.module_name,
    modules.module_key,
    coalesce(parameters.parameter_count, 0) AS parameter_count,
    CASE WHEN parameters.module_id IS NULL THEN '' ELSE parameters.parameter_shapes END
      AS parameter_shapes,
    outputs.output_shape,
    -- XLA numbers the elements of long tuples in comments, but not in every version.
    regexp_replace(
      '(' || CASE WHEN parameters.module_id IS NULL THEN '' ELSE parameters.parameter_shapes END
        || ') -> ' || outputs.output_shape,
      '/[*]index=[0-9]+[*]/', '', 'g'
    ) AS entry_signature
  FROM modules
  LEFT JOIN parameters ON parameters.module_id = modules.module_id
  LEFT JOIN outputs ON outputs.module_id = modules.module_id
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
