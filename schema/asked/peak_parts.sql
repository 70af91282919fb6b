-- Bytes held at the peaks of the requested functions, with the part that each value counts under.
CREATE OR REPLACE VIEW peak_parts AS
WITH arguments AS (
  -- The bytes of an argument count as the argument, whatever instruction wrote them last.
  SELECT
    allocations.module_id, allocations.allocation_index,
    min(instructions.op_name) AS op_name
  FROM allocations
  JOIN "values"
    ON "values".module_id = allocations.module_id
    AND "values".allocation_index = allocations.allocation_index
    AND "values".shape_index = allocations.parameter_shape_index
  JOIN instructions
    ON instructions.module_id = "values".module_id
    AND instructions.instruction_name = "values".instruction_name
  WHERE coalesce(getvariable('by')::VARCHAR, 'line') = 'role'
    AND instructions.opcode = 'parameter'
    AND NOT "values".is_phi
    AND allocations.parameter_number IS NOT NULL
  GROUP BY allocations.module_id, allocations.allocation_index
),
held_values AS (
  SELECT
    held.function_place, held.name_place, held.run_name, held.function_name, held.platform,
    held.color, held.peak_bytes, held.unknown_reason, held.module_id, held.held_bytes,
    held.slice_count, held.slice_bytes, held.allocation_kind,
    CASE coalesce(getvariable('by')::VARCHAR, 'line')
      WHEN 'line' THEN CASE
        WHEN coalesce(getvariable('frame')::VARCHAR, 'own') = 'own' THEN held.attributed_source
        ELSE held.attributed_leaf_source
      END
      WHEN 'op' THEN array_to_string(
        list_slice(
          string_split(
            CASE
              WHEN coalesce(getvariable('wrappers')::VARCHAR, 'strip') = 'strip'
                THEN held.attributed_stripped_op_path
              ELSE held.attributed_op_path
            END,
            '/'
          ),
          1,
          coalesce(getvariable('depth')::BIGINT, 100)
        ),
        '/'
      )
      WHEN 'jit' THEN held.attributed_jit_path
      WHEN 'dtype' THEN held.dtype
      WHEN 'opcode' THEN held.opcode
      WHEN 'shape' THEN CASE
        WHEN coalesce(getvariable('layout')::BOOLEAN, FALSE) THEN held.shape
        ELSE held.bare_shape
      END
      WHEN 'category' THEN NULL
      WHEN 'role' THEN NULL
      ELSE held.attributed_own_function
    END AS part,
    CASE WHEN coalesce(getvariable('by')::VARCHAR, 'line') IN ('function', 'python') THEN held.attributed_own_file END
      AS source_file,
    arguments.op_name AS argument_name,
    coalesce(
      arguments.op_name, value_origins.op_name, held.op_name,
      CASE WHEN coalesce(getvariable('by')::VARCHAR, 'line') = 'role' THEN held.use_op_name END
    ) AS op_name,
    CASE
      WHEN value_origins.op_name IS NOT NULL THEN value_origins.opcode
      WHEN held.op_name IS NOT NULL THEN held.opcode
    END AS opcode
  FROM attributed_peak_values AS held
  LEFT JOIN value_origins
    ON value_origins.module_id = held.module_id
    AND value_origins.value_id = held.value_id
    AND coalesce(getvariable('by')::VARCHAR, 'line') IN ('category', 'role')
    AND coalesce(getvariable('loops')::VARCHAR, 'origin') = 'origin'
  LEFT JOIN arguments
    ON arguments.module_id = held.module_id
    AND arguments.allocation_index = held.allocation_index
)
SELECT
  held.function_place, held.name_place, held.run_name, held.function_name, held.platform,
  held.color, held.peak_bytes, held.unknown_reason, held.module_id, held.held_bytes,
  CASE WHEN coalesce(getvariable('by')::VARCHAR, 'line') = 'line' THEN held.slice_count END AS slice_count,
  CASE WHEN coalesce(getvariable('by')::VARCHAR, 'line') = 'line' THEN held.slice_bytes END AS slice_bytes,
  CASE
    WHEN coalesce(getvariable('by')::VARCHAR, 'line') IN ('dtype', 'opcode', 'shape') THEN held.part
    WHEN coalesce(getvariable('by')::VARCHAR, 'line') = 'category' THEN categories.category
    WHEN coalesce(getvariable('by')::VARCHAR, 'line') <> 'role' THEN coalesce(
      CASE
        WHEN coalesce(getvariable('by')::VARCHAR, 'line') = 'op' AND coalesce(getvariable('merge_numbers')::BOOLEAN, FALSE)
          THEN regexp_replace(held.part, '[0-9]+', '*', 'g')
        ELSE held.part
      END,
      CASE
        WHEN held.held_bytes IS NOT NULL AND held.source_file IS NULL
          THEN '(' || coalesce(held.allocation_kind, 'kind unknown') || ')'
      END
    )
    WHEN held.allocation_kind = 'constant' THEN 'constants'
    WHEN held.allocation_kind = 'output' AND roles.sureness = 'possible' THEN NULL
    ELSE roles.role
  END AS part,
  CASE WHEN coalesce(getvariable('by')::VARCHAR, 'line') IN ('category', 'role') THEN held.allocation_kind END AS allocation_kind,
  CASE
    WHEN coalesce(getvariable('by')::VARCHAR, 'line') <> 'role' THEN NULL
    WHEN held.allocation_kind = 'constant' THEN 'likely'
    WHEN held.allocation_kind = 'output' AND roles.sureness = 'possible' THEN NULL
    ELSE roles.sureness
  END AS sureness,
  held.source_file,
  CASE
    WHEN coalesce(getvariable('loops')::VARCHAR, 'origin') <> 'origin'
        OR coalesce(getvariable('unnamed')::VARCHAR, 'use') <> 'use'
      THEN NULL
    WHEN coalesce(getvariable('by')::VARCHAR, 'line') = 'line' AND coalesce(getvariable('frame')::VARCHAR, 'own') = 'own'
      THEN 'source_line'
    WHEN coalesce(getvariable('by')::VARCHAR, 'line') = 'op'
        AND coalesce(getvariable('wrappers')::VARCHAR, 'strip') = 'strip'
        AND coalesce(getvariable('depth')::BIGINT, 100) = 100
        AND NOT coalesce(getvariable('merge_numbers')::BOOLEAN, FALSE)
      THEN 'op'
  END AS saving_of
