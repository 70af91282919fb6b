"""The records that the parts of `bufdb fit` share; pure data, without JAX.

    inside      a function and its arguments → `Program`; a `Plan` → `Traced`, `Compiled`
    search      `Program`, `SearchRequest` → `Candidate`s, in the order of their work
    patch       `Program`, a `Plan`, the text of the files → `Patch`
    fit         all of it → `Answer`

Invariant: every record is JSON by `bufdb.fitting.records`, and back, since the user's code runs in
a process of its own.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

# -- Where: expressions of the user's files --------------------------------------------------------


class Site(NamedTuple):
    """An expression in a user's file; positions are those of `ast`."""

    file: str
    """Absolute path."""
    line: int
    """First line, from 1."""
    column: int
    """Bytes of UTF-8 on the first line before it."""
    end_line: int
    """Last line, from 1."""
    end_column: int
    """Bytes of UTF-8 on the last line before its end."""
    function: str = ""
    """Qualified name of the function around it, as `Block.__call__` or `loss.<locals>.body`."""


@dataclass(frozen=True)
class Switch:
    """A value that can be saved, moved or computed again."""

    name: str
    """The name in `checkpoint_name(…, name)`, such as `fit_0`; unique in a program."""
    site: Site
    """The expression around which the patch puts the name, that computes it for others."""
    regions: tuple[int, ...]
    """Indices of the scan regions in which it occurs."""
    saved_bytes: int
    """Bytes that saving it takes over all iterations, if nothing else is saved in its place."""
    is_named: bool = False
    """Whether the source has the name already: the patch leaves the expression alone."""
    lever: str = "saved"
    """Name of the lever that it belongs to."""
    argument: str = ""
    """Name of the parameter, if it is what a body is given; `site` is the `def` line then."""


@dataclass(frozen=True)
class Region:
    """A part of the program that a plan treats in one way."""

    kind: Literal["scan", "call"]
    """`scan`: the body of a scan, by a policy of names. `call`: calls of one user's function."""
    sites: tuple[Site, ...]
    """`scan`: the call that runs the scan, such as `jax.lax.scan(body, x, ws)`, or `stack(…)(x)`
    of flax, in which case the transform is elsewhere. `call`: each call of the function."""
    function: str
    """Qualified name of the body, or of the function that is called."""
    defined: Site | None
    """`def` line of that function, columns 0, if it is in a user's file."""
    count: int
    """Iterations of the scan, or calls, in one trace."""
    owner: Literal["", "linen", "nnx", "equinox"] = ""
    """Library of the module whose method it is."""
    module: str = ""
    """Name of the module's class; '' if it is a plain function."""
    remats: tuple[Site, ...] = ()
    """Existing checkpoints in it: calls of what `jax.checkpoint` or `nn.remat` gave. Plans are
    computed without them: a patch replaces or removes them."""
    has_products: bool = False
    """Whether products without a name are in it, all of a call, and in a scan those of a custom_vjp
    or a cond: `with_dots` may spare these."""
    lift: Literal["", "nnx", "linen", "haiku"] = ""
    """`call`: library whose own checkpoint the calls need, since they change its state."""
    parameters: tuple[str, ...] = ()
    """Names of the function's positional parameters, in order."""
    arrays: tuple[str, ...] = ()
    """`call`: parameters that were arrays, or trees of arrays, in every call."""
    statics: tuple[str, ...] = ()
    """`call`: parameters that were something else in every call, which can be hashed."""
    held: tuple[str, ...] = ()
    """Parameters that hold modules with such state; '' is one of them if the closure does."""
    order: tuple[Site, ...] = ()
    """`call`: where each call is made, in their order; () if two of them are one trace, or if
    several calls evaluate one of these expressions."""
    sizes: tuple[int, ...] = ()
    """`call`: bytes that each of `order` computes, where they differ; () if calls are alike."""
    length: int = 0
    """`scan`: iterations, if the scan runs once and forward; else 0."""
    is_stretch: bool = False
    """`call`: whether it is statements of `function`, at `sites`, and not all of it."""
    within: tuple[int, ...] = ()
    """Indices of the regions around all of it."""
    within_at: tuple[tuple[int, ...], ...] = ()
    """`call`: the same of what is made at each of `sites`, in their order."""

    @property
    def layers(self) -> int:
        """Return how many calls or iterations may be in part as a plan has them; 0 if none."""
        return self.length if self.kind == "scan" else len(self.order)


