"""What `bufdb fit` finds in programs of `programs/fitted`, held to all plans that there are.

    python fit.py [--target cpu ...] [--program scanned ...] [--keep DIR] [--values 4]

The values and calls that matter most are switches, four of a program, or as many as --values says;
every set of them is compiled. Then each distinct need is a limit, so that just one plan and smaller
ones fit, and the search looks for a plan without knowing any. Three plans are patched into the
source, which is compiled again; on the CPU both run. Results are kept in DIR as they come; `fit.md`
is written when all are there, or by --write of what is. Needs jax and flax, and for GPU and TPU the
packages of data/README.md: an hour on two free cores.
"""

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

from bufdb.errors import BufdbError
from bufdb.fitting import search
from bufdb.fitting.figures import Scratch
from bufdb.fitting.patch import patch, texts_of
from bufdb.fitting.plans import Compiled, Plan, Program, SearchRequest, Traced
from bufdb.fitting.proof import outside_of_text
from bufdb.fitting.records import as_json, from_json
from bufdb.fitting.session import Apart, Check
from bufdb.fitting.space import Space

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs" / "fitted"
TARGETS = {"cpu": None, "gpu": "gpu:h100", "tpu": "tpu:v5e:2x2"}
OTHERS = ("scanned", "unrolled", "unet", "linen_blocks")
"""Programs that are compiled for accelerators, too."""
BUDGET = 12
WITHIN = 0.1
"""Share of the best plan's extra work by which another may have more."""
POINTS = 0.005
"""Share of all work that is no difference."""


@dataclass
class Bench:
    """A program, with what is known of its plans."""

    session: Apart
    folder: Path
    is_quick: bool
    """Whether to compile at low effort, which on the CPU plans the same memory."""
    known: dict[Plan, Compiled] = field(default_factory=dict)
    traces: dict[Plan, object] = field(default_factory=dict)

    def trace(self, plan):
        plan = replace(plan, donated=())
        if plan not in self.traces:
            self.traces[plan] = self.session.trace(plan)
        return self.traces[plan]

    def compile(self, plan):
        """Compile a plan, once; a search that asks again has to pay for it all the same."""
        if plan not in self.known:
            self.known[plan] = self.compile_now(plan, is_full=not self.is_quick)
        return self.known[plan]

    def compile_now(self, plan, *, is_full=True):
        return self._measured(self.session.compile(plan, "a plan", is_full=is_full))

    def patched(self, program, plan, made):
        rest = outside_of_text(program, plan)
        return self._measured(self.session.patched(made.texts, rest, Check()))

    def _measured(self, dumped):
        figures = Scratch().figures(dumped)._asdict()
        return Compiled(**figures, is_full=True, seconds=dumped.seconds, refusal=dumped.refusal)


def chosen(bench, program, count):
    """The program with the switches that matter most: work that they spare, then bytes."""
    atomic = [at for at, region in enumerate(program.regions) if region.has_atomic]
    nothing = bench.trace(Plan(program.scans))

    def worth(switch):
        one = bench.trace(Plan(program.scans, (switch.name,)))
        return nothing.work - one.work, one.residual_bytes - nothing.residual_bytes

    room = max(count - len(atomic) - len(program.calls), 0)
    best = sorted(program.switches, key=worth, reverse=True)[:room]
    kept = tuple(one for one in program.switches if one in best)
    return replace(program, switches=kept, has_host_memory=False, has_cheap_effort=False)


def every_plan(bench, program):
    """All plans of a program: those among which the search chooses."""
    space = Space(program, ask(bench, None))
    if program.donatable:
        # As the search does: a donation that brings nothing is left out.
        donated = bench.compile(space.base).need_bytes
        written = bench.compile(Plan()).need_bytes
        if donated is None or donated >= written:
            space.base = Plan()
    plans = {Plan(), space.base, space.plan(frozenset(), is_policy=True)}
    for mask in range(1 << len(space.atoms)):
        away = frozenset(atom for n, atom in enumerate(space.atoms) if mask >> n & 1)
        plans.add(space.look(space.plan(away), away))
    return sorted(plans, key=repr)


def ask(bench, limit):
    return SearchRequest(
        limit,
        bench.compile(Plan()),
        bench.trace,
        lambda plan, is_full: bench.compile(plan),
        compile_budget=BUDGET,
    )


def searched(bench, program, plans, limit):
    """The plan that the search finds for a limit, next to the best of all plans."""
    counted = set()

    def compile_plan(plan, is_full):
        counted.add(plan)
        return bench.compile(plan)

    begin = time.monotonic()
    searched_plans = search.search(program, replace(ask(bench, limit), compile=compile_plan))
    fits = [one for one in searched_plans if one.is_exact and one.compiled.need_bytes <= limit]
    written = bench.trace(Plan()).work
    least_work = fits[0].traced.work if fits else None
    if bench.compile(Plan()).need_bytes <= limit and (least_work is None or least_work > written):
        least_work = written
    best = min(bench.trace(plan).work for plan in plans if need_of(bench, plan) <= limit)
    return {
        "limit": limit,
        "best": best / written - 1,
        "found": None if least_work is None else least_work / written - 1,
        "compiles": len(counted),
        "seconds": time.monotonic() - begin,
    }


