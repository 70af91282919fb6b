"""Tables as files of other formats, and as a small database to send."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bufdb.database import definitions, store
from bufdb.database.definitions import CATALOG
from bufdb.database.engine import duckdb
from bufdb.database.quoting import sql_text
from bufdb.errors import BufdbError, DatabaseError, UsageError, quote
from bufdb.export.anonymous import Words
from bufdb.query import execute
from bufdb.query.header import Value

# -- Rows of some modules, or of all, as files of Parquet or CSV: one for each table ---------------
#
# What belongs to a module or a run goes with it; tables to edit go whole. Sums of 128 bits, which
# Parquet lacks and readers of it take for floating point, are DECIMAL(38,0). `load.sql` next to
# the files declares all types and comments again, and reads the files into a DuckDB database.

KEPT = {
    "allocator_statistics": "device statistic_name",
    "allocations": "kind parameter_shape parameter_shape_index output_shape",
    "diagnostics": "severity code",
    "entry_parameters": "shape",
    "file_contents": "content_hash",
    "files": "file_kind content_hash",
    "input_output_aliases": "output_index parameter_index alias_kind",
    "instruction_times": "device",
    "instructions": "shape opcode",
    "live_arrays": "device shape",
    "live_profiles": "moment",
    "live_ranges": "shape_index",
    "memory_spaces": "platform memory_space_name",
    "modules": "platform backend format_era reported_peak_status entry_computation_layout "
    "derived_from_proto",
    "peak_contributors": "shape_index",
    "peak_savings": "what saving_form",
    "peak_values": "allocation_kind",
    "positions": "shape_index",
    "recompute_parts": "part_kind saving_form",
    "role_rules": "subject",
    "row_counts": "table_name",
    "runs": "bufdb_version",
    "schema_info": "views_hash",
    "shapes": "shape dtype dimensions_text layout",
    "uses": "operand_index",
    "value_origins": "origin_kind opcode slice_shape",
    "values": "shape_index shape",
}
"""Text columns with words of XLA or bufdb only; all others may have words of the user."""
RULES = ("memory_spaces", "op_categories", "role_rules")
"""Tables that bufdb ships, and users may edit."""
_FUNCTIONS = f"""
SELECT function_name FROM {CATALOG}.main.modules
UNION
SELECT function_name FROM {CATALOG}.main.stack_frames
WHERE own_frame_id = stack_frame_id
UNION
SELECT function_name FROM {CATALOG}.main.live_frames
WHERE own_frame_id = stack_frame_id
UNION
SELECT regexp_replace(program_name, '^p?jit_(.)', '\\1') FROM {CATALOG}.main.live_programs
"""
_TEXTS_AT_ONCE = 20_000
_LONGEST_LINE = 2**28


class Selection:
    """The exported rows, and replacements of texts, as temporary tables of its connection."""

    def __init__(
        self,
        con: duckdb.DuckDBPyConnection,
        filters: Mapping[str, Value],
        *,
        anonymous: bool,
        keep: Sequence[str] = (),
        has_sources: bool = False,
    ) -> None:
        """Choose modules by globs of run, function and module; `keep` names labels to keep.

        The bytes of dump files, which hold names and paths, are among the rows if `has_sources`.

        Raises:
            BufdbError: there are no such modules.
        """
        self.con = con
        self.types = _types(con)
        self.anonymous = anonymous
        self.has_sources = has_sources and not anonymous
        self._kept_labels = ", ".join(map(sql_text, keep)) or "NULL"
        globs = {name: str(filters[name]) for name in ("function", "module") if name in filters}
        _ask(con, filters, globs)
        ((module_count,), (run_count,)) = con.execute(
            "SELECT count(*) FROM temp.main.exported_modules "
            "UNION ALL SELECT count(*) FROM temp.main.exported_runs"
        ).fetchall()
        self.module_count = module_count
        if filters and not (module_count if globs else run_count):
            what = ", ".join(f"{name} {quote(str(value))}" for name, value in filters.items())
            raise BufdbError(
                f"nothing to export: no module with {what}; 'bufdb query modules' lists them"
            )
        if anonymous:
            self._replace_texts()

    def rows(self, table: str) -> str:
        """Return a SELECT of the exported rows of a table, with all of its columns."""
        columns, joins = [], []
        for number, column in enumerate(self.types[table]):
            source = f'stored."{column}"'
            if self.anonymous and column in ("module_id", "run_name"):
                kind = column.partition("_")[0]
                joins.append(
                    f"LEFT JOIN temp.main.exported_{kind}s AS {kind} ON {kind}.{column} = {source}"
                )
                source = f"{kind}.exported_{column}"
            elif self.anonymous and self._is_free(table, column):
                joins.append(
                    f"LEFT JOIN temp.main.exported_texts AS t{number} ON t{number}.text = {source} "
                    f"AND t{number}.kind = '{_kind(table, column)}'"
                )
                kept = source
                source = f"t{number}.replaced"
                if table == "run_labels":
                    source = f"if(stored.label IN ({self._kept_labels}), {kept}, {source})"
            columns.append(f'{source} AS "{column}"')
        where = self._condition(table)
        if self.anonymous and table == "run_labels":  # metadata may reveal where and by whom
            where += f" AND (NOT stored.is_metadata OR stored.label IN ({self._kept_labels}))"
        return (
            f'SELECT {", ".join(columns)} FROM {CATALOG}.main."{table}" AS stored '
            f"{' '.join(joins)} WHERE {where}"
        )

    def _condition(self, table: str) -> str:
        columns = self.types[table]
        of_module = "stored.module_id IN (SELECT module_id FROM temp.main.exported_modules)"
        of_run = "stored.run_name IN (SELECT run_name FROM temp.main.exported_runs)"
        if table == "diagnostics":
            return f"({of_module} OR (stored.module_id IS NULL AND {of_run}))"
        if "module_id" in columns:
            return of_module
        if "run_name" in columns:
            return of_run
        if table == "shapes":
            return (
                f'stored.shape IN (SELECT shape FROM {CATALOG}.main."values" AS stored '
                f"WHERE {of_module})"
            )
        if table == "file_contents":
            return (
                f"{self.has_sources} AND stored.content_hash IN (SELECT content_hash "
                f"FROM {CATALOG}.main.files AS stored WHERE {of_module})"
            )
        return "TRUE"

    def _is_free(self, table: str, column: str) -> bool:
        kept = KEPT.get(table, "").split()
        return self.types[table][column] == "VARCHAR" and column not in ("run_name", *kept)

    def _replace_texts(self) -> None:
        """Fill exported_texts with every text that is not kept."""
        parts = [
            f"SELECT stored.\"{column}\" AS text, '{_kind(table, column)}' AS kind "
            f'FROM {CATALOG}.main."{table}" AS stored '
            f'WHERE stored."{column}" IS NOT NULL AND {self._condition(table)}'
            for table, columns in self.types.items()
            for column in columns
            if self._is_free(table, column)
        ]
        # In a fixed order, so that words get the same codes each time.
        self.con.execute(
            "CREATE OR REPLACE TEMP TABLE exported_originals AS "
            f"SELECT DISTINCT text, kind FROM ({' UNION ALL '.join(parts)}) ORDER BY ALL"
        )
        self.con.execute(
            "CREATE OR REPLACE TEMP TABLE exported_texts "
            "(text VARCHAR, kind VARCHAR, replaced VARCHAR)"
        )
        frames = self.con.execute(_FUNCTIONS).fetchall()
        words = Words(name for (name,) in frames if name)
        replacement = {"rule": words.rule, "function": words.function, "text": words.text}
        places = f"SELECT DISTINCT source_path FROM {CATALOG}.main.runs ORDER BY ALL"
        whole = {text for (text,) in self.con.execute(places).fetchall()}
        part = "SELECT text, kind FROM temp.main.exported_originals WHERE rowid >= ? LIMIT ?"
        first = 0
        while rows := self.con.execute(part, [first, _TEXTS_AT_ONCE]).fetchall():
            first += len(rows)
            replaced = [
                (words.whole if kind == "text" and text in whole else replacement[kind])(text)
                for text, kind in rows
            ]
            self.con.execute(
                "INSERT INTO temp.main.exported_texts "
                "SELECT unnest($texts), unnest($kinds), unnest($replaced)",
                {
                    "texts": [text for text, _ in rows],
                    "kinds": [kind for _, kind in rows],
                    "replaced": replaced,
                },
            )


def _kind(table: str, column: str) -> str:
    """Return how the texts of a column are replaced.

    A user's function may have the name of an instruction, such as `copy`, which stays.
    """
    if table in RULES:
        return "rule"
    return "function" if column == "function_name" else "text"


def _ask(
    con: duckdb.DuckDBPyConnection, filters: Mapping[str, Value], globs: Mapping[str, str]
) -> None:
    """Fill exported_modules and exported_runs; module filters narrow the runs to theirs."""
    values: dict[str, Value] = {"run": filters["run"]} if filters.get("run") is not None else {}
    sql = "SELECT run_name FROM asked_runs ORDER BY run_name"
    con.execute(
        "CREATE OR REPLACE TEMP TABLE exported_runs (run_name VARCHAR, exported_run_name VARCHAR)"
    )
    for number, (run,) in enumerate(execute.execute_with(con, sql, values, "export").rows, 1):
        con.execute("INSERT INTO temp.main.exported_runs VALUES (?, ?)", [run, f"run_{number}"])
    # Numbers instead of ids, which are hashes of names.
    con.execute(
        "CREATE OR REPLACE TEMP TABLE exported_modules AS "
        "SELECT module_id, run_name, row_number() OVER (ORDER BY run_name, module_key) "
        f"AS exported_module_id FROM {CATALOG}.main.modules "
        "WHERE run_name IN (SELECT run_name FROM temp.main.exported_runs) "
        "AND ($function::VARCHAR IS NULL "
        "OR coalesce(function_name, module_key) GLOB $function::VARCHAR) "
        "AND ($module::VARCHAR IS NULL OR module_key GLOB $module::VARCHAR)",
        {"function": globs.get("function"), "module": globs.get("module")},
    )
    if globs:
        con.execute(
            "DELETE FROM temp.main.exported_runs WHERE run_name NOT IN "
            "(SELECT run_name FROM temp.main.exported_modules)"
        )


def _types(con: duckdb.DuckDBPyConnection) -> dict[str, dict[str, str]]:
    """Return the type of each column by table, in order.

    Raises:
        DatabaseError: a column is computed, by code in the file; this connection may write.
    """
    types: dict[str, dict[str, str]] = {table: {} for table in definitions.tables()}
    rows = con.execute(
        "SELECT table_name, column_name, data_type, is_generated "
        "FROM system.main.duckdb_columns() "
        f"WHERE database_name = '{CATALOG}' AND schema_name = 'main' "
        "ORDER BY table_name, column_index"
    ).fetchall()
    for table, column, data_type, is_generated in rows:
        if is_generated:
            raise DatabaseError(f"the column {table}.{column} is computed, which is not bufdb's")
        if table in types:
            types[table][column] = data_type
    return types


def write(selection: Selection, folder: Path, form: str) -> None:
    """Write a file for each table, and load.sql, into a new folder.

    Args:
        selection: the rows.
        folder: must not exist, or be empty.
        form: "parquet" or "csv".

    Raises:
        UsageError: the folder is not empty, or cannot be created.
        BufdbError: a file cannot be written.
    """
    made = folder.with_name(f".{folder.name}-{os.urandom(8).hex()}.tmp")
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"{folder} exists already; -o wants a new folder for {form}")
        made.mkdir(parents=True)
    except OSError as error:
        raise UsageError(f"cannot write {folder}: {error.strerror}") from error
    try:
        for table, columns in selection.types.items():
            path = sql_text(made / f"{table}.{form}")
            rows = f"SELECT {', '.join(_written(columns))} FROM ({selection.rows(table)})"
            selection.con.execute(f"COPY ({rows}) TO {path} ({_options(columns, form)})")
        script = "\n".join(_load(selection.types, form))
        (made / "load.sql").write_text(script, encoding="utf-8")
        if folder.exists():
            folder.rmdir()
        made.rename(folder)
    except (OSError, duckdb.Error) as error:
        reason = str(error).splitlines()[0]
        raise BufdbError(f"cannot write {folder}: {reason}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _written(columns: Mapping[str, str]) -> Iterator[str]:
    for column, data_type in columns.items():
        cast = "::DECIMAL(38, 0)" if data_type == "HUGEINT" else ""
        yield f'"{column}"{cast} AS "{column}"'


def _options(columns: Mapping[str, str], form: str) -> str:
    if form == "parquet":
        return "FORMAT parquet, COMPRESSION zstd"
    # Quote texts, so that an empty one differs from NULL.
    texts = [f'"{column}"' for column, kind in columns.items() if kind.startswith("VARCHAR")]
    forced = f", FORCE_QUOTE ({', '.join(texts)})" if texts else ""
    return f"FORMAT csv, HEADER true{forced}"


def _load(types: Mapping[str, Mapping[str, str]], form: str) -> Iterator[str]:
    """Yield SQL that creates the tables and reads the files of the current folder."""
    yield "-- Reads this folder into DuckDB: cd FOLDER; duckdb new.duckdb -f load.sql"
    texts = definitions.tables()
    for table, columns in types.items():
        yield re.sub(r"^INSERT INTO .*?;$", "", texts[table], flags=re.MULTILINE | re.DOTALL)
        source = f"'{table}.parquet'"
        if form == "csv":
            struct = ", ".join(f"'{column}': '{kind}'" for column, kind in columns.items())
            source = (
                f"read_csv('{table}.csv', header = true, delim = ',', quote = '\"', "
                f"escape = '\"', allow_quoted_nulls = false, auto_detect = false, "
                f"parallel = false, max_line_size = {_LONGEST_LINE}, columns = {{{struct}}})"
            )
        yield f'INSERT INTO "{table}" SELECT * FROM {source};\n'


# -- Some modules as a separate database, small enough for a bug report ----------------------------
#
# Any command of bufdb can open the file, with the same answers for these modules. It is written
# under a temporary name and renamed when it is complete.

_NAME = "bufdb_bundle"
_CONFIG = {"default_block_size": "16384"}
"""DuckDB's smallest block size: each column of each table takes at least one block."""