# -- What: plans and the program they are plans of -------------------------------------------------


@dataclass(frozen=True)
class Depth:
    """How far a plan goes into a region of equal layers: the others need more, and less work."""

    region: int
    count: int
    """Of the first calls or iterations that are as the plan has the region."""
    saved: tuple[str, ...] = ()
    """`scan`: names that the other iterations save."""
    offloaded: tuple[str, ...] = ()
    """`scan`: names that the other iterations save in host memory."""
    with_dots: bool = False
    """`call`: whether the others are checkpoints, too, that save their products; else they stay as
    written."""


@dataclass(frozen=True)
class Plan:
    """What to change. Default: nothing, the function as written."""

    scans: tuple[int, ...] = ()
    """Indices of the scan regions that get a policy; others stay as they are written."""
    saved: tuple[str, ...] = ()
    """Names of the switches that are saved in these; of a region those that occur in it count."""
    offloaded: tuple[str, ...] = ()
    """Names that are saved in host memory; none is in `saved`."""
    with_dots: tuple[int, ...] = ()
    """Indices of regions, scans or calls, where `dots_saveable` is saved, too."""
    calls: tuple[int, ...] = ()
    """Indices of the call regions that are checkpointed, saving nothing (but see `with_dots`),
    where they are not within others of these."""
    nested: tuple[int, ...] = ()
    """Those of `calls` that are checkpoints within others of these, too."""
    depths: tuple[Depth, ...] = ()
    """Of regions that are only in part as the plan has them."""
    donated: tuple[int, ...] = ()
    """Numbers of the arguments to donate, besides those that are donated as written."""
    extra: tuple[str, ...] = ()
    """Changes of the program's text that only `--also` tries, such as `microbatch=2`."""
    options: tuple[str, ...] = ()
    """Options of the compiler, such as `xla_gpu_memory_limit_slop_factor=10`."""

    def __hash__(self) -> int:
        return self._hash

    @functools.cached_property
    def _hash(self) -> int:
        """A search looks a plan up some hundred times."""
        fields = dataclasses.fields(self)
        return hash(tuple(getattr(self, field.name) for field in fields))

    @property
    def is_as_written(self) -> bool:
        """Return whether nothing changes."""
        return self == Plan()

    @property
    def names(self) -> set[str]:
        """Return the names that it keeps somewhere, on the device or in host memory."""
        others = (name for one in self.depths for name in (*one.saved, *one.offloaded))
        return {*self.saved, *self.offloaded, *others}

    def sites(self, at: int, region: Region) -> tuple[Site, ...]:
        """Return the calls of a region, whose index is `at`, that are checkpoints."""
        around = region.within_at or (region.within,) * len(region.sites)
        pairs = zip(region.sites, around, strict=True)
        is_all = at in self.nested
        return tuple(site for site, some in pairs if is_all or not set(some) & set(self.calls))

    def depth(self, region: int) -> Depth | None:
        """Return how far it goes into a region; None: to its end."""
        return next((one for one in self.depths if one.region == region), None)

    @functools.cached_property
    def free(self) -> Plan:
        """Return the part of it that costs no work, which no trace shows."""
        return Plan(donated=self.donated)

    @functools.cached_property
    def as_traced(self) -> Plan:
        """Return the plan without what no trace shows.

        That is donations, options of the compiler, and limits of kernels.
        """
        extra = tuple(key for key in self.extra if not key.startswith("vmem="))
        return dataclasses.replace(self, donated=(), options=(), extra=extra)


