-- The sharding of an instruction, as its text has it.
CREATE OR REPLACE MACRO sharding_text(instruction_text) AS
  nullif(
    regexp_replace(
      regexp_extract(
        -- Names can hold anything; without them braces are in pairs.
        regexp_replace(instruction_text, '"(?:[^"\\]|\\.)*"', '""', 'g'),
        '[)](?:, [a-z_]+=[^ ]*)*?, sharding=([{](?:[^{}]|[{](?:[^{}]|[{](?:[^{}]|[{][^{}]*[}])*[}])*[}])*[}])',
        1
      ),
      ',? metadata=[{](?:[^{}]|[{][^{}]*[}])*[}]|/[*]index=[0-9]+[*]/', '', 'g'
    ),
    ''
  );
COMMENT ON MACRO sharding_text IS
  'What stands behind sharding= in the text of an instruction (instructions.text), with its braces and without the metadata that it can hold; NULL if there is none.';
