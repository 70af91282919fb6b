-- Frameworks other than JAX of the programs of requested functions, and of their lines and functions.
CREATE OR REPLACE VIEW advised_frameworks AS
WITH files AS (
  SELECT named.module_id, named.source_file, min(framework_words.place) AS place
  FROM (
    SELECT DISTINCT stack_frames.module_id, stack_frames.source_file
    FROM answered_functions AS functions
    JOIN stack_frames ON stack_frames.module_id = functions.module_id
  ) AS named
  JOIN framework_words
    ON framework_words.framework <> 'jax'
    AND contains(lower(named.source_file), framework_words.folder)
  GROUP BY named.module_id, named.source_file
),
-- A line is of the framework that has called the function it is in.
called_frames AS (
  SELECT
    stack_frames.module_id, stack_frames.source_file, stack_frames.source_line,
    stack_frames.function_name, files.place
  FROM files
  JOIN stack_frames AS callers
    ON callers.module_id = files.module_id
    AND callers.source_file = files.source_file
  JOIN stack_frames
    ON stack_frames.module_id = callers.module_id
    AND stack_frames.tree_ordinal BETWEEN callers.tree_ordinal AND callers.last_tree_ordinal
),
names AS (
  SELECT module_id, source_file || ':' || source_line AS name, min(place) AS place
  FROM called_frames
  GROUP BY module_id, source_file, source_line
  UNION ALL
  SELECT module_id, function_name || ' (' || source_file || ')' AS name, min(place) AS place
  FROM called_frames
  GROUP BY module_id, function_name, source_file
)
SELECT module_id, name, place
FROM names
WHERE name IS NOT NULL
UNION ALL
SELECT module_id, CAST(NULL AS VARCHAR) AS name, min(place) AS place
FROM files
GROUP BY module_id;
COMMENT ON VIEW advised_frameworks IS
  'The framework other than JAX (framework_words) of each module of the requested functions (answered_functions) whose call stacks have files of one, and of the lines and functions that it calls. Key: module_id, name.';
COMMENT ON COLUMN advised_frameworks.module_id IS 'answered_functions.module_id.';
COMMENT ON COLUMN advised_frameworks.name IS 'The line as FILE:LINE, or the function and its file as FUNCTION (FILE); NULL for the whole program.';
COMMENT ON COLUMN advised_frameworks.place IS 'framework_words.place: the first of those that are in the call stacks, or that call it.';
