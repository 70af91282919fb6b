"""Views that are computed once for a question, and what each needs to have rows at all."""

from __future__ import annotations

OF_MODULES: dict[str, str | tuple[str, ...] | None] = {
    "named_uses": "SELECT 1 FROM value_users {of_chosen}",
    "value_origin_details": "SELECT 1 FROM value_origins {of_chosen}",
    "value_details": None,
    "copy_details": """
        SELECT 1
        FROM (FROM instructions {of_chosen})
        WHERE opcode IN ('copy', 'copy-start')
          OR (opcode = 'fusion' AND contains(text, 'wrapped_copy'))
    """,
    "gathered_values": """
        SELECT 1 FROM (FROM instructions {of_chosen}) WHERE starts_with(opcode, 'all-gather')
    """,
    "value_sources": None,
    "answered_idle_values": None,
    "answered_donations": """
        SELECT 1
        FROM value_details AS arguments
        JOIN value_details AS outputs
          ON outputs.module_id = arguments.module_id
          AND outputs.color = arguments.color
          AND outputs.dtype = arguments.dtype
          AND outputs.dimensions_text = arguments.dimensions_text
        WHERE arguments.allocation_kind = 'parameter' AND outputs.allocation_kind = 'output'
    """,
    "answered_f32_values": "SELECT 1 FROM value_details WHERE dtype = 'bf16'",
    "answered_padding": "SELECT 1 FROM value_details WHERE padding_bytes > 0 AND NOT is_tuple",
    "advised_items": None,
    "advised_lines": "SELECT 1 FROM advised_items",
    "advised_whole_lines": """
        SELECT 1
        FROM advised_lines
        WHERE kind = 'dtype' OR (value_count > 1 AND kind <> 'residual')
    """,
    "advised_times": """
        SELECT 1
        FROM answered_functions
        JOIN instruction_times ON instruction_times.module_id = answered_functions.module_id
    """,
    "advised_carries": """
        SELECT 1
        FROM value_origin_details
        WHERE origin_kind = 'stacked'
          AND slice_count > 1
          AND NOT (is_forward(op_name) OR is_backward(op_name))
    """,
    "advised_shards": """
        SELECT 1
        FROM answered_functions
        JOIN modules ON modules.module_id = answered_functions.module_id
        WHERE coalesce(modules.partition_count, 2) > 1
    """,
    "advised_frameworks": """
        SELECT 1
        FROM (
          SELECT DISTINCT stack_frames.source_file
          FROM answered_functions
          JOIN stack_frames ON stack_frames.module_id = answered_functions.module_id
        ) AS files
        JOIN framework_words
          ON framework_words.framework <> 'jax'
          AND contains(lower(files.source_file), framework_words.folder)
    """,
    "advised_wide_programs": "SELECT 1 FROM answered_functions WHERE platform <> 'cpu'",
    "advised_constants": """
        SELECT 1
        FROM answered_functions AS functions
        JOIN allocations
          ON allocations.module_id = functions.module_id
          AND allocations.color = functions.color
        WHERE allocations.kind = 'constant'
          AND allocations.size_bytes
            >= coalesce(getvariable('min_ratio')::DOUBLE, 0.01) * functions.peak_bytes
    """,
    "advised_others": (
        "answered_donations",
        "answered_padding",
        "advised_wide_programs",
        "advised_carries",
        "advised_shards",
        "advised_constants",
    ),
    "advised_call_values": """
        SELECT 1
        FROM answered_idle_values AS idle_values
        JOIN answered_functions AS functions ON functions.module_id = idle_values.module_id
        WHERE functions.platform <> 'cpu'
          AND idle_values.is_forward
          AND NOT idle_values.is_stack
          AND idle_values.next_use_time IS NOT NULL
    """,
    "advised_loop_values": "SELECT 1 FROM answered_idle_values WHERE is_stack",
    "advised_chunk_values": """
        SELECT 1
        FROM value_sources
        JOIN value_details AS logits
          ON logits.module_id = value_sources.module_id
          AND logits.value_id = value_sources.value_id
        JOIN shapes ON shapes.shape = logits.shape
        JOIN (
          SELECT DISTINCT
            module_id,
            try_cast(split_part(dimensions_text, ',', 1) AS BIGINT) AS first_size,
            try_cast(split_part(dimensions_text, ',', 2) AS BIGINT) AS second_size
          FROM value_details
          WHERE allocation_kind IN ('parameter', 'donated_parameter')
            AND coalesce(opcode, 'parameter') = 'parameter'
            AND regexp_matches(dtype, '^(f|bf|c)[0-9]')
            AND regexp_matches(dimensions_text, '^[0-9]{1,9},[0-9]{1,9}$')
        ) AS weights
          ON weights.module_id = logits.module_id
          AND greatest(first_size, second_size) >= 2 * least(first_size, second_size)
          AND greatest(first_size, second_size) < shapes.element_count
          AND greatest(first_size, second_size)
            = try_cast(regexp_extract(shapes.dimensions_text, '[0-9]+$') AS BIGINT)
        WHERE NOT contains(value_sources.op_name, '/body/')
          AND regexp_matches(
            value_sources.op_name,
            'take_along_axis|one_hot|logsumexp|log_softmax|cross_entropy'
              '|/(exp|log|reduce_max|argmax)$'
          )
    """,
    "advised_score_values": """
        SELECT 1
        FROM instruction_costs AS costs
        JOIN value_details AS products
          ON products.module_id = costs.module_id
          AND products.instruction_name = costs.instruction_name
        WHERE regexp_matches(products.dimensions_text, '[0-9],[0-9]+,[0-9]+$')
          AND try_cast(regexp_extract(products.dimensions_text, '[0-9]+$') AS DOUBLE)
            * products.logical_bytes * costs.execution_count
            >= costs.operation_count / 2
              * try_cast(regexp_extract(products.dtype, '[0-9]+') AS DOUBLE)
    """,
    "advised_batch_values": "SELECT 1 FROM value_sources WHERE contains(op_name, 'vmap(')",
    "advised_early_values": """
        SELECT 1
        FROM asked_peak_values AS held
        JOIN value_details
          ON value_details.module_id = held.module_id
          AND value_details.value_id = held.value_id
        WHERE held.allocation_kind = 'temp' AND NOT value_details.is_phi
        GROUP BY held.module_id, held.color, value_details.instruction_name
        HAVING count(*) > 1
    """,
    "advised_groups": (
        "advised_call_values",
        "advised_loop_values",
        "advised_chunk_values",
        "advised_score_values",
        "advised_batch_values",
        "advised_early_values",
    ),
}
"""Views that others name many times over, or that advice needs once, each after those that it
names; and of some what there is wherever they have rows, as SQL or as views that are all they are
made of, {of_chosen} being what restricts to the modules: what a program cannot have takes DuckDB
longer to plan than all else."""
OTHER_INSTANT = """
    SELECT 1
    WHERE getvariable('step')::BIGINT IS NOT NULL
      OR coalesce(getvariable('peak')::BIGINT, 1) <> 1
"""
"""Without it asked_instants has no rows."""
UNREAD: dict[str, str] = {
    "value_details": """
        run_name, module_key, module_name, function_name, platform, shape_index, layout,
        allocation_index, allocation_size_bytes, parameter_number, offset_bytes, end_bytes,
        memory_space_name, program_order, op_type, start_time, end_time
    """,
    "copy_details": """
        instruction_name, shape, size_bytes, allocation_kind, start_time, end_time, source_name,
        source_opcode, source_shape, source_allocation_kind, source_start_time, source_end_time,
        carry_role, into_carry_of, is_kept_twice
    """,
}
"""Columns that neither advice nor the parts of a peak read, by view: without them a table takes a
fifth less."""
OF_LINES = ("named_uses", "value_origin_details", "value_details")
"""Views of OF_MODULES that make lines and scope paths, by macros whose patterns take DuckDB half of
the time for these views."""
NO_PATHS = {
    "op_path(op_name)": "NULL::VARCHAR",
    "strip_op_path(path)": "NULL::VARCHAR",
    "jit_names(path)": "NULL::VARCHAR",
}
"""Macros in place of those of the same names where no scope path is read."""
LIBRARY_FILES = """
    SET VARIABLE library_files = (
      SELECT map_from_entries(list((files.path, library_name(files.path, ''))))
      FROM (
        SELECT instructions.source_file AS path FROM instructions {of_chosen}
        UNION
        SELECT value_origins.source_file FROM value_origins {of_chosen}
      ) AS files
      CROSS JOIN (FROM modules {of_chosen}) AS modules
      WHERE is_library_path(files.path, modules.own_pattern)
    );
    SELECT coalesce(cardinality(getvariable('library_files')), 0)
"""
"""Keeps the names of one module's files of libraries, and gives how many there are: half of what
the patterns take in these views."""
OF_LIBRARY_FILES = {
    "is_library_path(path, own_pattern := NULL)": "getvariable('library_files')[path] IS NOT NULL",
    "library_name(path, line)": "getvariable('library_files')[path] || line",
}
"""Macros that look up what LIBRARY_FILES keeps."""
MOST_FILES = 100
"""Up to so many names a look-up takes less than the patterns."""
