"""What can be switched in a loss: scans and their values that cross expressions, repeated calls.

A survey only reads jaxprs. What it finds is keyed by where it was written, since a plan is applied
to a later trace of the same program, whose jaxprs are other objects.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bufdb.fitting.counting import (
    REMATS,
    aval_bytes,
    equation_work,
    inner_jaxprs,
    kind,
    repetitions,
)
from bufdb.fitting.jax_inside import SHARD_MAPS, State
from bufdb.fitting.lever import Lever, Value
from bufdb.fitting.levers import LEVERS
from bufdb.fitting.plans import Region, Site, Switch
from bufdb.fitting.reader import SCAN, CallKey, Key, Reader, ScanKey
from bufdb.fitting.stretches import Stretch

ATOMIC = ("custom_vjp_call", "custom_vjp_call_jaxpr", "cond")
"""Names of the primitives within which nothing can be named."""
DOT = "dot_general"
"""Name of the primitive that `dots_saveable` saves."""
PARTS = ("slice", "dynamic_slice", "squeeze", "reshape")
"""Names of the primitives that take a part of a value, such as a layer's of all parameters."""
LEAST_SHARE, MOST_SHARE = 0.05, 0.9
"""A function that is called once is a region if it computes such a share of the bytes of losses: of
less there is little to save, and a checkpoint of nearly all has all of it again at once."""
CUSTOM = ("custom_vjp", "custom_jvp")
"""Beginnings of the names of the primitives of functions that have their own derivative."""


@dataclass
class _Found:
    """A region while it is being found."""

    key: Key
    sites: dict[Site, set[Key]] = field(default_factory=dict)
    """Each with the keys of the regions around everything that is made there."""
    instances: set[Any] = field(default_factory=set)
    count: int = 0
    function: str = ""
    defined: Site | None = None
    remats: dict[Site, None] = field(default_factory=dict)
    has_products: bool = False
    around: set[Key] | None = None
    """Keys of the regions around everything seen of it."""
    order: dict[Any, tuple[int, Site, Any]] = field(default_factory=dict)
    """By call, its rank among those of the function, where it is made, and in which other call."""
    sizes: Counter[Any] = field(default_factory=Counter)
    """By call, bytes that its equations compute."""
    computed: int = 0
    """Bytes that the equations of all calls compute, without parts of values."""
    stretch: Stretch | None = None
    """The first one, if it is one of statements."""
    length: int = 0
    """Iterations of a scan that runs forward and was seen once, else 0."""


