"""What an answer is about: how much was asked for, and what ingest found in it; as SQL."""

COUNTS = """
SELECT
  count(DISTINCT run_name) AS run_count,
  count(DISTINCT module_id) AS module_count,
  count(DISTINCT coalesce(function_name, module_key)) AS function_count,
  string_agg(DISTINCT platform, ' ' ORDER BY platform) AS platforms
FROM asked_modules
"""
"""One row: run_count, module_count, function_count, and platforms."""
FINDINGS = """
SELECT diagnostics.severity, diagnostics.code, count(*) AS finding_count
FROM diagnostics
WHERE diagnostics.run_name IN (SELECT run_name FROM asked_runs)
  AND (
    diagnostics.module_id IS NULL
    OR diagnostics.module_id IN (SELECT module_id FROM asked_modules)
  )
GROUP BY diagnostics.severity, diagnostics.code
ORDER BY
  CASE diagnostics.severity
    WHEN 'error' THEN 0 WHEN 'data_loss' THEN 1 WHEN 'notice' THEN 2 ELSE 3
  END,
  finding_count DESC, diagnostics.code
"""
"""Severity, code and number of what was found about the dumps, worst first."""
