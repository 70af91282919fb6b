-- Advice about the arguments, shapes, loops and constants of a program, not about its temp values.
CREATE OR REPLACE VIEW advised_others AS
WITH donations AS (
  SELECT
    answered_donations.module_id, answered_donations.color,
    answered_donations.together_low_saving_bytes, answered_donations.together_saving_bytes,
    answered_donations.parameter_name,
    max(CASE WHEN answered_donations.is_in_product THEN 1 ELSE 0 END)
      OVER (PARTITION BY answered_donations.module_id, answered_donations.color) = 1
      AS is_in_product,
    count(*) OVER (PARTITION BY answered_donations.module_id, answered_donations.color)
      AS value_count,
    row_number() OVER (
      PARTITION BY answered_donations.module_id, answered_donations.color
      ORDER BY answered_donations.size_bytes DESC, answered_donations.parameter_number,
        answered_donations.parameter_shape_index
    ) AS place
  FROM answered_donations
  WHERE NOT answered_donations.is_copied
),
-- Unions of two each, as in advised_groups.
arguments AS (
  SELECT
    module_id, color,
    'donate' AS kind,
    CASE WHEN is_in_product THEN 'donation_in_product' ELSE 'donate' END AS sureness_kind,
    CASE
      WHEN value_count > 1 THEN parameter_name || ' and ' || (value_count - 1) || ' more'
      ELSE parameter_name
    END AS name,
    value_count, together_low_saving_bytes AS low_saving_bytes,
    together_saving_bytes AS saving_bytes
  FROM donations
  WHERE place = 1
  UNION ALL
  SELECT
    module_id, color, 'shard', 'shard',
    CASE
      WHEN value_count > 1 THEN parameter_name || ' and ' || (value_count - 1) || ' more'
      ELSE parameter_name
    END,
    value_count, low_saving_bytes, saving_bytes
  FROM advised_shards
),
programs AS (
  SELECT
    module_id, color,
    'padding' AS kind,
    'padding' AS sureness_kind,
    shape AS name, value_count, low_saving_bytes, saving_bytes
  FROM answered_padding
  WHERE low_saving_bytes > 0
  UNION ALL
  SELECT module_id, color, 'dtype', 'dtype', 'f32', value_count, low_saving_bytes, saving_bytes
  FROM advised_wide_programs
),
arrays AS (
  SELECT
    module_id, color,
    'carry' AS kind,
    'carry' AS sureness_kind,
    name, value_count, low_saving_bytes, saving_bytes
  FROM advised_carries
  UNION ALL
  SELECT
    module_id, color, 'constant', 'constant', name, 1,
    -- It may be needed whole where it is computed.
    0,
    saving_bytes
  FROM advised_constants
),
both_kinds AS (
  SELECT module_id, color, kind, sureness_kind, name, value_count, low_saving_bytes, saving_bytes
  FROM arguments
  UNION ALL
  SELECT module_id, color, kind, sureness_kind, name, value_count, low_saving_bytes, saving_bytes
  FROM programs
)
SELECT module_id, color, kind, sureness_kind, name, value_count, low_saving_bytes, saving_bytes
FROM both_kinds
UNION ALL
SELECT module_id, color, kind, sureness_kind, name, value_count, low_saving_bytes, saving_bytes
FROM arrays;
COMMENT ON VIEW advised_others IS
  'One row per piece of advice (query advice) of the kinds donate, shard, padding, carry, constant, and dtype for a whole program. Key: module_id, color, kind, name.';
COMMENT ON COLUMN advised_others.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_others.color IS 'answered_functions.color.';
COMMENT ON COLUMN advised_others.kind IS 'donate, shard, padding, dtype, carry or constant.';
COMMENT ON COLUMN advised_others.sureness_kind IS 'advice_sureness.kind.';
COMMENT ON COLUMN advised_others.name IS 'The first parameter and how many more, the shape, f32, the line of the loop, or that of the constant.';
COMMENT ON COLUMN advised_others.value_count IS 'Number of values, arguments or stacks.';
COMMENT ON COLUMN advised_others.low_saving_bytes IS 'Lower bound of how far the peak falls [bytes]; as of query advice.';
COMMENT ON COLUMN advised_others.saving_bytes IS 'Upper bound [bytes]; as of query advice.';
