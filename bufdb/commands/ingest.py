"""`bufdb ingest`: read dumps into the database, with progress on a terminal."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bufdb.commands import common
from bufdb.commands.summary import show_after
from bufdb.dumps.place import Bytes
from bufdb.dumps.remote import Url, is_url
from bufdb.errors import BufdbError, UsageError
from bufdb.ingest import ingest as database
from bufdb.render.progress import progress

if TYPE_CHECKING:
    from bufdb.dumps.discover import Source
    from bufdb.ingest.plan import Summary


def _sources(
    context: click.Context, option: click.Parameter, texts: tuple[str, ...]
) -> tuple[Source, ...]:
    """Paths that exist, URLs, and - as what comes on standard input."""
    sources: list[Source] = []
    for text in texts:
        if text == "-":
            sources.append(Bytes("stdin", sys.stdin.buffer.read()))
        elif is_url(text):
            sources.append(Url(text))
        else:
            if not Path(text).exists():
                raise click.BadParameter(f"Path {text!r} does not exist.", context, option)
            sources.append(Path(text))
    return tuple(sources)


@click.command(name="ingest", short_help="Read dumps into the database.")
@click.argument(
    "paths",
    metavar="PATH...",
    nargs=-1,
    required=True,
    type=click.Path(),
    callback=_sources,
)
@common.db_option
@click.option("--run", metavar="NAME", help="Name of the run.  [default: the directory's name]")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label of the run.")
@click.option(
    "--metadata",
    "metadata",
    metavar="K=V",
    multiple=True,
    help="Label that describes how the run was made: it selects runs, but does not separate them.",
)
@click.option("--run-from-dir", is_flag=True, help="Make each sub-directory of PATH a run.")
@click.option(
    "--labels-from",
    "pattern",
    metavar="PATTERN",
    help="With --run-from-dir: labels from directory names, such as model_b{batch}_{dtype}.",
)
@click.option(
    "--jobs",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of reading processes.  [default: number of processors, at most 4]",
)
@click.option(
    "--out",
    "url",
    metavar="URL",
    help="Write a dataset instead: a folder or a URL such as s3://bucket/folder.",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "spark", "sail"]),
    default="local",
    show_default=True,
    help="With --out: where dumps are read, on this machine or by cluster workers.",
)
@click.option("--remote", metavar="URL", help="With --engine spark: a server, sc://HOST[:PORT].")
@click.option(
    "--master", metavar="URL", help="The same with local Java, such as spark://HOST:7077."
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["parquet", "delta"]),
    help="With --out: plain Parquet, or Delta tables (bufdb[delta]).  [default: the dataset's, "
    "else parquet]",
)
@click.option(
    "--no-sources",
    "has_no_sources",
    is_flag=True,
    help="Do not keep the files themselves, compressed: 'bufdb upgrade' cannot read them again.",
)
@click.option("--prune", is_flag=True, help="Remove modules whose dumps are gone from PATH.")
@click.option(
    "--profile",
    metavar="DIR",
    type=click.Path(exists=True, path_type=Path),
    help="Also read how long each instruction took: a profile of jax.profiler (see bufdb profile).",
)
@common.own_option
@common.quiet_option
def command(
    paths: tuple[Source, ...],
    db: str,
    run: str | None,
    labels: tuple[str, ...],
    metadata: tuple[str, ...],
    run_from_dir: bool,
    pattern: str | None,
    own: tuple[str, ...],
    is_quiet: bool,
    url: str | None,
    engine: str,
    remote: str | None,
    master: str | None,
    file_format: str | None,
    profile: Path | None,
    has_no_sources: bool,
    **options: Any,
) -> None:
    """Read XLA dumps into the database: directories (recursively) or single files.

    A PATH may be an archive (zip, tar, tar.gz), a URL (gs://, s3://, https://; pip install
    'bufdb[remote]'), or - for standard input. Logs may hold out-of-memory messages. A memory
    profile of jax.profiler.save_device_memory_profile (mem.prof; in directories and archives
    *.prof) adds what a process holds.

    Unchanged dumps are skipped. 'bufdb query diagnostics' lists what could not be read, and the
    exit code is then 4.

    Protos (.hlo.pb, .hlo.pb.gz) need the extra bufdb[proto].

    Bytes are attributed to your innermost line: one outside of installed packages and of Python
    itself. --own counts a package as your own too (--own maxtext), or files by their path
    (--own '/opt/app/*'); * and ? are wildcards, and it may be repeated. The run keeps it, as
    metadata 'own', until another is given; --own '' clears it.

    With --out, many hosts may write one dataset of Parquet files at once, for --on. The files of a
    run are under the day of its metadata dt (--metadata dt=2026-01-31), or of its dumps.

    With --engine spark, the workers of a cluster read the dumps, one task per group of modules, and
    write the dataset. bufdb must be installed there, and PATH and URL must mean the same, on a
    shared disk or in a bucket. A lost worker loses nothing.

    The database keeps the bytes of the files it reads, compressed to about a tenth, so that a later
    version of bufdb can read them again ('bufdb upgrade'), and 'bufdb export --sources' gives them
    back. With --no-sources it does not.

    With --prune, the run keeps only what the paths hold now.

    With --run-from-dir, a name that does not match PATTERN makes a run without labels, and a
    sub-directory without dumps makes none; both are noted.
    """
    if engine != "local" and options.pop("jobs") is not None:
        raise UsageError("--jobs is for this machine; a cluster sets its own number of tasks")
    if run_from_dir and run is not None:
        raise UsageError("--run names one run and --run-from-dir makes several; give one of them")
    if pattern is not None and not run_from_dir:
        raise UsageError("--labels-from needs --run-from-dir")
    if profile is not None:
        if engine != "local" or run_from_dir:
            raise UsageError("--profile is of one run that this machine reads")
        from bufdb.dumps.profiles import load

        options["profile"] = load(profile, common.note)
    ingest = _ingest_into(db, url, file_format, engine, remote, master)
    pairs = common.parse_labels(labels)
    options["keeps_sources"] = not has_no_sources
    options["own_globs"] = common.own_globs(own)
    options["metadata"] = common.parse_labels(metadata, "--metadata")
    with progress("MB", is_quiet=is_quiet) as options["progress"]:
        if run_from_dir:
            folders = tuple(path for path in paths if isinstance(path, Path))
            if len(folders) < len(paths):
                raise UsageError("--run-from-dir wants directories on disk, no URL and no -")
            summary = _run_per_folder(ingest, folders, pattern, pairs, **options)
        else:
            summary = ingest(list(paths), run=run, labels=pairs, **options)
    for text in summary.notes:
        common.note(text)
    if not is_quiet or summary.exit_code:
        common.note(summary.line())
    is_watched = common.is_terminal(sys.stderr) and not is_quiet and url is None
    if is_watched and summary.module_count:
        try:
            show_after(db, summary.run_names)
        except BufdbError as error:  # the ingest itself is stored already
            common.note(f"no summary: {error}")
    click.get_current_context().exit(summary.exit_code)


def _ingest_into(
    db: str,
    url: str | None,
    file_format: str | None,
    engine: str,
    remote: str | None,
    master: str | None,
) -> Callable[..., Summary]:
    """Return a function that reads dumps into a database file, or into the dataset at `url`.

    Raises:
        UsageError: a format or an engine without a dataset, a cluster without its engine.
    """
    if engine == "local" and (remote or master):
        raise UsageError("--remote and --master are for --engine spark")
    if url is None:
        if file_format is not None:
            raise UsageError("--format is that of a dataset; name one with --out")
        if engine != "local":
            raise UsageError(f"--engine {engine} writes a dataset: name one with --out")

        return partial(_without_threads()(database.ingest), db)
    with _without_threads():
        import numpy  # noqa: F401 - it counts its threads when it is first imported
    common.require_no_file("--out")
    if engine == "local":
        from bufdb.dataset import dump_ingest as dataset

        return partial(dataset.ingest, url, file_format=file_format)
    if file_format == "delta":
        raise UsageError("--format delta is written by one machine: omit --engine")
    from bufdb.spark import cluster_ingest as cluster
    from bufdb.spark import part, session

    with_python = session.opened(engine, remote, master)
    return partial(cluster.ingest, part.SparkScatter(with_python), url)


@contextlib.contextmanager
def _without_threads() -> Iterator[None]:
    """Import NumPy in the block without its unused BLAS threads, which cost 40 ms of CPU.

    The environment is restored after the block, for other libraries and processes.
    """
    name = "OPENBLAS_NUM_THREADS"
    if name in os.environ:
        yield
        return
    os.environ[name] = "1"
    try:
        yield
    finally:
        del os.environ[name]


def _run_per_folder(
    ingest: Callable[..., Summary],
    paths: Sequence[Path],
    pattern: str | None,
    labels: dict[str, str],
    **options: Any,
) -> Summary:
    """Ingest each sub-directory of each path as a separate run."""
    from bufdb.ingest.folders import labels_by_folder

    matched = labels_by_folder(paths, pattern, labels, common.note)
    by_run = {folder.name: own for folder, own in matched.items()}
    return ingest(list(matched), labels=labels, labels_by_run=by_run, **options)
