"""A function under plans, in the process that has JAX: traced, and compiled."""

from __future__ import annotations

import inspect
import itertools
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from bufdb.capture.before import compile_once
from bufdb.capture.child import lowered, memory_note, unused_note
from bufdb.capture.target import Target, described, jax_module
from bufdb.errors import BufdbError, UsageError
from bufdb.fitting import alike
from bufdb.fitting.also import Also, Batch, Made, batch, is_placed, tried
from bufdb.fitting.counting import is_sized
from bufdb.fitting.edits import Refused
from bufdb.fitting.frameworks import of_file, setting_words
from bufdb.fitting.gradients import Gradient, file_names
from bufdb.fitting.identity import digests
from bufdb.fitting.jax_inside import (
    GRADIENT,
    Calls,
    Files,
    being_evaluated,
    gradients,
    held_by,
    mapped_calls,
    probe,
)
from bufdb.fitting.jitted import jitted
from bufdb.fitting.lever import Trial
from bufdb.fitting.levers import LEVERS, ON_DEMAND, attention, blocks, vmap, vmem
from bufdb.fitting.losses import Losses, UnboundError
from bufdb.fitting.pinned import pinned
from bufdb.fitting.places import place
from bufdb.fitting.plans import Change, Changes, Parts, Plan, Program, Site, Traced
from bufdb.fitting.reader import Reader
from bufdb.fitting.replay import Replay
from bufdb.fitting.session import UnequalError
from bufdb.fitting.wide import Place, Watched
from bufdb.read.own import NOTHING_MORE, Own

