"""What `--also` tries of a function: its batch, the changes for parts of it, and their check."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

from bufdb.capture.target import jax_module
from bufdb.fitting.editing import Editing
from bufdb.fitting.edits import Refused
from bufdb.fitting.gradients import Gradient
from bufdb.fitting.heads import Headed
from bufdb.fitting.jax_inside import Changed
from bufdb.fitting.lever import Lever
from bufdb.fitting.plans import Change, Changes, Site
from bufdb.fitting.precise import precise
from bufdb.fitting.reader import Reader
from bufdb.fitting.rewrites import CHECKED, Pair, compared, paired
from bufdb.fitting.wide import Place, Watched


class Replaying(Protocol):
    """A loss under a plan, evaluated again (`bufdb.fitting.replay.Replay`)."""

    def run(self, closed: Any, inputs: Sequence[Any]) -> list[Any]:
        """Return the outputs of a closed jaxpr."""

    def some(self, eqns: Sequence[Any], read: Sequence[Any], env: dict[Any, Any]) -> None:
        """Evaluate some equations of a jaxpr, in no scan of it."""


Made = Callable[[Replaying], Changed]
"""What a change makes of a loss."""


MOST_PARTS = 16
"""Into how many parts a batch is divided at most: each more is a step of a loop with less in it."""


def divided(size: int) -> list[int]:
    """Return up to three numbers of equal parts, each twice the one before or more: 2, 4, 8 of 16.

    Of 15 examples 3 and 15, of 11 all; none of 17, or of one.
    """
    counts: list[int] = []
    for count in range(2, min(size, MOST_PARTS) + 1):
        if size % count == 0 and count >= 2 * (counts[-1] if counts else 1):
            counts.append(count)
    return counts[:3]


class Rewrite(Lever):
    """A lever that changes the program's text, on demand, for parts of the batch."""

    assumed: ClassVar[str]
    """What it assumes where nothing is run to check it, in words."""
    is_first_enough: ClassVar[bool] = False
    """Whether the first number of parts that is possible is the only one to try."""

    is_inner: ClassVar[bool] = False
    """Whether it can be made of each part that another one makes."""

    def counts(self, size: int) -> Sequence[int]:
        """Return into how many parts a batch is divided, in the order in which they are tried."""
        return divided(size)

    def change(self, also: Also, count: int, within: Change | None = None) -> Change:
        """Return the change for a number of parts, with what it makes of each loss in `also`.

        Args:
            also: the losses.
            count: of the parts.
            within: a change for whose parts it is; None for the whole batch.

        Raises:
            Refused: it cannot be made, or would compute something else.
        """
        raise NotImplementedError

    def edit_one(self, editing: Editing, change: Change) -> None:
        """Make the edit of a change: by default it is a step by hand."""
        editing.steps.append(f"{change.where}: by hand, {change.step}")

    def edit(self, editing: Editing) -> None:
        """Make the edits of the plan's changes of this lever."""
        for change in editing.program.changes_of(editing.plan):
            if change.key.partition("=")[0] == self.name:
                self.edit_one(editing, change)


@dataclass(frozen=True)
class Batch:
    """The arguments whose leading axis is the batch."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    names: tuple[str, ...]
    chosen: frozenset[tuple[int | str, int]]
    """Positions and names of these arguments, each with the number of an array in it."""
    size: int
    devices: int = 1
    """Over how many devices it is sharded."""

    def at(self, size: int, *, is_sharded: bool) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return all arguments for another size of the batch."""
        jax = jax_module()

        def leaf(one: Any) -> Any:
            if not getattr(one, "shape", ()) or _is_key(one):
                return one
            sharding = one.sharding if is_sharded and is_placed(one) else None
            return jax.ShapeDtypeStruct((size, *one.shape[1:]), one.dtype, sharding=sharding)

        def resized(at: int | str, one: Any) -> Any:
            leaves, tree = jax.tree.flatten(one)
            if all((at, number) not in self.chosen for number in range(len(leaves))):
                return one
            return tree.unflatten(
                leaf(each) if (at, number) in self.chosen else each
                for number, each in enumerate(leaves)
            )

        args = tuple(resized(at, one) for at, one in enumerate(self.args))
        return args, {name: resized(name, one) for name, one in self.kwargs.items()}


