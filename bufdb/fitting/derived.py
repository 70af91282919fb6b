"""What traces of plans say, derived from one trace in which scans save nothing.

A checkpoint with a policy of names computes again what the backward pass needs, back to the values
that are saved. So one trace has all plans of the same scans: each value that a plan may save has a
name of its own in it, and what a plan saves cuts what is computed again at these names.

Invariant: what is derived is what JAX's own trace of the plan gives, except for `live_bytes`, which
ranks plans of calls alone. JAX does not promise how it divides a scan, so some plans are traced as
well, and nothing is derived once one of them differs (see `Losses`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Any

from bufdb.capture.target import jax_module
from bufdb.fitting.counting import (
    NAMES,
    REMATS,
    Directions,
    Residuals,
    Work,
    aval_bytes,
    carried,
    equation_work,
    inner_jaxprs,
    is_dropped,
    is_literal,
    kind,
    parameters,
    repetitions,
    stacked_inputs,
)
from bufdb.fitting.jax_inside import JITS, SHARD_MAPS, context, has_effects, named
from bufdb.fitting.plans import Plan
from bufdb.fitting.replay import Replay, Where
from bufdb.read.jax_names import RECOMPUTED

_APART = "\0"
"""Between the name of a value and its number, in a name of its own."""
_THROUGH = (*JITS, *REMATS, *SHARD_MAPS, "custom_jvp_call", "custom_vjp_call")
"""Names of the primitives whose outputs need, each, what it needs within the function."""
_LITERAL, _DROPPED = -1, -2


class UnknownError(Exception):
    """What a plan does cannot be derived."""


class NamedApart(Replay):
    """Evaluates losses with a name of its own on each value that a plan keeps, none saved."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._numbers = itertools.count()

    def _named(self, array: Any, name: str) -> Any:
        return named(array, f"{name}{_APART}{next(self._numbers)}")

    def _policy(self, plan: Plan, region: int) -> Any:
        return jax_module().checkpoint_policies.nothing_saveable

    def _outputs(self, eqn: Any, inputs: list[Any], where: Where) -> list[Any]:
        if where is Where.IN_REGION and kind(eqn) in NAMES:  # a name of the source
            with context(eqn):
                return [self._named(inputs[0], parameters(eqn)["name"])]
        return super()._outputs(eqn, inputs, where)


# -- A gradient in which each value has a name of its own ------------------------------------------


@dataclass
class _Value:
    """A value with a name of its own."""

    name: str
    """That of plans."""
    stacked_bytes: int | None = None
    """Of all iterations of the scans around it in the forward pass; 0 where it is computed before
    these, since it is the same in each; None if the forward pass has none of it."""
    is_divided: bool = False
    """Whether JAX stacks it in part on the device where it is moved: a scan within a scan carries
    it, and the first comes from the outer one."""


@dataclass
class _Eqn:
    """What an equation reads and makes, by the numbers of variables in its jaxpr."""

    inputs: Sequence[int]
    outputs: Sequence[int]
    is_kept: bool
    """Whether it has effects, so that it runs though nothing reads it."""
    work: Work = field(default_factory=Work)
    """Of all of it, where `inside` is empty."""
    residuals: Residuals = field(default_factory=Residuals)
    """The same of what forward scans in it stack."""
    value: int | None = None
    """Number of the value that it names."""
    is_cut: bool = False
    """Whether it computes that again, so that the value is in its place where it is saved."""
    inside: Sequence[_Body] = ()
    """The jaxprs in it; empty if each output needs each input."""
    is_choice: bool = False
    """Whether one of these runs."""
    times: int = 1
    carry: tuple[int, int] = (0, 0)
    """Of a scan, where those of its inputs begin and end that it carries."""
    stacks: Sequence[Residuals] = ()
    """Of a forward scan in no other one, what each output is."""
    forward: frozenset[int] = frozenset()
    """Numbers of the values that are named in it, and not computed again."""


@dataclass
class _Body:
    """A jaxpr."""

    size: int
    inputs: Sequence[int]
    outputs: Sequence[int]
    eqns: Sequence[_Eqn]
    values: frozenset[int]
    """Numbers of the values that are named in it."""
    known: dict[Any, _Part] = field(default_factory=dict)