FROM held_values AS held
LEFT JOIN op_name_categories AS categories
  ON categories.module_id = held.module_id
  AND categories.op_name = held.op_name
  AND coalesce(getvariable('by')::VARCHAR, 'line') = 'category'
LEFT JOIN op_name_roles AS roles
  ON roles.module_id = held.module_id
  AND roles.op_name = held.op_name
  AND roles.is_parameter
    = (held.argument_name IS NOT NULL OR coalesce(held.opcode = 'parameter', FALSE))
  AND coalesce(getvariable('by')::VARCHAR, 'line') = 'role';
COMMENT ON VIEW peak_parts IS
  'Rows of answered_peak_values with the part that each value counts under, selected by the variable by. Key: as answered_peak_values.';
COMMENT ON COLUMN peak_parts.slice_count IS 'attributed_peak_values.slice_count; NULL where that is, and for other values of by than line.';
COMMENT ON COLUMN peak_parts.slice_bytes IS 'attributed_peak_values.slice_bytes [bytes]; NULL where slice_count is.';
COMMENT ON COLUMN peak_parts.part IS 'The part: by line, attributed_peak_values.attributed_source (attributed_leaf_source with the variable frame = ''leaf''); by op, its scope path as the variables wrappers, depth and merge_numbers shape it; by function or python, attributed_own_function; by jit, attributed_jit_path; by dtype, opcode or shape, that of the value; by category, op_name_categories.category; by role, op_name_roles.role. If unknown: by line, op, jit and function the kind of allocation in parentheses, else NULL.';
COMMENT ON COLUMN peak_parts.allocation_kind IS 'peak_values.allocation_kind by category and role; NULL otherwise.';
COMMENT ON COLUMN peak_parts.sureness IS 'How sure the role is: op_name_roles.sureness; NULL where the role is, and for other values of by.';
COMMENT ON COLUMN peak_parts.source_file IS 'attributed_peak_values.attributed_own_file by function; NULL otherwise.';
COMMENT ON COLUMN peak_parts.saving_of IS 'peak_savings.what of the part, which is the name there; NULL where it has no savings: for other values of by than line and op, and if a parameter is not its default.';
