-- What a sharding is, by its text (format section 7.5).
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
  'replicated: every device holds all; tiled: divided, some devices perhaps holding the same part; maximal: one device holds all; manual, unreduced: the text does not tell who holds what; NULL if the text is not understood.';