@dataclass(frozen=True)
class _Part:
    """What a jaxpr does for some of its outputs."""

    inputs: Sequence[int]
    """Of each input, whether it is needed."""
    saved: frozenset[int]
    """Numbers of the values that it is given instead of computing them again."""
    work: Work
    residuals: Residuals


@dataclass(frozen=True)
class Figures:
    """What a gradient does, and what its scans save."""

    work: Work
    residuals: Residuals
    names: Set[str]
    """Of what is stacked."""


class Derived:
    """A gradient under the plans of some scans."""

    def __init__(self, jaxpr: Any, loss: Any, carried: Set[str]) -> None:
        """Take the jaxpr of a gradient without dead code, as `NamedApart` evaluated its loss.

        Args:
            jaxpr: open.
            loss: its jaxpr.
            carried: names of what bodies of scans carry.

        Raises:
            UnknownError: a value is named where it is unknown what an output needs.
        """
        self._carried = carried
        self._values: list[_Value] = []
        self._numbers: dict[str, int] = {}
        self._directions = Directions(jaxpr, loss)
        self._body = self._read(jaxpr, is_again=False, lengths=(), is_stacked=False)

    def figures(self, saved: Set[str], offloaded: Set[str]) -> Figures:
        """Return what a plan does, by the names that it saves on the device and on the host.

        Raises:
            UnknownError: the forward pass does not compute what it saves, or it moves what JAX
                stacks in part on the device.
        """
        names = [one.name for one in self._values]
        cuts = frozenset(at for at, name in enumerate(names) if name in saved or name in offloaded)
        part = self._part(self._body, (1,) * len(self._body.outputs), cuts, frozenset())
        device = host = 0
        stacked: set[str] = set()
        for at in part.saved:
            size = self._values[at].stacked_bytes
            is_moved = names[at] in offloaded
            if size is None or (is_moved and self._values[at].is_divided):
                raise UnknownError
            if is_moved:
                host += size
            else:
                device += size
            if size:
                stacked.add(names[at])
        return Figures(part.work, part.residuals + Residuals(device, host), stacked)

    # -- Reading -----------------------------------------------------------------------------------

    def _read(
        self, jaxpr: Any, *, is_again: bool, lengths: tuple[int, ...], is_stacked: bool
    ) -> _Body:
        """Return a jaxpr.

        Args:
            jaxpr: open.
            is_again: whether it is computed again.
            lengths: of the scans around it.
            is_stacked: whether a forward scan is around it.
        """
        numbers: dict[Any, int] = {}

        def number(var: Any) -> int:
            if is_literal(var):
                return _LITERAL
            return _DROPPED if is_dropped(var) else numbers.setdefault(var, len(numbers))

        eqns = []
        for eqn in jaxpr.eqns:
            one = _Eqn(
                [number(var) for var in eqn.invars],
                [number(var) for var in eqn.outvars],
                has_effects(eqn),
            )
            again = is_again or RECOMPUTED in str(eqn.source_info.name_stack)
            self._fill(one, eqn, again, lengths, is_stacked)
            eqns.append(one)
        inputs = [number(var) for var in jaxpr.invars]
        outputs = [number(var) for var in jaxpr.outvars]
        own = {one.value for one in eqns if one.value is not None}
        values = own.union(*(body.values for one in eqns for body in one.inside))
        return _Body(len(numbers), inputs, outputs, eqns, frozenset(values))

    def _fill(
        self, one: _Eqn, eqn: Any, again: bool, lengths: tuple[int, ...], is_stacked: bool
    ) -> None:
        """Read what kind of equation one is."""
        name = kind(eqn)
        inner = list(inner_jaxprs(eqn))
        own = parameters(eqn).get("name", "") if name in NAMES else ""
        if _APART in own:
            one.value, one.is_cut = self._value(own), again
            if not again:
                value = self._values[one.value]
                if value.stacked_bytes is not None:
                    raise UnknownError
                size = aval_bytes(eqn.outvars[0].aval) * math.prod(lengths)
                value.stacked_bytes = size if lengths else 0
                value.is_divided = len(lengths) > 1 and value.name in self._carried
                one.forward = frozenset([one.value])
            return
        is_forward = self._directions.is_forward(eqn)
        if name == "scan":
            lengths = (*lengths, int(eqn.params["length"]))
            stop = len(eqn.invars) - len(stacked_inputs(eqn))
            one.carry = stop - carried(eqn), stop
            if is_forward and not is_stacked:
                ys = eqn.outvars[carried(eqn) :]
                one.stacks = [*[Residuals()] * carried(eqn), *map(Residuals.of, ys)]
        is_through = name in _THROUGH and [len(jaxpr.invars) for jaxpr in inner] == [
            len(one.inputs)
        ]
        bodies = [
            self._read(jaxpr, is_again=again, lengths=lengths, is_stacked=is_stacked or is_forward)
            for jaxpr in inner
        ]
        if is_through or name in ("scan", "cond"):
            one.inside, one.times = bodies, repetitions(eqn)
            one.is_choice = name == "cond"
            one.forward = frozenset().union(*(eqn.forward for body in bodies for eqn in body.eqns))
        elif any(body.values for body in bodies):
            raise UnknownError
        else:
            one.work = equation_work(eqn)
            if not is_stacked:
                one.residuals = sum(map(self._directions.residuals, inner), Residuals())

    def _value(self, name: str) -> int:
        """Return the number of a value by the name of its own."""
        if name not in self._numbers:
            self._numbers[name] = len(self._values)
            self._values.append(_Value(name.partition(_APART)[0]))
        return self._numbers[name]

    # -- What is needed ----------------------------------------------------------------------------

    def _part(
        self,
        body: _Body,
        needed: Sequence[int],
        cuts: frozenset[int],
        wanted: frozenset[int],
    ) -> _Part:
        """Return what a jaxpr does for some of its outputs.

        Args:
            body: the jaxpr.
            needed: of each output, whether it is needed.
            cuts: what is saved, if it is needed.
            wanted: of what is named and not computed again, what is saved.
        """
        key = tuple(needed), cuts & body.values, wanted & body.values
        if key in body.known:
            return body.known[key]
        live = bytearray(body.size + 2)  # the last two are those of literals, and of nothing
        for at, is_needed in zip(body.outputs, needed, strict=True):
            live[at] |= is_needed
        saved = set[int]()
        work, residuals = Work(), Residuals()
        for eqn in reversed(body.eqns):
            needs = [live[at] for at in eqn.outputs]
            if not (any(needs) or eqn.is_kept) and (
                not eqn.forward or eqn.forward.isdisjoint(wanted | saved)
            ):
                continue
            if eqn.is_cut and eqn.value in cuts:
                assert eqn.value is not None
                saved.add(eqn.value)
                continue
            if not eqn.inside:
                for at in eqn.inputs:
                    live[at] = 1
                if eqn.work.count:
                    work += eqn.work
                residuals += eqn.residuals
                continue
            part = self._within(eqn, needs, cuts, wanted | saved)
            for at, is_needed in zip(eqn.inputs, part.inputs, strict=True):
                live[at] |= is_needed
            saved |= part.saved
            work += part.work
            residuals += part.residuals
        inputs = [live[at] for at in body.inputs]
        made = body.known[key] = _Part(inputs, frozenset(saved), work, residuals)
        return made

    def _within(
        self, eqn: _Eqn, needs: list[int], cuts: frozenset[int], wanted: frozenset[int]
    ) -> _Part:
        """Return what an equation with jaxprs in it does for some of its outputs."""
        if eqn.is_choice:
            parts = [self._part(body, needs, cuts, wanted) for body in eqn.inside]
            most = max((part.work for part in parts), key=lambda work: work.operations)
            unknown = frozenset[str]().union(*(part.work.unknown for part in parts))
            return _Part(
                [1, *map(max, zip(*(part.inputs for part in parts), strict=True))],
                frozenset[int]().union(*(part.saved for part in parts)),
                replace(most, unknown=unknown),
                sum((part.residuals for part in parts), Residuals()),
            )
        (body,) = eqn.inside
        start, stop = eqn.carry
        while True:
            part = self._part(body, needs, cuts, wanted)
            carry = [max(pair) for pair in zip(needs, part.inputs[start:stop], strict=False)]
            if carry == needs[: len(carry)]:
                break
            needs = [*carry, *needs[len(carry) :]]
        stacked = (one for one, is_needed in zip(eqn.stacks, needs, strict=False) if is_needed)
        return replace(
            part, work=part.work.times(eqn.times), residuals=sum(stacked, part.residuals)
        )
