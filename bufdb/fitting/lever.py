"""A lever: a kind of change that `bufdb fit` tries, in one record.

    find     values, inputs, matters, offered        what of it a function has
    trace    part, checkpoint, jitted                the function with it
    price    atoms, planned, free, moves, cost       plans with it, and its cost besides products
    edit     edit                                    the change of the user's files
    words    results, compared, words                what an answer says of it

Survey, replay, search, patch and answer know no kind of change: each runs these methods of all of
them. `bufdb.fitting.levers` lists them, one module each; the first two groups of methods run in
the process that has JAX, the others do without it. What a method does not know it passes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from bufdb.fitting.editing import Editing
from bufdb.fitting.plans import Plan, PlanResult, Program, Region, Site, Switch, Traced
from bufdb.fitting.reader import Key, Reader


class Value(NamedTuple):
    """Where a value of a scan's body was written, so that it can get a name."""

    site: Site
    name: str | None = None
    """The name that the source gives it; None if none."""
    argument: str = ""
    """The parameter that it is of, if it is given to the body; `site` is the `def` line then."""


class Atom(NamedTuple):
    """A part of a plan that can be given up: less memory, and more work or none."""

    lever: str
    name: str = ""
    regions: tuple[int, ...] = ()
    """Where it is; a scan among them gets a policy once it is given up."""


@dataclass(frozen=True)
class Trial:
    """A function while its program is made."""

    name: str
    function: Any
    """As the user has it, or as a library's jit that is read as one of JAX."""
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    outputs: Sequence[Any]
    """Leaves of its results, with shape and dtype."""
    is_alone: bool
    """Whether its gradient is taken alone, so that nothing else of it is compiled."""
    platform: Literal["cpu", "gpu", "tpu"]
    regions: Sequence[Region]
    switches: Sequence[Switch]
    trace: Callable[[Plan], Traced]
    written: Traced
    notes: list[str]
    """Receives in words what a lever cannot do."""


class Lever:
    """A kind of change; a method that it does not have changes nothing."""

    name: ClassVar[str] = ""
    is_lean: ClassVar[bool] = True
    """Whether a plan has less to edit if it gives up an atom; one without effect is given up then,
    and else kept."""
    is_compared: ClassVar[bool] = False
    """Whether the losses of its patched files must be those as written, equation by equation."""

    # -- Find --------------------------------------------------------------------------------------

    def values(self, reader: Reader, jaxpr: Any) -> Mapping[Any, Value]:
        """Return the values of a jaxpr in a scan's body that are switches, or get names."""
        return {}

    def inputs(self, reader: Reader, eqn: Any) -> Mapping[Any, Value]:
        """Return what is given to the body of a scan and is a switch, by the body's variables."""
        return {}

    def matters(self, trial: Trial, at: int) -> bool:
        """Return whether a plan of this lever can change something at a region."""
        return False

    def offered(self, trial: Trial, program: Program) -> Program:
        """Return a program with what this lever needs to know of the function and the target."""
        return program

    # -- Trace -------------------------------------------------------------------------------------

    def part(
        self, reader: Reader, region_of: Callable[[Key, Site], int | None], plan: Plan, eqn: Any
    ) -> tuple[int, Any] | None:
        """Return the region of a plan that an equation outside of scans is in, and which run."""
        return None

    def checkpoint(
        self, reader: Reader, plan: Plan, part: tuple[int, Any], run: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Return what runs in the place of a run of a region, as `part` returned it."""
        return run

    def jitted(self, function: Any, plan: Plan, name: str) -> Any:
        """Return the function, jitted as a plan needs it; `name` is for messages."""
        return function

    # -- Price -------------------------------------------------------------------------------------

    def atoms(self, program: Program) -> Sequence[Atom]:
        """Return the parts of a plan that can be given up: without more, this lever's switches."""
        own = [one for one in program.switches if one.lever == self.name]
        return [Atom(self.name, one.name, one.regions) for one in own]

    def planned(
        self, program: Program, plan: Plan, given_up: Sequence[Atom], kept: Sequence[Atom]
    ) -> Plan:
        """Return a plan, whose `scans` are known, with some atoms of this lever given up."""
        return plan

    def free(self, program: Program, plan: Plan) -> Plan:
        """Return a plan with what costs no work; it is in every plan if it saves something."""
        return plan

    def moves(self, program: Program, atom: Atom) -> bool:
        """Return whether a value that is given up can go to host memory instead."""
        return False

    def between(self, program: Program, cheap: Plan, dear: Plan, share: float) -> Plan | None:
        """Return a plan between two that differ in one region of equal layers.

        Args:
            program: what they are plans of.
            cheap: does less work again, and needs more.
            dear: does more, and needs less.
            share: of the layers that are at least to be as in `dear`.

        Returns:
            The plan; None if there is no layer between the two, or they differ elsewhere.
        """
        return None

    def cost(self, traced: Traced) -> int:
        """Return what a plan costs besides its products, in operations."""
        return 0

    # -- Edit --------------------------------------------------------------------------------------

    def edit(self, editing: Editing) -> None:
        """Make the edits of a plan."""

    # -- Words -------------------------------------------------------------------------------------

    def results(self, program: Program, plan: Plan, traced: Traced) -> Mapping[str, Any]:
        """Return the fields of `PlanResult` that this lever knows."""
        return {}

    def compared(
        self, rows: Sequence[PlanResult], program: Program, texts: Mapping[str, str]
    ) -> Sequence[PlanResult]:
        """Return the rows of an answer with what a row alone does not know."""
        return rows

    def words(self, row: PlanResult) -> Sequence[str]:
        """Return what a plan changes, in a few words each."""
        return ()
