"""The process in which `bufdb fit` runs a user's file.

What is wrapped in JAX is wrapped here, and nowhere else.
"""

from __future__ import annotations

import functools
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bufdb.capture.child import kind_of, question_of, taken
from bufdb.capture.hooked import replace_sources
from bufdb.capture.worker import serve, step
from bufdb.fitting.levers.donation import is_of_nnx, lost_of, shared
from bufdb.fitting.places import place
from bufdb.fitting.plans import Parts, Plan, Program, Site, Traced
from bufdb.fitting.rebound import made, rebound
from bufdb.fitting.records import as_json, from_json
from bufdb.fitting.session import MISTRACED, MistracedError, UnequalError
from bufdb.read.own import Own

if TYPE_CHECKING:
    from bufdb.capture.catching import Caught
    from bufdb.fitting.function import Function, Written


COLLECTED = 50_000
"""Objects that are made before Python looks for unused ones among them."""


class Server:
    """Answers requests about one function."""

    def __init__(self, caught: Caught | None = None) -> None:
        """Take a call of a user's command, if it is not a function of a file."""
        self._caught = caught
        self._written: Written | None = None
        self._traced: Callable[[], Function] | None = None
        """Returns the function, which is traced at the first call."""
        self._name = ""

    @classmethod
    def of(cls, function: Function, name: str) -> Server:
        """Return what answers requests about a function that is traced already."""
        server = cls()
        server._name, server._traced = name, lambda: function
        return server

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request."""
        do = {
            "start": self._start,
            "trace": self._trace,
            "lines": self._lines,
            "compile": self._compile,
            "changes": self._changes,
            "numbers": self._numbers,
            "alike": self._alike,
            "digests": self._digests,
            "equations": self._equations,
        }
        return do[request["do"]](request)

    def _start(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from bufdb.fitting.function import Function, Written

        spec, hardware = request["spec"], request["target"]
        if self._caught is None:
            replace_sources(request["sources"])
        else:  # the texts are replaced already
            spec = self._caught.call.short_name
        self._name = spec if hardware is None else f"{spec} for {hardware}"
        if self._caught is None:
            question = question_of(spec, request["args"], hardware)
        else:
            question = taken(self._caught, hardware)
            if self._caught.outer is not None:
                function, args, kwargs = self._caught.outer
                question = replace(question, function=function, args=args, kwargs=dict(kwargs))
        called = question.function, question.args, question.kwargs, spec, question.target
        self._traced = functools.cache(
            lambda: Function(
                *called,
                gradients_only=request["gradients_only"],
                own=Own(request.get("own")),
                is_users=self._caught is not None and is_users(self._caught, request.get("own")),
            )
        )
        program = None
        with step(f"tracing {self._name}"):
            # Patched files are mostly compiled alone: the trace for that is another one.
            is_needed = request["has_program"] or request["gradients_only"]
            is_needed = is_needed or question.simulation is not None
            self._written = self._function if is_needed else Written(*called)
            question.traced()
            if request["has_program"]:
                program = self._function.program()
                if self._caught is None:
                    program = _with_shared(program, question.args, question.kwargs)
                else:
                    program = _without_later_reads(program, self._caught)
            known = {} if program is None else self._known()
        return {
            "device": kind_of(question.target),
            "program": as_json(program),
            "known": [[as_json(plan), as_json(traced)] for plan, traced in known.items()],
        }

    @property
    def _function(self) -> Function:
        """Return the function, traced."""
        assert self._traced is not None
        return self._traced()

    def _known(self) -> Mapping[Plan, Traced]:
        """Return the traces of earlier calls: to ask for each takes longer than to read it."""
        try:
            known: Mapping[Plan, Traced] = self._function.known()
        except MistracedError:  # nothing has been said of these yet
            return {}
        return known

    def _trace(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with step(f"tracing a plan of {self._name}"):
            try:
                traced = self._function.trace(from_json(Plan, request["plan"]))
            except MistracedError:
                return {MISTRACED: True}
            return {"traced": as_json(traced)}

    def _lines(self, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"sites": as_json(self._function.recomputed(from_json(Plan, request["plan"])))}

    def _changes(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with step(f"tracing {self._name} for parts of the batch"):
            return {"changes": as_json(self._function.changes(request["kinds"]))}

    def _numbers(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with step(f"running the gradient of {self._name} for random numbers"):
            path = Path(request["path"])
            return {"is_small": self._function.write_numbers(request["size"], path)}

    def _alike(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with step("running the gradient of the patched files for random numbers"):
            try:
                self._function.require_alike(request["size"], Path(request["path"]))
            except UnequalError as error:
                return {"why": str(error)}
            return {"why": ""}

    def _digests(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with step(f"comparing {self._name} with its patched files"):
            return {"digests": self._function.digests()}

    def _equations(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with step(f"comparing parts of {self._name}"):
            parts = [from_json(Parts, one) for one in request["parts"]]
            return {"equations": self._function.equations(parts)}

    def _compile(self, request: Mapping[str, Any]) -> dict[str, Any]:
        began = time.monotonic()
        with step(f"compiling {request['what']} of {self._name}"):
            plan, dumps = from_json(Plan, request["plan"]), Path(request["dumps"])
            try:
                how = {"is_full": request["is_full"], "known": request.get("known", "")}
                assert self._written is not None
                refusal = self._written.compile(plan, dumps, **how)
            except MistracedError:
                return {MISTRACED: True}
        return {"refusal": refusal, "seconds": time.monotonic() - began}


def is_users(caught: Caught, own: str | None) -> bool:
    """Return whether a call is of a function of the user's, whatever jits it."""
    file = caught.call.function_place.rpartition(":")[0]
    return file != "" and not Own(own).is_library(file)


