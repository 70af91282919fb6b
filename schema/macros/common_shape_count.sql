-- Number of shapes that two signatures share.
CREATE OR REPLACE MACRO common_shape_count(shapes, other_shapes) AS
  coalesce(
    list_sum(
      list_transform(
        list_distinct(shapes),
        lambda one: least(
          len(list_filter(shapes, lambda mine: mine = one)),
          len(list_filter(other_shapes, lambda theirs: theirs = one))
        )
      )
    ),
    0
  );
COMMENT ON MACRO common_shape_count IS
  'Number of shapes that two lists share, in any order; a shape that is in both twice counts twice.';
