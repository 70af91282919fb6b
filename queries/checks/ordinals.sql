-- title: Lists are numbered 0, 1, 2, … without gaps
-- group: store
--
-- Positions and uses of a value, compiler options, the peak listing and the nodes of its tree from
-- 0; stack frames from 1 (format section 7.1). Every used value has a position. A node of the tree
-- is one level below its parent, the last node above it on that level; so is a frame below its
-- caller, and its own frame is the first one from here upward that is not library code, or one
-- above that if JAX cached it from another call. Frames are also numbered in preorder from 0, so
-- that each comes right before those that it calls.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH lists AS (
  SELECT
    module_id,
    'positions of value ' || value_id AS what,
    count(*) AS row_count,
    min(position_ordinal) AS first_ordinal,
    max(position_ordinal) AS last_ordinal
  FROM positions
  GROUP BY module_id, value_id
  UNION ALL
  SELECT
    module_id,
    'uses of value ' || value_id AS what,
    count(*) AS row_count,
    min(use_ordinal) AS first_ordinal,
    max(use_ordinal) AS last_ordinal
  FROM uses
  GROUP BY module_id, value_id
  UNION ALL
  SELECT
    module_id,
    'compiler options' AS what,
    count(*) AS row_count,
    min(option_ordinal) AS first_ordinal,
    max(option_ordinal) AS last_ordinal
  FROM compiler_options
  GROUP BY module_id
  UNION ALL
  SELECT
    module_id,
    'lines of the peak listing' AS what,
    count(*) AS row_count,
    min(contributor_ordinal) AS first_ordinal,
    max(contributor_ordinal) AS last_ordinal
  FROM peak_contributors
  GROUP BY module_id
  UNION ALL
  SELECT
    module_id,
    'nodes of the peak tree' AS what,
    count(*) AS row_count,
    min(node_ordinal) AS first_ordinal,
    max(node_ordinal) AS last_ordinal
  FROM peak_stack_nodes
  GROUP BY module_id
  UNION ALL
  SELECT
    module_id,
    'stack frames' AS what,
    count(*) AS row_count,
    min(stack_frame_id) - 1 AS first_ordinal,
    max(stack_frame_id) - 1 AS last_ordinal
  FROM stack_frames
  GROUP BY module_id
  UNION ALL
  SELECT
    module_id,
    'stack frames before those that they call' AS what,
    count(DISTINCT tree_ordinal) AS row_count,
    min(tree_ordinal) AS first_ordinal,
    max(tree_ordinal) AS last_ordinal
  FROM stack_frames
  GROUP BY module_id
),
nodes AS (
  SELECT
    peak_stack_nodes.module_id, peak_stack_nodes.node_ordinal, peak_stack_nodes.parent_ordinal,
    peak_stack_nodes.depth, parents.depth AS parent_depth,
    lag(peak_stack_nodes.depth, 1, -1) OVER (
      PARTITION BY peak_stack_nodes.module_id
      ORDER BY peak_stack_nodes.node_ordinal
    ) AS depth_above
  FROM peak_stack_nodes
  LEFT JOIN peak_stack_nodes AS parents
    ON parents.module_id = peak_stack_nodes.module_id
    AND parents.node_ordinal = peak_stack_nodes.parent_ordinal
),
called AS (
  SELECT
    module_id,
    parent_frame_id,
    sum(last_tree_ordinal - tree_ordinal + 1) AS frame_count
  FROM stack_frames
  GROUP BY module_id, parent_frame_id
)
SELECT
  lists.module_id,
  lists.what || ': ' || lists.row_count || ' rows, numbered ' || lists.first_ordinal || ' to '
    || lists.last_ordinal AS finding
FROM lists
WHERE lists.first_ordinal <> 0
  OR lists.last_ordinal <> lists.row_count - 1
UNION ALL
SELECT
  positions.module_id,
  'position ' || positions.position_ordinal || ' of value ' || positions.value_id
    || ' is wrong about defining it' AS finding
FROM positions
WHERE positions.is_defining <> (positions.position_ordinal = 0)
UNION ALL
SELECT
  nodes.module_id,
  'node ' || nodes.node_ordinal || ' of the peak tree: depth ' || nodes.depth || ' below node '
    || coalesce(nodes.parent_ordinal::VARCHAR, 'NULL') AS finding
FROM nodes
WHERE nodes.depth <> coalesce(nodes.parent_depth + 1, 0)
  OR nodes.depth > nodes.depth_above + 1
  OR nodes.parent_ordinal >= nodes.node_ordinal
UNION ALL
SELECT
  stack_frames.module_id,
  'stack frame ' || stack_frames.stack_frame_id || ': depth ' || stack_frames.depth
    || ', own frame ' || coalesce(stack_frames.own_frame_id::VARCHAR, 'NULL') || ', in the tree '
    || stack_frames.tree_ordinal || ' to ' || stack_frames.last_tree_ordinal || ', caller '
    || coalesce(stack_frames.parent_frame_id::VARCHAR, 'NULL') AS finding
FROM stack_frames
JOIN modules ON modules.module_id = stack_frames.module_id
LEFT JOIN stack_frames AS callers
  ON callers.module_id = stack_frames.module_id
  AND callers.stack_frame_id = stack_frames.parent_frame_id
LEFT JOIN called
  ON called.module_id = stack_frames.module_id
  AND called.parent_frame_id = stack_frames.stack_frame_id
LEFT JOIN stack_frames AS own_frames
  ON own_frames.module_id = stack_frames.module_id
  AND own_frames.stack_frame_id = stack_frames.own_frame_id
  AND own_frames.tree_ordinal < stack_frames.tree_ordinal
  AND own_frames.last_tree_ordinal >= stack_frames.tree_ordinal
  AND NOT is_library_path(own_frames.source_file, modules.own_pattern)
WHERE stack_frames.depth <> coalesce(callers.depth + 1, 0)
  OR (
    stack_frames.own_frame_id IS DISTINCT FROM CASE
      WHEN stack_frames.source_file IS NULL THEN NULL
      WHEN NOT is_library_path(stack_frames.source_file, modules.own_pattern)
        THEN stack_frames.stack_frame_id
      ELSE callers.own_frame_id
    END
    AND own_frames.stack_frame_id IS NULL
  )
  OR stack_frames.last_tree_ordinal - stack_frames.tree_ordinal <> coalesce(called.frame_count, 0)
  OR stack_frames.tree_ordinal <= callers.tree_ordinal
  OR stack_frames.last_tree_ordinal > callers.last_tree_ordinal
ORDER BY module_id, finding;