def need_of(bench, plan):
    need = bench.compile(plan).need_bytes
    return float("inf") if need is None else need


def patches(bench, program, plans, is_run):
    """Need of three plans and of their patches: the least, the largest, and one between."""
    changed = sorted(
        (plan for plan in plans if plan.scans or plan.calls), key=lambda one: need_of(bench, one)
    )
    some = {0, len(changed) // 2, len(changed) - 1} if changed else set()
    rows = []
    for at in sorted(some):
        plan = changed[at]
        texts = texts_of(program)
        made = patch(program, plan, texts)
        alone = made
        if plan.donated and not program.is_jitted:
            alone = patch(program, replace(plan, donated=()), texts)
        row = {"need": bench.compile_now(plan).need_bytes, "steps": list(alone.steps)}
        if alone.is_whole:
            try:
                row["patched"] = bench.patched(program, plan, made).need_bytes
            except BufdbError as error:
                row["steps"] = [f"does not compile: {error}"]
            else:
                row["difference"] = difference(texts, made.texts) if is_run else None
        rows.append(row)
    return rows


def difference(before, after):
    """Largest difference of a result, as a share of the largest of its kind, both run here."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    def module(text, path):
        spec = importlib.util.spec_from_loader("fitted", loader=None)
        made = importlib.util.module_from_spec(spec)
        sys.modules["fitted"] = made
        exec(compile(text, path, "exec"), made.__dict__)
        return made

    (path, text), *_ = after.items()
    old, new = module(before[path], path), module(text, path)
    draw = np.random.default_rng(0)

    def value(shape):
        if shape.dtype == jnp.int32:
            return jnp.asarray(draw.integers(0, 8, shape.shape), jnp.int32)
        return jnp.asarray(draw.standard_normal(shape.shape, np.float32) * 0.1)

    arguments = jax.tree.map(value, old.args())
    results = [jax.tree.leaves(jax.jit(one.step)(*arguments)) for one in (old, new)]
    worst = 0.0
    for first, second in zip(*results, strict=True):
        largest = float(jnp.abs(first).max()) or 1.0
        worst = max(worst, float(jnp.abs(first - second).max()) / largest)
    return worst


def measured(name, target, count, note):
    """All figures of a program for a target."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        spec = f"{PROGRAMS / name}.py:step"
        with Apart(spec, "*args()", TARGETS[target], folder) as session:
            bench = Bench(session, folder, is_quick=target == "cpu")
            program = session.program()
            whole = len(program.switches)
            program = chosen(bench, program, count)
            plans = every_plan(bench, program)
            for number, plan in enumerate(plans, 1):
                note(f"{target} {name}: plan {number} of {len(plans)}")
                bench.compile(plan)
            needs = sorted({need_of(bench, plan) for plan in plans} - {float("inf")})
            rows = [searched(bench, program, plans, limit) for limit in needs]
            return {
                "program": name, "target": target, "switches": whole,
                "values": len(program.switches), "calls": len(program.calls),
                "plans": len(plans), "written": bench.compile(Plan()).need_bytes,
                "least": needs[0], "limits": rows,
                "patches": patches(bench, program, plans, is_run=target == "cpu"),
                "subject": as_json(program),
                "every": [
                    [as_json(plan), bench.compile(plan).need_bytes, as_json(bench.trace(plan))]
                    for plan in plans
                ],
                "seconds": time.monotonic() - begin, "notes": list(program.notes),
            }  # fmt: skip


def replayed(one):
    """The searches of a result again, of what was compiled for it."""
    every = [
        (from_json(Plan, plan), need, from_json(Traced, traced))
        for plan, need, traced in one["every"]
    ]
    traces = {replace(plan, donated=()): traced for plan, _, traced in every}

    class Kept:
        def __init__(self):
            self.known = {plan: Compiled(need, None, True, 1) for plan, need, _ in every}

        def trace(self, plan):
            """A plan of the same values, without names whose saving has no effect."""
            plan = replace(plan, donated=())
            like = [
                other
                for other in traces
                if replace(other, saved=()) == replace(plan, saved=())
                and set(other.saved) <= set(plan.saved)
            ]
            same = max(like, key=lambda other: len(other.saved))
            return replace(traces[same], saved=same.saved)

        def compile(self, plan):
            # A donation that brings nothing is left out of what is kept.
            return self.known.get(plan) or self.known[replace(plan, donated=())]

    kept, plans = Kept(), [plan for plan, *_ in every]
    subject = from_json(Program, one["subject"])
    limits = [row["limit"] for row in one["limits"]]
    return one | {"limits": [searched(kept, subject, plans, limit) for limit in limits]}


# -- the page --------------------------------------------------------------------------------------

PAGE = """# Fits, and what it costs

Written by `fit.py` with jax {jax}: programs of `programs/fitted`, whose values that matter most are
switches, up to four or six; all plans of these are compiled. GPU is an H100 and TPU a v5e, both
ahead of time. Each distinct need of a plan is a limit. Near the best is what has at most a tenth
more extra work than the cheapest of all plans that fit, or half a percent of all work. Compilations
are those of the search, without that of the function as written. Of each program three plans are
patched and compiled again; on the CPU both run, and the largest difference is relative to the
largest value of a result. What the search does where values are saved away from the peak, and with
plans of the same trace, was made on these programs: the figures of named, linen_scan, experts and
mixer are in sample; graph and highway were written after that.

{total}

{table}

{missing}"""
HEAD = (
    "| target | program | switches | plans | as written MB | least MB | limits | fit "
    "| near the best | most compilations | mean | patch = plan | largest difference |",
    "|---|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|",
)


def is_near(row):
    if row["found"] is None:
        return False
    return row["found"] - row["best"] <= max(POINTS, WITHIN * row["best"])


def line(one):
    limits, made = one["limits"], one["patches"]
    compiles = [row["compiles"] for row in limits]
    runs = [row["difference"] for row in made if row.get("difference") is not None]
    switches = one["values"] + one["calls"]
    cells = (
        one["target"],
        one["program"],
        f"{switches} of {one['switches'] + one['calls']}",
        one["plans"],
        f"{one['written'] / 1e6:.1f}",
        f"{one['least'] / 1e6:.1f}",
        len(limits),
        sum(row["found"] is not None for row in limits),
        sum(map(is_near, limits)),
        max(compiles),
        f"{sum(compiles) / len(compiles):.1f}",
        f"{sum(row.get('patched') == row['need'] for row in made)} of {len(made)}",
        f"{max(runs):.0e}" if runs else "",
    )
    return f"| {' | '.join(map(str, cells))} |"


def page(results, missing):
    taken = [one for one in results if one["values"] + one["calls"]]
    limits = [row for one in taken for row in one["limits"]]
    made = [row for one in taken for row in one["patches"]]
    fits = sum(row["found"] is not None for row in limits)
    near = sum(map(is_near, limits))
    total = (
        f"{len(taken)} programs and targets, {len(limits)} limits: a plan that fits was found for "
        f"{fits} ({fits / max(len(limits), 1):.1%}), near the best for {near} "
        f"({near / max(len(limits), 1):.1%}), with at most "
        f"{max((row['compiles'] for row in limits), default=0)} compilations. Of {len(made)} "
        f"patches {sum(row.get('patched') == row['need'] for row in made)} need what their plan "
        f"does."
    )
    notes = [f"- {one['target']} {one['program']}: {'; '.join(one['notes'])}."
             for one in results if not one["values"] + one["calls"]]  # fmt: skip
    notes += [f"- {one['target']} {one['program']}: {step}"
              for one in taken for row in one["patches"] for step in row["steps"]]  # fmt: skip
    notes += [f"- {text}: not run." for text in missing]
    table = "\n".join([*HEAD, *map(line, taken)])
    return PAGE.format(
        jax=version("jax"), total=total, table=table, missing="\n".join([*notes, ""])
    )


def wanted(targets, programs):
    names = sorted(path.stem for path in PROGRAMS.glob("*.py"))
    return [
        (name, target)
        for target in targets
        for name in names
        if (not programs or name in programs) and (target == "cpu" or name in OTHERS)
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", choices=TARGETS, action="append")
    parser.add_argument("--program", action="append")
    parser.add_argument("--keep", type=Path, help="directory for results, used again if there")
    parser.add_argument("--values", type=int, default=4, help="switches of a program")
    parser.add_argument("--write", action="store_true", help="run nothing, write fit.md")
    parser.add_argument("--again", action="store_true", help="search again in what is kept")
    args = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    keep = (args.keep or Path(tempfile.mkdtemp())).resolve()
    keep.mkdir(parents=True, exist_ok=True)

    def note(text):
        print(text, file=sys.stderr, flush=True)

    for name, target in [] if args.write else wanted(args.target or TARGETS, args.program):
        place = keep / f"{target}-{name}.json"
        if place.exists():
            continue
        try:
            measures = measured(name, target, args.values, note)
        except BufdbError as error:
            note(f"{target} {name}: {error}")
            continue
        place.write_text(json.dumps(measures, indent=1), encoding="utf-8")
        note(f"{target} {name}: {measures['seconds']:.0f} s")
    results = [
        json.loads((keep / f"{target}-{name}.json").read_text("utf-8"))
        for name, target in wanted(TARGETS, None)
        if (keep / f"{target}-{name}.json").exists()
    ]
    if args.again:
        results = [replayed(one) if "every" in one else one for one in results]
    missing = [
        f"{target} {name}"
        for name, target in wanted(TARGETS, None)
        if not (keep / f"{target}-{name}.json").exists()
    ]
    text = page(results, missing)
    if missing and not args.write:
        print(text)
        return
    (HERE / "fit.md").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
