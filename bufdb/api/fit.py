"""`bufdb.fit`: what to change in a function so that it fits."""

from __future__ import annotations

import itertools
import os
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from bufdb.answers.devices import limit_of
from bufdb.api.answer import Answer
from bufdb.api.database import Database, connect
from bufdb.capture.hooked import options
from bufdb.capture.hooked import script as script_at
from bufdb.capture.runner import Watch
from bufdb.capture.script import NoCallError, Script
from bufdb.fitting import answer_text
from bufdb.fitting.child import Server
from bufdb.fitting.fit import Fitting
from bufdb.fitting.plans import Changes, Plan, PlanResult, Program, Site, Traced
from bufdb.fitting.question import Question, kinds_of
from bufdb.fitting.ranking import PRODUCTS, order_of
from bufdb.fitting.session import (
    Check,
    Dumped,
    UncheckedError,
    compiling,
    dumped_in,
    require_right,
)
from bufdb.read.own import Own, parse_own

_INSTALLED = ("scripts", "purelib", "platlib", "stdlib")
"""Folders of Python whose files are no program of the user's."""
_numbers = itertools.count(1)
"""Of the calls of `fit` in this process."""


@dataclass(frozen=True, repr=False)
class Fit(Answer):
    """What to change in a function, with a database of what was compiled."""

    plans: tuple[PlanResult, ...] = ()
    """Plans that were compiled or may be better, cheapest first."""
    best: PlanResult | None = None
    """The cheapest plan that fits; None if none does, or none is needed."""
    patch: str | None = None
    """The best plan as a unified diff."""
    table: str = ""
    """The plans as text."""
    db: Database = field(kw_only=True)
    """In memory, with the runs fit:as-written, fit:plan-1 and so on."""


