-- How many devices there are in a group of a collective, by its text.
CREATE OR REPLACE MACRO device_group_size(device_groups) AS
  CASE
    WHEN device_groups LIKE '[%'
      THEN product_of([regexp_extract(device_groups, '^[[][0-9]+,([0-9]+)[]]', 1)])
    -- Axes of a mesh are written as those of a dimension that is divided among them.
    WHEN device_groups LIKE 'mesh[%'
      THEN sharding_tile_count(
        '{' || regexp_replace(device_groups, ' ([{][^{}]*[}])$', ', [\1]') || '}'
      )
    -- Lists, if all are of one length.
    WHEN len(
      list_distinct(
        list_transform(
          regexp_extract_all(device_groups, '[{]([0-9, ]+)[}]', 1),
          lambda members: len(string_split(members, ','))
        )
      )
    ) = 1
      THEN len(string_split(regexp_extract(device_groups, '[{]([0-9, ]+)[}]', 1), ','))
  END;
COMMENT ON MACRO device_group_size IS
  'Devices in each group of replica_groups (device_groups); NULL if the groups are of several sizes, are not listed ({}, for all devices) or are not understood.';
