-- title: Problems in the dumps: unread lines, totals that do not add up
-- group: store
-- engines: duckdb, spark, sail
--
-- One row per finding of ingest, worst first: error (the dump contradicts itself or a file could
-- not be read), data_loss (part of a dump was not understood), notice (something is missing from
-- the dump), info. Of a dataset also profiles of one name that several places ingested into one
-- run: shared_profile_name.
--
-- param run, function, platform, module
-- param severity VARCHAR = NULL: Only this severity: error, data_loss, notice or info.
-- param top_n = 100
--
-- column severity VARCHAR: error, data_loss, notice or info.
-- column code VARCHAR: Kind of finding.
-- column run_name
-- column module_key VARCHAR: The dump's path in its run; NULL if it belongs to no module.
-- column path VARCHAR: File below the ingested directory; NULL if the problem is about a whole
--   module.
-- column line_number BIGINT: Line in that file; NULL if the problem has no single line.
-- column message VARCHAR: What was expected, what was found, what to do.
WITH params AS (
  SELECT
    getvariable('function')::VARCHAR AS function,
    getvariable('platform')::VARCHAR AS platform,
    getvariable('module')::VARCHAR AS module,
    getvariable('severity')::VARCHAR AS severity,
    coalesce(getvariable('top_n')::BIGINT, 100) AS top_n
)
SELECT
  findings.severity, findings.code, findings.run_name, modules.module_key,
  findings.path, findings.line_number, findings.message
FROM findings
CROSS JOIN params
JOIN asked_runs ON asked_runs.run_name = findings.run_name
LEFT JOIN modules ON modules.module_id = findings.module_id
WHERE (
    params.function IS NULL
    OR coalesce(modules.function_name, modules.module_key) GLOB params.function
  )
  AND (params.platform IS NULL OR modules.platform = params.platform)
  AND (params.module IS NULL OR modules.module_key GLOB params.module)
  AND (params.severity IS NULL OR findings.severity = params.severity)
ORDER BY
  CASE findings.severity
    WHEN 'error' THEN 0 WHEN 'data_loss' THEN 1 WHEN 'notice' THEN 2 ELSE 3
  END,
  findings.run_name, modules.module_key NULLS LAST, findings.path NULLS LAST,
  findings.line_number NULLS LAST, findings.code, findings.message
LIMIT (SELECT top_n FROM params);
