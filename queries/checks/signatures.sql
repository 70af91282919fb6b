-- title: The stored shapes of a module are those of its allocations
-- group: store
--
-- modules.entry_hash and shapes_name are computed when a module is stored; here once more.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  modules.module_id,
  'entry_hash expected ' || coalesce(derived_signatures.entry_hash::VARCHAR, 'NULL') || ', found '
    || coalesce(modules.entry_hash::VARCHAR, 'NULL') || '; shapes_name expected '
    || coalesce(left(derived_signatures.shapes_name, 100), 'NULL') || ', found '
    || coalesce(left(modules.shapes_name, 100), 'NULL') AS finding
FROM modules
JOIN derived_signatures ON derived_signatures.module_id = modules.module_id
WHERE modules.entry_hash IS DISTINCT FROM derived_signatures.entry_hash
  OR modules.shapes_name IS DISTINCT FROM derived_signatures.shapes_name
ORDER BY module_id, finding;
