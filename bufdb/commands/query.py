"""`bufdb query`: one saved query: its answer, its help, its text or its plan."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import click

from bufdb.commands import common
from bufdb.errors import UsageError
from bufdb.query import header
from bufdb.query.header import SavedQuery


@click.command(
    name="query",
    add_help_option=False,
    options_metavar="[OPTIONS]",
    short_help="Answer a saved query.",
    epilog="'bufdb queries' lists the saved queries, 'bufdb query NAME --help' describes one.",
)
@click.argument("name", required=False)
@click.option(
    "-p",
    "--param",
    "given",
    metavar="NAME VALUE",
    nargs=2,
    multiple=True,
    help="Set a parameter of the query; may be repeated.",
)
@click.option("--run", metavar="RUN", help="Short for '-p run RUN': a name or a glob.")
@common.output_options
@click.option("--sql", "show_sql", is_flag=True, help="Print the query's text; needs no database.")
@click.option(
    "--dialect", metavar="ENGINE", help="With --sql: the text for another engine (spark)."
)
@click.option("--explain", is_flag=True, help="Print DuckDB's plan instead of the answer.")
@common.allow_files_option
@common.db_option
@common.queries_option
@click.option("-h", "--help", "show_help", is_flag=True, help="Show this, or the help of NAME.")
def command(
    name: str | None,
    given: tuple[tuple[str, str], ...],
    run: str | None,
    show_sql: bool,
    dialect: str | None,
    explain: bool,
    allow_files: bool,
    db: str,
    folders: tuple[Path, ...],
    show_help: bool,
    **output: Any,
) -> None:
    """Answer the saved query NAME.

    A parameter that is not set has its default; 'bufdb query NAME --help' lists them.
    """
    if name is None:
        if not show_help:
            raise UsageError("which query? 'bufdb queries' lists them")
        common.write(click.get_current_context().get_help() + "\n")
        return
    found = common.catalogue(folders)
    query = found.find(name)
    for clash in found.clashes:
        if header.query_name(clash.path.stem) == query.name:
            common.note(str(clash))
    if show_help:
        common.write(help_text(query))
    elif show_sql or dialect:
        common.write(_sql(query, dialect), output["output"])
    else:
        values = _parameters(query, given, run)
        _answer(query, values, db, explain=explain, allow_files=allow_files, output=output)


def help_text(query: SavedQuery) -> str:
    """A query's help, from its header."""
    parts = [f"{query.name}: {query.title}\n"]
    if query.description:
        parts.append(textwrap.indent(query.description, "  ") + "\n")
    if query.wrong_when:
        parts.append("Can be wrong:\n" + _wrapped(query.wrong_when, "  "))
    if query.params:
        lines = (
            f"  -p {param.name} {param.type}\n" + _wrapped(_param_text(param), "      ")
            for param in query.params
        )
        parts.append("Parameters:\n" + "".join(lines))
    lines = (
        f"  {column.name} {column.type}\n" + _wrapped(column.text, "      ")
        for column in query.columns
    )
    parts.append("Columns:\n" + "".join(lines))
    parts.append(f"Runs on {', '.join(query.engines)}. File: {query.path}\n")
    return "\n".join(parts)


def _wrapped(text: str, indent: str) -> str:
    lines = textwrap.wrap(text, 96, initial_indent=indent, subsequent_indent=indent)
    return "\n".join(lines) + "\n"


def _param_text(param: header.Parameter) -> str:
    text = param.text
    if param.choices:
        text += f" One of {', '.join(str(choice) for choice in param.choices)}."
    return text if param.default is None else f"{text} [default: {param.default}]"


def _parameters(
    query: SavedQuery, given: tuple[tuple[str, str], ...], run: str | None
) -> dict[str, str]:
    pairs = [*given, *([("run", run)] if run is not None else [])]
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(name for name in values if [pair[0] for pair in pairs].count(name) > 1)
        raise UsageError(f"{query.name}: parameter {twice} is set twice")
    return values


def _sql(query: SavedQuery, dialect: str | None) -> str:
    if dialect is None or dialect == "duckdb":
        return query.sql
    from bufdb.lint import translate

    return translate.transpile(query, dialect)


def _answer(
    query: SavedQuery,
    values: dict[str, str],
    db: str,
    *,
    explain: bool,
    allow_files: bool,
    output: dict[str, Any],
) -> None:
    from bufdb.query import execute

    bound = execute.bind(query, values)
    sql = query.sql if query.is_own else None
    con = common.open_database(db, sql, allow_files=allow_files, runs=execute.runs_asked(bound))
    result = execute.execute_query(con, query, bound, explain=explain)
    if explain:
        common.write("".join(f"{plan}\n" for _, plan in result.rows), output["output"])
    else:
        common.emit(result, **output)
