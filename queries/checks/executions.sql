-- title: An instruction runs as often wherever it is stored, and touches no less than nothing
-- group: store
--
-- instruction_executions has what does not run once, or touches a part of an array; so
-- instruction_costs has its count, or 1 for an instruction without a row. Not in modules that an
-- older bufdb read without instruction_executions, where it is unknown (code not_read_again).
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
SELECT
  executions.module_id,
  'instruction ' || executions.instruction_name || ': expected '
    || CASE
      WHEN (executions.execution_count IS NULL) <> (executions.unknown_reason IS NOT NULL)
        THEN 'a number of executions or a reason, found '
          || CASE WHEN executions.execution_count IS NULL THEN 'neither' ELSE 'both' END
      WHEN executions.execution_count < 0 OR executions.spared_bytes < 0
        THEN 'no number below 0, found ' || executions.execution_count || ' executions, '
          || executions.spared_bytes || ' bytes'
      ELSE 'a row for what runs more than once or touches a part, found neither'
    END AS finding
FROM instruction_executions AS executions
WHERE (executions.execution_count IS NULL) <> (executions.unknown_reason IS NOT NULL)
  OR executions.execution_count < 0
  OR executions.spared_bytes < 0
  OR (executions.execution_count = 1 AND executions.spared_bytes = 0)
UNION ALL
SELECT
  costs.module_id,
  'instruction ' || costs.instruction_name || ': expected '
    || coalesce(
      CASE
        WHEN executions.instruction_name IS NULL THEN '1'
        ELSE executions.execution_count::VARCHAR
      END,
      'an unknown number of'
    )
    || ' executions as in instruction_executions, found '
    || coalesce(costs.execution_count::VARCHAR, 'none') AS finding
FROM instruction_costs AS costs
LEFT JOIN instruction_executions AS executions
  ON executions.module_id = costs.module_id
  AND executions.instruction_name = costs.instruction_name
LEFT JOIN (
  SELECT DISTINCT diagnostics.module_id
  FROM diagnostics
  WHERE diagnostics.code = 'not_read_again'
) AS dated
  ON dated.module_id = costs.module_id
WHERE dated.module_id IS NULL
  AND costs.execution_count IS DISTINCT FROM CASE
    WHEN executions.instruction_name IS NULL THEN 1
    ELSE executions.execution_count
  END
UNION ALL
SELECT
  executions.module_id,
  'instruction ' || executions.instruction_name || ': expected all bytes touched by '
    || instructions.opcode || ', found ' || executions.spared_bytes || ' spared ones' AS finding
FROM instruction_executions AS executions
JOIN instructions
  ON instructions.module_id = executions.module_id
  AND instructions.instruction_name = executions.instruction_name
WHERE executions.spared_bytes > 0
  AND instructions.opcode NOT IN (
    'fusion', 'slice', 'dynamic-slice', 'gather', 'dynamic-update-slice', 'scatter'
  )
UNION ALL
SELECT
  traffic.module_id,
  'instruction ' || traffic.instruction_name || ': expected at most the bytes of its operands and '
    || 'results as spared, found ' || -traffic.accessed_bytes || ' more' AS finding
FROM instruction_traffic AS traffic
WHERE traffic.accessed_bytes < 0;
