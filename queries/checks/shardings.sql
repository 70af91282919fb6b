-- title: Parameters are divided as they were before optimisation
-- group: overview
--
-- Format section 7.5: where the optimised text and that before optimisation both have the sharding
-- of an entry parameter. Files of two processes in one directory, or a compiler that was allowed to
-- choose another, break it; the optimised text counts.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  shardings.module_id,
  'parameter ' || shardings.parameter_number || shardings.parameter_shape_index || ' with '
    || shardings.sharding || ' is another before optimisation: ' || left(given.text, 300) AS finding
FROM parameter_shardings AS shardings
JOIN entry_parameters AS given
  ON given.module_id = shardings.module_id
  AND given.parameter_number = shardings.parameter_number
WHERE shardings.is_contradicted
ORDER BY shardings.module_id, shardings.parameter_number, shardings.parameter_shape_index;
