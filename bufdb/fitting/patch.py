"""A plan as a change of the user's files, by public names of JAX and flax alone.

    names       `checkpoint_name(EXPRESSION, "name")` around what is saved
    scans       a policy of these names at the scan, at an existing checkpoint, or of flax
    calls       `jax.checkpoint(lambda: CALL)()`, or the same of the library whose state changes
    donations   `donate_argnums` at the jit
    changes     a helper around a gradient that takes it in microbatches

Invariant: what cannot be edited safely is a step in words, with file and line, and no edit.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bufdb.fitting import checkpoints, transforms
from bufdb.fitting.batching import in_microbatches
from bufdb.fitting.edits import Refused, Render, unified_diff
from bufdb.fitting.places import place
from bufdb.fitting.plans import Change, Patch, Plan, Program, Region, Site
from bufdb.fitting.source import Source

NAME = ("jax.ad_checkpoint", "checkpoint_name")
NAMED = (ast.Call, ast.BinOp, ast.UnaryOp, ast.Subscript, ast.Attribute, ast.IfExp, ast.Compare)
"""Expressions that compute what they are worth; a bare name computes nothing."""
OPERATORS = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.MatMult: "@", ast.Pow: "**",
    ast.FloorDiv: "//", ast.Mod: "%", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.LShift: "<<", ast.RShift: ">>",
}  # fmt: skip
LONGEST = 60
"""Characters of an expression that a step repeats."""


def patch(program: Program, plan: Plan, texts: Mapping[str, str], root: str = "") -> Patch:
    """Return a plan as a change of files.

    Args:
        program: what the plan is of.
        plan: what to change.
        texts: text of each of the user's files by its path, line ends as they are.
        root: folder to which the paths in the diff are relative; the files' common one if empty.
    """
    work = _Work(program, plan, texts)
    work.all()
    new = work.results()
    changed = {path: text for path, text in new.items() if text != texts[path]}
    base = root or _common(changed)
    diff = "".join(
        unified_diff(texts[path], text, Path(os.path.relpath(path, base)).as_posix())
        for path, text in sorted(changed.items())
    )
    return Patch(diff, changed, tuple(work.steps))


def _common(paths: Iterable[str]) -> str:
    """Return the working folder if it holds all paths, else the folder that does."""
    folders = [os.path.dirname(path) for path in paths]  # noqa: PTH120
    here = str(Path.cwd())
    if not folders or os.path.commonpath([here, *folders]) == here:
        return here
    return os.path.commonpath(folders)


@dataclass
class _Work:
    """The edits of a plan, made one after another."""

    program: Program
    plan: Plan
    texts: Mapping[str, str]
    steps: list[str] = field(default_factory=list)
    sources: dict[str, Source] = field(default_factory=dict)

    def all(self) -> None:
        plan, program = self.plan, self.program
        wanted = {*plan.saved, *plan.offloaded}
        named = set()
        for switch in program.switches:
            is_there = any(index in plan.scans for index in switch.regions)
            if switch.name in wanted and is_there and not switch.is_named:
                what = f'checkpoint_name(…, "{switch.name}")'
                site = switch.site
                if site not in named:
                    self._try(site, f"put {what} around", self._name, site, switch.name)
                    named.add(site)
        for index in plan.scans:
            region = program.regions[index]
            policy = self._policy(index)
            for site in region.sites:
                how = f"give the scan's body {policy('jax')}"
                self._try(site, how, self._scan, region, site, policy)
            for site in set(region.remats) - set(region.sites):
                how = "remove the checkpoint of"
                self._try(site, how, self._unwrap, region, site)
        for index in self._outermost():
            region = program.regions[index]
            how = f"checkpoint, as {checkpoints.FORMS[region.lift]}"
            for site in region.sites:
                self._try(site, how, self._call, region, site, index in plan.with_dots)
        if plan.donated:
            self._donate()
        for change in program.changes_of(plan):
            if change.batch and len(change.sites) == 1:
                self._try(change.sites[0], change.step, self._microbatch, change)
            else:
                self.steps.append(f"{change.where}: by hand, {change.step}")

    def results(self) -> dict[str, str]:
        """Return the new text of each file; one that cannot be edited is a step."""
        found = {}
        for path, source in self.sources.items():
            try:
                found[path] = source.result()
            except Refused as why:
                self.steps.append(f"{Path(path).name}: nothing is changed: {why}")
        return found

    def _try(self, site: Site, how: str, make: Callable[..., None], *given: object) -> None:
        """Make an edit, or say in words what it would have been."""
        where = place(site)
        source = None
        count = imports = 0
        try:
            source = self._source(site.file)
            count, imports = len(source.edits), len(source.imports)
            make(source, *given)
        except Refused as why:
            what = ""
            if source is not None:
                del source.edits[count:], source.imports[imports:]
                what = "" if site == self.program.function_site else _excerpt(source, site)
            self.steps.append(f"{where}: by hand, {how}{what}: {why}")

    def _source(self, path: str) -> Source:
        if path not in self.texts:
            raise Refused("the text of the file is not at hand")
        if path not in self.sources:
            self.sources[path] = Source(path, self.texts[path])
        return self.sources[path]

    # -- names -------------------------------------------------------------------------------------

    def _name(self, source: Source, site: Site, name: str) -> None:
        node = source.find(site)
        function = source.imported(*NAME, [node])
        if isinstance(node, ast.AugAssign):
            _name_augmented(source, node, function, name)
            return
        if not isinstance(node, NAMED):
            raise Refused("the expression computes no value of its own")
        if isinstance(source.parents[node], ast.Await):
            raise Refused("the value is awaited")
        source.wrap(node, f"{function}(", f', "{name}")')

    # -- scans -------------------------------------------------------------------------------------

    def _policy(self, index: int) -> Callable[[str], str]:
        """Return the text of a scan's policy, from the name of the module jax."""
        plan = self.plan
        there = [item.name for item in self.program.switches if index in item.regions]
        saved = [name for name in there if name in plan.saved]
        host = [name for name in there if name in plan.offloaded]
        has_dots = index in plan.with_dots

        def text(jax: str) -> str:
            policies = f"{jax}.checkpoint_policies"
            names = f"{policies}.save_only_these_names({', '.join(map(_quoted, saved))})"
            if host:
                if has_dots:
                    raise Refused("no policy saves products and moves names to the host")
                return (
                    f"{policies}.save_and_offload_only_these_names("
                    f"names_which_can_be_saved=[{', '.join(map(_quoted, saved))}], "
                    f"names_which_can_be_offloaded=[{', '.join(map(_quoted, host))}], "
                    f'offload_src="device", offload_dst="pinned_host")'
                )
            if has_dots and saved:
                return f"{policies}.save_from_both_policies({names}, {policies}.dots_saveable)"
            if has_dots:
                return f"{policies}.dots_saveable"
            return names if saved else f"{policies}.nothing_saveable"

        return text

    def _scan(
        self, source: Source, region: Region, site: Site, policy: Callable[[str], str]
    ) -> None:
        node = source.find(site)
        if not isinstance(node, ast.Call):
            raise Refused("it is not a call")
        transforms.put_policy(source, node, region, policy, site in region.remats)

    def _unwrap(self, source: Source, region: Region, site: Site) -> None:
        node = source.find(site)
        if not isinstance(node, ast.Call):
            raise Refused("it is not a call")
        calls = [one for one in region.remats if one.file == site.file]
        transforms.unwrap(source, node, len(set(calls)))

    # -- calls -------------------------------------------------------------------------------------

    def _outermost(self) -> list[int]:
        """Return the call regions that are in no other one of the plan."""
        chosen, regions = set(self.plan.calls), self.program.regions
        return [index for index in self.plan.calls if not chosen & set(regions[index].within)]

    def _call(self, source: Source, region: Region, site: Site, has_dots: bool) -> None:
        node = source.find(site)
        if not isinstance(node, ast.Call):
            raise Refused("it is not a call")
        checkpoints.checkpoint_call(source, node, region, has_dots)

    def _microbatch(self, source: Source, change: Change) -> None:
        (site,) = change.sites
        node = source.find(site)
        in_microbatches(source, node, change.count, change.batch, change.devices)

    # -- donations ---------------------------------------------------------------------------------

    def _donate(self) -> None:
        program, numbers = self.program, self.plan.donated
        names = [program.argument_names[n] for n in numbers if n < len(program.argument_names)]
        listed = ", ".join(names) or ", ".join(map(str, numbers))
        how = f"donate {listed} (donate_argnums={_tuple(numbers)})"
        if program.function_site is None:
            self.steps.append(f"{how} where {program.function} is given to jax.jit")
            return
        site = program.function_site
        self._try(site, f"{how} where it is jitted", transforms.donate, site, numbers)


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _tuple(numbers: Iterable[int]) -> str:
    return transforms.tuple_text(numbers)


def _excerpt(source: Source, site: Site) -> str:
    try:
        text = " ".join(source.of(source.find(site)).split())
    except Refused:
        return " what is there"
    return f" `{text if len(text) <= LONGEST else text[: LONGEST - 1] + '…'}`"


def _name_augmented(source: Source, node: ast.AugAssign, function: str, name: str) -> None:
    """Change `x += VALUE` into `x = checkpoint_name(x + (VALUE), "name")`."""
    if not isinstance(node.target, ast.Name):
        raise Refused("it is an augmented assignment to more than a name")
    start, end = source.span(node)
    _, after = source.span(node.target)
    operator = OPERATORS[type(node.op)]
    value = source.raw.index(b"=", after) + 1
    target = node.target.id

    def make(render: Render) -> str:
        inner = render(value, end).strip(" \t")
        return f'{target} = {function}({target} {operator} ({inner}), "{name}")'

    source.replace((start, end), make)
