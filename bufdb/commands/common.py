"""Shared code of the commands: options, opening the database, writing the answer.

Invariant: stdout (or the file of -o) gets the answer and nothing else; notes go to stderr.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bufdb.capture.words import is_python
from bufdb.commands import paths
from bufdb.database.memory import MEMORY_LIMIT
from bufdb.database.patience import PATIENCE, Patience
from bufdb.errors import BufdbError, UsageError, one_line, quote
from bufdb.query.catalogue import Catalogue, query_folders
from bufdb.query.sizes import as_limit
from bufdb.render import FORMATS, formats, progress
from bufdb.render.output import write_file, write_pieces
from bufdb.render.sources import spare
from bufdb.render.text import terminal_safe, use_colour

if TYPE_CHECKING:
    import duckdb

    from bufdb.capture.runner import NotCompiledError
    from bufdb.capture.script import Script
    from bufdb.query.catalogue import Catalogue
    from bufdb.query.result import Result

DEFAULT_DATABASE = "bufdb.duckdb"
_DATASET = "bufdb.dataset"
"""Key of a context for the value of --on."""

_WORDS = "bufdb.words"
"""Key of a context for the command after --."""

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]


def _database(ctx: click.Context, _option: click.Parameter, path: str) -> str:
    """Return a name that DuckDB takes for a file, and keep it for messages."""
    if not path or path.startswith(":memory:"):
        raise UsageError(f"--db wants the name of a file, got {path!r}")
    try:
        path.encode()
    except UnicodeEncodeError as error:
        raise UsageError(f"--db wants a name in UTF-8, got {path!r}") from error
    state = ctx.find_root().obj
    if isinstance(state, dict):
        state["db"] = path
    return path


_file_option: Decorator = click.option(
    "--db",
    metavar="FILE",
    callback=_database,
    envvar="BUFDB_DB",
    default=DEFAULT_DATABASE,
    show_default=True,
    show_envvar=True,
    help="Database file.",
)


def _set_patience(context: click.Context, _: click.Parameter, seconds: float | None) -> None:
    token = PATIENCE.set(Patience(seconds, note))
    context.call_on_close(lambda: PATIENCE.reset(token))


wait_option: Decorator = click.option(
    "--wait",
    metavar="SECONDS",
    type=click.FloatRange(min=0, max=10**9),
    expose_value=False,
    callback=_set_patience,
    help="How long to wait for another process to release the database.  [default: 10 to read, 60 "
    "while an ingest writes, no limit to write]",
)


def _set_memory_limit(context: click.Context, _: click.Parameter, text: str | None) -> None:
    if text is None:
        return

    token = MEMORY_LIMIT.set(as_limit(text, "--memory-limit"))
    context.call_on_close(lambda: MEMORY_LIMIT.reset(token))


memory_option: Decorator = click.option(
    "--memory-limit",
    metavar="SIZE",
    envvar="BUFDB_MEMORY_LIMIT",
    show_envvar=True,
    expose_value=False,
    callback=_set_memory_limit,
    help="Memory for DuckDB, such as 1GB; the rest spills to disk.",
)


def db_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that opens the database; only `db` is passed to it."""
    return _file_option(memory_option(wait_option(function)))


def _keep_dataset(context: click.Context, _: click.Parameter, url: str | None) -> None:
    if url is not None:
        context.meta[_DATASET] = url


_on_option: Decorator = click.option(
    "--on",
    metavar="URL",
    expose_value=False,
    callback=_keep_dataset,
    help="Ask a dataset instead: a folder or URL written by 'bufdb ingest --out'.",
)


