"""`bufdb explain`: compile a function of a file and show its memory at the peak."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bufdb.answers.devices import limit_of
from bufdb.capture.runner import NotCompiledError, signals_heeded
from bufdb.capture.target import hardware_of
from bufdb.commands import common
from bufdb.commands.summary import write
from bufdb.errors import UsageError
from bufdb.render.progress import waiting
from bufdb.render.sources import spare

if TYPE_CHECKING:
    from bufdb.answers.targets import Outcome
    from bufdb.errors import BufdbError
    from bufdb.query.result import Result
    from bufdb.recording.function import Function


@click.command(
    name="explain",
    cls=common.WithCommand,
    short_help="Compile a function, also for a TPU, and summarize it.",
)
@common.program_argument
@common.args_option
@common.argv_option
@common.call_option
@click.option(
    "--target",
    "targets",
    metavar="TARGET",
    multiple=True,
    help="Hardware to compile for, which need not exist here: v5e-8, tpu:v5e:2x2, gpu:h100, "
    "gpu:FILE or cpu; if repeated, gives a table.",
)
@click.option(
    "--sweep",
    "sweeps",
    metavar="K=V1,V2,...",
    multiple=True,
    help="Compile for each value of {K} in FUNCTION and --args, in a run of its own; may be "
    "repeated for all combinations.",
)
@common.devices_options
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit for each target.",
)
@common.verbose_option
@common.quiet_option
@click.option("--run", metavar="NAME", help="Name of the run.  [default: function and target]")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label of the run.")
@common.own_option
@common.limit_option
@common.live_option("limit", "limit")
@common.text_or_json_option
@common.output_option
@common.db_option
def command(  # long: a parameter for each option
    program: tuple[str, ...],
    args: str,
    call: str | None,
    targets: tuple[str, ...],
    sweeps: tuple[str, ...],
    device_count: int | None,
    mesh: str | None,
    timeout_s: float | None,
    is_verbose: bool,
    is_quiet: bool,
    run: str | None,
    labels: tuple[str, ...],
    own: tuple[str, ...],
    limit: str | None,
    format_name: str,
    output: Path | None,
    db: str,
) -> None:
    r"""Compile FUNCTION of FILE for its arguments, without running it, and show the highest peak.

    After -- is a command that makes the call by itself, which is not changed: it runs up to the
    call, which is compiled instead, and nothing after it runs ('bufdb calls' lists the calls).

    \b
      bufdb explain train.py:step --args '{"w": f32[1024,1024]}, f32[32,1024]'
      bufdb explain train.py:step --args '*state(), batch=batch(8)' --target v5e-8
      bufdb explain train.py:step --args 'args(8)' --target gpu:h100 --target v6e-8
      bufdb explain --call '*train_step*' -- python -m my.train --config base

    FILE is imported in its own process, by the Python that runs bufdb; FUNCTION may be plain or
    jitted. The result is stored in the database as a run, which replaces one of the same name, for
    'bufdb what-if', 'bufdb query' and 'bufdb diff'. --args is what goes between the parentheses of
    a call; a single tuple, such as args(8) may return, is taken as all arguments.

    With --target JAX compiles ahead of time for hardware that need not exist here. The program has
    as many devices as the target, simulated by the CPU, and its mesh is one of the target's, with
    its axes and sizes or those of --mesh; without a mesh everything is on one of them; the limit is
    that device's memory. --devices N simulates another number, also without a target.

    tpu:v5e:2x2 is a generation and a topology of TPUs, v5e-4 and v5litepod-4 the same by number (of
    cores for v2 to v4, v5p and v7x); both need the package libtpu (pip install 'bufdb[tpu]').
    gpu:h100 is a host of eight and needs the packages jax-cuda12-pjrt and jax-cuda12-plugin;
    gpu:FILE is any GPU that FILE describes (a GpuTargetConfigProto as text). XLA's autotuning,
    which times operations on a GPU, is off.

    A program that is too large for XLA is explained anyway, from its plan so far. Several targets
    give a table with a row for each: its need and the line that holds most; each is stored as a run
    NAME@TARGET.

    With --sweep the same table has a row for each value, such as a kernel's block or the limit of
    its scratch memory: 'kernel.py:step({block})' --sweep block=128,256. Runs are named
    NAME-VALUE and labeled with it; write a literal brace twice.

    \b
    Exit codes:
      0    compiled, within its limit
      1    it needs more than its limit, cannot be compiled, or a package is missing
      2    wrong usage
      3    database in use, damaged, not writable or of another version
      124  not compiled within --timeout
    """
    from bufdb.capture.simulated import Devices
    from bufdb.database.store import require_storable
    from bufdb.recording.function import Function, explained

    words = common.words_of(program)
    globs = common.own_globs(own, words)
    spec, script = common.function_or_command(program, args, call, globs)
    spare("-o", output, words)
    named: list[str | None] = list(dict.fromkeys(targets)) or [None]
    for target in targets:  # check all arguments before anything is compiled
        hardware_of(target)
    devices = Devices.of(device_count, mesh)
    for one in named:
        devices.require(one)
    limit_of(limit)
    require_storable(db)
    function = Function(
        spec,
        args,
        db,
        partial(common.open_database, db),
        run,
        common.parse_labels(labels),
        globs,
        limit,
        timeout_s,
        is_verbose,
        common.note,
        common.relay,
        partial(waiting, is_quiet=is_quiet),
        script,
        devices,
    )
    with signals_heeded():
        if sweeps:
            code = _sweep(function, targets, sweeps, format_name, output)
        elif len(named) == 1:
            with common.failure_shown():
                done = explained(function, named[0])
            code = _show(done, format_name, output)
        else:
            code = _compare(function, targets, format_name, output)
    click.get_current_context().exit(code)


def _show(done: Outcome, format_name: str, output: Path | None) -> int:
    """Write the summary of one target; return the exit code."""
    assert done.overview is not None
    write(done.overview, format_name, output)
    if done.refusal is not None:
        common.note(f"XLA gave up: {done.refusal}")
    return done.exit_code


def _compare(
    function: Function, targets: Sequence[str], format_name: str, output: Path | None
) -> int:
    """Write the table of several targets; return the first exit code that is not 0."""
    from bufdb.answers.targets import table
    from bufdb.recording.function import compared

    done = compared(function, list(dict.fromkeys(targets)))
    return _tabled(done, table, format_name, output)


def _sweep(
    function: Function,
    targets: Sequence[str],
    sweeps: Sequence[str],
    format_name: str,
    output: Path | None,
) -> int:
    """Write the table of all values of a sweep; return the first exit code that is not 0."""
    from bufdb.answers.targets import table
    from bufdb.recording.function import swept
    from bufdb.recording.sweep import combinations, parse

    if function.script is not None or len(targets) > 1:
        raise UsageError("--sweep is for one FILE.py:FUNCTION and one --target")
    planned = combinations([function.spec, function.args], parse(sweeps))
    done = swept(function, targets[0] if targets else None, planned)
    return _tabled(done, table, format_name, output, _note_edge)


def _note_edge(outcomes: Sequence[Outcome]) -> None:
    """Note the last value of a sweep that compiles, with what its kernel uses."""
    from bufdb.answers.kernels import edge

    known = [(one, [] if one.overview is None else one.overview.kernels) for one in outcomes]
    text = edge([(one.target, one.is_compiled, some) for one, some in known])
    if text is not None:
        common.note(text)


def _tabled(
    done: Iterable[tuple[Outcome, BufdbError | None]],
    table: Callable[[Sequence[Outcome]], Result],
    format_name: str,
    output: Path | None,
    noted: Callable[[Sequence[Outcome]], None] = lambda outcomes: None,
) -> int:
    outcomes, codes = [], []
    for outcome, error in done:
        if isinstance(error, NotCompiledError):
            common.show_lines(error)
        outcomes.append(outcome)
        codes.append(outcome.exit_code if error is None else error.exit_code)
    form = "table" if format_name == "text" else format_name
    common.emit(table(outcomes), format_name=form, output=output, full=None)
    noted(outcomes)
    return next((code for code in codes if code), 0)
