-- How the dimensions of a shape could fill the tiles of its layout.
CREATE OR REPLACE VIEW shape_tiles AS
SELECT
  shapes.shape,
  whole_tiles(shapes.dimensions_text, shapes.layout) AS whole_tiles
FROM shapes;
COMMENT ON VIEW shape_tiles IS
  'One row per shape with how its dimensions could fill the tiles of its layout. Key: shape.';
COMMENT ON COLUMN shape_tiles.shape IS 'As in shapes.';
COMMENT ON COLUMN shape_tiles.whole_tiles IS 'How the two minor-most dimensions could fill the tiles of the layout, numbered from 0, major first: macro whole_tiles; NULL if they do, or there are no tiles.';
