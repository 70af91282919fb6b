"""`bufdb blame`: which version or flag grew which buffer."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bufdb.capture.apart import signals_heeded
from bufdb.commands import common, completion
from bufdb.commands.progress import hide, waiting
from bufdb.errors import UsageError
from bufdb.render.text import human_bytes

if TYPE_CHECKING:
    from bufdb.blame.runs import Variant
    from bufdb.blame.series import Series


@click.command(name="blame", short_help="Find the version or flag that grew the memory.")
@click.argument(
    "what", nargs=-1, metavar="FILE.py:FUNCTION | BASE NEW", shell_complete=completion.known("run")
)
@click.option(
    "--args",
    "args",
    metavar="PYTHON",
    default="",
    help="Arguments as in a call: shapes as f32[8,128], trees of them, and names of FILE.",
)
@click.option("--jax", "versions", metavar="V,V", help="Versions of jax, in order.")
@click.option(
    "--with",
    "packages",
    metavar="PACKAGE",
    multiple=True,
    help="Another package for the environments of --jax, such as flax==0.12.8; repeatable.",
)
@click.option(
    "--python",
    "pythons",
    metavar="PATH",
    multiple=True,
    help="A Python that has jax; repeatable, in order.",
)
@click.option(
    "--flag",
    metavar="NAME=V,V",
    help="A compiler option (an XLA flag without dashes), and its values.",
)
@click.option("--bisect", is_flag=True, help="Compile only what it takes to find a jump.")
@click.option(
    "--over",
    "percent",
    metavar="PERCENT",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Changes up to this are no jump.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit for each compilation.",
)
@click.option("--clean", "is_clean", is_flag=True, help="Remove the environments of --jax.")
@click.option("-v", "--verbose", "is_verbose", is_flag=True, help="Show the output of JAX and XLA.")
@common.quiet_option
@click.option("--run", metavar="NAME", help="Beginning of the names of the runs.  [function]")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label of the runs.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of the answer; json holds exact numbers.",
)
@common.output_option
@common.db_option
def command(
    what: tuple[str, ...],
    args: str,
    versions: str | None,
    packages: tuple[str, ...],
    pythons: tuple[str, ...],
    flag: str | None,
    bisect: bool,
    percent: float,
    timeout_s: float | None,
    is_clean: bool,
    is_verbose: bool,
    is_quiet: bool,
    run: str | None,
    labels: tuple[str, ...],
    format_name: str,
    output: Path | None,
    db: str,
) -> None:
    r"""Name the version or flag at which FUNCTION's need jumps, and what grew.

    \b
      bufdb blame train.py:step --args 'args(8)' --jax 0.7.1,0.7.2,0.10.2 --with flax==0.12.8
      bufdb blame train.py:step --args 'args(8)' --python old/bin/python --python new/bin/python
      bufdb blame train.py:step --args 'args(8)' --flag xla_cpu_enable_fast_math=false,true
      bufdb blame BASE NEW

    FUNCTION is compiled, not run, once for each version, Python or value, in a process of its own.
    With a single one, that is compared with the Python that runs bufdb, or with the flag's default.
    --jax makes an environment for each version, with uv or else with pip, and keeps it in
    the user's cache; bufdb is not installed there. What fails is a line; the others go on.

    Each compilation is stored as a run FUNCTION@jax=VERSION with a label, for 'bufdb diff' and the
    other commands. BASE NEW compares runs that are there, by function.

    \b
    Exit codes:
      0    no jump
      1    a jump; or something is unknown or could not be compiled
      2    wrong usage
      3    database in use, damaged, not writable or of another version
      124  not compiled within --timeout
    """
    from bufdb.blame import series
    from bufdb.commands.captured import check_database

    if is_clean:
        _clean()
        return
    opened = partial(common.open_database, db)
    given = [name for name, value in _axes(versions, pythons, flag).items() if value]
    if len(given) > 1:
        raise UsageError(f"{' and '.join(given)}: one at a time")
    if not given:
        if len(what) != 2:
            raise UsageError(
                "blame wants FILE.py:FUNCTION with --jax, --python or --flag, or two runs"
            )
        found = series.series(opened, [series.Step(name, name) for name in what], percent)
    else:
        if len(what) != 1 or ":" not in what[0]:
            raise UsageError(f"{given[0]} wants one FILE.py:FUNCTION")
        from bufdb.blame.answer import Blaming

        variants = _variants(versions, packages, pythons, flag)
        check_database(db)
        with (
            signals_heeded(),
            tempfile.TemporaryDirectory(prefix="bufdb-") as folder,
            waiting(is_quiet=is_quiet) as observer,
        ):
            from bufdb.blame.runs import Job

            job = Job(what[0], args, Path(folder), timeout_s, is_verbose, observer, _relay)
            name = run or what[0].rpartition(":")[2]
            known = common.parse_labels(labels)
            work = Blaming(job, variants, opened, db, name, known, percent, common.note)
            found = work.answer(bisect=bisect)
    shown = series.as_json(found) if format_name == "json" else series.text(found)
    common.write(shown, output)
    click.get_current_context().exit(_code(found))


def _code(found: Sequence[Series]) -> int:
    return 1 if not found or any(one.jumps or not one.is_known for one in found) else 0


def _axes(versions: str | None, pythons: Sequence[str], flag: str | None) -> dict[str, object]:
    return {"--jax": versions, "--python": pythons, "--flag": flag}


def _variants(
    versions: str | None, packages: Sequence[str], pythons: Sequence[str], flag: str | None
) -> list[Variant]:
    """Return the ways to compile, in order.

    Raises:
        UsageError: an option is malformed.
    """
    from bufdb.blame import runs
    from bufdb.blame.runs import Variant

    this = sys.executable
    if packages and versions is None:
        raise UsageError("--with is for the environments of --jax")
    if flag is not None:
        name, equals, values = flag.partition("=")
        name = name.removeprefix("--")
        if not name or not equals or not all(values.split(",")):
            raise UsageError(f"--flag wants NAME=V,V, got {flag!r}")
        known = list(dict.fromkeys(values.split(",")))
        found = [Variant(name, value, this, {name: value}) for value in known]
        return found if len(found) > 1 else [Variant(name, "default", this), *found]
    if versions is not None:
        names = list(dict.fromkeys(part.strip() for part in versions.split(",")))
        if not all(names):
            raise UsageError(f"--jax wants versions with commas, got {versions!r}")
        found = [
            Variant(
                "jax",
                name,
                "",
                packages=(f"jax=={name}", "flatbuffers", *packages),
                wants_jax=name,
            )
            for name in names
        ]
        if len(found) > 1:
            return found
        version = runs.version_of(this)
        if version == names[0]:
            raise UsageError(f"the Python that runs bufdb has jax {version} too; name another one")
        return [*found, Variant("jax", version, this)]
    found = [Variant("python", path, path) for path in dict.fromkeys(pythons)]
    return found if len(found) > 1 else [*found, Variant("python", this, this)]


def _relay(data: bytes) -> None:
    """Show the output of the user's code on standard error."""
    hide()
    click.echo(data, nl=False, err=True)


def _clean() -> None:
    from bufdb.blame import environments

    count, size = environments.clean()
    what = "environment" if count == 1 else "environments"
    common.write(f"removed {count} {what}, {human_bytes(size)}\n")
