-- One row per label of a run. Key: run_name, label.
CREATE TABLE run_labels (
  run_name VARCHAR NOT NULL,
  label VARCHAR NOT NULL,
  label_value VARCHAR NOT NULL
);
COMMENT ON TABLE run_labels IS
  'One row per label of a run. Key: run_name, label.';
COMMENT ON COLUMN run_labels.run_name IS
  'The run; refers to runs.run_name.';
COMMENT ON COLUMN run_labels.label IS
  'Name of the label: K of --label K=V.';
COMMENT ON COLUMN run_labels.label_value IS
  'Value of the label, as text: V of --label K=V.';
