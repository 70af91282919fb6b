"""`bufdb blame`: which version or flag grew which buffer."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bufdb.capture.call import short_name
from bufdb.capture.runner import signals_heeded
from bufdb.capture.simulated import Devices
from bufdb.capture.target import hardware_of
from bufdb.commands import common, completion
from bufdb.errors import UsageError
from bufdb.render.progress import waiting
from bufdb.render.sources import spare
from bufdb.render.text import human_bytes

if TYPE_CHECKING:
    from bufdb.blame.series import Series
    from bufdb.blame.ways import Ways


@click.command(
    name="blame",
    cls=common.WithCommand,
    short_help="Find the version or flag that grew the memory.",
)
@click.argument(
    "what",
    nargs=-1,
    metavar="FILE.py:FUNCTION | BASE NEW | -- COMMAND...",
    shell_complete=completion.known("run"),
)
@common.args_option
@common.argv_option
@common.call_option
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
    "flags",
    metavar="NAME=V,V",
    multiple=True,
    help="An XLA flag without dashes, or a setting jax_…, and its values; repeated, a value each.",
)
@click.option(
    "--target",
    metavar="TARGET",
    help="Hardware to compile for, which need not exist here, as of explain: v5e-8, gpu:h100, cpu.",
)
@common.devices_options
@click.option("--bisect", is_flag=True, help="Compile only what it takes to find a jump.")
@click.option(
    "--quick", "is_quick", is_flag=True, help="Do not compile again for the cause of a jump."
)
@click.option(
    "--over",
    "percent",
    metavar="PERCENT",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Changes up to this are not a jump.",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit for each compilation.",
)
@click.option(
    "--report",
    "report_folder",
    metavar="DIR",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write a folder for a bug report: the largest jump with the smallest arguments.",
)
@click.option(
    "--anonymize", "is_anonymous", is_flag=True, help="Replace your names in that folder."
)
@click.option("--clean", "is_clean", is_flag=True, help="Remove the environments of --jax.")
@common.verbose_option
@common.quiet_option
@click.option("--run", metavar="NAME", help="Beginning of the names of the runs.  [function]")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label of the runs.")
@common.own_option
@common.text_or_json_option
@common.output_option
@common.db_option
def command(  # long: a parameter for each option
    what: tuple[str, ...],
    args: str,
    call: str | None,
    versions: str | None,
    packages: tuple[str, ...],
    pythons: tuple[str, ...],
    flags: tuple[str, ...],
    target: str | None,
    device_count: int | None,
    mesh: str | None,
    bisect: bool,
    is_quick: bool,
    percent: float,
    timeout_s: float | None,
    report_folder: Path | None,
    is_anonymous: bool,
    is_clean: bool,
    is_verbose: bool,
    is_quiet: bool,
    run: str | None,
    labels: tuple[str, ...],
    own: tuple[str, ...],
    format_name: str,
    output: Path | None,
    db: str,
) -> None:
    r"""Name the version or flag at which FUNCTION's need jumps, and what grew.

    \b
      bufdb blame train.py:step --args 'args(8)' --jax 0.7.1,0.7.2,0.10.2 --with flax==0.12.8
      bufdb blame train.py:step --args 'args(8)' --python old/bin/python --python new/bin/python
      bufdb blame train.py:step --args 'args(8)' --flag xla_cpu_enable_fast_math=false,true
      bufdb blame --jax 0.7.2,0.10.2 --with flax==0.12.8 -- python train.py --config base
      bufdb blame BASE NEW

    FUNCTION is compiled, not run, once for each version, Python or value, in a process of its own.
    With a single one, that is compared with the Python that runs bufdb, or with the flag's default.
    After -- is a command that makes the call by itself: its Python is replaced by that of each way,
    and it runs up to the call, which is compiled instead ('bufdb calls' lists the calls). The call
    of the first way is that of the others.

    --jax makes an environment for each version, with uv or else with pip, and keeps it in
    the user's cache; bufdb is not installed there. What fails is a line; the others go on.

    At each jump both sides are compiled once more, with dumps after each pass, and the StableHLO of
    the old version by the new one: is it the compiler, or jax's tracing? After which pass do the
    two programs differ? That need not be the cause.

    Each compilation is stored as a run FUNCTION@jax=VERSION with a label, for 'bufdb diff' and the
    other commands. BASE NEW compares runs that are there, by function.

    \b
    Exit codes:
      0    no jump in what all have
      1    a jump; or something is unknown or could not be compiled
      2    wrong usage
      3    database in use, damaged, not writable or of another version
      124  no jump found, and something not compiled within --timeout
    """
    from bufdb.blame import series
    from bufdb.blame.ways import Ways

    if is_clean:
        _clean()
        return
    words = common.words_after()
    spare("-o", output, words or what)
    ways = Ways(versions, packages, pythons, flags, target, words or ())
    if target is not None:
        hardware_of(target)
    devices = Devices.of(device_count, mesh)
    devices.require(target)
    axis = ways.axis()
    _require_consistent(axis, what, words, report_folder, is_anonymous=is_anonymous)
    opened = partial(common.open_database, db)
    if axis is None:
        _require_none(
            {"--args": args, "--call": call, "--with": packages, "--target": target,
             "--devices": device_count, "--mesh": mesh,
             "--bisect": bisect, "--quick": is_quick, "--timeout": timeout_s, "--run": run,
             "--label": labels}
        )  # fmt: skip
        compared = series.of_runs(opened, what, percent)
    else:
        spec, script = common.function_or_command(what, args, call)
        job: dict[str, Any] = {
            "spec": spec,
            "args": args,
            "script": script,
            "timeout_s": timeout_s,
            "is_verbose": is_verbose,
        }
        job |= {"relay": common.relay, "target": target, "devices": devices}
        name = run or (short_name(spec) if script is None else "")
        fields: dict[str, Any] = {"percent": percent, "is_quick": is_quick, "note": common.note}
        fields |= {"opened": opened, "db": db, "run": name, "labels": common.parse_labels(labels)}
        fields["own_globs"] = common.own_globs(own, what)
        how = {"bisect": bisect, "is_quiet": is_quiet, "is_anonymous": is_anonymous}
        compared = _compiled(ways, job, fields, report_folder, **how)
    shown = series.as_json(compared) if format_name == "json" else series.text(compared)
    common.write(shown, output)
    click.get_current_context().exit(series.exit_code(compared))


def _require_consistent(
    axis: str | None,
    what: Sequence[str],
    words: Sequence[str] | None,
    report_folder: Path | None,
    *,
    is_anonymous: bool,
) -> None:
    """Check that the command line says what to do.

    Raises:
        UsageError: it does not.
    """
    if is_anonymous and report_folder is None:
        raise UsageError("--anonymize is for the folder of --report")
    if report_folder is not None:
        from bufdb.blame.report import require_new

        if axis is None:
            raise UsageError("--report compiles: it wants --jax, --python or --flag")
        require_new(report_folder)
    if axis is not None and words is None and (len(what) != 1 or ":" not in what[0]):
        raise UsageError(f"{axis} wants one FILE.py:FUNCTION, or -- and a command")
    if axis is None and (words is not None or len(what) != 2):
        raise UsageError(
            "blame wants FILE.py:FUNCTION or -- COMMAND with --jax, --python or --flag, or two runs"
        )


def _require_none(options: Mapping[str, object]) -> None:
    """Raise a UsageError if one of the options that say how to compile is given for two runs."""
    named = [name for name, value in options.items() if value]
    if named:
        raise UsageError(f"{' and '.join(named)}: only to compile FILE.py:FUNCTION, not for runs")


def _compiled(
    ways: Ways,
    job: dict[str, Any],
    fields: dict[str, Any],
    report_folder: Path | None,
    *,
    bisect: bool,
    is_quiet: bool,
    is_anonymous: bool,
) -> list[Series]:
    """Compile in each way and write the report, with progress on standard error."""
    from bufdb.blame.comparison import Blaming
    from bufdb.blame.report import report
    from bufdb.blame.runs import Job
    from bufdb.database.store import require_storable

    variants = ways.variants()
    require_storable(fields["db"])
    with (
        signals_heeded(),
        tempfile.TemporaryDirectory(prefix="bufdb-") as folder,
        waiting(is_quiet=is_quiet) as observer,
    ):
        work = Blaming(Job(folder=Path(folder), observer=observer, **job), variants, **fields)
        answer = work.answer(bisect=bisect)
        if report_folder is not None and any(one.jumps for one in answer):
            report(work, answer, report_folder, is_anonymous=is_anonymous)
    return answer


def _clean() -> None:
    from bufdb.blame import environments

    count, size = environments.clean()
    what = "environment" if count == 1 else "environments"
    common.write(f"removed {count} {what}, {human_bytes(size)}\n")
