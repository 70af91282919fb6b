-- Shapes whose layouts pad what is held at the peaks of the functions asked for, and what that costs.
CREATE OR REPLACE VIEW answered_padding AS
WITH padded AS (
  SELECT
    functions.module_id,
    functions.color,
    value_details.shape,
    value_details.size_bytes,
    value_details.is_least_size,
    value_details.allocation_kind,
    value_details.padding_bytes,
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
    padded.module_id,
    padded.color,
    padded.shape,
    padded.size_bytes,
    padded.is_least_size,
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
  summed.module_id,
  summed.color,
  summed.shape,
  summed.size_bytes,
  summed.is_least_size,
  summed.value_count,
  CASE WHEN summed.is_least_size THEN 0 ELSE summed.away_bytes END AS low_saving_bytes,
  greatest(summed.away_bytes, summed.padding_bytes) AS saving_bytes
FROM summed;
COMMENT ON VIEW answered_padding IS
  'One row per shape with layout, and size, of values that are held at the peak of a function asked for (answered_instants) and take more bytes than their elements. Pointer tables of tuples are none. Key: module_id, color, shape, size_bytes, is_least_size.';
COMMENT ON COLUMN answered_padding.value_count IS 'Values of it at the peak.';
COMMENT ON COLUMN answered_padding.low_saving_bytes IS 'By how much the highest peak falls at the least without the padding [bytes]: of arguments and outputs all that is held of it, of temps that of the one that saves most; 0 where is_least_size, for other dimensions take no less.';
COMMENT ON COLUMN answered_padding.saving_bytes IS 'By how much at the most [bytes]: all padding of these values, for what limits it today may be scheduled otherwise.';
