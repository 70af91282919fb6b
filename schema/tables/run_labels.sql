-- One row per label of a run. Key: run_name, label.
CREATE TABLE run_labels (
  run_name VARCHAR NOT NULL,
  label VARCHAR NOT NULL,
  label_value VARCHAR NOT NULL,
  is_metadata BOOLEAN NOT NULL
);
COMMENT ON TABLE run_labels IS
  'One row per label of a run. Key: run_name, label.';
COMMENT ON COLUMN run_labels.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN run_labels.label IS
  'Name of the label: K of --label K=V or --metadata K=V.';
COMMENT ON COLUMN run_labels.label_value IS
  'Value of the label, as text: V of --label K=V or --metadata K=V.';
COMMENT ON COLUMN run_labels.is_metadata IS
  'TRUE if it describes how the run was made, as the command, exit_code, git_commit, xla_flags and versions of bufdb capture do, and --metadata K=V: such a label selects runs and can be asked for by name, but runs that differ in it are alike (runs_by_label, diff_pairs). FALSE for what the user labelled the run with.';
