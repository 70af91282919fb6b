-- How sure it is that advice of a kind lowers the peak by what it says.
CREATE OR REPLACE VIEW advice_sureness AS
SELECT
  kinds.kind,
  platforms.platform,
  CASE
    -- Compiled again, these brought less than a tenth of the bytes in nearly all cases: the compiler
    -- merges what is computed twice, and makes f32 of a whole stack before it is read.
    WHEN platforms.platform = 'cpu' AND kinds.kind IN ('recompute', 'block', 'offload', 'dtype_of_stack')
      THEN 'unlikely'
    -- Nothing came of it in 3 of 3 programs.
    WHEN platforms.platform = 'tpu' AND kinds.kind = 'carry' THEN 'unlikely'
    WHEN platforms.platform = 'cpu' AND kinds.kind = 'donate' THEN 'possible'
    ELSE kinds.sureness
  END AS sureness
FROM (
  VALUES
    ('residual', 'likely'),
    ('padding', 'likely'),
    ('donate', 'likely'),
    ('recompute', 'possible'),
    ('block', 'possible'),
    ('offload', 'possible'),
    ('dtype', 'possible'),
    ('dtype_of_stack', 'possible'),
    ('copy', 'possible'),
    ('late_free', 'possible'),
    ('gather', 'possible'),
    ('carry', 'possible'),
    ('chunk', 'possible'),
    ('shard', 'possible'),
    -- Computed where it is used, an array that is needed whole takes its bytes again.
    ('constant', 'possible'),
    -- Of seven programs for TPU that were compiled again, it came with one.
    ('donation_in_product', 'possible'),
    ('memory_move', 'unlikely'),
    ('copied_donation', 'unlikely'),
    ('least_size', 'unlikely'),
    ('copy_in_turn', 'unlikely'),
    ('single_gather', 'unlikely'),
    ('layer_input', 'unlikely')
) AS kinds (kind, sureness)
CROSS JOIN (VALUES ('cpu'), ('gpu'), ('tpu'), ('')) AS platforms (platform);
COMMENT ON VIEW advice_sureness IS
  'One row per kind of advice and platform; what every query that gives advice calls sureness. Key: kind, platform.';
COMMENT ON COLUMN advice_sureness.kind IS
  'As in query advice; dtype_of_stack is dtype of what a loop stacks, donation_in_product donate of arguments some of which are answered_donations.is_in_product. Those that the query advice leaves out: memory_move (a copy to another memory space), copied_donation (answered_donations.is_copied), copy_in_turn (a copy that takes over as what is copied dies, or that a loop makes another array of: NOT copy_details.is_kept_twice), single_gather (no other gathered array is alive with it), least_size (padding of what takes one tile, or has none: value_details.is_least_size), layer_input (a stack of an input of the layer, which a scan saves whatever the policy).';
COMMENT ON COLUMN advice_sureness.platform IS 'Backend: modules.platform; empty if that is unknown.';
COMMENT ON COLUMN advice_sureness.sureness IS
  'likely: within a few percent of the peak in nearly all changes that were compiled again (tests/benchmarks/recompiled.md), or bytes that a layout alone takes; possible: the compiler or the meaning of the program may stand against it (tests/whole/test_jax_advice.py has a program for each); unlikely: it is known to bring nothing in nearly all cases.';
