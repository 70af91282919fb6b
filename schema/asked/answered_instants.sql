-- The requested functions, for an answer about their peak or another instant.
CREATE OR REPLACE VIEW answered_instants AS
SELECT
  answered_functions.run_name, answered_functions.function_name, answered_functions.platform,
  answered_functions.color,
  CASE WHEN asked_instants.missing_reason IS NULL THEN answered_functions.module_id END
    AS module_id,
  answered_functions.unknown_count,
  CASE
    WHEN asked_instants.module_id IS NULL THEN answered_functions.peak_bytes
    WHEN asked_instants.missing_reason IS NULL THEN asked_instants.occupied_bytes
  END AS peak_bytes,
  CASE
    WHEN asked_instants.module_id IS NULL THEN answered_functions.peak_time
    WHEN asked_instants.missing_reason IS NULL THEN asked_instants.instant_time
  END AS peak_time,
  coalesce(
    answered_functions.unknown_reason,
    CASE WHEN answered_functions.place = 1 THEN asked_instants.missing_reason END
  ) AS unknown_reason,
  answered_functions.place, answered_functions.name_place
FROM answered_functions
LEFT JOIN asked_instants
  ON asked_instants.module_id = answered_functions.module_id
  AND asked_instants.color = answered_functions.color;
COMMENT ON VIEW answered_instants IS
  'Rows of answered_functions for an answer about one instant of each function: the peak, or what the variables peak and step select instead (asked_instants). Functions without that instant have no module, and the one with the highest peak has an unknown_reason. Key: run_name, function_name, platform, color, unknown_reason.';
COMMENT ON COLUMN answered_instants.module_id IS 'asked_functions.module_id; NULL in a row with unknown_reason, and without such an instant.';
COMMENT ON COLUMN answered_instants.peak_bytes IS 'Bytes occupied at the instant, including those held for the whole run [bytes]: at the peak asked_functions.peak_bytes; NULL where module_id is.';
COMMENT ON COLUMN answered_instants.peak_time IS 'The instant [program order]: for the peak asked_functions.peak_time; NULL where module_id is.';
COMMENT ON COLUMN answered_instants.unknown_reason IS 'Why the peak is unknown or there is no such instant; NULL in rows with values.';
COMMENT ON COLUMN answered_instants.place IS 'answered_functions.place: by the highest peak, whichever instant is selected.';
