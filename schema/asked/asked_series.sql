-- Compilations of a function, followed from run to run.
CREATE OR REPLACE VIEW asked_series AS
WITH compilations AS (
  SELECT
    asked_compilations.function_place, asked_compilations.run_name, asked_compilations.module_id,
    asked_compilations.entry_signature, asked_compilations.size_place,
    asked_compilations.signature_place, asked_compilations.run_place
  FROM asked_compilations
),
slots AS (
  SELECT
    models.function_place, models.module_id AS model_module_id, models.size_place,
    models.entry_signature, models.signature_place, firsts.run_name
  FROM compilations AS models
  JOIN compilations AS largest
    ON largest.function_place = models.function_place
    AND largest.run_name = models.run_name
    AND largest.size_place = 1
    AND largest.run_place = 1
  JOIN compilations AS firsts
    ON firsts.function_place = models.function_place
    AND firsts.size_place = 1
),
same_signature AS (
  SELECT
    slots.function_place, slots.run_name, slots.model_module_id, slots.size_place, members.module_id
  FROM slots
  LEFT JOIN compilations AS members
    ON members.function_place = slots.function_place
    AND members.run_name = slots.run_name
    AND members.entry_signature = slots.entry_signature
    AND members.signature_place = slots.signature_place
),
left_slots AS (
  SELECT
    same_signature.function_place, same_signature.run_name, same_signature.model_module_id,
    row_number() OVER (
      PARTITION BY same_signature.function_place, same_signature.run_name
      ORDER BY same_signature.size_place
    ) AS place
  FROM same_signature
  WHERE same_signature.module_id IS NULL
),
left_members AS (
  SELECT
    members.function_place, members.run_name, members.module_id,
    row_number() OVER (
      PARTITION BY members.function_place, members.run_name
      ORDER BY members.size_place
    ) AS place
  FROM compilations AS members
  LEFT JOIN same_signature ON same_signature.module_id = members.module_id
  WHERE same_signature.module_id IS NULL
)
SELECT same_signature.model_module_id, same_signature.module_id
FROM same_signature
WHERE same_signature.module_id IS NOT NULL
UNION ALL
SELECT left_slots.model_module_id, left_members.module_id
FROM left_slots
JOIN left_members
  ON left_members.function_place = left_slots.function_place
  AND left_members.run_name = left_slots.run_name
  AND left_members.place = left_slots.place;
COMMENT ON VIEW asked_series IS
  'One row per module of the requested functions, with the compilation that it continues from run to run. For each function and platform, the run with the most compilations (then the earliest) is the model, and every other run is paired with it as diff_pairs pairs two runs: those of the same signature first, in order of size, then the rest by size. So two runs are paired as in bufdb diff, except for renamed functions: a series keeps one name. Programs without a name of their own, like torch_xla''s, are identified by their signature. Key: module_id.';
COMMENT ON COLUMN asked_series.model_module_id IS 'The compilation in the model run: the series. Refers to modules.module_id.';
COMMENT ON COLUMN asked_series.module_id IS 'The compilation: modules.module_id.';
