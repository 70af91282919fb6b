-- The sharding of an instruction, from its text.
CREATE OR REPLACE MACRO sharding_text(instruction_text) AS
  nullif(
    regexp_replace(
      regexp_extract(
        -- Names can contain anything; without them braces are balanced.
        regexp_replace(instruction_text, '"(?:[^"\\]|\\.)*"', '""', 'g'),
        '[)](?:, [a-z_]+=[^ ]*)*?, sharding=([{](?:[^{}]|[{](?:[^{}]|[{](?:[^{}]|[{][^{}]*[}])*[}])*[}])*[}])',
        1
      ),
      ',? metadata=[{](?:[^{}]|[{][^{}]*[}])*[}]|/[*]index=[0-9]+[*]/', '', 'g'
    ),
    ''
  );
COMMENT ON MACRO sharding_text IS
  'The value of sharding= in the text of an instruction (instructions.text), with its braces and without metadata; NULL if there is none.';
