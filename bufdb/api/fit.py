"""`bufdb.fit`: what to change in a function so that it fits."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from bufdb.answers.devices import limit_of
from bufdb.api.answer import Answer
from bufdb.api.database import Database, connect
from bufdb.capture.dump import programs
from bufdb.errors import BufdbError
from bufdb.fitting import answer_text
from bufdb.fitting.fit import Fitting, Question, kinds_of
from bufdb.fitting.plans import Changes, Plan, PlanResult, Program, Site, Traced
from bufdb.fitting.session import Dumped
from bufdb.read.own import Own, parse_own


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
        also: changes of the program's text to try, too: "microbatch", "chunks" or both. They are
            checked by running the gradient for 4 random examples on the CPU, if it is small.
        timeout: seconds after which no other compilation begins.
        own: packages, folders and paths that count as your own code although they are a library's;
            no other line of a library is changed.
        kwargs: arguments of the function by name.

    Raises:
        UsageError: it takes no gradient, an argument is not an array, or `also` has another word.
        BufdbError: this JAX is unknown, or XLA wrote no dump.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    db = connect()
    name = getattr(function, "__qualname__", None) or type(function).__name__
    with tempfile.TemporaryDirectory(prefix="bufdb-") as folder:
        question = Question(
            limit_bytes=limit_of(limit)[0],
            compile_budget=budget_compiles,
            also=kinds_of(also),
            db=db.path,
            source_path=name,
            own_globs=own,
            is_over=lambda: deadline is not None and time.monotonic() > deadline,
        )
        call = _Call(function, args, kwargs, name, target, gradients_only, parse_own(own or ()))
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

    def patched(self, texts: Mapping[str, str], rest: Plan) -> Dumped:
        """Compile the function of the patched text of its module, executed as another module.

        Raises:
            BufdbError: the function is of a script or a notebook, or of several files.
        """
        module = sys.modules.get(getattr(self._call.function, "__module__", ""))
        file = getattr(module, "__file__", None)
        if module is None or file is None or module.__name__ == "__main__" or {*texts} != {file}:
            raise BufdbError(
                "it is checked only for a function of an imported module of one file; "
                "'bufdb fit FILE:FUNCTION' checks any"
            )
        twin = ModuleType(module.__name__)
        twin.__file__, twin.__package__ = file, module.__package__
        exec(compile(texts[file], file, "exec"), twin.__dict__)
        function: Any = twin
        for part in self._call.function.__qualname__.split("."):
            function = getattr(function, part)
        return self._compiled(self._made(function), rest, is_full=True)

    def _compiled(self, function: Any, plan: Plan, *, is_full: bool) -> Dumped:
        self._count += 1
        dumps = self._folder / f"dumps-{self._count}"
        dumps.mkdir()
        began = time.monotonic()
        refusal = function.compile(plan, dumps, is_full=is_full)
        return Dumped(programs(dumps), refusal, time.monotonic() - began)