def batch(
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    names: Sequence[str],
    losses: Sequence[Gradient],
) -> Batch:
    """Return the arguments that have the batch: arrays of one leading size, and no parameters.

    An argument with an array like one that is differentiated has parameters, or their state.

    Args:
        args: of the function.
        kwargs: the same by name.
        names: of the arguments.
        losses: of the function.

    Raises:
        Refused: there are none, or they have several sizes.
    """
    taken = {_signature(var.aval) for one in losses for var in one.closed.jaxpr.invars}
    arguments: dict[int | str, Any] = dict([*enumerate(args), *kwargs.items()])
    sizes: dict[tuple[int | str, int], int] = {}
    for at, one in arguments.items():
        leaves = {
            number: leaf
            for number, leaf in enumerate(jax_module().tree.leaves(one))
            if getattr(leaf, "shape", ()) and not _is_key(leaf)
        }
        own = {number for number, leaf in leaves.items() if _signature(leaf) in taken}
        if own:
            continue
        leading = {number: int(leaf.shape[0]) for number, leaf in leaves.items()}
        if len({*leading.values()}) > 1:
            what = _name(at, names)
            raise Refused(
                f"arrays of argument {what} have leading axes {_listed({*leading.values()})}"
            )
        sizes |= {(at, number): size for number, size in leading.items() if number not in own}
    if not sizes:
        raise Refused("no argument has a batch as its leading axis")
    by_name = {_name(at, names): size for (at, _), size in sizes.items()}
    if len({*sizes.values()}) > 1:
        each = ", ".join(f"{name} {size}" for name, size in by_name.items())
        raise Refused(f"the leading axes of the arguments are not one batch ({each})")
    size = next(iter(sizes.values()))
    devices = max(_shards(jax_module().tree.leaves(arguments[at])[number]) for at, number in sizes)
    if size % devices or not divided(size // devices):
        where = f" on each of {devices} devices" if devices > 1 else ""
        raise Refused(f"the batch of {size} has no equal parts{where}")
    return Batch(tuple(args), kwargs, tuple(by_name), frozenset(sizes), size, devices)


def _name(at: int | str, names: Sequence[str]) -> str:
    return names[at] if isinstance(at, int) else at


def _listed(sizes: set[int]) -> str:
    return " and ".join(map(str, sorted(sizes)))


def _signature(one: Any) -> tuple[tuple[int, ...], str]:
    return tuple(one.shape), str(one.dtype)


def _shards(leaf: Any) -> int:
    """Return over how many devices the leading axis of an array is sharded."""
    shape = tuple(getattr(leaf, "shape", ()))
    if not shape or not is_placed(leaf):
        return 1
    return int(shape[0] // leaf.sharding.shard_shape(shape)[0])


def is_placed(leaf: Any) -> bool:
    """Return whether an array is on a mesh."""
    return isinstance(getattr(leaf, "sharding", None), jax_module().sharding.NamedSharding)


def _is_key(leaf: Any) -> bool:
    """Return whether an array is a key of random numbers, which has no batch."""
    jax = jax_module()
    is_typed = jax.numpy.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return bool(is_typed) or _signature(leaf) == ((2,), "uint32")


class Also:
    """The changes of a function that `--also` tries, prepared and checked."""

    def __init__(
        self,
        record: Callable[[tuple[Any, ...], dict[str, Any]], list[Gradient]],
        reader: Reader,
        in_batch: Batch,
        losses: Sequence[Gradient],
        step: Any,
    ) -> None:
        """Take what traces the function for other arguments, its losses, and its own jaxpr."""
        self._record = record
        self.reader = reader
        self.batch = in_batch
        self.losses = losses
        self.step = step
        self._known: dict[tuple[int, bool], list[Gradient]] = {}
        self._grounds: dict[tuple[str, tuple[int, ...]], str] = {}
        self.made: dict[tuple[str, ...], Sequence[Made]] = {}
        """By the keys of changes, what they make of each loss."""
        self.around: dict[str, Callable[[int, Made], Made]] = {}
        """By the key of a change, what it makes of a loss with another change of each part."""

    def changes(self, kind: Rewrite, within: Change | None = None) -> list[Change]:
        """Return the changes of a kind, of the batch or of the parts of another change.

        Raises:
            Refused: there is none, or it would compute something else.
        """
        changes: list[Change] = []
        refusals: dict[int, str] = {}
        size = self.size(within)
        own = 0 if size % self.batch.devices else size // self.batch.devices
        for count in kind.counts(own):
            try:
                changes.append(kind.change(self, count, within))
            except Refused as error:  # a batch of one may be another program
                refusals[count] = str(error)
            if kind.is_first_enough and changes:
                break
        if not changes:
            none = f"a batch of {size} has no equal parts"
            raise Refused(refusals[min(refusals)] if refusals else none)
        return changes

    def size(self, within: Change | None = None) -> int:
        """Return the size of the batch, or of a part that a change makes of it."""
        return self.batch.size // (1 if within is None else within.count)

    def each(self, size: int) -> str:
        """Return in words what a part of the batch has."""
        devices = self.batch.devices
        more = f", {size // devices} from each of {devices} devices" if devices > 1 else ""
        return f"of {size} each{more}"

    def _at(self, size: int, *, is_check: bool = False) -> list[Gradient]:
        """Return the losses for another size of the batch.

        Raises:
            Refused: the function cannot be traced for it.
        """
        kept = self._known.get((size, is_check))
        if kept is None:
            args, kwargs = self.batch.at(size, is_sharded=not is_check)
            try:
                kept = self._record(args, kwargs)
            except Exception as error:  # whatever the user's code raises
                why = f"it cannot be traced for a batch of {size}: {_said(error)}"
                raise Refused(why) from error
            self._known[size, is_check] = kept
        return kept

    def watched(self, size: int, where: Place) -> Watched:
        """Return what the names of a function of the user's have, for a size of the batch."""
        args, kwargs = self.batch.at(size, is_sharded=True)
        with Watched(where).watching() as watched:
            self._record(args, kwargs)
        return watched

    def headed(self, size: int, count: int) -> Headed:
        """Return the modules that make a value of a count of elements, for a size of the batch."""
        args, kwargs = self.batch.at(size, is_sharded=True)
        with Headed(count).watching() as headed:
            self._record(args, kwargs)
        return headed

    def _pairs(
        self, full: Sequence[Gradient], part: Sequence[Gradient], count: int, devices: int
    ) -> list[Pair]:
        if len(full) != len(part):
            raise Refused("another size of the batch is another program")
        return [paired(one, other, count, devices) for one, other in zip(full, part, strict=True)]

    def pairs(self, count: int, within: Change | None = None) -> list[Pair]:
        """Return each loss with that of one of `count` parts, of the batch or of a part of it."""
        size = self.size(within)
        full = self.losses if within is None else self._at(size)
        return self._pairs(full, self._at(size // count), count, self.batch.devices)

    # -- The check ---------------------------------------------------------------------------------

    def checked(
        self, kind: Rewrite, chosen: Sequence[int], change: Callable[[Pair], Changed]
    ) -> str:
        """Return on which ground the changes of a kind compute the same, in two parts or more.

        Raises:
            Refused: they do not.
        """
        key = kind.name, tuple(chosen)
        if key not in self._grounds:
            self._grounds[key] = self._ground(kind, chosen, change)
        return self._grounds[key]

    def _ground(
        self, kind: Rewrite, chosen: Sequence[int], change: Callable[[Pair], Changed]
    ) -> str:
        why = kind.assumed
        try:
            full, part = (
                [precise(one) for one in self._at(size, is_check=True)]
                for size in (CHECKED, CHECKED // 2)
            )
            pairs = self._pairs(full, part, 2, min(2, self.batch.devices))
            changed = {at: change(pairs[at]) for at in chosen}
        except Exception as error:  # whatever the user's code and JAX raise
            return f"{why}: not checked, since {_said(error)}"
        try:
            grounds = [compared(full[at], as_written, run) for at, run in changed.items()]
        except Refused:
            raise
        except Exception as error:  # such as a kernel that a CPU does not have
            return f"{why}: not checked, since it does not run here: {_said(error)}"
        return grounds[0] if all(grounds) else f"{why}: too large to check here"


def _within(
    kinds: Sequence[Rewrite],
    also: Also,
    changes: Sequence[Change],
    trace: Callable[[Mapping[tuple[str, ...], Sequence[Made]], Change], object],
) -> list[Change]:
    """Return changes of the parts that other ones make, of kinds that change the batch, too."""
    known = {change.key.partition("=")[0] for change in changes}
    inner = [kind for kind in kinds if kind.is_inner and kind.name in known]
    more: list[Change] = []
    for outer in changes:
        for kind in inner if outer.key in also.around else ():
            with suppress(Exception):  # a small part may be another program
                some = also.changes(kind, outer)
                for change in some:
                    trace(also.made, change)
                more += some
    return more


def _said(error: Exception) -> str:
    """Return an exception in one line."""
    lines = str(error).strip().splitlines() or [""]
    return lines[0] if isinstance(error, Refused) else f"{type(error).__name__}: {lines[0]}"


def as_planned(replay: Replaying) -> Changed:
    """Return a loss that no change is made of."""
    return replay.run


def as_written(closed: Any, inputs: Sequence[Any]) -> list[Any]:
    """Return what a loss gives as it is written."""
    return list(jax_module().core.eval_jaxpr(closed.jaxpr, closed.consts, *inputs))


def applicable(pairs: Sequence[Pair], look: Callable[[Pair], None]) -> tuple[list[int], str]:
    """Return the numbers of the losses that a change takes, and why it takes the last other one."""
    chosen, why = [], ""
    for at, pair in enumerate(pairs):
        try:
            look(pair)
        except Refused as error:
            why = str(error)
        else:
            chosen.append(at)
    return chosen, why


def places(sites: Sequence[Site]) -> str:
    """Return lines of files in words, such as `train.py:14,16`."""
    lines: dict[str, dict[int, None]] = {}
    for site in sorted(sites):
        lines.setdefault(Path(site.file).name, {})[site.line] = None
    return " ".join(f"{name}:{','.join(map(str, some))}" for name, some in lines.items())


def tried(
    kinds: Sequence[Rewrite],
    make: Callable[[], Also],
    trace: Callable[[Mapping[tuple[str, ...], Sequence[Made]], Change], object],
) -> Changes:
    """Return the changes of some kinds; notes say why others are not tried.

    Args:
        kinds: in the order of the answer.
        make: finds the batch.
        trace: traces the function with a change, by what the changes make of each loss.
    """
    changes: list[Change] = []
    notes = []
    also = None
    for kind in kinds:
        try:
            also = make() if also is None else also
            some = also.changes(kind)
            for change in some:
                trace(also.made, change)
        except Exception as error:  # Refused, and what JAX raises for a loss of another kind
            notes.append(f"--also {kind.name}: {_said(error)}")
        else:
            changes += some
    if also is not None:
        changes += _within(kinds, also, changes, trace)
    return Changes(tuple(changes), tuple(notes))
