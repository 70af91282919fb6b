"""A loss under a plan: its jaxpr evaluated again, with checkpoints and names put in."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.arguments import shape_of
from bufdb.fitting.counting import (
    NAMES,
    REMATS,
    carried,
    inner_jaxprs,
    is_dropped,
    is_literal,
    kind,
    open_jaxpr,
    parameters,
    stacked_inputs,
)
from bufdb.fitting.jax_inside import SHARD_MAPS, bind, context, evaluate, named, shard_mapped, value
from bufdb.fitting.lever import Lever, Value
from bufdb.fitting.levers import LEVERS
from bufdb.fitting.levers.policy import policy, rest_of
from bufdb.fitting.plans import Depth, Plan, Site
from bufdb.fitting.reader import SCAN, Key, Reader
from bufdb.fitting.survey import Survey


class Where(Enum):
    """Where an equation is."""

    OUTSIDE = 1
    """In no scan."""
    IN_SCAN = 2
    """In the body of a scan that stays as it is written."""
    IN_REGION = 3
    """In a region of the plan: values get names, and checkpoints of the source go."""


@dataclass(frozen=True)
class _Inside:
    """A jaxpr while its equations are evaluated in parts."""

    names: Mapping[Any, str]
    """What values get."""
    where: Where
    numbers: Mapping[Any, int]
    """Its values in the order in which they are made."""


@dataclass
class Applied:
    """What of a plan was met in a trace."""

    regions: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    def missing(self, plan: Plan) -> str:
        """Return what of a plan was not met, in words; '' if all was."""
        lacking = [f"region {at}" for at in sorted({*plan.scans, *plan.calls} - self.regions)]
        lacking += sorted(plan.names - self.names)
        return ", ".join(lacking)


class Replay:
    """Evaluates losses under a plan; the gradient of what it gives is that of the plan."""

    def __init__(self, reader: Reader, survey: Survey, plan: Plan) -> None:
        self._reader = reader
        self._survey = survey
        self._plan = plan
        self._kept = plan.names
        self._around: tuple[int, ...] = ()
        """The call regions of the plan around what is evaluated: each is one checkpoint."""
        self._touched: dict[tuple[int, tuple[int, ...]], tuple[Any, bool]] = {}
        self._sites = [set(plan.sites(at, one)) for at, one in enumerate(survey.regions)]
        self.applied = Applied()

    def run(self, closed: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of a closed jaxpr."""
        return self._evaluate(closed.jaxpr, closed.consts, inputs, Where.OUTSIDE)

    def some(self, eqns: Sequence[Any], read: Sequence[Any], env: dict[Any, Any]) -> None:
        """Evaluate some equations of a jaxpr, in no scan of it.

        Args:
            eqns: in order.
            read: what is read after them.
            env: receives what they make.
        """
        numbers = {var: at for at, var in enumerate(env)}
        made = (var for eqn in eqns for var in eqn.outvars)
        numbers |= {var: at for at, var in enumerate(made, len(env))}
        self._in_parts(eqns, read, env, _Inside({}, Where.OUTSIDE, numbers))

    def _evaluate(
        self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any], where: Where
    ) -> list[Any]:
        env = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))
        names = self._names_in(jaxpr) if where is Where.IN_REGION else {}
        if self._plan.calls:
            inside = _Inside(names, where, _numbers(jaxpr))
            self._in_parts(jaxpr.eqns, jaxpr.outvars, env, inside)
        else:
            self._equations(jaxpr.eqns, env, names, where)
        return [value(var, env) for var in jaxpr.outvars]

    def _names_in(self, jaxpr: Any) -> Mapping[Any, str]:
        """Return the names to put on values of a body: those that the plan saves."""
        return self._kept_names(lever.values(self._reader, jaxpr) for lever in LEVERS)

    def _kept_names(self, values: Iterable[Mapping[Any, Value]]) -> dict[Any, str]:
        names = ((var, self._survey.name_of(one)) for each in values for var, one in each.items())
        return {var: name for var, name in names if name is not None and name in self._kept}

    def _named(self, array: Any, name: str) -> Any:
        return named(array, name)

    def _policy(self, plan: Plan, region: int) -> Any:
        """Return what JAX's checkpoint of a region saves."""
        return policy(self._survey.switches, plan, region).for_jax()

    # -- Equations ---------------------------------------------------------------------------------

    def _equations(
        self, eqns: Sequence[Any], env: dict[Any, Any], names: Mapping[Any, str], where: Where
    ) -> None:
        """Evaluate equations, and put names on some of their values."""

        def rule(eqn: Any, inputs: list[Any]) -> list[Any]:
            outputs = self._outputs(eqn, inputs, where)
            if kind(eqn) in NAMES:
                self.applied.names.add(parameters(eqn)["name"])
            for at, var in enumerate(eqn.outvars):
                name = None if is_dropped(var) else names.get(var)
                if name is not None:
                    self.applied.names.add(name)
                    with context(eqn):
                        outputs[at] = self._named(outputs[at], name)
            return outputs

        evaluate(eqns, env, rule)

    def _outputs(self, eqn: Any, inputs: list[Any], where: Where) -> list[Any]:
        """Return the outputs of an equation, with the plan in what is nested in it."""
        jax = jax_module()
        name, params = kind(eqn), parameters(eqn)
        if where is Where.IN_REGION and name in REMATS:  # the plan's policy is in its place
            return self._evaluate(*_opened(params["jaxpr"]), inputs, where)
        if where is not Where.IN_REGION and not self._touches(eqn):
            return bind(eqn, inputs)
        if name == SCAN:
            depth = self._depth(eqn)
            if depth is not None:
                return self._in_two(eqn, inputs, depth)
            return bind(eqn, inputs, {**params, "jaxpr": self._scanned(eqn, where)})
        closed = self._reader.nested(eqn)
        if closed is not None:
            key = "jaxpr" if "jaxpr" in params else "call_jaxpr"
            return bind(eqn, inputs, {**params, key: self._changed(closed, where)})
        if name == "cond":
            inside = where if where is Where.OUTSIDE else Where.IN_SCAN
            branches = tuple(self._changed(one, inside) for one in params["branches"])
            return bind(eqn, inputs, {**params, "branches": branches})
        if name in SHARD_MAPS:
            run = self._bound(*_opened(params["jaxpr"]), where)
            with context(eqn):
                return list(shard_mapped(run, params)(*inputs))
        if name in REMATS:
            run = self._bound(*_opened(params["jaxpr"]), where)
            options = {key: params[key] for key in ("policy", "prevent_cse") if key in params}
            with context(eqn):
                return list(jax.checkpoint(run, **options)(*inputs))
        return bind(eqn, inputs)

    def _touches(self, eqn: Any) -> bool:
        """Return whether something of the plan is in an equation."""
        if self._survey.region_of(self._reader.scan_key(eqn)) in self._plan.scans:
            return True
        return any(map(self._touches_jaxpr, inner_jaxprs(eqn)))

    def _touches_jaxpr(self, jaxpr: Any) -> bool:
        key = id(jaxpr), self._around
        kept = self._touched.get(key)
        if kept is None:
            touches = any(
                self._touches(eqn) or self._part_of(eqn) is not None for eqn in jaxpr.eqns
            )
            kept = self._touched[key] = (jaxpr, touches)
        return kept[1]

    def _depth(self, eqn: Any) -> Depth | None:
        """Return how far the plan goes into a scan; None: to its end."""
        region = self._survey.region_of(self._reader.scan_key(eqn))
        return None if region is None else self._plan.depth(region)

    def _in_two(self, eqn: Any, inputs: list[Any], depth: Depth) -> list[Any]:
        """Run a scan as two, the first iterations by the plan, the others by its depth."""
        jax = jax_module()
        carry = carried(eqn)
        start = len(stacked_inputs(eqn))
        at = len(inputs) - start
        consts, init, xs = inputs[: at - carry], inputs[at - carry : at], inputs[at:]
        rest = rest_of(self._plan, depth)

        def scan(plan: Plan, init: list[Any], xs: list[Any], length: int) -> Any:
            body = self._checkpointed(eqn, depth.region, plan)

            def run(values: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
                outputs = body(*consts, *values, *x)
                return outputs[:carry], outputs[carry:]

            return jax.lax.scan(run, init, xs, length=length)

        count, length = depth.count, eqn.params["length"]
        with context(eqn):
            init, ys = scan(self._plan, init, [x[:count] for x in xs], count)
            init, more = scan(rest, init, [x[count:] for x in xs], length - count)
            joined = map(jax.numpy.concatenate, zip(ys, more, strict=True))
            return [*init, *joined]

    def _scanned(self, eqn: Any, where: Where) -> Any:
        """Return the body of a scan under the plan, closed."""
        closed = eqn.params["jaxpr"]
        region = self._survey.region_of(self._reader.scan_key(eqn))
        if region not in self._plan.scans:
            return self._changed(closed, max(where, Where.IN_SCAN, key=lambda one: one.value))
        assert region is not None
        return self._traced(self._checkpointed(eqn, region, self._plan), closed)

    def _checkpointed(self, eqn: Any, region: int, plan: Plan) -> Callable[..., list[Any]]:
        """Return the body of a scan with names, checkpointed as a plan has it."""
        jax = jax_module()
        closed = eqn.params["jaxpr"]
        self.applied.regions.add(region)
        body = self._bound(closed.jaxpr, closed.consts, Where.IN_REGION)
        names = self._kept_names(lever.inputs(self._reader, eqn) for lever in LEVERS)
        self.applied.names.update(names.values())

        def run(*inputs: Any) -> list[Any]:
            pairs = zip(closed.jaxpr.invars, inputs, strict=True)
            return body(*(self._named(x, names[var]) if var in names else x for var, x in pairs))

        run.__name__ = body.__name__
        checkpointed: Callable[..., list[Any]]
        checkpointed = jax.checkpoint(run, policy=self._policy(plan, region), prevent_cse=False)
        return checkpointed

    def _changed(self, closed: Any, where: Where) -> Any:
        """Return a nested closed jaxpr under the plan."""
        if where is not Where.IN_REGION and not self._touches_jaxpr(open_jaxpr(closed)):
            return closed
        return self._traced(self._bound(closed.jaxpr, closed.consts, where), closed)

    def _bound(self, jaxpr: Any, consts: Any, where: Where) -> Callable[..., list[Any]]:
        def run(*inputs: Any) -> list[Any]:
            return self._evaluate(jaxpr, consts, inputs, where)

        source = getattr(jaxpr, "debug_info", None)
        name = (getattr(source, "func_src_info", None) or "body").split(" at ")[0]
        run.__name__ = name.rpartition(".")[2] or "body"
        return run

    def _traced(self, run: Callable[..., Any], closed: Any) -> Any:
        return jax_module().make_jaxpr(run)(*(var.aval for var in closed.jaxpr.invars))

    # -- Parts that a lever wraps ------------------------------------------------------------------

    def _part_of(self, eqn: Any) -> tuple[Lever, int, Any] | None:
        """Return the lever that wraps what an equation is part of, the region, and which run."""
        for lever in LEVERS:
            part = lever.part(self._reader, self._region_of, self._plan, eqn)
            if part is not None:
                return lever, *part
        return None

    def _region_of(self, key: Key, site: Site) -> int | None:
        """Return the index of a region that a call is of, if a patch changes the call.

        That is where the call is written, in a scan too; of a recursion the outermost.
        """
        region = self._survey.region_of(key)
        if region is None or region in self._around:
            return None
        return region if site in self._sites[region] else None

    def _in_parts(
        self,
        eqns: Sequence[Any],
        outvars: Sequence[Any],
        env: dict[Any, Any],
        inside: _Inside,
    ) -> None:
        """Evaluate equations with the plan's calls as checkpoints, also those that are nested.

        Args:
            eqns: of one jaxpr.
            outvars: what is read after them.
            env: receives what they make.
            inside: of what jaxpr they are.
        """
        for part, some, outputs in self._parts(eqns, outvars):
            if part is None:
                self._equations(some, env, inside.names, inside.where)
                continue
            lever, region, instance = part
            self.applied.regions.add(region)
            shapes = self._reader.calls.shapes(instance) if isinstance(instance, int) else ()
            inputs = _in_order(_inputs(some), shapes, inside.numbers)

            def run(
                *arguments: Any,
                region: int = region,
                eqns: Sequence[Any] = some,
                inputs: Sequence[Any] = inputs,
                outputs: Sequence[Any] = outputs,
            ) -> list[Any]:
                own = dict(zip(inputs, arguments, strict=True))
                before, self._around = self._around, (*self._around, region)
                self._in_parts(eqns, outputs, own, inside)
                self._around = before
                return [own[var] for var in outputs]

            checkpointed = lever.checkpoint(self._reader, self._plan, (region, instance), run)
            results = checkpointed(*(env[var] for var in inputs))
            env.update(zip(outputs, results, strict=True))

    def _parts(
        self, eqns: Sequence[Any], outvars: Sequence[Any]
    ) -> Iterator[tuple[tuple[Lever, int, Any] | None, Sequence[Any], list[Any]]]:
        """Yield runs of equations of one part, with what is read of them later on."""
        last: dict[Any, int] = {}
        for at, eqn in enumerate(eqns):
            last.update((var, at) for var in eqn.invars if not is_literal(var))
        last.update((var, len(eqns)) for var in outvars if not is_literal(var))
        parts = [self._part_of(eqn) for eqn in eqns]
        start = 0
        for part, group in itertools.groupby(parts):
            stop = start + len(list(group))
            some = eqns[start:stop]
            outputs = [
                var
                for eqn in some
                for var in eqn.outvars
                if not is_dropped(var) and last.get(var, -1) >= stop
            ]
            yield part, some, outputs
            start = stop


def _opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """Return a jaxpr, closed or not, with its constants."""
    return open_jaxpr(jaxpr), getattr(jaxpr, "consts", ())


def _inputs(eqns: Sequence[Any]) -> list[Any]:
    """Return what equations take from outside of them."""
    made = {var for eqn in eqns for var in eqn.outvars}
    taken = (var for eqn in eqns for var in eqn.invars if not is_literal(var))
    return list(dict.fromkeys(var for var in taken if var not in made))


def _numbers(jaxpr: Any) -> Mapping[Any, int]:
    """Return the values of a jaxpr, numbered in the order in which they are made."""
    made = [*jaxpr.invars, *jaxpr.constvars, *(var for eqn in jaxpr.eqns for var in eqn.outvars)]
    return {var: at for at, var in enumerate(made)}


def _in_order(
    inputs: Sequence[Any], shapes: Sequence[str], numbers: Mapping[Any, int]
) -> list[Any]:
    """Return what a call takes in the order in which a checkpoint of its function has it.

    That is what the closure has, as it is read, and then the arguments: the compiler may need other
    bytes for another order. Of equal shapes those that were made first come first, as the leaves of
    one argument mostly are.
    """
    places: dict[str, list[int]] = {}
    for at, shape in enumerate(shapes):
        places.setdefault(shape, []).append(at)
    order = {}
    for var in sorted(inputs, key=lambda var: numbers[var]):
        own = places.get(shape_of(var.aval))
        order[var] = own.pop(0) if own else -1
    return sorted(inputs, key=lambda var: order[var])
