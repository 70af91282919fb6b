-- Values at the peak that one change of a line would remove, together.
CREATE OR REPLACE VIEW advised_lines AS
-- Values of a line together save at least as much as the best one. One gather is needed, possibly
-- the largest.
SELECT
  items.module_id, items.color, items.kind, items.name,
  count(*) AS value_count,
  sum(items.held_bytes) AS held_bytes, sum(items.saving_bytes) AS sum_bytes,
  CASE
    WHEN items.kind = 'gather' THEN max("values".size_bytes)
    ELSE sum(items.kept_bytes)
  END AS kept_bytes,
  max(items.low_saving_bytes) AS low_bytes,
  max(items.saving_bytes) AS most_bytes,
  max(
    CASE
      WHEN items.kind = 'recompute' THEN items.saving_bytes
      WHEN items.kind <> 'gather' OR items.place > 1
        THEN items.low_saving_bytes
    END
  ) AS best_bytes
FROM advised_items AS items
JOIN "values"
  ON "values".module_id = items.module_id
  AND "values".value_id = items.value_id
GROUP BY
  items.module_id, items.color, items.kind, items.name
HAVING items.kind <> 'gather' OR count(*) > 1;
COMMENT ON VIEW advised_lines IS
  'One row per kind of advice and line: the values of advised_items with the same name together; of kind gather only where there are several. Key: module_id, color, kind, name.';
COMMENT ON COLUMN advised_lines.kind IS 'advised_items.kind.';
COMMENT ON COLUMN advised_lines.name IS 'advised_items.name.';
COMMENT ON COLUMN advised_lines.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_lines.color IS 'answered_functions.color.';
COMMENT ON COLUMN advised_lines.value_count IS 'Number of its values.';
COMMENT ON COLUMN advised_lines.held_bytes IS 'What they hold at the peak [bytes].';
COMMENT ON COLUMN advised_lines.sum_bytes IS 'Sum of advised_items.saving_bytes [bytes]; NULL if all are.';
COMMENT ON COLUMN advised_lines.kept_bytes IS 'What stays on the device instead [bytes]: the largest value of gather, else the sum of advised_items.kept_bytes.';
COMMENT ON COLUMN advised_lines.low_bytes IS 'Largest advised_items.low_saving_bytes [bytes]; NULL if all are.';
COMMENT ON COLUMN advised_lines.most_bytes IS 'Largest advised_items.saving_bytes [bytes]; NULL if all are.';
COMMENT ON COLUMN advised_lines.best_bytes IS 'What the best of them saves alone [bytes]: low_bytes, for gather without the first, for recompute most_bytes; NULL if unknown.';
