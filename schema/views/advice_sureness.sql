-- How likely advice of a kind is to lower the peak by the amount it promises.
-- Values: data/studies/recompile.py --write-sureness, from data/studies/promised.md.
CREATE OR REPLACE VIEW advice_sureness AS
SELECT
  known.kind, known.platform, ranges.is_from_zero,
  CASE
    WHEN ranges.is_from_zero AND known.sureness = 'likely' THEN 'possible'
    ELSE known.sureness
  END AS sureness
FROM (
  SELECT
    kinds.kind, platforms.platform,
    CASE platforms.platform
      WHEN 'cpu' THEN kinds.cpu_sureness
      WHEN 'gpu' THEN kinds.gpu_sureness
      WHEN 'tpu' THEN kinds.tpu_sureness
      ELSE kinds.any_sureness
    END AS sureness
  FROM (
  VALUES
    ('residual', 'likely', 'likely', 'possible', 'possible'),
    ('recompute', 'possible', 'possible', 'possible', 'possible'),
    ('block', 'possible', 'possible', 'possible', 'possible'),
    ('block_of_scan', 'possible', 'possible', 'possible', 'possible'),
    ('offload', 'unlikely', 'possible', 'possible', 'possible'),
    ('dtype', 'possible', 'likely', 'possible', 'possible'),
    ('dtype_of_stack', 'unlikely', 'likely', 'possible', 'possible'),
    ('donate', 'likely', 'likely', 'likely', 'likely'),
    ('donation_in_product', 'possible', 'possible', 'possible', 'possible'),
    ('carry', 'likely', 'likely', 'possible', 'possible'),
    ('batch', 'possible', 'possible', 'possible', 'possible'),
    ('chunk', 'likely', 'possible', 'possible', 'possible'),
    ('scores', 'possible', 'possible', 'possible', 'possible'),
    ('shard', 'possible', 'possible', 'possible', 'possible'),
    ('gather', 'possible', 'possible', 'possible', 'possible'),
    ('copy', 'possible', 'possible', 'possible', 'possible'),
    ('early', 'possible', 'possible', 'possible', 'possible'),
    ('late_free', 'possible', 'possible', 'possible', 'possible'),
    ('padding', 'possible', 'possible', 'possible', 'possible'),
    ('constant', 'possible', 'possible', 'possible', 'possible'),
    ('copied_donation', 'unlikely', 'unlikely', 'unlikely', 'unlikely'),
    ('least_size', 'unlikely', 'unlikely', 'unlikely', 'unlikely'),
    ('copy_in_turn', 'unlikely', 'unlikely', 'unlikely', 'unlikely'),
    ('memory_move', 'unlikely', 'unlikely', 'unlikely', 'unlikely'),
    ('single_gather', 'unlikely', 'unlikely', 'unlikely', 'unlikely'),
    ('layer_input', 'unlikely', 'unlikely', 'unlikely', 'unlikely')
) AS kinds (kind, cpu_sureness, gpu_sureness, tpu_sureness, any_sureness)
  CROSS JOIN (VALUES ('cpu'), ('gpu'), ('tpu'), ('')) AS platforms (platform)
) AS known
CROSS JOIN (VALUES (FALSE), (TRUE)) AS ranges (is_from_zero);
COMMENT ON VIEW advice_sureness IS
  'One row per kind of advice, platform and is_from_zero: the sureness in every query that gives advice. Key: kind, platform, is_from_zero.';
COMMENT ON COLUMN advice_sureness.kind IS
  'As in query advice; block_of_scan is block for what a loop stacks, dtype_of_stack is dtype for it, donation_in_product is donate for arguments some of which are answered_donations.is_in_product. The query advice omits: memory_move (a copy to another memory space), copied_donation (answered_donations.is_copied), copy_in_turn (a copy that replaces its source, or that a loop turns into another array: NOT copy_details.is_kept_twice), single_gather (no other gathered array is live with it), least_size (padding of one tile or less: value_details.is_least_size), layer_input (a stack of an input of the layer, which a scan saves under any policy).';
COMMENT ON COLUMN advice_sureness.platform IS 'Backend: modules.platform; empty if unknown.';
COMMENT ON COLUMN advice_sureness.is_from_zero IS
  'Whether the range of the saving begins at 0 bytes or less.';
COMMENT ON COLUMN advice_sureness.sureness IS
  'likely: in at least nine of ten recompiled changes, of at least five, the real saving was in the promised range or within 2 % of the peak of it (data/studies/promised.md); unlikely: as many saved less than a tenth of it; possible: everything else, because the compiler or the meaning of the program may prevent it, and in place of likely where is_from_zero.';
