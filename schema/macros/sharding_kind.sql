-- Kind of a sharding, from its text (format section 7.5).
CREATE OR REPLACE MACRO sharding_kind(sharding) AS
  CASE
    WHEN regexp_matches(sharding, '[{ ,]unreduced\b') THEN 'unreduced'
    WHEN regexp_matches(sharding, '[{ ,]manual\b') THEN 'manual'
    WHEN regexp_matches(sharding, '^[{](?:maximal device=|single_device[[]|maximal_mesh[[])')
      THEN 'maximal'
    WHEN sharding = '{replicated}' OR sharding_dimensions(sharding) = 'replicated'
      THEN 'replicated'
    WHEN sharding LIKE '{devices=[%' OR sharding_dimensions(sharding) IS NOT NULL THEN 'tiled'
  END;
COMMENT ON MACRO sharding_kind IS
  'replicated: every device holds everything; tiled: divided, and some devices may hold the same part; maximal: one device holds everything; manual, unreduced: the text does not say which device holds what; NULL if the text is not understood.';
