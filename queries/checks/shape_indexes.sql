-- title: Places in shapes are numbers in braces
-- group: store
--
-- Format section 3: {} for the whole, else {1,0,…}, one number for each level of the tuple.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH places AS (
  SELECT module_id, 'values' AS table_name, shape_index AS place FROM "values"
  UNION ALL
  SELECT module_id, 'positions' AS table_name, shape_index AS place FROM positions
  UNION ALL
  SELECT module_id, 'uses' AS table_name, operand_index AS place FROM uses
  UNION ALL
  SELECT module_id, 'live_ranges' AS table_name, shape_index AS place FROM live_ranges
  UNION ALL
  SELECT module_id, 'allocations' AS table_name, parameter_shape_index AS place FROM allocations
  UNION ALL
  SELECT module_id, 'peak_contributors' AS table_name, shape_index AS place FROM peak_contributors
  UNION ALL
  SELECT module_id, 'input_output_aliases' AS table_name, output_index AS place
  FROM input_output_aliases
  UNION ALL
  SELECT module_id, 'input_output_aliases' AS table_name, parameter_index AS place
  FROM input_output_aliases
)
SELECT places.module_id, places.table_name || ': ' || places.place AS finding
FROM places
WHERE NOT regexp_full_match(places.place, '\{([0-9]+(,[0-9]+)*)?\}')
ORDER BY places.module_id, finding;
