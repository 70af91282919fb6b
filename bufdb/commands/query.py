"""`bufdb query`: the answer, help, text or plan of one saved query."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from bufdb.commands import common, completion, paths
from bufdb.errors import UsageError, quote
from bufdb.query import header, parameters
from bufdb.query.header import SavedQuery
from bufdb.query.parameters import Known
from bufdb.render.queries import help_text

OPTIONS = {
    "run": "run",
    "function": "function",
    "module": "module",
    "platform": "platform",
    "color": "color",
    "top": "top_n",
}
"""Options that abbreviate a parameter, for queries that have it."""
_PARAMETER_OPTIONS = ("-p", "--param")


class _QueryCommand(click.Command):
    """Accepts `-p NAME=VALUE` for `-p NAME VALUE`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _in_pairs(ctx, args))


def _in_pairs(ctx: click.Context, args: list[str]) -> list[str]:
    """Return the arguments with each NAME=VALUE of -p split; parameter names never contain `=`.

    Raises:
        UsageError: there is a name without a value.
    """
    left, done = list(args), list[str]()
    while left:
        word = left.pop(0)
        if word == "--":
            return [*done, word, *left]
        option, equals, text = word.partition("=")
        if option == "--param" and equals:
            word = option
            left.insert(0, text)
        elif word.startswith("-p") and len(word) > 2:
            left.insert(0, word[2:])
            word = "-p"
        if word in _PARAMETER_OPTIONS and not left and ctx.resilient_parsing:
            break  # the shell completes the name
        done.append(word)
        if word in _PARAMETER_OPTIONS and left:
            name, equals, value = left.pop(0).partition("=")
            if equals:
                name, value = name.strip(), value.strip()
            elif left:
                value = left.pop(0)
            elif ctx.resilient_parsing:
                ctx.meta[completion.OPEN_PARAMETER] = name
                return done[:-1]
            else:
                raise UsageError(f"-p wants NAME VALUE or NAME=VALUE, got {quote(name)} alone")
            done += [name, value]
    return done


def _short(name: str, text: str) -> common.Decorator:
    """Return the option `--name` for a parameter."""
    param = OPTIONS[name]
    return click.option(
        f"--{name}",
        f"option_{param}",
        metavar="N" if name == "top" else name.upper(),
        shell_complete=None if name == "top" else completion.known(name),
        help=f"Short for '-p {param}': {text}",
    )


@click.command(
    name="query",
    cls=_QueryCommand,
    add_help_option=False,
    options_metavar="[OPTIONS]",
    short_help="Answer a saved query.",
    epilog="'bufdb queries' lists the saved queries, 'bufdb query NAME --help' describes one.",
)
@click.argument("name", required=False, shell_complete=completion.query_name)
@paths.argument
@click.option(
    "-p",
    "--param",
    "parameters",
    metavar="NAME VALUE",
    nargs=2,
    multiple=True,
    shell_complete=completion.parameter,
    help="Set a parameter of the query, also as NAME=VALUE; may be repeated.",
)
@_short("run", "a glob of names, or of LABEL=VALUE.")
@_short("function", "a glob of jitted functions.")
@_short("module", "a glob of modules' keys.")
@_short("platform", "cpu, gpu or tpu.")
@_short("color", "a memory space, by number, by name, such as hbm, or all.")
@_short("top", "rows to show.")
@common.live_alone
@common.data_options
@click.option("--sql", "show_sql", is_flag=True, help="Print the query's text; needs no database.")
@click.option(
    "--dialect", metavar="ENGINE", help="With --sql: the text for another engine (spark)."
)
@click.option(
    "--engine",
    type=click.Choice(["duckdb", "spark", "sail"]),
    default="duckdb",
    show_default=True,
    help="Engine that answers; all except DuckDB need --on.",
)
@click.option("--remote", metavar="URL", help="With --engine spark: a server, sc://HOST[:PORT].")
@click.option("--master", metavar="URL", help="The same with local Java, such as local[2].")
@click.option("--explain", is_flag=True, help="Print DuckDB's plan instead of the answer.")
@common.allow_files_option
@common.categories_option
@common.read_db_option
@common.queries_option
@click.option("-h", "--help", "show_help", is_flag=True, help="Show this, or the help of NAME.")
def command(
    name: str | None,
    parameters: tuple[tuple[str, str], ...],
    live: str | None,
    show_sql: bool,
    dialect: str | None,
    engine: str,
    remote: str | None,
    master: str | None,
    explain: bool,
    allow_files: bool,
    categories: Path | None,
    db: str,
    folders: tuple[Path, ...],
    show_help: bool,
    **others: Any,
) -> None:
    """Answer the saved query NAME.

    'bufdb query NAME --help' lists its parameters and their defaults. An answer without rows is a
    success; standard error says why there are none.

    A PATH is read in place of a database: a dump folder, an archive, a log, a URL, or -.
    """
    if name is None:
        if not show_help:
            raise UsageError("which query? 'bufdb queries' lists them")
        common.write(click.get_current_context().get_help() + "\n")
        return
    saved = common.catalogue(folders)
    query = saved.find(name)
    for clash in saved.clashes:
        if header.query_name(clash.path.stem) == query.name:
            common.note(str(clash))
    short = {name: others.pop(f"option_{name}") for name in OPTIONS.values()}
    if show_help:
        common.write(help_text(query, OPTIONS))
        return
    if show_sql or dialect:
        common.write(_sql(query, dialect), others["output"])
        return
    values = _parameters(query, parameters, short)
    if live is not None:
        from bufdb.answers.live import require_budget

        require_budget(query)
        if "budget" in values:
            raise UsageError(f"{query.name}: --live is in place of the parameter budget")
        values["budget"] = common.left(live, db)
    if engine != "duckdb" or remote or master:
        if explain or categories:
            raise UsageError("--explain and --categories work only with DuckDB")
        _answer_elsewhere(query, values, (engine, remote, master), others)
    else:
        opening = {"allow_files": allow_files, "categories": categories}
        _answer(query, values, db, explain=explain, opening=opening, output=others)