@dataclass(frozen=True)
class Traced:
    """What a trace says of the program under a plan."""

    residual_bytes: int
    """What scans save in their forward pass for their backward pass, over all iterations."""
    live_bytes: int
    """Highest sum of live values in the order of the equations; without fusion: a ranking. 0 if the
    trace is derived, which none is of a program with calls, whose plans alone are ranked so."""
    work: int
    """Floating-point operations of products, loops counted."""
    product_count: int
    """Products, loops counted: dot_general, conv_general_dilated, ragged_dot, custom calls."""
    unknown: tuple[str, ...] = ()
    """What is not in `work`, in words, such as `while_loop of unknown length (train.py:14)`."""
    host_bytes: int = 0
    """What goes to host memory, and back, while the function runs once."""
    saved: tuple[str, ...] | None = None
    """Those of the plan's `saved` that are saved in effect: the same plan with these alone has the
    same trace, and less to patch. None if unknown."""
    handed_bytes: int = 0
    """What the forward pass computes and the backward pass reads, if functions are called several
    times; else 0."""


@dataclass(frozen=True)
class Compiled:
    """What a compilation says of the program under a plan."""

    need_bytes: int | None
    """What a device must hold, as bufdb has it of the module; None if XLA planned no memory."""
    peak_bytes: int | None
    """Highest sum of live bytes; None if unknown."""
    is_full: bool
    """Whether at full effort: only then these are figures to show."""
    seconds: float
    fixed_bytes: int | None = None
    """What is there for all of the execution, such as arguments and outputs; None if unknown."""
    operation_count: int | None = None
    """Operations of products in the optimized program, through loops; None if unknown."""
    estimated_cycles: int | None = None
    """The compiler's own estimate, through loops, which TPU has; None if unknown."""
    accessed_bytes: int | None = None
    """What instructions of the optimized program read and write in device memory, through loops, as
    the view `instruction_traffic` has it; None if unknown."""
    accessed_unknown_reason: str | None = None
    """Why `accessed_bytes` is None, if the dump has HLO text."""
    run: str | None = None
    """Name of the stored run."""
    refusal: str | None = None
    """XLA's message if it gave up."""


def is_met(compiled: Compiled | None, limit: int | None) -> bool:
    """Return whether a compiled plan fits a limit that there is."""
    if limit is None or compiled is None or compiled.refusal is not None:
        return False
    return compiled.need_bytes is not None and compiled.need_bytes <= limit


Gives = Literal["wide", "each", "mean", "sum", "max", "min", "same", ""]
"""What an expression gives: a wide value, one of each example first, a number of all; '' else."""


@dataclass(frozen=True)
class Expression:
    """An expression of a loss, by the equations that it alone makes."""

    site: Site
    gives: Gives
    is_member: bool
    """Whether it makes, or reduces, the wide value."""
    is_part: bool
    """Whether each part of the batch can compute it for itself."""
    why_not: str = ""
    """What of it a part cannot compute, if there is something."""
    is_joined: bool = False
    """Whether what it gives is that of parts of the batch, joined."""


OfBatch = Literal["batch", "same", "mixed", "size", "unclear"]
"""What of the batch a name has."""


@dataclass(frozen=True)
class Local:
    """A name of a function, or an item of it as in `batch['labels']`."""

    text: str
    has: OfBatch
    """The batch as the leading axis, in all of it or in some; or a number that grows with it."""


@dataclass(frozen=True)
class Callee:
    """A function that makes a wide value last, of what else it computes."""

    site: Site
    """The call of it among the expressions."""
    expressions: tuple[Expression, ...]
    names: tuple[Local, ...]


@dataclass(frozen=True)
class Head:
    """A method of a framework's module that makes a wide value of its only argument."""

    site: Site
    """The call among the expressions in which it is called."""
    library: str
    """The framework's module with `intercept_methods`, such as `flax.linen`."""
    attribute: str
    """Of its modules: what a module is called."""
    module: str
    """Its value, as text of Python."""
    method: str


@dataclass(frozen=True)
class Parts:
    """Lines that compute each part of an axis by itself."""

    first: Site
    """The expression that makes the value whose parts are computed one at a time."""
    last: Site
    """That of what is computed of it last."""
    axes: tuple[tuple[str, int], ...]
    """Of the names that the lines read, those with the axis."""
    axis: int
    """Of what `last` gives."""
    scores_axis: int
    """Of what `first` gives in the equations."""
    count: int