def fit(
    function: Any,
    /,
    *args: Any,
    limit: int | str | None = None,
    target: str | None = None,
    gradients_only: bool = False,
    budget_compiles: int = 12,
    also: Sequence[str] = (),
    order: str = PRODUCTS,
    timeout: float | None = None,
    own: Sequence[str] | None = None,
    **kwargs: Any,
) -> Fit:
    """Return what to change in a function so that its gradient needs less memory.

    It is traced and compiled, not run: `jax.ShapeDtypeStruct` can replace arrays. While it is
    traced, `jax.vjp` is another function, in this process, and JAX's caches of traces are emptied;
    `bufdb fit` in a shell does both in a process of its own.

    Args:
        function: plain or jitted; somewhere in it a gradient is taken.
        args: its arguments.
        limit: memory of the device: bytes, a size such as "16GiB", or a name such as "TPU v5e".
            The answer then is the cheapest plan that fits; without it, the frontier.
        target: hardware to compile for, which need not be present, such as "tpu:v5e:2x2".
        gradients_only: take the gradient alone, of the function itself if it is a loss.
        budget_compiles: compilations besides that of the function as written.
        also: changes of the program's text to try, too, such as "microbatch,chunks": see `--also`.
            These two are checked by running the gradient for 4 random examples on the CPU, if it
            is small.
        order: which cost ranks the plans that fit: "products", "bytes" (read and written by the
            optimized program) or "cycles" (the compiler's estimate, which TPU has).
        timeout: seconds after which no other compilation begins.
        own: packages, folders and paths that count as your own code although they are a library's;
            no other line of a library is changed.
        kwargs: arguments of the function by name.

    Raises:
        UsageError: an argument is not an array, `also` or `order` has another word, or that cost
            is unknown.
        BufdbError: this JAX is unknown, or XLA wrote no dump.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    number = next(_numbers)
    name = getattr(function, "__qualname__", None) or type(function).__name__
    if (catching := _catching()) is not None:
        catching.fitted(number, name, function, args, kwargs)
    db = connect()
    with tempfile.TemporaryDirectory(prefix="bufdb-") as folder:
        question = Question(
            limit_bytes=limit_of(limit)[0],
            compile_budget=budget_compiles,
            also=kinds_of(also),
            order=order_of(order),
            db=db.path,
            source_path=name,
            own_globs=own,
            is_over=lambda: deadline is not None and time.monotonic() > deadline,
        )
        globs = parse_own(own or ())
        call = _Call(number, function, args, kwargs, name, target, gradients_only, globs)
        answer = Fitting(Here(call, Path(folder)), question, Path(folder)).answer()
    shown = answer_text.text(answer)
    best = next((row for row in answer.plans if row.rank == answer.best), None)
    return Fit(
        shown,
        answer_text.as_dict(answer),
        (),
        answer.plans,
        best,
        answer.patch,
        answer_text.table(answer),
        db=db,
    )


@dataclass(frozen=True)
class _Call:
    """A function of this process, and what it is called with."""

    number: int
    """Of the call of `fit` in this process, from 1."""
    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    name: str
    target: str | None
    gradients_only: bool
    own: Own


class Here:
    """A session about a function of this process."""

    def __init__(self, call: _Call, folder: Path) -> None:
        from bufdb.capture.child import kind_of
        from bufdb.capture.target import target as described

        self._call, self._folder, self._count = call, folder, 0
        self._target = None if call.target is None else described(call.target)
        self._function = self._made(call.function)
        self.device = kind_of(self._target)

    def _made(self, function: Any) -> Any:
        from bufdb.fitting.function import Function

        call = self._call
        return Function(
            function,
            call.args,
            call.kwargs,
            call.name,
            self._target,
            gradients_only=call.gradients_only,
            own=call.own,
        )

    def program(self) -> Program:
        """Return what can be switched."""
        program: Program = self._function.program()
        return program

    def trace(self, plan: Plan) -> Traced:
        """Return what a trace says of a plan."""
        traced: Traced = self._function.trace(plan)
        return traced

    def recomputed(self, plan: Plan) -> tuple[Site, ...]:
        """Return the expressions that are computed again under a plan."""
        sites: tuple[Site, ...] = self._function.recomputed(plan)
        return sites

    def changes(self, kinds: Sequence[str]) -> Changes:
        """Return the changes of some kinds that plans may have from now on in `extra`."""
        changes: Changes = self._function.changes(kinds)
        return changes

    def compile(self, plan: Plan, what: str, *, is_full: bool) -> Dumped:
        """Compile a plan."""
        return self._compiled(self._function, plan, is_full=is_full)

    def numbers(self, size: int, path: str) -> bool:
        """Write what the losses of a batch of a size give for random numbers, if they are small."""
        is_small: bool = self._function.write_numbers(size, Path(path))
        return is_small

    def patched(self, texts: Mapping[str, str], rest: Plan, check: Check) -> Dumped:
        """Compile the function of the patched text of its module, executed as another module.

        One of the script, within another function, or of several files is that of the command of
        this process, which runs again with the patched texts up to the same call of `fit`.

        Raises:
            UncheckedError: this process has no command that could run again.
            UnequalError: it computes something else.
            BufdbError: it cannot be compiled, or is not known to compute the same.
        """
        module = sys.modules.get(getattr(self._call.function, "__module__", ""))
        file = getattr(module, "__file__", None)
        name = getattr(self._call.function, "__qualname__", "<locals>")
        if (
            module is None
            or file is None
            or module.__name__ == "__main__"
            or {*texts} != {file}
            or "<locals>" in name
        ):
            return self._again(texts, rest, check)
        twin = ModuleType(module.__name__)
        twin.__file__, twin.__package__ = file, module.__package__
        exec(compile(texts[file], file, "exec"), twin.__dict__)
        function: Any = twin
        for part in name.split("."):
            function = getattr(function, part)
        made = self._made(function)
        traced = require_right(check, self._answer, Server.of(made, self._call.name).answer)
        dumped = check.settled(self._compiled(made, rest, is_full=True, known=check.known))
        return replace(dumped, traced=traced)

    def _again(self, texts: Mapping[str, str], rest: Plan, check: Check) -> Dumped:
        """Run the command of this process again, and compile at the same call of `fit`."""
        call = self._call
        self._count += 1
        folder = self._folder / f"again-{self._count}"
        dumps = folder / "dumps"
        dumps.mkdir(parents=True)
        script = Script(_command(), fit=call.number, texts=texts, own=call.own)
        start: dict[str, Any] = {
            "do": "start", "spec": call.name, "args": "", "target": call.target,
            "gradients_only": call.gradients_only, "sources": {}, "has_program": False,
            "own": call.own.pattern,
        }  # fmt: skip
        began = time.monotonic()
        watch = Watch(relay=lambda data: None)
        variables = dict(os.environ)
        with script.child(folder, "bufdb.fitting.child", call.name, watch, variables) as child:
            try:
                script.first(child, start)
            except NoCallError as error:
                raise UncheckedError(str(error)) from error
            traced = require_right(check, self._answer, child.ask)
            reply = child.ask({**compiling(rest, check), "dumps": str(dumps)})
        dumped = check.settled(dumped_in(dumps, reply["refusal"], time.monotonic() - began))
        return replace(dumped, traced=traced)

    def _answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return Server.of(self._function, self._call.name).answer(request)

    def _compiled(self, function: Any, plan: Plan, *, is_full: bool, known: str = "") -> Dumped:
        self._count += 1
        dumps = self._folder / f"dumps-{self._count}"
        dumps.mkdir()
        began = time.monotonic()
        refusal = function.compile(plan, dumps, is_full=is_full, known=known)
        return dumped_in(dumps, refusal, time.monotonic() - began)


def _catching() -> Any:
    """Return what traces the calls of this process, if a command of bufdb runs it."""
    return getattr(sys.modules.get("bufdb.capture.catching"), "current", None)


def _command() -> tuple[str, ...]:
    """Return the command of this process.

    Raises:
        UncheckedError: it is none that could run again: an interactive one, one that a test or
            another tool runs, or one that bufdb runs.
    """
    main = sys.modules["__main__"]
    file = str(getattr(main, "__file__", None) or "")
    is_tool = any(file.startswith(f"{sysconfig.get_path(name)}{os.sep}") for name in _INSTALLED)
    if _catching() is not None:
        reason = "bufdb runs this process itself"
    elif not file or sys.flags.interactive or hasattr(sys, "ps1"):
        reason = "this process is interactive"
    elif is_tool:
        reason = f"{file} runs this process"
    elif (at := script_at(sys.orig_argv)) is None and options(sys.orig_argv)[0][-1:] != "m":
        reason = "this process runs no file"
    elif at is not None and not os.path.isfile(sys.orig_argv[at]):  # noqa: PTH113 - a word
        reason = f"{sys.orig_argv[at]} is not in the folder that the program has changed to"
    else:
        return tuple(sys.orig_argv)
    raise UncheckedError(
        f"{reason}, so that its command cannot run again with the patched text; 'bufdb fit "
        "FILE:FUNCTION' and 'bufdb fit -- COMMAND' check any"
    )
