-- title: Parameters are sharded as before optimization
-- group: store
--
-- Format section 7.5, if the optimized text and that before optimization both have the sharding of
-- an entry parameter. Fails for files of two processes in one directory, or a compiler that was
-- allowed to choose another sharding; the optimized text counts.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  shardings.module_id,
  'parameter ' || shardings.parameter_number || shardings.parameter_shape_index || ' with '
    || shardings.sharding || ' is another before optimization: ' || left(given.text, 300) AS finding
FROM parameter_shardings AS shardings
JOIN entry_parameters AS given
  ON given.module_id = shardings.module_id
  AND given.parameter_number = shardings.parameter_number
WHERE shardings.is_contradicted
ORDER BY shardings.module_id, shardings.parameter_number, shardings.parameter_shape_index;