class Survey:
    """Regions and switches of the losses of a program."""

    def __init__(self, reader: Reader, losses: Sequence[Any]) -> None:
        self._reader = reader
        self._found: dict[Key, _Found] = {}
        self._values: dict[Value | str, _Switch] = {}
        self._computed = 0
        """Bytes that the losses compute outside of scans, without parts of values."""
        for number, closed in enumerate(losses):
            self._walk(closed.jaxpr, 1, (), (number,))
        alone = self._repeated_alone()
        self._found = {
            key: one
            for key, one in self._found.items()
            if self._is_region(one) and (one.stretch is None or self._is_worth(one, alone))
        }
        keys = sorted(self._found, key=lambda key: (key[0] != SCAN, min(self._found[key].sites)))
        self.index: dict[Key, int] = {key: at for at, key in enumerate(keys)}
        self.regions = tuple(self._region(self._found[key]) for key in keys)
        self.switches = tuple(self._switches())
        self._names = {(one.site, one.argument): one.name for one in self.switches}
        closed = (one for loss in losses for one in self._closed(loss.jaxpr, ""))
        self.closed = {site: name for site, name in closed if ("scan", site) not in self.index}
        """The scans that are no regions, since a `custom_vjp` or `custom_jvp` is around them."""

    def _is_region(self, noted: _Found) -> bool:
        """Return whether what is found is a region: of calls, those of a function with several.

        One that is called once is a region where it computes much, and there is no scan, whose
        values are the better choice.
        """
        if noted.key[0] == SCAN or len(noted.instances) > 1:
            return True
        share = noted.computed / max(self._computed, 1)
        return LEAST_SHARE <= share <= MOST_SHARE and self._is_unrolled

    @functools.cached_property
    def _is_unrolled(self) -> bool:
        return all(key[0] != SCAN for key in self._found)

    def _is_worth(self, noted: _Found, alone: Mapping[Key, int]) -> bool:
        """Return whether a stretch of statements can be a region, and no call is the better one.

        That is not so next to a scan, or where calls of one function are nearly all of it; nor for
        names that hold more than arrays and are changed. In a function that several calls run only
        the body of a loop is one.
        """
        assert noted.stretch is not None
        state = self._reader.calls.state(noted.key[1][0], noted.key[1][2])
        names = [*state.results.items(), *((n, state.kinds.get(n)) for n in state.results)]
        is_known = bool(names) and all(kinds in ({"arrays"}, None) for _, kinds in names)
        is_known &= all(kinds == {"arrays"} for kinds in state.taken.values())
        around = (self._found[key] for key in noted.around or ())
        calls = max((len(one.instances) for one in around if one.stretch is None), default=1)
        is_repeated = noted.stretch.is_loop and len(noted.instances) > calls
        share = noted.computed / max(self._computed, 1)
        return (
            is_known
            and "" not in state.held
            and (calls == 1 or is_repeated)
            and self._is_unrolled
            and share >= LEAST_SHARE
            and alone.get(noted.key, 0) <= MOST_SHARE * noted.computed
        )

    def _repeated_alone(self) -> dict[Key, int]:
        """Return by stretch the most bytes that calls of one function compute within it."""
        most: dict[Key, int] = {}
        for one in self._found.values():
            for key in one.around or ():
                if key[0] != SCAN and one.stretch is None and self._found[key].stretch is not None:
                    most[key] = max(most.get(key, 0), one.computed)
        return most

    def region_of(self, key: Key | None) -> int | None:
        """Return the index of a region by its key."""
        return None if key is None else self.index.get(key)

    def name_of(self, value: Value) -> str | None:
        """Return the name of a switch whose value gets its name from a plan; None if it has one."""
        return None if value.name is not None else self._names.get((value.site, value.argument))

    def narrow(self, kept: Sequence[int]) -> None:
        """Keep some regions, which get new numbers, and the switches that occur in them."""
        order = {at: new for new, at in enumerate(kept)}

        def among(numbers: Iterable[int]) -> tuple[int, ...]:
            return tuple(order[at] for at in numbers if at in order)

        self.index = {key: order[at] for key, at in self.index.items() if at in order}
        self.regions = tuple(
            replace(
                self.regions[at],
                within=among(self.regions[at].within),
                within_at=tuple(map(among, self.regions[at].within_at)),
            )
            for at in kept
        )
        narrowed = (replace(one, regions=among(one.regions)) for one in self.switches)
        self.switches = tuple(one for one in narrowed if one.regions)

    # -- One walk over all jaxprs ------------------------------------------------------------------

    def _walk(
        self, jaxpr: Any, times: int, around: tuple[Key, ...], place: tuple[Any, ...]
    ) -> None:
        """Read a jaxpr that runs `times` times within some regions."""
        is_scanned = any(key[0] == SCAN for key in around)
        if is_scanned:
            self._read_values(jaxpr, times, around)
        for at, eqn in enumerate(jaxpr.eqns):
            here = around if is_scanned else (*around, *self._read_calls(eqn, around, place))
            if not is_scanned:
                self._computed += _new_bytes(eqn)
            self._note(eqn, here)
            key = self._reader.scan_key(eqn)
            if key is not None:
                self._read_scan(eqn, key, times, here)
            is_branch = eqn.primitive.name == "cond"
            if key is None and not is_branch and not self._is_open(eqn):
                continue
            inside = here if key is None else (*here, key)
            for number, inner in enumerate(inner_jaxprs(eqn)):
                if is_branch and is_scanned:
                    self._walk_scans(inner, times, here)
                else:
                    self._walk(inner, times * repetitions(eqn), inside, (*place, at, number))

    def _closed(self, jaxpr: Any, around: str) -> Iterator[tuple[Site, str]]:
        """Yield the outermost scans within functions of `CUSTOM`, each with what is around it."""
        for eqn in jaxpr.eqns:
            key = self._reader.scan_key(eqn)
            if key is not None and around:
                yield key[1], around
                continue
            own = next((name for name in CUSTOM if kind(eqn).startswith(name)), around)
            for inner in inner_jaxprs(eqn):
                yield from self._closed(inner, own)

    def _is_open(self, eqn: Any) -> bool:
        """Return whether what is in an equation can be named, or be called, as if it were not."""
        return kind(eqn) in (*REMATS, *SHARD_MAPS) or self._reader.nested(eqn) is not None

    def _note(self, eqn: Any, around: Sequence[Key]) -> None:
        """Note for the regions around an equation that they have a checkpoint, or products."""
        name, site = kind(eqn), self._reader.site(eqn)
        if site is None and around and around[-1][0] == SCAN:
            site = around[-1][1]  # the body itself is a checkpoint
        for key in around:
            noted = self._found[key]
            if name in REMATS and site is not None:
                noted.remats[site] = None
            elif name in ATOMIC and not noted.has_products:
                noted.has_products = equation_work(eqn).count > 0
            elif name == DOT and key[0] != SCAN:
                noted.has_products = True

    def _walk_scans(self, jaxpr: Any, times: int, around: tuple[Key, ...]) -> None:
        """Read the scans within a cond of a scan: its own values cannot be named."""
        for eqn in jaxpr.eqns:
            key = self._reader.scan_key(eqn)
            if key is not None:
                self._read_scan(eqn, key, times, around)
                for inner in inner_jaxprs(eqn):
                    self._walk(inner, times * repetitions(eqn), (key,), ())

    def _read_calls(
        self, eqn: Any, around: tuple[Key, ...], place: tuple[Any, ...]
    ) -> list[CallKey]:
        """Note the calls around an equation; return their functions, outermost first."""
        keys: list[CallKey] = []
        caller = None
        for key, instance, site in self._reader.chain(eqn):
            stretch = self._reader.calls.stretch(instance) if isinstance(instance, int) else None
            within = caller
            caller = instance if stretch is None else caller
            if key in keys or key in around:  # of a recursion the outermost
                continue
            noted = self._found.setdefault(key, _Found(key))
            noted.instances.add((place, instance))
            noted.count = len(noted.instances)
            noted.computed += _new_bytes(eqn)
            if isinstance(instance, int):
                noted.stretch = stretch
                noted.order[instance] = self._reader.calls.rank(instance), site, within
                noted.sizes[instance] += _computed_bytes(eqn)
            file, noted.function, line = key[1]
            if noted.stretch is None:
                noted.defined = Site(file, line, 0, line, 0, noted.function)
            self._nest(noted, site, (*around, *keys))
            keys.append(key)
        return keys

    def _read_scan(self, eqn: Any, key: ScanKey, times: int, around: tuple[Key, ...]) -> None:
        noted = self._found.setdefault(key, _Found(key))
        is_simple = not noted.count and times == 1 and not eqn.params.get("reverse", False)
        noted.count += times * repetitions(eqn)
        noted.length = noted.count if is_simple else 0
        if not noted.function:
            noted.function, noted.defined = self._reader.body(next(inner_jaxprs(eqn)))
        for lever in LEVERS:
            self._note_values(
                lever, lever.inputs(self._reader, eqn), times * repetitions(eqn), [key]
            )
        self._nest(noted, key[1], around)

    def _nest(self, noted: _Found, site: Site, around: Sequence[Key]) -> None:
        noted.around = set(around) if noted.around is None else noted.around & set(around)
        noted.sites[site] = noted.sites.get(site, set(around)) & set(around)

    def _read_values(self, jaxpr: Any, times: int, around: tuple[Key, ...]) -> None:
        scans = [key for key in around if key[0] == SCAN]
        for lever in LEVERS:
            self._note_values(lever, lever.values(self._reader, jaxpr), times, scans)

    def _note_values(
        self, lever: Lever, values: Mapping[Any, Value], times: int, scans: Sequence[Key]
    ) -> None:
        for var, value in values.items():
            switch = self._values.setdefault(value.name or value, _Switch(lever, value))
            switch.scans.update(dict.fromkeys(scans))
            switch.saved_bytes += times * aval_bytes(var.aval)

    # -- Records of it -----------------------------------------------------------------------------

    def _region(self, noted: _Found) -> Region:
        owner, module = _owner(noted)
        state = State()
        if noted.key[0] == "call":
            state = self._reader.calls.state(noted.key[1][0], noted.key[1][2])
        calls = _in_order(noted)
        sizes = tuple(noted.sizes[instance] for instance, _ in calls)
        return Region(
            kind="scan" if noted.key[0] == SCAN else "call",
            sites=tuple(sorted(noted.sites)),
            function=noted.function,
            defined=noted.defined,
            count=noted.count,
            owner=owner,
            module=module,
            remats=tuple(sorted(noted.remats)),
            has_products=noted.has_products,
            lift=state.library,
            parameters=state.parameters,
            arrays=state.only("arrays"),
            statics=state.only("static"),
            held=tuple(sorted(state.held)),
            is_stretch=noted.stretch is not None,
            order=tuple(site for _, site in calls),
            sizes=sizes if len(set(sizes)) > 1 else (),
            length=noted.length,
            within=self._numbers(noted.around or ()),
            within_at=tuple(self._numbers(noted.sites[site]) for site in sorted(noted.sites))
            if noted.key[0] == "call"
            else (),
        )

    def _numbers(self, keys: Iterable[Key]) -> tuple[int, ...]:
        return tuple(sorted(self.index[key] for key in keys if key in self.index))

    def _switches(self) -> Iterator[Switch]:
        taken = {one.value.name for one in self._values.values() if one.value.name is not None}
        number = 0
        for one in sorted(self._values.values(), key=lambda one: one.value.site):
            name = one.value.name
            if name is None and one.value.argument:
                name = f"{one.value.argument}_in"
                while name in taken:
                    name += "_"
                taken.add(name)
            while name is None:
                if f"fit_{number}" not in taken:
                    name = f"fit_{number}"
                number += 1
            yield Switch(
                name=name,
                site=one.value.site,
                regions=tuple(sorted(self.index[key] for key in one.scans)),
                saved_bytes=one.saved_bytes,
                is_named=one.value.name is not None,
                lever=one.lever.name,
                argument=one.value.argument,
            )


