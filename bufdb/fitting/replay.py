"""A loss under a plan: its jaxpr evaluated again, with checkpoints and names put in."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import (
    NAMES,
    REMATS,
    inner_jaxprs,
    is_dropped,
    is_literal,
    kind,
    open_jaxpr,
    parameters,
)
from bufdb.fitting.jax_inside import SHARD_MAPS, bind, context, evaluate, named, shard_mapped, value
from bufdb.fitting.plans import Plan, Switch
from bufdb.fitting.reader import SCAN, Reader
from bufdb.fitting.survey import Survey


class _Where(Enum):
    """Where an equation is."""

    OUTSIDE = 1
    """In no scan: calls of the plan are checkpoints."""
    IN_SCAN = 2
    """In the body of a scan that stays as it is written."""
    IN_REGION = 3
    """In a region of the plan: values get names, and checkpoints of the source go."""


@dataclass
class Applied:
    """What of a plan was met in a trace."""

    regions: set[int] = field(default_factory=set)
    names: set[str] = field(default_factory=set)

    def missing(self, plan: Plan) -> str:
        """Return what of a plan was not met, in words; '' if all was."""
        lacking = [f"region {at}" for at in sorted({*plan.scans, *plan.calls} - self.regions)]
        lacking += sorted({*plan.saved, *plan.offloaded} - self.names)
        return ", ".join(lacking)


class Replay:
    """Evaluates losses under a plan; the gradient of what it gives is that of the plan."""

    def __init__(self, reader: Reader, survey: Survey, plan: Plan) -> None:
        self._reader = reader
        self._survey = survey
        self._plan = plan
        self._named: dict[str, Switch] = {one.name: one for one in survey.switches}
        self._kept = {*plan.saved, *plan.offloaded}
        self._touched: dict[tuple[int, _Where], tuple[Any, bool]] = {}
        self.applied = Applied()

    def run(self, closed: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of a closed jaxpr."""
        return self._evaluate(closed.jaxpr, closed.consts, inputs, _Where.OUTSIDE)

    def equation(self, eqn: Any, inputs: list[Any]) -> list[Any]:
        """Return the outputs of an equation that is in no scan and no call of the plan."""
        return self._outputs(eqn, inputs, _Where.OUTSIDE)

    def _evaluate(
        self, jaxpr: Any, consts: Sequence[Any], inputs: Sequence[Any], where: _Where
    ) -> list[Any]:
        env = dict(zip(jaxpr.constvars, consts, strict=True))
        env.update(zip(jaxpr.invars, inputs, strict=True))
        if where is _Where.OUTSIDE and self._plan.calls:
            self._with_calls(jaxpr, env)
        else:
            names = self._names_in(jaxpr) if where is _Where.IN_REGION else {}
            self._equations(jaxpr.eqns, env, names, where)
        return [value(var, env) for var in jaxpr.outvars]

    def _names_in(self, jaxpr: Any) -> Mapping[Any, str]:
        """Return the names to put on values of a body: those that the plan saves."""
        found = {}
        for var, (site, own) in self._reader.crossing(jaxpr).items():
            name = self._survey.names.get(site) if own is None else own
            if own is None and name is not None and name in self._kept:
                found[var] = name
        return found

    # -- Equations ---------------------------------------------------------------------------------

    def _equations(
        self, eqns: Sequence[Any], env: dict[Any, Any], names: Mapping[Any, str], where: _Where
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
                        outputs[at] = named(outputs[at], name)
            return outputs

        evaluate(eqns, env, rule)

    def _outputs(self, eqn: Any, inputs: list[Any], where: _Where) -> list[Any]:
        """Return the outputs of an equation, with the plan in what is nested in it."""
        jax = jax_module()
        name, params = kind(eqn), parameters(eqn)
        if where is _Where.IN_REGION and name in REMATS:  # the plan's policy is in its place
            return self._evaluate(*_opened(params["jaxpr"]), inputs, where)
        if where is not _Where.IN_REGION and not self._touches(eqn, where):
            return bind(eqn, inputs)
        if name == SCAN:
            return bind(eqn, inputs, {**params, "jaxpr": self._scanned(eqn, where)})
        closed = self._reader.nested(eqn)
        if closed is not None:
            key = "jaxpr" if "jaxpr" in params else "call_jaxpr"
            return bind(eqn, inputs, {**params, key: self._changed(closed, where)})
        if name == "cond":
            inside = where if where is _Where.OUTSIDE else _Where.IN_SCAN
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

    def _touches(self, eqn: Any, where: _Where) -> bool:
        """Return whether something of the plan is in an equation."""
        key = self._reader.scan_key(eqn)
        if self._survey.region_of(key) in self._plan.scans:
            return True
        if key is not None:
            where = _Where.IN_SCAN
        return any(self._touches_jaxpr(jaxpr, where) for jaxpr in inner_jaxprs(eqn))

    def _touches_jaxpr(self, jaxpr: Any, where: _Where) -> bool:
        kept = self._touched.get((id(jaxpr), where))
        if kept is None:
            found = any(
                self._touches(eqn, where)
                or (where is _Where.OUTSIDE and self._call_of(eqn) is not None)
                for eqn in jaxpr.eqns
            )
            kept = self._touched[id(jaxpr), where] = (jaxpr, found)
        return kept[1]

    def _scanned(self, eqn: Any, where: _Where) -> Any:
        """Return the body of a scan under the plan, closed."""
        jax = jax_module()
        closed = eqn.params["jaxpr"]
        region = self._survey.region_of(self._reader.scan_key(eqn))
        if region not in self._plan.scans:
            return self._changed(closed, max(where, _Where.IN_SCAN, key=lambda one: one.value))
        assert region is not None
        self.applied.regions.add(region)
        run = self._bound(closed.jaxpr, closed.consts, _Where.IN_REGION)
        body = jax.checkpoint(run, policy=self._policy(region), prevent_cse=False)
        return self._traced(body, closed)

    def _changed(self, closed: Any, where: _Where) -> Any:
        """Return a nested closed jaxpr under the plan."""
        if where is not _Where.IN_REGION and not self._touches_jaxpr(open_jaxpr(closed), where):
            return closed
        return self._traced(self._bound(closed.jaxpr, closed.consts, where), closed)

    def _bound(self, jaxpr: Any, consts: Any, where: _Where) -> Callable[..., Any]:
        def run(*inputs: Any) -> list[Any]:
            return self._evaluate(jaxpr, consts, inputs, where)

        source = getattr(jaxpr, "debug_info", None)
        name = (getattr(source, "func_src_info", None) or "body").split(" at ")[0]
        run.__name__ = name.rpartition(".")[2] or "body"
        return run

    def _traced(self, run: Callable[..., Any], closed: Any) -> Any:
        return jax_module().make_jaxpr(run)(*(var.aval for var in closed.jaxpr.invars))

    def _policy(self, region: int) -> Any:
        """Return the policy of a scan's body."""
        policies = jax_module().checkpoint_policies
        saved = self._of_region(self._plan.saved, region)
        offloaded = self._of_region(self._plan.offloaded, region)
        if offloaded:
            policy = policies.save_and_offload_only_these_names(
                names_which_can_be_saved=saved,
                names_which_can_be_offloaded=offloaded,
                offload_src="device",
                offload_dst="pinned_host",
            )
        else:
            policy = policies.save_only_these_names(*saved)
        if region in self._plan.with_dots:
            policy = policies.save_from_both_policies(policy, policies.dots_saveable)
        return policy

    def _of_region(self, names: Sequence[str], region: int) -> list[str]:
        return [name for name in names if region in self._named[name].regions]

    # -- Calls -------------------------------------------------------------------------------------

    def _call_of(self, eqn: Any) -> tuple[int, Any] | None:
        """Return the outermost call region of the plan that an equation is in, and which call."""
        for key, instance, _ in self._reader.chain(eqn):
            region = self._survey.region_of(key)
            if region in self._plan.calls:
                assert region is not None
                return region, instance
        return None

    def _with_calls(self, jaxpr: Any, env: dict[Any, Any]) -> None:
        """Evaluate a jaxpr with the plan's calls as checkpoints."""
        jax = jax_module()
        for call, eqns, outputs in self._parts(jaxpr):
            if call is None:
                self._equations(eqns, env, {}, _Where.OUTSIDE)
                continue
            self.applied.regions.add(call[0])
            inputs = _inputs(eqns)
            policies = jax.checkpoint_policies
            policy = policies.dots_saveable if call[0] in self._plan.with_dots else None

            def run(
                *given: Any,
                eqns: Sequence[Any] = eqns,
                inputs: Sequence[Any] = inputs,
                outputs: Sequence[Any] = outputs,
            ) -> list[Any]:
                own = dict(zip(inputs, given, strict=True))
                self._equations(eqns, own, {}, _Where.IN_REGION)
                return [own[var] for var in outputs]

            found = jax.checkpoint(run, policy=policy)(*(env[var] for var in inputs))
            env.update(zip(outputs, found, strict=True))

    def _parts(self, jaxpr: Any) -> Iterator[tuple[tuple[int, Any] | None, list[Any], list[Any]]]:
        """Yield runs of equations of one call, with what is read of them later on."""
        last: dict[Any, int] = {}
        for at, eqn in enumerate(jaxpr.eqns):
            last.update((var, at) for var in eqn.invars if not is_literal(var))
        last.update((var, len(jaxpr.eqns)) for var in jaxpr.outvars if not is_literal(var))
        calls = [self._call_of(eqn) for eqn in jaxpr.eqns]
        start = 0
        for call, group in itertools.groupby(calls):
            stop = start + len(list(group))
            eqns = jaxpr.eqns[start:stop]
            outputs = [
                var
                for eqn in eqns
                for var in eqn.outvars
                if not is_dropped(var) and last.get(var, -1) >= stop
            ]
            yield call, eqns, outputs
            start = stop


def _opened(jaxpr: Any) -> tuple[Any, Sequence[Any]]:
    """Return a jaxpr, closed or not, with its constants."""
    return open_jaxpr(jaxpr), getattr(jaxpr, "consts", ())


def _inputs(eqns: Sequence[Any]) -> list[Any]:
    """Return what equations take from outside of them."""
    made = {var for eqn in eqns for var in eqn.outvars}
    taken = (var for eqn in eqns for var in eqn.invars if not is_literal(var))
    return list(dict.fromkeys(var for var in taken if var not in made))
