-- The devices that take part in a collective, from its text.
CREATE OR REPLACE MACRO device_groups(instruction_text) AS
  nullif(
    regexp_extract(
      regexp_replace(instruction_text, '"(?:[^"\\]|\\.)*"', '""', 'g'),
      ', (?:replica_groups|source_target_pairs)='
        || '([{](?:[^{}]|[{][^{}]*[}])*[}]'
        || '|[[][0-9,]+[]]<=[[][0-9,]+[]](?:T[(][0-9,]*[)])?'
        || '|mesh[[][^]]*[]](?:, device_ids=[(](?:[^()]|[(][^()]*[)])*[)])? [{][^{}]*[}])',
      1
    ),
    ''
  );
COMMENT ON MACRO device_groups IS
  'The value of replica_groups= or, for a permute, source_target_pairs= in the text of an instruction (instructions.text): lists, [G,S]<=[…], or axes of a mesh (format section 7.5); NULL if there is none.';