def _parameters(
    query: SavedQuery, parameters: tuple[tuple[str, str], ...], short: dict[str, str | None]
) -> dict[str, str]:
    pairs = [(name.replace("-", "_"), text) for name, text in parameters]
    pairs += [(name, text) for name, text in short.items() if text is not None]
    values = dict(pairs)
    if len(values) < len(pairs):
        twice = next(name for name in values if [pair[0] for pair in pairs].count(name) > 1)
        raise UsageError(f"{query.name}: parameter {twice} is set twice")
    return values


def _sql(query: SavedQuery, dialect: str | None) -> str:
    if dialect is None or dialect == "duckdb":
        settings = query.alias.settings if query.alias else {}
        lines = (
            f'SET VARIABLE "{name}" = {header.literal(value)};\n'
            for name, value in settings.items()
        )
        return "".join(lines) + query.sql
    from bufdb.lint import translate

    return translate.transpile(query, dialect)


def _answer_elsewhere(
    query: SavedQuery,
    values: dict[str, str],
    where: tuple[str, str | None, str | None],
    output: dict[str, Any],
) -> None:
    """Write the answer of Spark or Sail over a dataset; `where`: --engine, --remote, --master."""
    from bufdb.query import execute
    from bufdb.spark import session, tables

    engine, remote, master = where
    url = common.dataset()
    if url is None:
        raise UsageError(f"--engine {engine} asks a dataset: name one with --on")
    if output["format_name"] in common.BINARY:
        raise UsageError(f"--format {output['format_name']} works only with DuckDB")
    tables.require_claim(query, engine)
    bound = execute.bind(query, values)
    opened = session.opened(engine, remote, master)
    own = (query.sql, execute.runs_asked(bound)) if query.is_own else ()
    tables.register(opened, url, *own)
    result = tables.answer(opened, query, bound)
    common.emit(result, **output)
    if not result.rows:
        common.note(f"{query.name}: no rows; DuckDB's answer says why (without --engine)")


def _answer(
    query: SavedQuery,
    values: dict[str, str],
    db: str,
    *,
    explain: bool,
    opening: dict[str, Any],
    output: dict[str, Any],
) -> None:
    from bufdb.database.definitions import CATALOG
    from bufdb.query import execute

    common.require_pipe(output["format_name"], output["output"])
    bound = execute.bind(query, values)
    sql = query.sql if query.is_own else None
    # A parameter of another query may mean anything.
    runs = execute.runs_asked(bound) if query.is_own else None
    con = common.open_last(db, sql, runs=runs, **opening)
    if explain:
        plans = execute.execute_query(con, query, bound, explain=True).rows
        common.write("".join(f"{plan}\n" for _, plan in plans), output["output"])
        return
    if output["format_name"] in common.BINARY:
        from bufdb.api import answer

        row_count = execute.query_as_table(con, query, bound)
        common.write_bytes(answer.as_bytes(con, output["format_name"]), output["output"])
    else:
        result = execute.execute_query(con, query, bound)
        row_count = len(result.rows)
        if output["format_name"] == "table" and not output["full"]:
            result = result.without_empty(query.unasked_columns(bound))
        common.emit(result, **output)
    for text in parameters.notes_on_nothing(Known(con, CATALOG), query, bound, row_count):
        common.note(text)
