-- title: The stack trace breakdown adds up
-- group: store
--
-- Format section 6.3: one root, whose total is the header's and the sum of the peak listing; a
-- node's total is its own bytes plus its children's; the remaining bytes fall from the header's
-- total to 0. A node with bytes of its own is named for the values of the peak listing that have
-- them; any other is part of such a name, a calling instruction, or a called computation, checked
-- if every step has a text. An asynchronous operation of the short form (section 7.3), whose first
-- element is the tuple of its operands, hides the name of its computation: any name may be below it.
--
-- column module_id BIGINT: The module.
-- column finding VARCHAR: What was expected, what was found.
WITH children AS (
  SELECT
    peak_stack_nodes.module_id, peak_stack_nodes.parent_ordinal,
    sum(peak_stack_nodes.total_bytes) AS total_bytes
  FROM peak_stack_nodes
  WHERE peak_stack_nodes.parent_ordinal IS NOT NULL
  GROUP BY peak_stack_nodes.module_id, peak_stack_nodes.parent_ordinal
),
nodes AS (
  SELECT
    peak_stack_nodes.module_id, peak_stack_nodes.node_ordinal, peak_stack_nodes.total_bytes,
    peak_stack_nodes.current_bytes, peak_stack_nodes.remaining_bytes,
    modules.reported_peak_tree_bytes - sum(peak_stack_nodes.current_bytes) OVER (
      PARTITION BY peak_stack_nodes.module_id
      ORDER BY peak_stack_nodes.node_ordinal
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS expected_bytes
  FROM peak_stack_nodes
  JOIN modules ON modules.module_id = peak_stack_nodes.module_id
),
roots AS (
  SELECT
    peak_stack_nodes.module_id,
    count(*) AS root_count,
    sum(peak_stack_nodes.total_bytes) AS total_bytes
  FROM peak_stack_nodes
  WHERE peak_stack_nodes.parent_ordinal IS NULL
  GROUP BY peak_stack_nodes.module_id
),
listings AS (
  SELECT
    peak_contributors.module_id,
    sum(peak_contributors.logical_bytes) AS total_bytes
  FROM peak_contributors
  GROUP BY peak_contributors.module_id
),
-- The op_name in the text: that of an op of a function that JAX lowers once is here its call's.
printed AS (
  SELECT
    instructions.module_id, instructions.instruction_name, instructions.opcode, instructions.shape,
    instructions.text,
    CASE
      WHEN instructions.text IS NULL OR contains(instructions.text, '\') THEN instructions.op_name
      ELSE nullif(regexp_extract(instructions.text, 'metadata=\{.*?op_name="([^"]*)"', 1), '')
    END AS op_name
  FROM instructions
  WHERE instructions.module_id IN (SELECT peak_stack_nodes.module_id FROM peak_stack_nodes)
),
-- The name of a value: its op_name, which is a path for var['key/sub'].attr, or its instruction's.
named AS (
  SELECT
    peak_contributors.module_id, peak_contributors.logical_bytes,
    coalesce(printed.op_name, peak_contributors.instruction_name) AS name,
    CASE
      WHEN regexp_full_match(name, '[a-zA-Z_]\w*(\.\w+)*(\[''[^'']+''\](\.\w+)*)+')
      THEN regexp_split_to_array(rtrim(name, ''']'), '''\](\.|\[''|$)|\[''|/|\.')
      ELSE [name]
    END AS parts,
    parts[-1] || CASE peak_contributors.shape_index
      WHEN '{}' THEN ''
      ELSE peak_contributors.shape_index
    END AS label
  FROM peak_contributors
  JOIN modules ON modules.module_id = peak_contributors.module_id
  LEFT JOIN printed
    ON printed.module_id = peak_contributors.module_id
    AND printed.instruction_name = peak_contributors.instruction_name
  WHERE modules.reported_peak_tree_bytes IS NOT NULL
    AND peak_contributors.logical_bytes > 0
),
expected AS (
  SELECT named.module_id, named.label, sum(named.logical_bytes) AS own_bytes
  FROM named
  GROUP BY named.module_id, named.label
),
found AS (
  SELECT
    peak_stack_nodes.module_id, peak_stack_nodes.label,
    sum(peak_stack_nodes.current_bytes) AS own_bytes
  FROM peak_stack_nodes
  WHERE peak_stack_nodes.current_bytes > 0
  GROUP BY peak_stack_nodes.module_id, peak_stack_nodes.label
),
callers AS (
  SELECT
    printed.module_id,
    coalesce(printed.op_name, printed.instruction_name) AS label,
    regexp_extract_all(
      printed.text, '(?:body|condition|to_apply|calls|[a-z]+_computation)=%?([^ ,{}()]+)', 1
    ) || regexp_split_to_array(
      regexp_extract(printed.text, '_computations=\{%?([^}]*)', 1), ', %?'
    ) AS computations
  FROM printed
  WHERE printed.opcode <> 'fusion'
),
hiding AS (
  SELECT
    printed.module_id,
    coalesce(printed.op_name, printed.instruction_name) AS label
  FROM printed
  WHERE (printed.opcode GLOB '*-start' OR printed.opcode GLOB '*-update')
    AND printed.opcode <> 'async-start'
    AND starts_with(printed.shape, '((')
),
known AS (
  SELECT callers.module_id, callers.label FROM callers WHERE callers.computations <> ['']
  UNION
  SELECT callers.module_id, unnest(callers.computations) AS label FROM callers
  UNION
  SELECT named.module_id, unnest(named.parts) AS label FROM named
)
SELECT
  modules.module_id,
  'header ' || modules.reported_peak_tree_bytes || ' bytes, listing '
    || coalesce(listings.total_bytes, 0) || ', ' || coalesce(roots.root_count, 0) || ' roots with '
    || coalesce(roots.total_bytes, 0) AS finding
FROM modules
LEFT JOIN roots ON roots.module_id = modules.module_id
LEFT JOIN listings ON listings.module_id = modules.module_id
WHERE modules.reported_peak_tree_bytes IS NOT NULL
  AND (
    modules.reported_peak_tree_bytes <> wrapped_int64(coalesce(listings.total_bytes, 0))
    OR modules.reported_peak_tree_bytes <> coalesce(roots.total_bytes, 0)
    OR roots.root_count > 1
  )
UNION ALL
SELECT
  nodes.module_id,
  'node ' || nodes.node_ordinal || ': total ' || nodes.total_bytes || ', own '
    || nodes.current_bytes || ', children ' || coalesce(children.total_bytes, 0) || ', remaining '
    || nodes.remaining_bytes || ', expected ' || nodes.expected_bytes AS finding
FROM nodes
LEFT JOIN children
  ON children.module_id = nodes.module_id
  AND children.parent_ordinal = nodes.node_ordinal
WHERE nodes.total_bytes <> nodes.current_bytes + coalesce(children.total_bytes, 0)
  OR nodes.remaining_bytes <> nodes.expected_bytes
UNION ALL
SELECT
  coalesce(expected.module_id, found.module_id) AS module_id,
  'nodes named ' || coalesce(expected.label, found.label) || ': own ' || coalesce(found.own_bytes, 0)
    || ', in the listing ' || coalesce(expected.own_bytes, 0) AS finding
FROM expected
FULL JOIN found
  ON found.module_id = expected.module_id
  AND found.label = expected.label
WHERE found.own_bytes IS DISTINCT FROM expected.own_bytes
UNION ALL
SELECT
  peak_stack_nodes.module_id,
  'node ' || peak_stack_nodes.node_ordinal || ': nothing is named ' || peak_stack_nodes.label
    AS finding
FROM peak_stack_nodes
LEFT JOIN peak_stack_nodes AS parents
  ON parents.module_id = peak_stack_nodes.module_id
  AND parents.node_ordinal = peak_stack_nodes.parent_ordinal
ANTI JOIN known
  ON known.module_id = peak_stack_nodes.module_id
  AND known.label = peak_stack_nodes.label
ANTI JOIN hiding
  ON hiding.module_id = peak_stack_nodes.module_id
  AND (hiding.label = peak_stack_nodes.label OR hiding.label = parents.label)
WHERE peak_stack_nodes.current_bytes = 0
  AND peak_stack_nodes.parent_ordinal IS NOT NULL
  AND NOT EXISTS (
    SELECT 1
    FROM instructions
    WHERE instructions.module_id = peak_stack_nodes.module_id
      AND instructions.text IS NULL
  )
ORDER BY module_id, finding;
