-- Whether an operation is of the backward pass.
CREATE OR REPLACE MACRO is_backward(op_name) AS
  contains(op_name, 'transpose(');
COMMENT ON MACRO is_backward IS
  'Whether an op_name is of the backward pass of a gradient, including what that recomputes; NULL if it is.';
