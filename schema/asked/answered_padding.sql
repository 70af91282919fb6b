-- Shapes with padding by their layouts at the peaks of the requested functions, and its cost.
CREATE OR REPLACE VIEW answered_padding AS
WITH padded AS (
  SELECT
    functions.module_id, functions.color, value_details.shape, value_details.size_bytes,
    value_details.is_least_size, value_details.allocation_kind, value_details.padding_bytes,
    greatest(value_details.padding_bytes + held.held_bytes - value_details.size_bytes, 0)
      AS peak_padding_bytes,
    savings.saving_bytes
      - least(savings.saving_bytes, value_details.logical_bytes) AS temp_saving_bytes
  FROM answered_instants AS functions
  JOIN asked_peak_values AS held
    ON held.module_id = functions.module_id
    AND held.color = functions.color
  JOIN value_details
    ON value_details.module_id = held.module_id
    AND value_details.value_id = held.value_id
  LEFT JOIN peak_savings AS savings
    ON savings.module_id = held.module_id
    AND savings.color = held.color
    AND savings.value_id = held.value_id
  WHERE value_details.padding_bytes > 0
    AND NOT value_details.is_tuple
),
summed AS (
  SELECT
    padded.module_id, padded.color, padded.shape, padded.size_bytes, padded.is_least_size,
    count(*) AS value_count,
    coalesce(max(padded.temp_saving_bytes), 0)
      + coalesce(
        sum(CASE WHEN padded.allocation_kind <> 'temp' THEN padded.peak_padding_bytes END), 0
      ) AS away_bytes,
    sum(padded.padding_bytes) AS padding_bytes
  FROM padded
  GROUP BY
    padded.module_id, padded.color, padded.shape, padded.size_bytes, padded.is_least_size
)
SELECT
  summed.module_id, summed.color, summed.shape, summed.size_bytes, summed.is_least_size,
  summed.value_count,
  CASE WHEN summed.is_least_size THEN 0 ELSE summed.away_bytes END AS low_saving_bytes,
  greatest(summed.away_bytes, summed.padding_bytes) AS saving_bytes
FROM summed;
COMMENT ON VIEW answered_padding IS
  'One row per shape with layout, and size, of values held at the peak of a requested function (answered_instants) that take more bytes than their elements, except pointer tables of tuples. Key: module_id, color, shape, size_bytes, is_least_size.';
COMMENT ON COLUMN answered_padding.value_count IS 'Values with this shape and size at the peak.';
COMMENT ON COLUMN answered_padding.low_saving_bytes IS 'Lower bound of how far the highest peak falls without the padding [bytes]: for arguments and outputs, all padding held; for temps, that of the value that saves most; 0 where is_least_size, because no other dimensions take less.';
COMMENT ON COLUMN answered_padding.saving_bytes IS 'Upper bound [bytes]: all padding of these values, because the limiting instant may be scheduled differently.';
