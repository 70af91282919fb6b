-- One row per module: what modules has of its shapes, computed from allocations.
CREATE OR REPLACE VIEW derived_signatures AS
SELECT
  module_signatures.module_id,
  CAST(md5_number_lower(module_signatures.entry_signature) >> 1 AS BIGINT) AS entry_hash,
  CASE
    WHEN modules.function_name IS NULL
      THEN regexp_replace(modules.module_name, '[.][0-9]+$', '')
        || module_signatures.entry_signature
  END AS shapes_name
FROM modules
JOIN module_signatures ON module_signatures.module_id = modules.module_id;
COMMENT ON VIEW derived_signatures IS
  'One row per module: what its row of modules has of its shapes, computed from allocations. Key: module_id.';
COMMENT ON COLUMN derived_signatures.entry_hash IS 'What modules.entry_hash has to be; NULL where that is.';
COMMENT ON COLUMN derived_signatures.shapes_name IS 'What modules.shapes_name has to be; NULL where that is.';