def _with_shared(program: Program, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Program:
    """Return the program with a note on donated arguments that have an array twice in --args.

    They may be examples, so the arguments are donated all the same.
    """
    twice = [
        program.argument_names[at] for at in sorted(shared(args, kwargs) & {*program.donatable})
    ]
    if not twice:
        return program
    note = (
        f"an array of {', '.join(twice)} is in --args twice: XLA refuses to run a call that "
        "donates such an array; make it a copy there, as by jax.tree.map(jnp.copy, ...)"
    )
    return replace(program, notes=(*program.notes, note))


def _without_later_reads(program: Program, caught: Caught) -> Program:
    """Return the program without the donations of arguments that a command may read later."""
    if not program.donatable:
        return program
    if caught.site is None:
        note = "no argument is donated: a library makes the call, and may read any of them later"
        return replace(program, donatable=(), lost=(), notes=(*program.notes, note))
    function, args, kwargs = caught.outer or (None, caught.args, caught.kwargs)
    site = Site(*caught.site, "")
    safe = new = frozenset[int]()
    with suppress(OSError, UnicodeDecodeError):
        text = Path(site.file).read_bytes().decode()
        call = site.file, text, site, len(args)
        safe, new = rebound(*call), made(*call)
    if type(function).__name__ == "JitWrapped":  # nnx updates all their arrays by the call
        safe |= {at for at, one in enumerate(args) if is_of_nnx(one)}
    twice = shared(args, kwargs)
    if program.is_filtered:  # all of them or none
        by_name = {} if getattr(function, "donate_rest", False) else kwargs
        lost = lost_of(program, args, by_name, program.donatable, safe | new)
        program = replace(program, lost=() if twice else lost)
        if not twice:
            return program
        safe = twice = frozenset(program.donatable)
    held = {
        f"{place(site)} does not assign the result to it": {*program.donatable} - safe,
        "an array of these is in the call twice": {*program.donatable} & safe & twice,
    }
    notes = [
        f"not donated: {', '.join(program.argument_names[at] for at in sorted(some))}, as {why}"
        for why, some in held.items()
        if some
    ]
    donatable = tuple(at for at in program.donatable if at in safe - twice)
    return replace(program, donatable=donatable, notes=(*program.notes, *notes))


def answers(caught: Caught) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Return what answers the requests about a call of a user's command."""
    return Server(caught).answer


def main(arguments: list[str]) -> int:
    """Answer the requests of `bufdb fit`; return the exit code."""
    # Of what JAX makes in a trace most lives on, and each visit of the collector calls into XLA.
    gc.set_threshold(COLLECTED)
    return serve(Path(arguments[0]), Server().answer)