_CHEAP: dict[str, list[dict[str, Any]]] = {
    "cpu": [{"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}],
    # JAX before 0.12 wants XLA's number of the level.
    "tpu": [{"optimization_level": "O0"}, {"optimization_level": 9}],
}
"""Options with which plans are in the same order of need, in less time, in JAX's forms of them."""
_WORTH_A_NOTE = 0.01
"""Share of the live values from which what a `custom_vjp` saves has a note."""


class Written:
    """A function with arguments, as it is written: not traced until it is compiled."""

    def __init__(
        self,
        function: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        name: str,
        target: Target | None = None,
    ) -> None:
        """Take the function.

        Args:
            function: plain, or jitted.
            args: its arguments.
            kwargs: the same by name.
            name: names it in messages.
            target: hardware to compile for.

        Raises:
            UsageError: an argument is not an array.
        """
        self._jax = jax_module()
        self._given = function = jitted(function, name)
        self._args, self._kwargs = tuple(args), dict(kwargs)
        self._name, self._target = name, target
        self._hardware = () if target is None else (target.platform, described(target.name))
        if not hasattr(function, "lower"):
            _require_arrays(function, name, args, kwargs)

    @property
    def platform(self) -> Literal["cpu", "gpu", "tpu"]:
        """Return the platform that is compiled for."""
        platform = self._jax.default_backend() if self._target is None else self._target.platform
        return (
            "gpu" if platform in ("cuda", "rocm", "gpu") else "tpu" if platform == "tpu" else "cpu"
        )

    def compile(self, plan: Plan, folder: Path, *, is_full: bool, known: str = "") -> str | None:
        """Compile the function under a plan, with a dump in `folder`, unless that is known.

        Args:
            plan: what to change.
            folder: for the dump.
            is_full: whether at full effort.
            known: identifies a program that is not compiled again.

        Returns:
            XLA's message if it gave up after it had planned the memory.

        Raises:
            BufdbError: a part of the plan was not met when the function was traced.
        """
        options = {} if self._target is None else dict(self._target.options)
        options |= dict(one.split("=", 1) for one in plan.options)
        stage, hardware = self.stage(plan), self._hardware
        for cheap in [] if is_full else _CHEAP.get(self.platform, []):
            with suppress(TypeError):
                return compile_once(stage, folder, {**options, **cheap}, hardware)
        return compile_once(stage, folder, options or None, hardware, known)

    def stage(self, plan: Plan) -> Any:
        """Return the function, lowered under a plan of what no trace shows."""
        self._jax.clear_caches()
        return lowered(self._jitted(plan), self._args, self._kwargs, self._target)

    def _jitted(self, plan: Plan) -> Any:
        """Return the function, jitted as a plan has it."""
        function = self._given
        for lever in LEVERS:
            function = lever.jitted(function, plan, self._name)
        return function if hasattr(function, "lower") else self._jax.jit(function)


class Function(Written):
    """A function with arguments, whose gradients are taken under plans."""

    def __init__(
        self,
        function: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        name: str,
        target: Target | None = None,
        *,
        gradients_only: bool = False,
        own: Own = NOTHING_MORE,
        is_users: bool = False,
    ) -> None:
        """Trace the function once.

        Args:
            function: plain, or jitted.
            args: its arguments.
            kwargs: the same by name.
            name: names it in messages.
            target: hardware to compile for.
            gradients_only: whether only the gradient is taken.
            own: what counts as the user's, so that it can be changed, although it is a library's.
            is_users: whether it is known to have a function of the user's, if a library jits it.

        Raises:
            UsageError: an argument is not an array.
            BufdbError: this JAX is unknown.
        """
        probe()
        super().__init__(function, args, kwargs, name, target)
        function, self._is_users = self._given, is_users
        self._files = files = Files(own)
        self._calls = Calls(files)
        self._reader = Reader(files, self._calls)
        self._gradients, stage = self._recorded(self._args, self._kwargs)
        if not self._gradients and gradients_only:
            self._given = function = _gradient_of(self._jax, function, self._args, self._kwargs)
            self._gradients, stage = self._recorded(self._args, self._kwargs)
        self._is_alone = gradients_only
        self._outputs = self._jax.tree.leaves(stage.out_info)
        self._unused = unused_note(stage)
        self._step = stage.jaxpr.jaxpr
        self._in_shardings = stage._params["in_shardings"]
        try:
            self._losses = Losses(self._reader, self._gradients, self._step)
        except UnboundError as error:
            site = error.site or _site(function, files)
            where = "" if site is None else f" ({place(site)})"
            raise UsageError(
                f"{name} takes its gradient within a shard_map, or a vmap that names its axis"
                f"{where}; bufdb fit takes one of the shard_map"
            ) from error

    # -- The program -------------------------------------------------------------------------------

    def program(self) -> Program:
        """Return what can be switched; what makes no difference is left out."""
        of_library = None if self._is_users else _library_note(self._given, self._files.own)
        memory = memory_note(self._args, self._kwargs, self._target)
        notes = [note for note in (self._unused, memory, of_library) if note is not None]
        if not self._gradients:
            notes.append(
                f"{self._name} takes no gradient (jax.grad, value_and_grad or vjp), so nothing is "
                "saved for one: plans donate arguments, and set options of the compiler; "
                "--gradients-only takes the gradient of a loss"
            )
        survey = self._losses.survey
        for site, around in survey.closed.items():
            notes.append(
                f"the scan at {place(site)} is within a {around}, whose own rule says what is "
                "saved: no plan changes it"
            )
        names = _argument_names(self._given, len(self._args))
        trial = Trial(
            name=self._name,
            function=self._given,
            args=self._args,
            kwargs=self._kwargs,
            outputs=self._outputs,
            is_alone=self._is_alone,
            platform=self.platform,
            regions=survey.regions,
            switches=survey.switches,
            trace=self.trace,
            written=self.trace(Plan()),
            notes=notes,
        )
        least = _WORTH_A_NOTE * trial.written.live_bytes
        closed = [one.closed for one in self._gradients]
        notes += [one.note for one in pinned(self._reader, closed) if one.total_bytes > least]
        known = range(len(survey.regions))
        kept = [at for at in known if any(lever.matters(trial, at) for lever in LEVERS)]
        self._losses.narrow(kept)
        program = Program(
            function=self._name,
            target=None if self._target is None else self._target.name,
            platform=self.platform,
            regions=survey.regions,
            switches=survey.switches,
            donatable=(),
            argument_names=names,
            has_host_memory=False,
            has_cheap_effort=self.platform in _CHEAP,
            as_written=trial.written,
            function_site=_site(self._given, self._files),
            is_jitted=hasattr(self._given, "lower"),
            on_demand=self._on_demand(),
        )
        program = attention.with_scores(program, self._jaxprs() or [self._step])
        for lever in LEVERS:
            program = lever.offered(trial, program)
        files = sorted({name for one in self._gradients for name in file_names(one.closed.jaxpr)})
        if library := next((of_file(one) for one in files if of_file(one).has_settings), None):
            notes.append(setting_words(library, has_host_memory=program.has_host_memory))
        return replace(program, notes=tuple(notes))

    # -- Traces ------------------------------------------------------------------------------------

    def trace(self, plan: Plan) -> Traced:
        """Return what a trace says of a plan."""
        return self._losses.trace(plan)

    def known(self) -> Mapping[Plan, Traced]:
        """Return what traces say of the plans that earlier calls asked about."""
        return self._losses.known()

    def recomputed(self, plan: Plan) -> tuple[Site, ...]:
        """Return the expressions that are computed again under a plan."""
        sites = self._losses.recomputed(plan)
        self._losses.write()
        return sites

    def changes(self, kinds: Sequence[str]) -> Changes:
        """Return what `--also` tries, prepared for plans, and checked on random numbers."""

        def make() -> Also:
            if not self._gradients:
                raise Refused("it takes no gradient, which could be that of parts of a batch")
            arguments = self._batch()

            def record(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Gradient]:
                return self._resized(args, kwargs)

            return Also(record, self._reader, arguments, self._gradients, self._step)

        def trace(made: Mapping[tuple[str, ...], Sequence[Made]], change: Change) -> Traced:
            self._losses.changes.update(made)
            return self.trace(Plan(extra=change.keys))

        finders = self._of_text()
        changes = tried([lever for lever in ON_DEMAND if lever.name in kinds], make, trace)
        for name in (name for name in finders if name in kinds):
            try:
                more = finders[name]()
            except Exception as error:  # Refused, and what JAX raises for what it has not met
                words = str(error) if isinstance(error, Refused) else repr(error)
                changes = replace(changes, notes=(*changes.notes, f"--also {name}: {words}"))
                continue
            for change in more:  # the losses stay as they are
                count = len(self._gradients)
                self._losses.changes[change.keys] = [lambda replay: replay.run] * count
            changes = replace(changes, tried=(*changes.tried, *more))
        return changes

    def _of_text(self) -> Mapping[str, Callable[[], list[Change]]]:
        """Return by kind what finds the changes that are compiled from the patched files alone."""
        mapped = self._mapped  # of the arguments as they are
        losses = self._jaxprs()

        def watch(where: Place) -> tuple[list[attention.Piece], Watched]:
            with Watched(where, read=held_by).watching() as watched:
                gradients, stage = self._recorded(self._args, self._kwargs)
            traced = [one.closed.jaxpr for one in gradients] or [stage.jaxpr.jaxpr]
            return attention.pieces(traced, self._reader), watched

        return {
            attention.Attention.name: lambda: attention.changes_of(self._scores(), watch),
            vmap.Vmap.name: lambda: vmap.changes_of(mapped),
            blocks.Blocks.name: lambda: blocks.changes_of(losses, self._files),
            vmem.Vmem.name: lambda: vmem.changes_of(self._step, self._files, self.platform),
        }

    def _jaxprs(self) -> list[Any]:
        """Return those of the losses."""
        return [one.closed.jaxpr for one in self._gradients]

    def _scores(self) -> list[attention.Piece]:
        return attention.pieces(self._jaxprs() or [self._step], self._reader)

    def digests(self) -> list[list[str]]:
        """Return what identifies the values of each loss."""
        return [digests(one.closed) for one in self._gradients]

    def equations(self, parts: Sequence[Parts]) -> list[str]:
        """Return what lines compute for one part; without any, what `in_parts` runs."""
        closed = [one.closed for one in self._gradients]
        return attention.equations(closed or [self._step], self._reader, parts)

    def _batch(self) -> Batch:
        """Return the arguments that have the batch.

        Raises:
            Refused: there are none, or it is unknown how they are sharded.
        """
        args, kwargs = self._as_sharded()
        names = _argument_names(self._given, len(args))
        return batch(args, kwargs, names, self._gradients)

    def _as_sharded(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments, each with its own sharding or that which the jit names for it.

        Raises:
            Refused: the arguments of the jit are not those of the function, such as static ones.
        """
        info = getattr(self._given, "_jit_info", None)
        leaves, tree = self._jax.tree.flatten((self._args, self._kwargs))
        arrays = [leaf for leaf in leaves if getattr(leaf, "shape", ())]
        if not _has_in_shardings(info) or all(map(is_placed, arrays)):
            return self._args, self._kwargs
        if len(leaves) != len(self._in_shardings):
            raise Refused("in_shardings hide how the batch is sharded; shard the arguments, too")
        pairs = zip(leaves, self._in_shardings, strict=True)
        args, kwargs = tree.unflatten([_placed(leaf, sharding) for leaf, sharding in pairs])
        return args, kwargs

    def _on_demand(self) -> tuple[str, ...]:
        kinds = []
        with suppress(Refused):
            if self._gradients:
                self._batch()
                kinds += [lever.name for lever in ON_DEMAND]
        # Which names have an axis takes another trace, which is not needed here.
        for name, find in {**self._of_text(), attention.Attention.name: self._scores}.items():
            with suppress(Refused):
                find()
                kinds.append(name)
        return tuple(kinds)

    # -- The numbers of patched files --------------------------------------------------------------

    def write_numbers(self, size: int, path: Path) -> bool:
        """Write what the losses of a batch of a size give for random numbers, if they are small.

        Raises:
            BufdbError: they cannot be run.
        """
        try:
            return alike.write(self._at(size), path)
        except Exception as error:  # whatever the user's code and JAX raise
            raise BufdbError(f"{type(error).__name__}: {error}".splitlines()[0]) from error

    def require_alike(self, size: int, path: Path) -> None:
        """Raise an error if the losses of a batch of a size do not give what a file has.

        Raises:
            UnequalError: they do not.
            BufdbError: they cannot be run.
        """
        try:
            alike.require_alike(self._at(size), path)
        except Refused as why:
            raise UnequalError(str(why)) from why
        except Exception as error:  # whatever the user's code and JAX raise
            raise BufdbError(f"{type(error).__name__}: {error}".splitlines()[0]) from error

    def _at(self, size: int) -> list[Gradient]:
        return self._resized(*self._batch().at(size, is_sharded=False))

    def _resized(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Gradient]:
        """Return the losses for another size of the batch, sharded as the arguments alone say.

        The devices of `in_shardings` may not divide it.
        """
        info = getattr(self._given, "_jit_info", None)
        plain = None
        if _has_in_shardings(info) and not hasattr(self._given, "lifted"):
            options = {name: getattr(info, name) for name in ("static_argnums", "static_argnames")}
            plain = self._jax.jit(self._given.__wrapped__, **options)
        return self._recorded(args, kwargs, plain)[0]

    def _recorded(
        self, args: Sequence[Any], kwargs: Mapping[str, Any], plain: Any = None
    ) -> tuple[list[Gradient], Any]:
        """Trace the function, or another one jitted; return its losses, and what was traced."""
        jax = self._jax
        recorded: list[Gradient] = []
        outermost = sys._getframe().f_code

        def change(closed: Any, outputs: int, paths: Sequence[str]) -> Callable[..., Any]:
            number = len(recorded)
            site = being_evaluated(self._reader.files, outermost)
            recorded.append(Gradient(closed, outputs, site=site, paths=tuple(paths)))

            def run(closed: Any, inputs: Sequence[Any]) -> list[Any]:
                with jax.named_scope(f"{GRADIENT}{number}"):
                    return list(jax.core.eval_jaxpr(closed.jaxpr, closed.consts, *inputs))

            return run

        jax.clear_caches()
        with gradients(change, self._calls), mapped_calls(self._files) as self._mapped:
            stage = (plain or self._jitted(Plan())).trace(*args, **kwargs)
        jax.clear_caches()
        return recorded, stage

    # -- Compilations ------------------------------------------------------------------------------

    def compile(self, plan: Plan, folder: Path, *, is_full: bool, known: str = "") -> str | None:
        """Compile the function under a plan whose trace is JAX's; see `Written.compile`.

        Raises:
            MistracedError: that is not the one that was returned.
        """
        self._losses.prove(plan)
        self._losses.write()
        return super().compile(plan, folder, is_full=is_full, known=known)

    def stage(self, plan: Plan) -> Any:
        """Return the function, lowered under a plan."""
        replay = Replay(self._reader, self._losses.survey, plan)
        if self._is_alone and len(self._gradients) == 1:
            run, inputs = self._losses.gradient(0, plan)
            structs = self._jax.tree.map(_struct(self._jax), inputs)
            return lowered(run, structs, {}, self._target)

        numbers = itertools.count()

        def change(_closed: Any, _outputs: int, _paths: Sequence[str]) -> Callable[..., Any]:
            return self._losses.changed(next(numbers), plan, replay)

        is_changed = plan.as_traced != Plan()
        with (
            gradients(change, self._calls if plan.calls else None) if is_changed else nullcontext()
        ):
            stage = super().stage(plan)
        if is_changed:
            self._jax.clear_caches()
            if missing := replay.applied.missing(plan):
                raise BufdbError(f"{self._name}, traced again, has no {missing}")
        return stage


# -- Functions and their arguments -----------------------------------------------------------------


def plain(function: Any) -> Any:
    """Return the function within jit, partial and decorators."""
    while True:
        if hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        elif hasattr(function, "func") and not inspect.isfunction(function):
            function = function.func
        else:
            return function


def _site(function: Any, files: Files) -> Site | None:
    """Return where a function is defined; None if that is no file of the user's."""
    code = getattr(plain(function), "__code__", None)
    if code is None or not files.has(code.co_filename):
        return None
    if not os.path.exists(code.co_filename):  # noqa: PTH110 - it is text
        return None
    line = code.co_firstlineno
    return Site(code.co_filename, line, 0, line, 0, code.co_qualname)


def _library_note(function: Any, own: Own) -> str | None:
    """Return why no line of a library's function is changed; None for a function of the user's."""
    code = getattr(plain(function), "__code__", None)
    if code is None:
        return None
    shown = own.library_source(code.co_filename, code.co_firstlineno)
    if shown is None:
        return None
    package = shown.removeprefix("library ").partition("/")[0].partition(".py")[0]
    return (
        f"{code.co_name} is at {shown}, where no line is changed; "
        f"--own {package} counts it as yours"
    )


def _argument_names(function: Any, count: int) -> tuple[str, ...]:
    """Return the names of the positional arguments that are given."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        parameters = {}.values()
    names = [
        one.name
        for one in parameters
        if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
    ]
    return tuple(names[at] if at < len(names) else str(at) for at in range(count))


def _gradient_of(jax: Any, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return the gradient of a loss with respect to its first argument."""
    out = jax.eval_shape(function, *args, **kwargs)
    has_aux = isinstance(out, tuple) and len(out) == 2
    return jax.value_and_grad(function, has_aux=has_aux, allow_int=True)


def _require_arrays(
    function: Any, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Refuse an argument that is not an array, of a function that is not jitted with it as static.

    Raises:
        UsageError: one is none.
    """
    names = _argument_names(function, len(args))
    for argument, argument_value in [*zip(names, args, strict=True), *kwargs.items()]:
        for leaf in jax_module().tree.leaves(argument_value):
            if not isinstance(leaf, bool | int | float | complex) and not is_sized(leaf):
                how = "jit the function with static_argnames"
                if "equinox" in sys.modules:
                    how = "jit the function with eqx.filter_jit"
                raise UsageError(
                    f"argument {argument} of {name} is not an array: it has a "
                    f"{type(leaf).__name__}; bind it with functools.partial, or {how}"
                )


def _has_in_shardings(info: Any) -> bool:
    return bool(getattr(info, "user_specified_in_shardings", False))


def _placed(leaf: Any, sharding: Any) -> Any:
    """Return an argument, with a sharding if it is an array that has none of its own."""
    if not getattr(leaf, "shape", ()) or is_placed(leaf):
        return leaf
    one = jax_module().ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)
    return one if is_placed(one) else leaf


def _struct(jax: Any) -> Callable[[Any], Any]:
    def struct(aval: Any) -> Any:
        return jax.ShapeDtypeStruct(aval.shape, aval.dtype)

    return struct
