-- title: A value is used where the operand shows it
-- group: store
--
-- Format section 5: a use names the instruction, the number of the operand and the index in it.
-- That operand, as the instruction's text names it, is one of the value's positions; if it names an
-- element of an instruction (`%while.5#1`, from jaxlib 0.11), an index in that. Constants, which
-- have no operands, and instructions without a text are left out.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH texts AS (
  SELECT
    instructions.module_id, instructions.instruction_name,
    -- Up to the bracket that closes the operands: the first before an attribute or the end.
    regexp_extract(
      instructions.text, ' = (?:\(.*?\)|[^( ][^ ]*) [^ (]*\((.*?)\)(?:$|, [a-z_-]+=)', 1
    ) AS inside,
    -- Without `%` (format section 7.4), a name is the last word before a comma.
    CASE
      WHEN starts_with(instructions.text, '%')
      THEN regexp_extract_all(inside, '%([^ ,()]+(?:,[0-9]+)*)', 1)
      ELSE regexp_extract_all(
        regexp_replace(inside, '/\*.*?\*/', '', 'g'),
        '(?:^| )([^ ,(){}\[\]#]+(?:#[0-9]+(?:,[0-9]+)*)?)(?:,|$)',
        1
      )
    END AS operands
  FROM instructions
  WHERE instructions.text IS NOT NULL
    AND instructions.opcode <> 'constant'
)
SELECT
  uses.module_id,
  'use ' || uses.use_ordinal || ' of value ' || uses.value_id || ': ' || uses.instruction_name
    || ' has no operand ' || uses.operand_number || ' ' || uses.operand_index || ' that shows it'
    AS finding
FROM uses
JOIN texts
  ON texts.module_id = uses.module_id
  AND texts.instruction_name = uses.instruction_name
LEFT JOIN positions
  ON positions.module_id = uses.module_id
  AND positions.value_id = uses.value_id
  AND positions.instruction_name = split_part(texts.operands[uses.operand_number + 1], '#', 1)
  AND positions.shape_index = CASE
    WHEN contains(texts.operands[uses.operand_number + 1], '#')
    THEN '{' || concat_ws(
      ',',
      split_part(texts.operands[uses.operand_number + 1], '#', 2),
      nullif(trim(uses.operand_index, '{}'), '')
    ) || '}'
    ELSE uses.operand_index
  END
WHERE positions.value_id IS NULL
ORDER BY uses.module_id, uses.value_id, uses.use_ordinal;