def write_bundle(selection: Selection, path: Path, source: str) -> None:
    """Write the rows of a selection as a database; an existing file is replaced.

    Args:
        selection: the rows, on a connection that may access files.
        path: the new file.
        source: the database that they are from, which must not be replaced.

    Raises:
        UsageError: the file is that database, or cannot be written.
        BufdbError: DuckDB could not write it.
    """
    if path.exists() and Path(source).exists() and path.samefile(source):
        raise UsageError(f"{path} is the database itself; -o wants another file")
    target = Path(os.path.realpath(path))
    # /dev/stdout may be a file that another process has open; it would not see a replacement.
    is_stream = path.is_symlink() and str(path.absolute()).startswith(("/dev/", "/proc/"))
    is_other = is_stream or (target.exists() and not target.is_file())
    if is_other or not target.parent.is_dir():
        raise UsageError(f"cannot write {path}: no such folder, or not a file")
    made = target.with_name(f".{target.name}-{os.urandom(8).hex()}.tmp")
    try:
        store.open_writable(str(made), _CONFIG).close()
        _fill(selection, made)
        made.replace(target)
    except (OSError, duckdb.Error) as error:
        raise BufdbError(f"cannot write {path}: {str(error).splitlines()[0]}") from error
    finally:
        made.unlink(missing_ok=True)


def _fill(selection: Selection, made: Path) -> None:
    con = selection.con
    con.execute(f"ATTACH {sql_text(made.absolute())} AS {_NAME}")
    try:
        con.execute("BEGIN")
        for table in selection.types:
            if table != "schema_info":
                con.execute(f'DELETE FROM {_NAME}.main."{table}"')
                rows = selection.rows(table)
                con.execute(f'INSERT INTO {_NAME}.main."{table}" BY NAME {rows}')
        con.execute("COMMIT")
    except duckdb.Error:
        con.execute("ROLLBACK")
        raise
    finally:
        con.execute(f"DETACH {_NAME}")
