"""The least limit of vector memory with which a kernel compiles, found by compiling.

With everything that a TPU has as the limit, the compiled program says what each kernel uses. That
much is compiled as the limit, and one byte less, which the compiler refuses: so nothing in between
is to be searched.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher

from bufdb.fitting.levers.vmem import LIMIT, MOST, Vmem, limited
from bufdb.fitting.plans import Candidate, Change, Compiled, Plan, Program, SearchRequest, Site
from bufdb.fitting.space import free
from bufdb.read.amount import amount_of
from bufdb.render.text import human_bytes

VMEM = Vmem.name
REFUSED = re.compile(r"Scoped allocation with size \S+ and limit (\S+) exceeded scoped vmem limit")
"""What the compiler says of a kernel that needs more than its limit; the size is that so far."""
_CAPACITY = re.compile(r"Used \S+ of \S+ vmem\b")
"""What it says of a program that needs more than there is, whatever its limits."""
_ALL = (
    f"no {LIMIT} makes it compile, as all vector memory is not enough; smaller blocks, or fewer, "
    "would do"
)
_NOT_WHY = "no kernel's limit is why XLA gives up the function as written"
_UNKNOWN = f"whether another {LIMIT} would do is unknown"
_OTHER = "a kernel needs more than its limit, which may be one that no edit reaches"
_STEPS = 3
"""Limits above what the compiled kernel uses that are tried, each twice the one before."""


@dataclass
class VectorMemory:
    """Compiles a function with other limits of its kernels."""

    program: Program
    request: SearchRequest
    widen: Callable[[Change], Program]
    """Adds a change to the program whose plans are compiled, and returns it."""
    used: Callable[[Plan], Mapping[str, int]]
    """Returns what the kernels of a compiled plan use, by file and line as written [bytes]."""
    is_left: Callable[[], bool]
    """Whether there is a compilation left."""
    notes: list[str]
    """Receives in words what came of it."""
    by_hand: Callable[[Change], Sequence[str]]
    """Returns the steps by hand of a change; () if an edit makes it."""

    def with_found(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Return candidates with a plan of the least limit, if kernels need more than theirs."""
        change = next((one for one in self.program.changes if one.key.startswith(VMEM)), None)
        if change is None:
            return list(candidates)
        written = self.request.as_written.refusal
        refusal = REFUSED.search(written or "")
        if refusal is None:
            why = "as written no kernel needs more than its limit"
            if written is not None:
                why = _ALL if _CAPACITY.search(written) else _NOT_WHY
            self.notes.append(f"--also {VMEM}: {why}")
            return list(candidates)
        steps = {site: self._steps(site, change.spelling) for site in change.sites}
        edited = tuple(site for site in change.sites if not steps[site])
        others = "; ".join(dict.fromkeys(step for some in steps.values() for step in some))
        if not edited:
            self.notes.append(f"--also {VMEM}: {_UNKNOWN}: {others}")
            return list(candidates)
        if others:
            self.notes.append(f"--also {VMEM}: the limit of the other kernels alone: {others}")
            change = limited(edited, change.count, change.spelling)
        self.request.observer("compiling with all vector memory for the kernels")
        plan, compiled = self._compile(change)
        if compiled is None or compiled.refusal is not None or compiled.need_bytes is None:
            is_one_left = others and compiled is not None and REFUSED.search(compiled.refusal or "")
            why = f"{_UNKNOWN}: {_OTHER}" if is_one_left else _why_none(compiled)
            self.notes.append(f"--also {VMEM}: {why}")
            return list(candidates)
        used = self.used(plan)
        sizes = {site: used.get(f"{site.file}:{site.line}", 0) for site in change.sites}
        largest = max(sizes.values())
        least = self._least(change, _needing(sizes, refusal[1]), largest) if largest else None
        if least is None:
            self.notes.append(f"{change.what} compiles; the least that does was not found")
        return [*candidates, self._candidate(plan, compiled) if least is None else least]

    def _steps(self, site: Site, spelling: str) -> tuple[str, ...]:
        """Return the steps by hand of the kernel at a site."""
        return tuple(self.by_hand(limited((site,), MOST, spelling)))

    def _least(self, change: Change, sites: tuple[Site, ...], used: int) -> Candidate | None:
        """Return the plan of the least limit for kernels at some sites; None if none compiles."""
        limit = used
        for _ in range(_STEPS):
            one = limited(sites, limit, change.spelling)
            self.request.observer(f"compiling with {one.what}")
            plan, compiled = self._compile(one)
            if compiled is None:
                return None
            if compiled.refusal is None and compiled.need_bytes is not None:
                self._prove(one, used)
                return self._candidate(plan, compiled)
            limit *= 2
        return None

    def _prove(self, change: Change, used: int) -> None:
        """Compile with one byte less, and note what came of it."""
        limit, where = change.count, change.where
        text = f"the kernel at {where} uses"
        if len(change.sites) > 1:
            text = f"the kernels at {where} use up to"
        text += f" {human_bytes(used)} of vector memory ({used} bytes)"
        _, compiled = self._compile(limited(change.sites, limit - 1, change.spelling))
        refusal = None if compiled is None else compiled.refusal
        if refusal is not None and REFUSED.search(refusal):
            self.notes.append(f"{text}: with {LIMIT} one byte lower the program does not compile")
        elif compiled is None:
            self.notes.append(f"{text}; whether a lower {LIMIT} does was not tried")
        else:
            self.notes.append(f"{text}: the program needs {LIMIT} of at most {limit} to compile")

    def _compile(self, change: Change) -> tuple[Plan, Compiled | None]:
        """Return a plan, compiled; None if no compilation is left."""
        self.program = self.widen(change)
        plan = replace(free(self.program), donated=(), extra=(change.key,))
        if not self.is_left():
            return plan, None
        kept = len(self.notes)
        compiled = self.request.compile(plan, True)
        del self.notes[kept:]  # what XLA gives up here is a question, not a plan
        return plan, compiled

    def _candidate(self, plan: Plan, compiled: Compiled) -> Candidate:
        return Candidate(plan, self.program.as_written, compiled.need_bytes or 0, compiled)


def _why_none(compiled: Compiled | None) -> str:
    """Return why there is no plan after a compilation with all vector memory."""
    if compiled is None:
        return f"{_UNKNOWN}, as no compilation is left"
    refusal = compiled.refusal or "the compiler planned no memory"
    if REFUSED.search(refusal) or _CAPACITY.search(refusal):
        return f"{_ALL}: {refusal}"
    return f"{_UNKNOWN}: {refusal}"


def _needing(sizes: Mapping[Site, int], limit: str) -> tuple[Site, ...]:
    """Return the sites of kernels that use more than a limit, as the compiler prints it.

    Where none does, that of the largest.
    """
    amount = amount_of(limit)
    allowed = 0 if amount is None else amount.size_bytes - amount.slack_bytes
    some = tuple(site for site, size in sizes.items() if size > allowed)
    return some or (max(sizes, key=lambda site: sizes[site]),)


def lines_before(old: str, new: str) -> dict[int, int]:
    """Return lines of a text, from 1, by those of the text that edits made of it."""
    matcher = SequenceMatcher(None, old.splitlines(), new.splitlines(), autojunk=False)
    return {
        to + at: begin + at
        for tag, begin, end, to, stop in matcher.get_opcodes()
        if tag == "equal" or end - begin == stop - to
        for at in range(1, end - begin + 1)
    }
