-- title: Every line of a file is read, skipped as known, or reported
-- group: store
--
-- files.line_count is the sum of its three parts; a file has lines that were not understood exactly
-- if it has a diagnostic that says so.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH reported AS (
  SELECT DISTINCT diagnostics.module_id, diagnostics.path
  FROM diagnostics
  WHERE diagnostics.code IN ('unreadable_line', 'unreadable_file', 'truncated_file')
)
SELECT
  files.module_id,
  'file ' || files.path || ': ' || files.line_count || ' lines, ' || files.read_line_count
    || ' read, ' || files.known_line_count || ' known, ' || files.unread_line_count
    || ' unread and ' || CASE WHEN reported.path IS NULL THEN 'none' ELSE 'some' END
    || ' reported' AS finding
FROM files
LEFT JOIN reported
  ON reported.module_id = files.module_id
  AND reported.path = files.path
WHERE files.read_line_count + files.known_line_count + files.unread_line_count <> files.line_count
  OR least(files.read_line_count, files.known_line_count, files.unread_line_count) < 0
  OR (files.unread_line_count > 0) <> (reported.path IS NOT NULL)
ORDER BY files.module_id, finding;
