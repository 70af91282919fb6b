"""`bufdb fit`: find what to change in a function so that it fits, and write the patch."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bufdb.answers.devices import limit_of
from bufdb.capture.runner import NotCompiledError, Watch, signals_heeded
from bufdb.capture.target import hardware_of
from bufdb.commands import common
from bufdb.errors import TooSlowError, UsageError, one_line
from bufdb.fitting import answer_text
from bufdb.fitting.session import Apart
from bufdb.render.progress import waiting
from bufdb.render.sources import spare

if TYPE_CHECKING:
    from bufdb.fitting.fit import Question
    from bufdb.fitting.plans import Answer, Plan, Program


@click.command(name="fit", short_help="Find what to change so that a function fits; patch it.")
@click.argument("spec", metavar="FILE.py:FUNCTION")
@common.args_option
@click.option(
    "--target",
    metavar="TARGET",
    help="Hardware to compile for, not needed here: v5e-8, tpu:v5e:2x2, gpu:h100, gpu:FILE or cpu.",
)
@common.limit_option
@click.option(
    "--gradients-only",
    is_flag=True,
    help="Take only the gradient: the one within FUNCTION, or of FUNCTION if it is a loss.",
)
@click.option(
    "--budget-compiles",
    "compile_budget",
    metavar="N",
    type=click.IntRange(min=1),
    default=12,
    show_default=True,
    help="Compilations in addition to that of the function as written.",
)
@click.option(
    "--also",
    metavar="KINDS",
    help="Try changes of the text, too: microbatch, chunks, or both with a comma.",
)
@click.option(
    "--vary",
    metavar="NAME[=START]",
    help="Find the largest NAME that fits, {NAME} in --args, from START on.  [default: 8]",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit; the answer then has what is known so far.",
)
@click.option(
    "--patch",
    "patch_path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the patch of the best plan there.",
)
@common.verbose_option
@common.quiet_option
@click.option("--run", metavar="NAME", default="fit", help="Prefix of the names of the runs.")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label of the runs.")
@common.text_or_json_option
@common.output_option
@common.db_option
def command(
    spec: str,
    args: str,
    target: str | None,
    limit: str | None,
    gradients_only: bool,
    compile_budget: int,
    also: str | None,
    vary: str | None,
    timeout_s: float | None,
    patch_path: Path | None,
    is_verbose: bool,
    is_quiet: bool,
    run: str,
    labels: tuple[str, ...],
    format_name: str,
    output: Path | None,
    db: str,
) -> None:
    r"""Find changes to FUNCTION of FILE that lower its memory, and write the patch.

    \b
      bufdb fit train.py:step --args 'args(16)' --limit 14GiB
      bufdb fit train.py:step --args 'args(16)' --limit 14GiB --target tpu:v5e:2x2
      bufdb fit train.py:loss --args 'args(16)' --gradients-only --format json

    What a gradient saves for its backward pass is a choice: each expression of a scan's body whose
    value another one reads is a switch, and so is each function that is called several times. A
    plan saves some and recomputes the others. Plans are traced, and the best of them compiled: a
    need without ~ is measured. FUNCTION must take a gradient (jax.grad, value_and_grad, vjp);
    --gradients-only takes that of a loss. Nothing is executed without --also.

    --also microbatch takes the gradient of 2, 4 or 8 equal parts of the batch, one after another;
    --also chunks computes the widest product and its reductions, such as the loss over a
    vocabulary, for one part at a time. Each is compiled. A small gradient runs for 4 random
    examples to see that it stays the same; of a large one the answer says what is assumed.

    --vary b with '{b}' in --args finds the largest b that fits, as written and by a few plans, each
    compiled at that b and at the next one.

    With --limit, the answer is the cheapest plan that fits, with its patch for 'git apply'; the
    patched files are compiled, too. Without it, the answer is the frontier of cost and saving.
    Extra work is counted in products, loops included. Axes of a mesh are not changed.

    FILE is imported in its own process; arguments and targets are those of 'bufdb explain'. The
    compilations are stored as the runs fit:as-written, fit:plan-1 and so on, replacing those of an
    earlier answer.

    \b
    Exit codes:
      0    it fits as written or by a plan; without --limit, there is an answer
      1    nothing fits, it cannot be compiled, or a package is missing
      2    wrong usage, or a function without a gradient
      3    database in use, damaged, not writable or of another version
      124  not compiled, or no plan that fits found, within --timeout
    """
    from bufdb.database.store import require_storable
    from bufdb.fitting.fit import Question, kinds_of

    spare("-o", output, [spec])
    spare("--patch", patch_path, [spec])
    if target is not None:
        hardware_of(target)
    limit_bytes, _ = limit_of(limit)
    require_storable(db)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    question = Question(
        limit_bytes=limit_bytes,
        compile_budget=compile_budget,
        also=() if also is None else kinds_of(also),
        db=db,
        run=run,
        labels=common.parse_labels(labels),
        source_path=spec,
        is_over=lambda: deadline is not None and time.monotonic() > deadline,
    )
    varied = None if vary is None else _varied(vary, args, limit_bytes)
    session = partial(Apart, spec, target=target, gradients_only=gradients_only)
    watch = Watch(timeout_s, is_verbose, relay=common.relay, deadline=deadline)
    answer, sizes = _answer(session, args, question, varied, watch, is_quiet=is_quiet)
    _write(answer, sizes, format_name, output, patch_path)
    is_missed = limit_bytes is not None and not answer.fits_as_written and answer.best is None
    if sizes is not None:
        is_missed = not any(one.value for one in sizes.found)
    late = 1 if answer.is_complete else TooSlowError.exit_code
    click.get_current_context().exit(late if is_missed else 0)


def _varied(vary: str, args: str, limit_bytes: int | None) -> tuple[str, int]:
    """Return the name to vary and where to start.

    Raises:
        UsageError: there is no such name in --args, no limit, or the start is no number.
    """
    name, _, start = vary.partition("=")
    if f"{{{name}}}" not in args:
        raise UsageError(f"--vary {vary} wants {{{name}}} in --args, such as 'args({{{name}}})'")
    if limit_bytes is None:
        raise UsageError(f"--vary {vary} wants a --limit")
    if start and not (start.isdecimal() and int(start)):
        raise UsageError(f"--vary wants NAME or NAME=START, START a number from 1 on; got {vary}")
    return name, int(start or 8)


def _answer(
    session: Callable[..., Apart],
    args: str,
    question: Question,
    varied: tuple[str, int] | None,
    watch: Watch,
    *,
    is_quiet: bool,
) -> tuple[Answer, answer_text.Sizes | None]:
    """Search, with progress on standard error."""
    from bufdb.fitting.fit import Fitting, need_of, run_name, store_run
    from bufdb.fitting.vary import of_plans

    def at(value: int) -> str:
        return args if varied is None else args.replace(f"{{{varied[0]}}}", str(value))

    with signals_heeded(), tempfile.TemporaryDirectory(prefix="bufdb-") as name:
        folder = Path(name)
        try:
            with waiting(is_quiet=is_quiet) as observer:
                opened = partial(session, watch=replace(watch, observer=observer))
                start = 0 if varied is None else varied[1]
                with opened(args=at(start), folder=folder) as one:
                    answer = Fitting(one, question, folder).answer()
                if varied is None:
                    return answer, None

                def run_at(value: int, rank: int | None) -> str:
                    return run_name(
                        question, rank, "" if value == start else f"{varied[0]}={value}"
                    )

                def need_at(
                    value: int, rank: int | None, plan: Callable[[Program], Plan]
                ) -> int | None:
                    with (
                        tempfile.TemporaryDirectory(dir=folder) as place,
                        opened(args=at(value), folder=Path(place)) as other,
                    ):
                        what = f"{varied[0]}={value}"
                        program = other.program()
                        dumped = other.compile(plan(program), what, is_full=True)
                        name = run_at(value, rank)
                        store_run(question, name, dumped, other.device, program.target)
                        return need_of(dumped, Path(place))

                sizes = of_plans(answer, start, need_at, run_at)
                return answer, answer_text.Sizes(varied[0], sizes)
        except NotCompiledError as error:
            for line in error.lines:
                click.echo(one_line(line), err=True)
            raise


def _write(
    answer: Answer,
    sizes: answer_text.Sizes | None,
    format_name: str,
    output: Path | None,
    patch_path: Path | None,
) -> None:
    """Write the answer, and the patch where there is one."""
    written = answer_text.as_json if format_name == "json" else answer_text.text
    common.write(written(answer, sizes), output)
    if patch_path is None:
        return
    if answer.patch is not None:
        common.write(answer.patch, patch_path)
        return
    old = f"; {patch_path} is as it was" if patch_path.exists() else ""
    common.note(answer_text.no_patch(answer) + old)
