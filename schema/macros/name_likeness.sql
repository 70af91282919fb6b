-- How much two names have in common.
CREATE OR REPLACE MACRO name_likeness(name, other_name) AS
  CASE
    WHEN name = other_name THEN 1
    WHEN least(length(name), length(other_name)) >= 3
      AND (contains(name, other_name) OR contains(other_name, name))
      THEN 0.9
    ELSE coalesce(
      1 - levenshtein(name, other_name) / greatest(length(name), length(other_name), 1), 0
    )
  END;
COMMENT ON MACRO name_likeness IS
  'How alike two names are, from 0 to 1: 1 if they are equal, 0.9 if one of three letters or more is a part of the other, else the share of letters that need not be changed; 0 without a name.';