@dataclass(frozen=True)
class Change:
    """A change of the program's text that `--also` tries."""

    key: str
    """As in `Plan.extra`, such as `microbatch=2`."""
    what: str
    """In a few words, with file and line."""
    step: str
    """What to do by hand."""
    where: str
    """File and lines of it."""
    ground: str
    """Why it computes the same: what was compared, or what is assumed."""
    sites: tuple[Site, ...] = ()
    """The expressions there."""
    count: int = 0
    """Of parts."""
    batch: tuple[str, ...] = ()
    """Names of the function's parameters that have the batch, if an edit may take its gradient."""
    devices: int = 1
    """Over how many devices the batch is sharded."""
    expressions: tuple[Expression, ...] = ()
    """Of the function that has all of it, if an edit may put some of them into a function."""
    names: tuple[Local, ...] = ()
    """Those of that function."""
    callee: Callee | None = None
    """A function that is called there, and makes the wide value."""
    head: Head | None = None
    """A module that is called there, and makes the wide value."""
    parts: tuple[Parts, ...] = ()
    """Lines that an edit puts into functions of a part."""
    spelling: str = ""
    """Name of what an edit calls, as the version of JAX has it."""
    obstacle: str = ""
    """Why no edit makes it; '' if one may."""
    within: str = ""
    """Key of the change for whose parts of the batch it is; '' for the batch itself."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return what a plan has as its `extra` with this change."""
        return (self.within, self.key) if self.within else (self.key,)

    @property
    def sentence(self) -> str:
        """Return the change and its ground in one line."""
        return f"{self.what}; {self.ground}"


