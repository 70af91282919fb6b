-- The requested functions, for an answer by the uses of values.
CREATE OR REPLACE VIEW answered_functions_with_uses AS
WITH functions AS (
  SELECT
    answered_instants.run_name, answered_instants.function_name, answered_instants.platform,
    answered_instants.color, answered_instants.peak_bytes, answered_instants.peak_time,
    answered_instants.place, modules.schedule_length,
    CASE WHEN modules.has_used_values THEN answered_instants.module_id END AS module_id,
    CASE
      WHEN modules.has_used_values THEN NULL
      ELSE coalesce(answered_instants.unknown_reason, 'the dump does not list uses')
    END AS unknown_reason
  FROM answered_instants
  LEFT JOIN modules ON modules.module_id = answered_instants.module_id
  WHERE modules.has_used_values
    OR (answered_instants.unknown_count = 0 AND answered_instants.module_id IS NOT NULL)
    OR answered_instants.unknown_reason IS NOT NULL
)
SELECT
  functions.run_name, functions.function_name, functions.platform, functions.color,
  functions.module_id,
  CASE WHEN functions.module_id IS NOT NULL THEN functions.peak_bytes END AS peak_bytes,
  CASE WHEN functions.module_id IS NOT NULL THEN functions.peak_time END AS peak_time,
  functions.schedule_length, functions.unknown_reason,
  CASE
    WHEN functions.module_id IS NULL THEN 0
    WHEN functions.place > 0 THEN row_number() OVER (
      PARTITION BY
        CASE WHEN functions.module_id IS NOT NULL AND functions.place > 0 THEN 1 ELSE 0 END
      ORDER BY functions.place
    )
  END AS place,
  row_number() OVER (
    ORDER BY
      CASE WHEN functions.module_id IS NULL THEN 0 ELSE 1 END,
      functions.run_name, functions.function_name,
      CASE WHEN functions.module_id IS NOT NULL THEN coalesce(functions.platform, '~') END,
      functions.color NULLS LAST,
      functions.unknown_reason
  ) AS name_place
FROM functions;
COMMENT ON VIEW answered_functions_with_uses IS
  'Rows of answered_instants, except that a function whose dump does not list uses of values has an unknown_reason that says so: without uses everything would look idle. Key: run_name, function_name, platform, color, unknown_reason.';
COMMENT ON COLUMN answered_functions_with_uses.module_id IS 'asked_functions.module_id; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_functions_with_uses.peak_bytes IS 'asked_functions.peak_bytes; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_functions_with_uses.peak_time IS 'asked_functions.peak_time; NULL in a row with unknown_reason.';
COMMENT ON COLUMN answered_functions_with_uses.unknown_reason IS 'asked_functions.unknown_reason, or that the dump does not list uses; NULL in rows with values.';
COMMENT ON COLUMN answered_functions_with_uses.place IS 'Rank by peak_bytes among those with uses, like answered_instants.place; 0 in a row with unknown_reason, NULL where the peak is 0 or unknown.';
COMMENT ON COLUMN answered_functions_with_uses.name_place IS 'Rank by name: rows with unknown_reason by run, function, memory space and unknown_reason, then the others by run, function, platform and memory space.';
