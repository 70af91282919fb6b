-- Number of devices in a group of a collective, from its text.
CREATE OR REPLACE MACRO device_group_size(device_groups) AS
  CASE
    WHEN device_groups LIKE '[%'
      THEN product_of([regexp_extract(device_groups, '^[[][0-9]+,([0-9]+)[]]', 1)])
    -- Axes of a mesh are written like those of a dimension divided among them.
    WHEN device_groups LIKE 'mesh[%'
      THEN sharding_tile_count(
        '{' || regexp_replace(device_groups, ' ([{][^{}]*[}])$', ', [\1]') || '}'
      )
    -- Lists, if all have the same length.
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
  'Devices in each group of replica_groups (device_groups); NULL if the groups differ in size, are not listed ({}, all devices) or are not understood.';