@dataclass(frozen=True)
class Changes:
    """The changes that `--also` tries, and in words why others are not tried."""

    tried: tuple[Change, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Program:
    """A function as traced: what can be switched in it."""

    function: str
    """FILE.py:FUNCTION, or the function's name."""
    target: str | None
    platform: Literal["cpu", "gpu", "tpu"]
    regions: tuple[Region, ...]
    switches: tuple[Switch, ...]
    donatable: tuple[int, ...]
    """Numbers of arguments that are not donated and whose buffers an output could take; where all
    or none are donated, those that go with them, too."""
    argument_names: tuple[str, ...]
    """Names of the positional arguments, as the function has them."""
    has_host_memory: bool
    """Whether the target has host memory to offload to."""
    has_cheap_effort: bool
    """Whether a compilation at low effort orders plans as one at full effort does."""
    as_written: Traced
    function_site: Site | None = None
    """`def` line of the function; None if it is not in a file."""
    is_jitted: bool = False
    """Whether the function is a `jax.jit` already."""
    is_filtered: bool = False
    """Whether that is by `eqx.filter_jit`."""
    lost: tuple[str, ...] = ()
    """Names of arguments that go with `donatable`, and that the program may read after the call."""
    notes: tuple[str, ...] = ()
    """What could not be taken, in words."""
    changes: tuple[Change, ...] = ()
    """Those that `--also` tries."""
    on_demand: tuple[str, ...] = ()
    """Kinds of changes of the text that `--also` could try."""
    score_work: int = 0
    """Operations of the products that make scores of attention, which its parts make again."""
    score_bytes: int = 0
    """Bytes of these scores, over all layers."""

    @functools.cached_property
    def scans(self) -> tuple[int, ...]:
        """Return the indices of the scan regions."""
        return tuple(i for i, region in enumerate(self.regions) if region.kind == "scan")

    @functools.cached_property
    def calls(self) -> tuple[int, ...]:
        """Return the indices of the call regions."""
        return tuple(i for i, region in enumerate(self.regions) if region.kind == "call")

    @functools.cached_property
    def switched(self) -> tuple[int, ...]:
        """Return the indices of the scan regions that have a switch."""
        used = {index for switch in self.switches for index in switch.regions}
        return tuple(index for index in self.scans if index in used)

    def changes_of(self, plan: Plan) -> list[Change]:
        """Return the changes of the program's text in a plan."""
        chosen = [change for change in self.changes if change.key in plan.extra]
        inner = {one.key for one in chosen if one.within in plan.extra}
        return [one for one in chosen if (one.within in plan.extra) == (one.key in inner)]


# -- The search's side -----------------------------------------------------------------------------


class Learned(NamedTuple):
    """What a plan needs that was compiled."""

    plan: Plan
    away: frozenset[Any]
    """The atoms that it gives up."""
    need_bytes: int
    hoped_bytes: int | None = None
    """Its estimate, if that was too large and it was compiled in hope of less."""


SURE = 6
"""Compilations of a search that are kept for nothing else."""


@dataclass(frozen=True)
class SearchRequest:
    """What `search.search(program, request)` may do.

    `search` returns the candidates that are shown, cheapest first; each whose `compiled` has
    `is_full` is exact. It stops when `is_over` says so, or after as many compilations as `budget`
    has.
    """

    limit_bytes: int | None
    """None: the frontier."""
    as_written: Compiled
    """Compiled at full effort."""
    trace: Callable[[Plan], Traced]
    """About a second each; the same plan again costs nothing."""
    compile: Callable[[Plan, bool], Compiled]
    """Compile a plan, at full effort or not; the same again costs nothing and does not count."""
    compile_budget: int = 12
    """Compilations, that of the function as written not counted."""
    resort_budget: int = 0
    """Of these, what is left to options of the compiler while no plan fits, if enough are left."""
    trace_budget: int = 600
    order: str = "products"
    """Cost that ranks the plans; only a compilation has another one than products."""
    is_by_hand: Callable[[Plan], bool] = lambda plan: False
    """Whether only a step by hand divides the layers as a plan does: such plans are not tried."""
    known: Sequence[Learned] = ()
    """What earlier questions compiled, if it is enough to choose by; to compile one of these again
    takes no compiler."""
    before: Sequence[Learned] = ()
    """The plans that earlier questions compiled: where one fits, no answer costs more."""
    is_kept: Callable[[Plan], bool] = lambda plan: False
    """Whether the dump of such a plan is kept: to compile it takes no compiler then."""
    learn: Callable[[Learned], object] = lambda one: None
    """Receives what is compiled, for later questions."""
    is_over: Callable[[], bool] = lambda: False
    """Whether the time is up."""
    observer: Callable[[str], None] = lambda text: None
    """Receives the current step in words."""

    def budget(self, *, fits: bool) -> int:
        """Return how many compilations the search may do, by whether a plan fits."""
        budget = self.compile_budget
        return budget if fits else max(budget - self.resort_budget, min(budget, SURE))


@dataclass(frozen=True)
class Candidate:
    """A plan, with what is known of it."""

    plan: Plan
    traced: Traced
    estimate_bytes: int
    """Need by trace, anchored on the nearest compiled plan."""
    compiled: Compiled | None = None
    error_ratio: float | None = None
    """Largest error so far of such estimates, of those compiled; None if none was."""
    is_explored: bool = False
    """Whether the plans among which to choose were traced to the end."""

    @property
    def is_exact(self) -> bool:
        """Return whether its need is that of a compilation at full effort."""
        return self.compiled is not None and self.compiled.is_full

    def fits(self, limit: int | None) -> bool:
        """Return whether it is known to fit a limit that there is."""
        return self.is_exact and is_met(self.compiled, limit)


# -- The patch's side ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Patch:
    """A plan as a change of the user's files.

    `patch.patch(program, plan, texts)` makes it, `texts` being the text of each file by its path.
    """

    diff: str
    """Unified diff that `git apply` takes; '' if there is nothing to edit safely."""
    texts: dict[str, str]
    """The new text of each changed file, by its absolute path."""
    steps: tuple[str, ...] = ()
    """In words, with file and line, what could not be edited safely; the diff lacks these."""

    @property
    def is_whole(self) -> bool:
        """Return whether the diff is all of the plan."""
        return not self.steps and bool(self.diff)


# -- The answer ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanResult:
    """A row of the answer; its fields are those of `plans` in `--format json`."""

    rank: int
    """From 1, in the order of extra work, or of another cost (`Answer.order`)."""
    is_compiled: bool
    """Whether the need is that of a compilation, not the estimate of a trace."""
    is_verified: bool
    """Whether the patched files make the program of the plan, or were compiled, too, and need the
    same to the byte."""
    need_bytes: int | None
    """As compiled where `is_compiled`, else the estimate of the trace."""
    peak_bytes: int | None
    extra_work_ratio: float | None
    """Work of products beyond that of the function as written, by the latter; None if unknown.

    By traces; with options of the compiler by the optimized programs."""
    recomputed_lines: tuple[str, ...]
    """Such as `train.py:14`."""
    offloaded_lines: tuple[str, ...]
    donated: tuple[str, ...]
    """Names of arguments."""
    fits: bool | None
    """None without a limit."""
    error_ratio: float | None = None
    """Error so far of estimates; None where `is_compiled`."""
    is_broken: bool = False
    """Whether the patched files cannot be compiled, or need more than the limit: no answer."""
    run: str | None = None
    """Name of the stored run."""
    patch: str | None = None
    steps: tuple[str, ...] = ()
    saves: tuple[str, ...] = ()
    """What it saves and not every plan that computes the same lines again does, such as
    `train.py:14:9 jnp.tanh(h)`, with the column from 1; empty where no other has these lines."""
    changes: tuple[str, ...] = ()
    """What `--also` changes in the program's text, and why it computes the same."""
    offloaded_bytes: int = 0
    """What goes to host memory, and back, while the function runs once."""
    gap_ratio: float | None = None
    """Cost beyond the least of any choice of these values and layers that saves as many bytes, by
    traces, by the work as written; bytes to the host count as work. None where calls that are
    unlike, or in each other, are regions; or if not all choices were traced."""
    gap_unknown_reason: str = ""
    """Why `gap_ratio` is None."""
    is_least: bool = False
    """Whether no choice that was traced saves fewer bytes on the device, where traces have them."""
    estimated_cycles: int | None = None
    """The compiler's own estimate of one run, through loops, which TPU has; None if unknown."""
    extra_cycles_ratio: float | None = None
    """The same beyond that of the function as written, by the latter; None if unknown."""
    accessed_bytes: int | None = None
    """What the program reads and writes in device memory, as `Compiled` has it."""
    extra_accessed_ratio: float | None = None
    """The same beyond that of the function as written, by the latter; negative where a plan reads
    and writes less; None if unknown."""
    options: tuple[str, ...] = ()
    """Options of the compiler."""
    depths: tuple[str, ...] = ()
    """Which calls or iterations alone are changed, such as `the first 4 of 8 calls at a.py:9`."""
    plan: Plan = Plan()

    @property
    def is_whole(self) -> bool:
        """Return whether the patch is all of the plan."""
        return bool(self.patch) and not self.steps


@dataclass(frozen=True)
class Answer:
    """The whole answer of `bufdb fit`."""

    program: Program
    limit_bytes: int | None
    as_written: Compiled
    plans: tuple[PlanResult, ...]
    best: int | None
    """Rank of the first plan that fits, one without a step by hand before one with; None if none,
    or if the function fits as it is written."""
    patch: str | None
    """Of the best plan."""
    compile_count: int
    trace_count: int
    notes: tuple[str, ...] = ()
    is_complete: bool = True
    """Whether the search came to its end; False if the time was up or it was interrupted before."""
    is_interrupted: bool = False
    order: str = "products"
    """Cost that ranks the plans."""
    by_hand: int | None = None
    """Rank of the cheapest plan with a step by hand, if it fits at a lower cost than the best."""
    before_count: int = 0
    """Those of `compile_count` that earlier calls made."""
    untried: tuple[str, ...] = ()
    """Kinds of changes of `--also` that may apply and were not asked for, if nothing fits."""

    @property
    def fits_as_written(self) -> bool:
        """Return whether nothing has to change."""
        need = self.as_written.need_bytes
        if self.as_written.refusal is not None:
            return False
        return need is not None and (self.limit_bytes is None or need <= self.limit_bytes)
