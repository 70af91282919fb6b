-- Whether an operation is of the forward pass of a gradient.
CREATE OR REPLACE MACRO is_forward(op_name) AS
  contains(op_name, 'jvp(') AND NOT is_backward(op_name);
COMMENT ON MACRO is_forward IS
  'Whether an op_name is of the forward pass of a gradient; NULL if it is.';