@dataclass
class _Switch:
    """A switch while it is being found."""

    lever: Lever
    value: Value
    scans: dict[Key, None] = field(default_factory=dict)
    saved_bytes: int = 0


def _computed_bytes(eqn: Any) -> int:
    return sum(aval_bytes(var.aval) for var in eqn.outvars)


def _new_bytes(eqn: Any) -> int:
    """Return the bytes that an equation computes; none where it takes a part of a value."""
    return 0 if eqn.primitive.name in PARTS else _computed_bytes(eqn)


def _in_order(noted: _Found) -> list[tuple[Any, Site]]:
    """Return the calls of a function in order, and where they are; none if some are the same one.

    The calls of a function that is jitted are traced once, and so are those within it. Where
    several calls evaluate one expression, each would have its own first iterations.
    """
    ranked = sorted((rank, call, site) for call, (rank, site, _) in noted.order.items())
    is_known = [rank for rank, *_ in ranked] == list(range(noted.count))
    callers = {(site, caller) for _, site, caller in noted.order.values()}
    is_known &= len(callers) == len({site for site, _ in callers})
    return [(call, site) for _, call, site in ranked] if is_known else []


def _owner(noted: _Found) -> tuple[Literal["", "linen", "nnx", "equinox"], str]:
    """Return library and class of the module whose method a function is; '' if it is none."""
    if noted.defined is None:
        return "", ""
    parts = noted.function.split(".")
    if len(parts) < 2 or "<locals>" in parts:
        return "", ""
    for module in list(sys.modules.values()):
        if getattr(module, "__file__", None) == noted.defined.file:
            kind: Any = module
            for part in parts[:-1]:
                kind = getattr(kind, part, None)
            for base in getattr(kind, "__mro__", ()):
                library = _MODULES.get((base.__module__.split(".")[0], base.__name__))
                is_nnx = base.__module__.startswith("flax.nnx")
                if library is not None:
                    return ("nnx" if is_nnx else library), parts[-2]
    return "", ""


_MODULES: dict[tuple[str, str], Literal["linen", "equinox"]] = {
    ("flax", "Module"): "linen",
    ("equinox", "Module"): "equinox",
}
