-- Similarity of two names.
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
  'Similarity of two names, from 0 to 1: 1 if they are equal, 0.9 if one with at least three letters is part of the other, else the share of letters that stay the same; 0 without a name.';