def read_db_option(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same for a command that only reads, with `open_database`: datasets too."""
    return _file_option(_on_option(memory_option(wait_option(function))))


def dataset() -> str | None:
    """Return the dataset that the command reads instead of a database file; None without --on.

    Raises:
        UsageError: both are named.
    """
    context = click.get_current_context(silent=True)
    url: str | None = None if context is None else context.meta.get(_DATASET)
    if url is not None:
        require_no_file("--on")
    return url


def require_no_file(option: str) -> None:
    """Raise an error if the command line names both a database file and a dataset.

    Raises:
        UsageError: it does.
    """
    source = click.get_current_context().get_parameter_source("db")
    if source is click.core.ParameterSource.COMMANDLINE:
        raise UsageError(f"--db names a database file and {option} a dataset; give one of them")


own_option: Decorator = click.option(
    "--own",
    "own",
    metavar="GLOB",
    multiple=True,
    envvar="BUFDB_OWN",
    show_envvar=True,
    help="Code of a library to count as your own: a package, or a path or folder with a /.",
)


def own_globs(globs: tuple[str, ...], program: Sequence[str] = ()) -> list[str] | None:
    """Return what --own or BUFDB_OWN names, None if neither is set; an empty one resets it.

    Folders of the working directory are absolute then. The folder of a program's script is the
    user's, too, where it is in a checkout of a library.
    """
    from bufdb.capture.environment import script_folder
    from bufdb.read.own import script_globs

    named = [
        str(Path(glob).absolute()) if "/" in glob and Path(glob).is_dir() else glob
        for glob in globs
    ]
    folder = script_folder(program)
    if folder is not None:
        named += script_globs(str(folder), is_package=(folder / "__init__.py").exists())
    return named or None


quiet_option: Decorator = click.option(
    "-q",
    "--quiet",
    "is_quiet",
    is_flag=True,
    help="No progress bar, and no output on success.",
)

live_alone: Decorator = click.option(
    "--live",
    metavar="FILE.prof|RUN",
    help="Take what a process leaves of the device's memory as the limit: from a memory profile, "
    "or the account of a run (bufdb capture --watch).",
)


def live_option(into: str, limit: str | None = None) -> Decorator:
    """Return an option whose answer is given to the option `into`; `limit` has the whole memory."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def command(*args: Any, live: str | None, **options: Any) -> Any:
            if live is not None:
                if limit is None and options[into] is not None:
                    raise UsageError(f"--live is in place of --{into}; name one of them")
                whole = options[limit] if limit is not None else None
                options[into] = left(live, options.get("db"), whole)
            return function(*args, **options)

        return live_alone(command)

    return decorate


def left(live: str, db: str | None, limit: str | None = None) -> str:
    """Return the size that a process leaves, and note how that was read.

    Raises:
        UsageError: it is neither a file nor, with a database, a run; or nothing is left.
    """
    from bufdb.answers import live as answers

    path = Path(live)
    if path.is_file():
        accounts = answers.of_file(path)
    elif db is None or live.endswith(".prof"):
        raise UsageError(f"--live {live}: no such file")
    else:
        accounts = answers.of_run(open_database(db, answers.ACCOUNTS, runs=[live]), live)
    rest = answers.left_of(accounts, live, limit)
    note(rest.note)
    return f"{rest.size_bytes}B"


limit_option: Decorator = click.option(
    "--limit",
    metavar="SIZE|DEVICE",
    help="Memory of the device: a size such as 16GiB, or a device's name such as 'TPU v5e'.",
)
allow_files_option: Decorator = click.option(
    "--allow-files",
    is_flag=True,
    help="Let the SQL read other files: read_csv, read_parquet, 'file.csv', glob.",
)

queries_option: Decorator = click.option(
    "--queries",
    "folders",
    metavar="DIR",
    multiple=True,
    type=click.Path(path_type=Path),
    help="Also take saved queries from DIR; may be repeated.  [env var: BUFDB_QUERIES]",
)


categories_option: Decorator = click.option(
    "--categories",
    metavar="FILE",
    type=click.Path(path_type=Path),
    envvar="BUFDB_CATEGORIES",
    show_envvar=True,
    help="Your own rules for peak-by -p by role and -p by category, before bufdb's.",
)

BINARY = ("arrow", "parquet")
"""Binary forms of an answer: those of `bufdb.api.answer`."""


def _format_option(names: tuple[str, ...], exact: str) -> Decorator:
    return click.option(
        "--format",
        "format_name",
        type=click.Choice(names),
        default=names[0],
        show_default=True,
        help=f"Format of the answer; {exact} exact numbers.",
    )


text_or_json_option: Decorator = _format_option(("text", "json"), "json holds")
args_option: Decorator = click.option(
    "--args",
    metavar="PYTHON",
    default="",
    help="Arguments as in a call: shapes as f32[8,128], f32[], trees of them, and names of FILE.",
)


def _with_argv(context: click.Context, _: object, words: str | None) -> None:
    """Keep the value of --argv in the environment of children while a command runs.

    Raises:
        UsageError: a quotation is not closed, or the words after -- have those of the program.
    """
    from bufdb.capture.call import ARGV

    if words is None:
        return
    if _WORDS in context.meta:
        raise UsageError("--argv is about FILE.py:FUNCTION; words of a command are after --")
    try:
        shlex.split(words)
    except ValueError as error:
        raise UsageError(f"--argv {quote(words)}: {error}") from error
    os.environ[ARGV] = words
    context.call_on_close(lambda: os.environ.pop(ARGV, None))


argv_option: Decorator = click.option(
    "--argv",
    metavar="WORDS",
    expose_value=False,
    callback=_with_argv,
    help="Words that FILE finds in sys.argv, such as '--config base', if it parses them on import.",
)


class WithCommand(click.Command):
    """A command whose arguments may end with -- and a command of the user's."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep what is after -- for `words_after`, and parse the rest.

        Raises:
            UsageError: -- is missing.
        """
        before = args
        if "--" in args:
            at = args.index("--")
            before, ctx.meta[_WORDS] = args[:at], tuple(args[at + 1 :])
        try:
            return super().parse_args(ctx, list(before))  # which click empties
        except click.UsageError as error:
            at = next((at for at, word in enumerate(before) if is_python(word)), len(before))
            if "--" in args or at == len(before):
                raise
            raise UsageError(f"a command goes after --: -- {shlex.join(before[at:])}") from error


def words_after() -> tuple[str, ...] | None:
    """Return the command after --; None without a --."""
    words: tuple[str, ...] | None = click.get_current_context().meta.get(_WORDS)
    return words


def words_of(program: Sequence[str]) -> Sequence[str]:
    """Return the command after --; the program before it if there is none."""
    return words_after() or program


program_argument: Decorator = click.argument(
    "program", nargs=-1, metavar="FILE.py:FUNCTION | -- COMMAND...", type=click.UNPROCESSED
)
call_option: Decorator = click.option(
    "--call",
    metavar="NAME|N|largest",
    help="Which call of COMMAND: a glob of the function's name, its number of 'bufdb calls', or "
    "the largest that takes a gradient of one round of steps, which is executed.  [default: the "
    "first that takes a gradient; for explain, the largest until then]",
)
_devices_option: Decorator = click.option(
    "--devices",
    "device_count",
    metavar="N",
    type=click.IntRange(min=1),
    help="Simulate N devices for the program.  [default: as many as the target has]",
)
_mesh_option: Decorator = click.option(
    "--mesh",
    metavar="AXIS=SIZE,...",
    help="Other sizes of the program's mesh, such as data=4,model=2, for all devices.",
)


def devices_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add --devices and --mesh, which `capture.simulated.Devices.of` takes."""
    return _devices_option(_mesh_option(function))


verbose_option: Decorator = click.option(
    "-v", "--verbose", "is_verbose", is_flag=True, help="Show the output of JAX and XLA."
)


def _not_dash(_ctx: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Return the value of -o; None for -, which is standard output.

    Raises:
        UsageError: it is Python source.
    """
    file = None if path == Path("-") else path
    spare("-o", file)
    return file


def output_file(text: str, **options: Any) -> Decorator:
    """Return the option -o FILE, with this help."""
    return click.option(
        "-o",
        "--output",
        metavar="FILE",
        type=click.Path(path_type=Path),
        callback=_not_dash,
        help=text,
        **options,
    )


output_option = output_file("Write the answer to FILE instead of standard output.")
_wide_option: Decorator = click.option(
    "--wide",
    "full",
    flag_value="wide",
    default=None,
    help="Shorten nothing, however wide the table.",
)
_full_option: Decorator = click.option(
    "--full",
    "full",
    flag_value="full",
    default=None,
    help="The same, and keep columns with one value for all rows.",
)


def output_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of every command that prints rows; `emit` takes them as keywords."""
    form = _format_option(FORMATS, "csv, json and jsonl hold")
    return form(output_option(_wide_option(_full_option(function))))


def data_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add the same for a command that also writes rows for programs."""
    form = _format_option((*FORMATS, *BINARY), "all but table and markdown hold")
    return form(output_option(_wide_option(_full_option(function))))


def require_pipe(format_name: str, output: Path | None) -> None:
    """Raise an error if the form of the answer cannot go to its destination.

    Raises:
        UsageError: binary data would go to a terminal.
    """
    if format_name in BINARY and output is None and is_terminal(sys.stdout):
        raise UsageError(f"--format {format_name} is binary; use -o FILE or a pipe")


def emit(result: Result, *, format_name: str, output: Path | None, full: str | None) -> None:
    """Write a result in the form that the user asked for; `full` is 'wide', 'full' or None."""
    to_terminal = output is None and is_terminal(sys.stdout)
    is_coloured = to_terminal and format_name == "table" and use_colour(sys.stdout, os.environ)
    text, cut = formats.render(
        result,
        format_name,
        width_for(output, full),
        has_titles=full != "full",
        has_bars=to_terminal and not full,
        is_coloured=is_coloured,
    )
    write(text, output, is_safe=is_coloured)
    if cut:
        note(f"{cut} cells shortened to fit the terminal; --wide shows all of them")


def emit_pieces(results: Iterable[Result], *, format_name: str, output: Path | None) -> None:
    """Write a result that comes in pieces as csv, json or jsonl."""
    texts = formats.pieces(results, format_name)
    if output is None:
        for text in texts:
            write(text)
    else:
        write_pieces(output, (text.encode("utf-8", errors="replace") for text in texts))


def width_for(output: Path | None, full: str | None) -> int | None:
    """Return the columns to fit a table into; None if not a terminal, or for the full table."""
    if output is not None or full or not is_terminal(sys.stdout):
        return None
    import shutil  # 3 ms, with libraries of compression

    return shutil.get_terminal_size().columns


def write(text: str, output: Path | None = None, *, is_safe: bool = False) -> None:
    """Write an answer as UTF-8 to a file or standard output.

    If the reader closes the pipe (`| head`), the rest is dropped silently. On a terminal control
    characters are escaped, unless all but colors are already (`is_safe`); in a file and in a pipe
    the answer is exact.

    Raises:
        UsageError: the file cannot be written.
        BufdbError: the disk is full, or standard output cannot be written.
    """
    if output is None and not is_safe and is_terminal(sys.stdout):
        text = terminal_safe(text)
    write_bytes(text.encode("utf-8", errors="replace"), output)


def write_bytes(data: bytes, output: Path | None = None) -> None:
    """Write an answer unchanged to a file or standard output; raises as `write` does."""
    if output is not None:
        write_file(output, data)
        return
    if sys.stdout is None:
        raise BufdbError("standard output is closed; -o FILE writes the answer to a file")
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except OSError as error:
        # Python flushes stdout once more at exit; that must not fail either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            raise BufdbError(f"cannot write to standard output: {error.strerror}") from error


def is_terminal(stream: Any) -> bool:
    """Return whether a standard stream is open and connected to a terminal."""
    return stream is not None and not stream.closed and bool(stream.isatty())


def note(text: str) -> None:
    """Print a message that is not part of the answer to standard error, if that is possible."""
    lines = "\n".join(one_line(line) for line in text.split("\n"))

    progress.hide()
    with contextlib.suppress(OSError):
        click.echo(f"bufdb: {lines}", err=True)


def relay(data: bytes) -> None:
    """Show what the user's code prints on standard error."""
    progress.hide()
    click.echo(data, nl=False, err=True)


def show_lines(error: NotCompiledError) -> None:
    """Show what the user's code or XLA printed before it gave up."""
    for line in error.lines:
        click.echo(one_line(line), err=True)


def function_or_command(
    program: tuple[str, ...], args: str, call: str | None, own: Sequence[str] | None = None
) -> tuple[str, Script | None]:
    """Return FILE:FUNCTION; or the text of a command, and the command with its call.

    `own` is what counts as the user's in the command.

    Raises:
        UsageError: it is neither, or an option is for the other.
    """
    from bufdb.capture.script import Script
    from bufdb.read.own import parse_own

    words = words_after()
    if words is None:
        return _function(program, call), None
    if not words:
        raise UsageError("expected a command after --, such as: -- python train.py")
    if program:
        raise UsageError(
            f"expected FILE.py:FUNCTION, or -- and a command; got {quote(shlex.join(program))} and "
            "a command"
        )
    if args:
        raise UsageError("--args is about FILE.py:FUNCTION; a command makes the call by itself")
    script = Script.chosen(words, call, own=parse_own(own or ()))
    return script.line, script


def _function(program: tuple[str, ...], call: str | None) -> str:
    """Return FILE:FUNCTION.

    Raises:
        UsageError: it is none.
    """
    if not program:
        raise UsageError("expected FILE.py:FUNCTION, or -- and a command")
    if len(program) > 1 or ":" not in program[0]:
        words = program if is_python(program[0]) else ("python", *program)
        is_command = is_python(program[0]) or program[0].endswith(".py")
        hint = f"; a command goes after --: -- {shlex.join(words)}" if is_command else ""
        raise UsageError(f"expected FILE.py:FUNCTION, got {quote(shlex.join(program))}{hint}")
    if call is not None:
        raise UsageError("--call is about a command: -- python FILE.py")
    return program[0]


@contextlib.contextmanager
def failure_shown() -> Iterator[None]:
    """Show the lines of a failure in the block before its message."""
    from bufdb.capture.runner import NotCompiledError

    try:
        yield
    except NotCompiledError as error:
        show_lines(error)
        raise


def parse_labels(texts: tuple[str, ...], what: str = "--label") -> dict[str, str]:
    """Return labels from texts such as `batch=16`; `what` names them in a message.

    Raises:
        UsageError: a text is not K=V, or two give one label different values.
    """
    labels: dict[str, str] = {}
    for text in texts:
        label, equals, value = text.partition("=")
        if not label or not equals:
            raise UsageError(f"{what} wants K=V, got {text!r}")
        if labels.setdefault(label, value) != value:
            raise UsageError(f"{what} {label} is given twice")
    return labels


def catalogue(folders: tuple[Path, ...]) -> Catalogue:
    """Return the saved queries of bufdb, of the folders given and of the user's own."""
    return Catalogue(query_folders(folders, os.environ))


def _own_of_environment() -> list[str] | None:
    return own_globs(tuple(os.environ.get("BUFDB_OWN", "").split()))


def open_database(path: str, sql: str | None = None, **how: Any) -> duckdb.DuckDBPyConnection:
    """Open the database, the dataset of --on, or what was made of the dumps that are named.

    `how` is as for `answers.opening.open_readable`.

    It stays open until the command ends: closing it fails while an interrupted query is running.
    """
    from bufdb.answers.opening import open_readable

    url = dataset()
    named = paths.database(note, _own_of_environment)
    return open_readable(url or named or path, sql, is_dataset=url is not None, **how)


def open_last(path: str, sql: str | None = None, **how: Any) -> duckdb.DuckDBPyConnection:
    """Open the database as `open_database` does, for the last question of a command.

    Where the process ends with the command the connection is not closed: that takes 10 ms of CPU.
    """
    con = open_database(path, sql, **how)
    state = click.get_current_context().find_root().obj
    if isinstance(state, dict) and "last" in state:
        state["last"] = con
    return con
