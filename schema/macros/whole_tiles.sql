-- How dimensions could fill the tiles of a layout (format section 3.1).
CREATE OR REPLACE MACRO whole_tiles(dimensions_text, layout) AS
  nullif(
    concat_ws(
      '; ',
      filled_tile(
        dimension_size(dimensions_text, layout_number(layout, '^[{]([0-9]+)')),
        layout_number(layout, '^[^T]*T[(](?:[0-9]+,)*([0-9]+)[)]'),
        layout_number(layout, '^[{]([0-9]+)'),
        layout_number(layout, '^[{][0-9]+,([0-9]+)'),
        dimension_size(dimensions_text, layout_number(layout, '^[{][0-9]+,([0-9]+)'))
      ),
      filled_tile(
        dimension_size(dimensions_text, layout_number(layout, '^[{][0-9]+,([0-9]+)')),
        layout_number(layout, '^[^T]*T[(](?:[0-9]+,)*([0-9]+),[0-9]+[)]'),
        layout_number(layout, '^[{][0-9]+,([0-9]+)'),
        NULL,
        NULL
      )
    ),
    ''
  );
COMMENT ON MACRO whole_tiles IS
  'How the two minor-most dimensions (numbered from 0, major first) could fill the outermost tiles of a layout: "dimension 2: 64 to 128, or merge it with 1; dimension 1: 100 to 96 or 104"; NULL if they do, or there are no tiles.';
