-- One row per problem of a run: those that ingest noted, and profiles that several places gave one name.
CREATE OR REPLACE VIEW findings AS
SELECT
  diagnostics.run_name, diagnostics.module_id, diagnostics.severity, diagnostics.code,
  diagnostics.path, diagnostics.line_number, diagnostics.message
FROM diagnostics
UNION ALL
-- A database has one profile of a name; in a dataset each place that ingests has its own.
SELECT
  live_profiles.run_name, NULL AS module_id, 'error' AS severity, 'shared_profile_name' AS code,
  live_profiles.profile_name AS path, NULL AS line_number,
  count(*) || ' processes of the run have a profile of this name, ingested from different places: '
    || 'answers add up their bytes as if they were one process. Ingest a folder above theirs, or '
    || 'each as a run of its own with a label, such as --label rank=0' AS message
FROM live_profiles
GROUP BY live_profiles.run_name, live_profiles.profile_name
HAVING count(*) > 1;
COMMENT ON VIEW findings IS
  'One row per problem of a run: those of diagnostics, and one per name of a memory profile that several places ingested into one run of a dataset (shared_profile_name).';
COMMENT ON COLUMN findings.run_name IS 'The run: runs.run_name.';
COMMENT ON COLUMN findings.module_id IS 'The module; NULL if the problem is of none.';
COMMENT ON COLUMN findings.severity IS 'diagnostics.severity; error for shared_profile_name.';
COMMENT ON COLUMN findings.code IS 'diagnostics.code, or shared_profile_name.';
COMMENT ON COLUMN findings.path IS 'File below the ingested directory; NULL if the problem is about a whole module.';
COMMENT ON COLUMN findings.line_number IS 'Line in that file; NULL if the problem has no single line.';
COMMENT ON COLUMN findings.message IS 'What was expected, what was found, what to do.';
