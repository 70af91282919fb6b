"""`bufdb fit`: find what to change in a function so that it fits, and write the patch."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bufdb.answers.devices import limit_of
from bufdb.capture.runner import Observer, Watch, signals_heeded
from bufdb.capture.target import hardware_of
from bufdb.commands import common
from bufdb.render.progress import waiting
from bufdb.render.sources import spare

if TYPE_CHECKING:
    from bufdb.fitting.answer_text import Sizes
    from bufdb.fitting.plans import Answer


@click.command(
    name="fit",
    cls=common.WithCommand,
    short_help="Find what to change so that a function fits; patch it.",
)
@common.program_argument
@common.args_option
@common.argv_option
@common.call_option
@click.option(
    "--target",
    metavar="TARGET",
    help="Hardware to compile for, not needed here: v5e-8, tpu:v5e:2x2, gpu:h100, gpu:FILE or cpu.",
)
@common.devices_options
@common.limit_option
@common.live_option("limit", "limit")
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
    help="Try more: microbatch, chunks, attention, vmap, blocks, vmem, flags; several with commas.",
)
@click.option(
    "--order",
    metavar="COST",
    type=click.Choice(("products", "bytes", "cycles")),
    default="products",
    show_default=True,
    help="Rank the plans by products, bytes (read and written) or cycles (estimated, on TPU).",
)
@click.option(
    "--vary",
    metavar="NAME[=START]",
    help="Find the largest NAME that fits, {NAME} in --args or COMMAND, from START.  [default: 8]",
)
@click.option(
    "--timeout",
    "timeout_s",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    help="Time limit; the answer then has what is known so far, as after Ctrl-C.",
)
@click.option(
    "--patch",
    "patch_path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the patch of the best plan there.",
)
@click.option(
    "--page",
    "page_path",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a page of HTML there: need against cost, and the patch of each plan.",
)
@common.verbose_option
@common.quiet_option
@click.option("--run", metavar="NAME", default="fit", help="Prefix of the names of the runs.")
@click.option("--label", "labels", metavar="K=V", multiple=True, help="Label of the runs.")
@common.own_option
@common.text_or_json_option
@common.output_option
@common.db_option
def command(  # long: a parameter for each option
    program: tuple[str, ...],
    args: str,
    call: str | None,
    target: str | None,
    device_count: int | None,
    mesh: str | None,
    limit: str | None,
    gradients_only: bool,
    compile_budget: int,
    also: str | None,
    order: str,
    vary: str | None,
    timeout_s: float | None,
    patch_path: Path | None,
    page_path: Path | None,
    is_verbose: bool,
    is_quiet: bool,
    run: str,
    labels: tuple[str, ...],
    own: tuple[str, ...],
    format_name: str,
    output: Path | None,
    db: str,
) -> None:
    r"""Find changes to FUNCTION of FILE that lower its memory, and write the patch.

    \b
      bufdb fit train.py:step --args 'args(16)' --limit 14GiB
      bufdb fit train.py:step --args 'args(16)' --limit 14GiB --target tpu:v5e:2x2
      bufdb fit train.py:loss --args 'args(16)' --gradients-only --format json
      bufdb fit --limit 14GiB -- python train.py --config base

    After -- is a command that makes the call by itself, which is not changed: it runs up to the
    call, and nothing after it runs ('bufdb calls' lists the calls). A patch is proved by running
    the command again up to the same call, with the patched text in place of its files.

    What a gradient saves for its backward pass is a choice: each expression of a scan's body whose
    value another one reads is a switch, and so is each function that is called several times, or
    once in a program without a scan. A plan saves some and recomputes the others. Plans are traced,
    and the best of them compiled: a need without ~ is measured. Of a FUNCTION without a gradient
    (jax.grad, value_and_grad, vjp) arguments are donated; --gradients-only takes the gradient of a
    loss. Nothing is executed without --also.

    --also microbatch takes the gradient of 2, 4 or 8 equal parts of the batch, one after another,
    or of 3, 5, up to 16 where these do not divide it;
    --also chunks computes the widest product and its reductions, such as the loss over a
    vocabulary, for one part at a time. Each is compiled. A small gradient runs for 4 random
    examples to see that it stays the same; of a large one the answer says what is assumed.
    --also vmap runs what jax.vmap maps in batches, by jax.lax.map. --also attention computes scores
    of all pairs for some heads or rows at a time, and --also blocks makes one jax.lax.scan of a
    Python loop over equal blocks, as is done where nothing else fits.
    --also flags tries options of the compiler, as is done where nothing else fits.
    --also vmem finds the least vmem_limit_bytes with which a Pallas kernel compiles that needs more
    than its limit.

    --vary b with '{b}' in --args finds the largest b that fits, as written and by a few plans, each
    compiled at that b and at the next one.

    With --limit, the answer is the cheapest plan that fits, with its patch for 'git apply'; the
    patched files are compiled, too. Without it, the answer is the frontier of cost and saving.
    Extra work is counted in products, loops included; next to them are the bytes that the compiled
    program reads and writes, and on TPU its estimated cycles. --order ranks by one of these. Axes
    of a mesh are not changed.

    Lines of installed packages, of Python and of checkouts of known libraries are not changed,
    except those that --own names (--own keras).

    FILE is imported in its own process; arguments and targets are those of 'bufdb explain'. The
    compilations are stored as the runs fit:as-written, fit:plan-1 and so on, replacing those of an
    earlier answer.

    \b
    Exit codes:
      0    it fits as written or by a plan; without --limit, there is an answer
      1    nothing fits, it cannot be compiled, or a package is missing
      2    wrong usage
      3    database in use, damaged, not writable or of another version
      124  not compiled, or no plan that fits found, within --timeout
      130  interrupted before a plan that fits was found
    """
    from bufdb.capture.simulated import Devices
    from bufdb.database.store import require_storable
    from bufdb.fitting.question import Question, kinds_of
    from bufdb.fitting.user_file import UserFunction, exit_code, fitted, varied
    from bufdb.read.own import parse_own

    words = common.words_of(program)
    globs = common.own_globs(own, words)
    spec, script = common.function_or_command(program, args, call, globs)
    spare("-o", output, words)
    spare("--patch", patch_path, words)
    spare("--page", page_path, words)
    if target is not None:
        hardware_of(target)
    devices = Devices.of(device_count, mesh)
    devices.require(target)
    limit_bytes, _ = limit_of(limit)
    require_storable(db)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    question = Question(
        limit_bytes=limit_bytes,
        compile_budget=compile_budget,
        also=() if also is None else kinds_of(also),
        order=order,
        db=db,
        run=run,
        labels=common.parse_labels(labels),
        source_path=spec,
        own_globs=globs,
        is_over=lambda: deadline is not None and time.monotonic() > deadline,
        is_interruptible=True,
    )
    value = None if vary is None else varied(vary, args, limit_bytes, script)
    with signals_heeded(), common.failure_shown(), waiting(is_quiet=is_quiet) as observer:
        shown, improved = _with_best(observer)
        question = replace(question, improved=improved)
        watch = Watch(timeout_s, is_verbose, shown, common.relay, devices.hint, deadline=deadline)
        how = gradients_only, watch, value, script, parse_own(globs or ()), devices
        function = UserFunction(spec, args, target, *how)
        answer, sizes = fitted(function, question)
    _write(answer, sizes, format_name, output, patch_path)
    if page_path is not None:
        from bufdb.fitting.answer_text import as_dict, described
        from bufdb.page.frontier import page

        common.write(page(as_dict(answer, sizes), described(answer, sizes)), page_path)
    click.get_current_context().exit(exit_code(answer, sizes))


def _with_best(observer: Observer | None) -> tuple[Observer | None, Callable[[str], None]]:
    """Return what shows the current step with the best so far, and what receives the latter."""
    best: list[str] = []

    def shown(step: str, seconds: float) -> None:
        assert observer is not None
        observer("; ".join([*best, step]), seconds)

    def improved(words: str) -> None:
        best[:] = [f"so far {words}"]

    return None if observer is None else shown, improved


def _write(
    answer: Answer,
    sizes: Sizes | None,
    format_name: str,
    output: Path | None,
    patch_path: Path | None,
) -> None:
    """Write the answer, and the patch where there is one."""
    from bufdb.fitting import answer_text

    written = answer_text.as_json if format_name == "json" else answer_text.text
    common.write(written(answer, sizes), output)
    if patch_path is None:
        return
    if answer.patch is not None:
        common.write(answer.patch, patch_path)
        return
    old = f"; {patch_path} is as it was" if patch_path.exists() else ""
    common.note(answer_text.no_patch(answer) + old)
