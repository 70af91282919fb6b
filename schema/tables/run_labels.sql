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
  'TRUE if it describes how the run was made: the command, exit_code, git_commit, xla_flags and versions of bufdb capture, and --metadata K=V. Such a label selects runs and can be asked for by name, but runs that differ only in it count as the same (runs_by_label, diff_pairs). FALSE for labels set by the user.';
