"""What `bufdb fit` finds, next to the plans that a user would write by hand, all compiled.

    python frontier.py [--only gpt2 ...] [--limits 2] [--keep DIR] [--write]

The programs are those of `PROGRAMS`, for an H100, ahead of time: layers in a row, in scans and on
devices, JAX's page on host offloading, and the networks of MONeT (Shah et al., ICLR 2021). Each
plan by hand is the program with one of its functions replaced, compiled the same way. Limits are
the needs of these plans, or figures that others published. Results are kept as they come in
`frontier/`, one file of a program, and are not asked for again: remove the file of a program to
measure it again. `frontier.md` is written of what is there; a program without results keeps its
rows.
Needs jax, flax and optax, and for the GPU the packages of data/README.md: hours on two cores.
"""

import argparse
import functools
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

import bufdb
from bufdb.capture.simulated import Devices
from bufdb.errors import BufdbError
from bufdb.fitting.figures import Scratch
from bufdb.fitting.fit import Fitting
from bufdb.fitting.patch import patch, texts_of
from bufdb.fitting.plans import Plan
from bufdb.fitting.question import Question
from bufdb.fitting.session import Apart

HERE = Path(__file__).resolve().parent
TARGET = "gpu:h100"
MIB = 2**20
SAME = 0.0005
"""Share of all products that is no difference."""
ROUNDING = 1e-6
"""Share of the largest result of all below which one is nothing but rounding, such as the gradient
of a shift that a normalization takes away."""
UNEQUAL = 1e-4
"""Difference of results from which that by rounding is said."""
CLOSE = 0.02
"""Share of a limit by which another one must be apart from it."""
MOST_LIMITS = 3

# -- The programs ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Subject:
    """A program, and what of it plans by hand replace."""

    title: str
    file: str
    function: str
    block: str
    """Name of the function that is a layer, in the module or in a class of it."""
    hands: tuple[str, ...] = ("whole block", "every second block", "dots_saveable")
    args: str = "*args()"
    small: str = "*args()"
    """Arguments with which gradients run on the CPU."""
    is_scanned: bool = False
    limits: tuple[float, ...] = ()
    """Shares of the need as written, or bytes; () for the needs of the plans by hand."""
    published: tuple[str, ...] = ()
    """Published figures next to these."""
    also: tuple[str, ...] = ()
    last: tuple[str, ...] = ()
    """What is asked for, too, where nothing fits without it."""
    devices: int | None = None
    budget: int = 12

    @property
    def path(self):
        return HERE / "programs" / self.file


SCANNED = ("whole block", "every second block", "dots_saveable", "offloaded inputs")
LANGUAGE = (*SCANNED, "loss in 8 chunks", "4 microbatches")
BOTH = ("chunks", "microbatch")
CALLED = ("whole block", "every second block")


def transformer(title, name, block, hands, small, **others):
    names = {"args": f"*{name}_args()", "small": f"*{name}_args({small})"} | others
    return Subject(title, "frontier/transformers.py", name, block, hands, **names)


def fitted(title, name, block="layer", **others):
    hands = SCANNED if others.get("is_scanned") else CALLED
    return Subject(title, f"fitted/{name}.py", "step", block, hands, **others)


def offloading(title, name, block, limits, published, **others):
    how = {"limits": limits, "published": published, "args": f"*{name}_args()"} | others
    return Subject(title, "frontier/offloading.py", name, block, small=f"*{name}_args(16)", **how)


def monet(title, name, block, memory, overheads, small, last=()):
    """A network of MONeT: gigabytes without it and with it, and its overheads in time.

    One without normalization over the batch computes the same in parts of it.
    """
    return Subject(
        title,
        "frontier/convnets.py",
        name,
        block,
        CALLED,
        f"*{name}_args()",
        f"*{name}_args({small})",
        limits=tuple(one / memory[0] for one in memory[1:]),
        published=tuple(f"{one:+.1f}% of time" for one in overheads),
        last=last,
    )


PROGRAMS = {
    "page": offloading(
        "JAX's page: activations", "activations", "two_layers",
        (57.5 * MIB, 46.75 * MIB, 25 * MIB),
        ("57.50 MiB as written", "46.75 MiB", "25.00 MiB, parameters in host memory"),
        hands=SCANNED, is_scanned=True,
    ),
    "page_adam": offloading(
        "JAX's page: Adam", "adam", "gelu", (4.59 * 2**30, 2.87 * 2**30),
        ("4.59 GiB as written", "2.87 GiB, state in host memory"), hands=CALLED,
    ),
    "gpt2": transformer(
        "GPT-2 small, unrolled", "gpt2", "block",
        (*CALLED, "dots_saveable", "loss in 8 chunks", "4 microbatches"), "8, 16, 128, 4, 256",
        also=BOTH,
    ),
    "decoder": transformer(
        "decoder, scanned", "decoder", "layer", LANGUAGE, "8, 16, 128, (4,), 256",
        is_scanned=True, also=BOTH,
    ),
    "long": transformer(
        "long context, scanned", "decoder", "layer",
        ("whole block", "dots_saveable", "queries in 8 parts", "both"), "2, 64, 1024, (2,), 256",
        is_scanned=True, args="*decoder_args(1, 16384, 1024, (4,))",
    ),
    "vit": transformer(
        "ViT-S/16", "vit", "block", (*CALLED, "dots_saveable", "4 microbatches"),
        "8, 4, 128, 4, 16", also=("microbatch",),
    ),
    "nested": transformer(
        "nested scan", "nested", "layer", ("whole block", "whole group", "dots_saveable"),
        "8, 16, 128, (2, 2), 256", is_scanned=True,
    ),
    "fsdp": transformer(
        "FSDP, eight devices", "decoder", "layer", SCANNED, "8, 16, 128, (4,), 256",
        is_scanned=True, args="*fsdp_args()", devices=8,
    ),
    "experts": fitted("mixture of experts", "experts", is_scanned=True),
    "state_space": fitted("state space model", "state_space", is_scanned=True),
    "flash": fitted("custom_vjp attention", "flash", is_scanned=True),
    "unet_nnx": fitted("U-Net of flax.nnx", "unet", "Residual.__call__"),
    "vgg16": monet(
        "VGG-16", "vgg16", "filtered", (14.12, 9.71, 8.66, 7.88, 6.82, 5.90, 5.51),
        (-5.30, -4.64, -2.18, 1.99, 5.44, 9.11), "16, 32", last=("microbatch",),
    ),
    "unet": monet(
        "U-Net", "unet", "double", (14.32, 10.01, 9.01, 8.02, 7.00, 6.01, 5.01),
        (-4.10, -2.07, -0.09, 1.39, 4.95, 11.51), "16, 32, 32", last=("microbatch",),
    ),
    "resnet50": monet(
        "ResNet-50", "resnet50", "bottleneck", (15.06, 10.01, 9.01, 8.01, 6.99, 6.00, 4.99),
        (3.22, 4.68, 5.56, 7.28, 9.31, 11.95), "4, 32",
    ),
    "googlenet": monet(
        "GoogleNet", "googlenet", "inception", (14.93, 9.98, 8.99, 8.01, 7.02, 6.01, 4.99),
        (7.13, 7.87, 8.44, 9.71, 12.14, 15.77), "4, 32",
    ),
    "mobilenet": monet(
        "MobileNet-V2", "mobilenet", "inverted", (14.46, 10.02, 9.01, 8.02, 7.01, 6.01, 5.01),
        (2.40, 3.10, 4.77, 5.53, 7.55, 8.72), "4, 32",
    ),
}  # fmt: skip
"""Figures of MONeT are those of its README: https://github.com/utsaslab/MONeT."""


# -- Measures --------------------------------------------------------------------------------------


FILE_BY_HAND = """import sys
sys.path.insert(0, {here!r})
from programs.by_hand import by_hand
step, module = by_hand({path!r}, {function!r}, {block!r}, {is_scanned}, {hand!r})
globals().update({{name: one for name, one in vars(module).items() if name.endswith("args")}})
"""


@dataclass
class Kept:
    """A session that asks once, and counts the CPU seconds of each answer as often as it is used.

    So each limit costs what it would as a first question.
    """

    session: Apart
    answers: dict = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def device(self):
        return self.session.device

    def program(self):
        return self._once("program", self.session.program)

    def trace(self, plan):
        return self._once(("trace", plan), lambda: self.session.trace(plan))

    def recomputed(self, plan):
        return self._once(("lines", plan), lambda: self.session.recomputed(plan))

    def changes(self, kinds):
        return self._once(("changes", tuple(kinds)), lambda: self.session.changes(kinds))

    def compile(self, plan, what, *, is_full):
        ask = functools.partial(self.session.compile, plan, what, is_full=is_full)
        return self._once(("compile", plan, is_full), ask)

    def numbers(self, size, path):
        return self._once(("numbers", size), lambda: self.session.numbers(size, path))

    def patched(self, texts, rest, check):
        key = "patched", tuple(sorted(texts.items())), rest, check.numbers, check.is_compared
        return self._once(key, functools.partial(self.session.patched, texts, rest, check))

    def _once(self, key, ask):
        if key not in self.answers:
            before, answer, error = self._children(), None, None
            try:
                answer = ask()
            except BufdbError as caught:
                error = caught
            self.answers[key] = answer, error, self._children() - before
        answer, error, seconds = self.answers[key]
        self.seconds += seconds
        if error is not None:
            raise error
        return answer

    def _children(self):
        """CPU seconds of the child, and of those that ended."""
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        total = ended.ru_utime + ended.ru_stime
        child = self.session._child
        if child is not None and (stat := Path(f"/proc/{child._process.pid}/stat")).exists():
            user, system = stat.read_text().rpartition(")")[2].split()[11:13]
            total += (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
        return total


class Bench:
    """One program, with what is known of it in a file."""

    def __init__(self, name, keep):
        self.name, self.subject, self.file = name, PROGRAMS[name], keep / f"{name}.json"
        self.known = json.loads(self.file.read_text()) if self.file.exists() else {}

    def run(self, folder, most=None):
        """Measure what is not known yet, of the first limits alone if there is a most."""
        self.known.setdefault("hands", {})
        self.known.setdefault("limits", {})
        for hand in self.subject.hands:
            if hand not in self.known["hands"]:
                self.known["hands"][hand] = self.compiled_by_hand(hand, folder)
                self.save(hand)
        spec = f"{self.subject.path}:{self.subject.function}"
        with self.session(spec, folder / "fit") as session:
            kept = Kept(session)
            if "written" not in self.known:
                program = kept.program()
                dumped = kept.compile(Plan(), "as written", is_full=True)
                figures = Scratch().figures(dumped)
                self.known["written"] = self.measures(figures, program.as_written)
                self.save("as written")
            for limit in self.limits()[:most]:
                if str(limit) not in self.known["limits"]:
                    self.known["limits"][str(limit)] = self.fitted(kept, limit, folder)
                    self.save(f"{limit / MIB:,.0f} MiB")

    def save(self, what):
        print(f"{self.name}: {what}", file=sys.stderr, flush=True)
        self.file.write_text(json.dumps(self.known, indent=1).replace(f"{HERE}/", "") + "\n")

    def session(self, spec, folder):
        folder.mkdir()
        devices = Devices(self.subject.devices)
        return Apart(spec, self.subject.args, TARGET, folder, devices=devices)

    def measures(self, figures, traced):
        return {"need": figures.need_bytes, "work": traced.work, "bytes": figures.accessed_bytes}

    def compiled_by_hand(self, hand, folder):
        place = folder / hand.replace(" ", "_")
        file = place.with_suffix(".py")
        words = {name: getattr(self.subject, name) for name in ("function", "block", "is_scanned")}
        words |= {"here": str(HERE), "path": str(self.subject.path), "hand": hand}
        file.write_text(FILE_BY_HAND.format(**words))
        with self.session(f"{file}:step", place) as session:
            try:
                traced = session.program().as_written
                dumped = session.compile(Plan(), hand, is_full=True)
            except BufdbError as error:
                return {"error": str(error).splitlines()[0]}
            return self.measures(Scratch().figures(dumped), traced)

    def limits(self):
        """Bytes: the published shares, or the needs of plans by hand that are apart."""
        written = self.known["written"]["need"]
        if self.subject.limits:
            return [int(one if one > MIB else one * written) for one in self.subject.limits]
        needs = {one["need"] for one in self.known["hands"].values() if one.get("need")}
        kept = []
        for need in sorted(needs, reverse=True):
            if need < (kept[-1] if kept else written) * (1 - CLOSE):
                kept.append(need)
        last = len(kept) - 1
        some = min(len(kept), MOST_LIMITS)
        return [kept[round(n * last / max(some - 1, 1))] for n in range(some)]

    def fitted(self, kept, limit, folder, last=()):
        """The answer of `fit` for a limit, as a first question."""
        kept.seconds, children = 0.0, kept._children()
        subject, begin = self.subject, time.process_time()
        also = (*subject.also, *last)
        db = str(folder / "runs.duckdb")
        question = Question(limit, compile_budget=subject.budget, also=also, db=db)
        answer = Fitting(kept, question, folder).answer()
        row = {
            "compiles": answer.compile_count,
            "traces": answer.trace_count,
            "seconds": kept.seconds + time.process_time() - begin,
            "waited": kept._children() - children,
            "notes": answer.notes,
            "as_written": answer.fits_as_written,
        }
        best = next((plan for plan in answer.plans if plan.rank == answer.best), None)
        if best is None:
            needs = [one.need_bytes for one in answer.plans if one.is_compiled]
            row["least"] = min([answer.as_written.need_bytes, *filter(None, needs)])
            if last == subject.last:
                return row
            return self.fitted(kept, limit, folder, subject.last) | {"without": row["least"]}
        row |= {
            "need": best.need_bytes,
            "extra": best.extra_work_ratio,
            "bytes": best.extra_accessed_ratio,
            "gap": best.gap_ratio,
            "host": best.offloaded_bytes,
            "verified": best.is_verified,
            "steps": best.steps,
            "plan": [*best.recomputed_lines[:2], *best.depths, *best.changes, *best.options],
        }
        row |= self.promise(db, answer, best)
        return row | self.difference(answer, best, folder)

    def promise(self, db, answer, best):
        """What `bufdb verify` says of the plan: whether what it promises for the change came."""
        verified = bufdb.connect(db).verify(answer.as_written.run, best.run)
        rows = [row for row in verified.data if row["what"] == "need"]
        promised = [row for row in rows if row["low_saving_bytes"] is not None]
        if not promised:
            return {"promise": "nothing promised"}
        if all(row["is_in_range"] for row in promised):
            return {"promise": "yes"}
        if all(row["got_bytes"] >= row["low_saving_bytes"] for row in promised):
            return {"promise": "more"}
        missing = sum(row["low_saving_bytes"] - row["got_bytes"] for row in promised)
        held = [row for row in verified.data if row["what"] == "instead"]
        instead = {Path(row["name"]).name: row["new_bytes"] for row in held}
        return {"promise": "less", "missing": missing, "instead": instead}

    def difference(self, answer, best, folder):
        """Largest difference of a result on the CPU, as a share of the largest of its kind."""
        texts = texts_of(answer.program)
        made = patch(answer.program, best.plan, texts)
        if not made.diff:
            return {"difference": None, "unrun": "the answer has no patch"}
        other = folder / "patched.py"
        other.write_text(made.texts[str(self.subject.path)])
        words = ["--compare", self.name, str(other)]
        environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
        environment["XLA_FLAGS"] = "--xla_force_host_platform_device_count=8"
        done = subprocess.run(
            [sys.executable, __file__, *words], env=environment, capture_output=True, text=True
        )
        if done.returncode:
            last = done.stderr.strip().splitlines()[-1:]
            return {"difference": None, "unrun": " ".join(last)[:200]}
        return dict(zip(("difference", "rounding"), map(float, done.stdout.split()), strict=True))


def compare(name, other):
    """Run a program on small random arguments; return how much what a patch computes differs.

    And how much what it computes as written differs if its arguments change by one rounding.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    from programs.by_hand import module_of

    subject, draw = PROGRAMS[name], np.random.default_rng(0)

    def value(shape):
        if shape.dtype == jnp.int32:
            return jnp.asarray(draw.integers(0, 8, shape.shape), jnp.int32)
        return jnp.asarray(draw.standard_normal(shape.shape, np.float32) * 0.1)

    written, patched = (
        jax.jit(getattr(module_of(path), subject.function)) for path in (subject.path, other)
    )
    shapes = eval(f"({subject.small},)", vars(module_of(subject.path)))
    arguments = jax.tree.map(value, shapes)
    rounded = jax.tree.map(
        lambda one: one if one.dtype == jnp.int32 else jnp.nextafter(one, jnp.inf), arguments
    )
    results = jax.tree.leaves(written(*arguments))
    most = max(float(jnp.abs(one).max()) for one in results)

    def difference(others):
        worst = 0.0
        for first, second in zip(results, jax.tree.leaves(others), strict=True):
            largest = max(float(jnp.abs(first).max()), ROUNDING * most) or 1.0
            worst = max(worst, float(jnp.abs(first - second).max()) / largest)
        return worst

    return difference(patched(*arguments)), difference(written(*rounded))


# -- The page --------------------------------------------------------------------------------------

PAGE = """# The frontier, next to plans by hand

Written by `frontier.py` with jax {jax}, for an H100, ahead of time (`--target gpu:h100`; no device,
so nothing is tuned on one). Needs are those of compilations, in MiB. Products are beyond those of
the program as written, by traces; bytes are what the compiled program reads and writes in device
memory, beyond as written. The best by hand is the plan of fewest products within the limit, of
those of `programs/by_hand.py` that apply: a checkpoint of each block or of every second one,
`dots_saveable`, inputs of layers in host memory, the loss in 8 chunks, 4 microbatches, scores of
attention for an eighth of the queries, and the same with each block a checkpoint. Limits are
needs of these plans, or figures that others published. Above the bound is the cost beyond that of
any mixture of the same values and layers at the same size of residuals, by traces; where unlike
layers are called in a row, or functions within them are checkpoints too, no trace has it.
Compilations are those of a first question, patches included, and CPU seconds are those of
the same, all processes together, on a machine that others shared. Proved means that the patched
files were compiled and need the same to the byte. As promised is whether the need fell by what
`bufdb verify` promises for what the plan changes of the program as written; more is more than that.
The difference is that of results of the patched files
from those as written, both run on a CPU with small arguments, relative to the largest value of a
result; one of a millionth of the largest of all is taken as that much.

Published of MONeT are the figures of its README: shares of the gigabytes that PyTorch needs, and
overheads in *time*, measured on its GPU. Ours are products and bytes of what XLA compiles, at equal
shares of what XLA needs as written: next to each other, not in one unit. GoogleNet is without
auxiliary heads, VGG-16 without dropout, U-Net at 416 x 608; batches are those of MONeT. JAX's page
was run on another GPU; its figures are the limits here. All rows are of one search. What XLA
computes again by an option of its own is in no trace, so such plans have bytes alone.

{total}

{table}

{notes}"""
HEAD = (
    "| program | limit | of as written | fit needs | products | bytes | above the bound | host MiB "
    "| proved | as promised | difference | compilations | CPU s | best by hand | needs | products "
    "| bytes | published |",
    "|---|--:|--:|--:|--:|--:|--:|--:|---|---|--:|--:|--:|---|--:|--:|--:|---|",
)


def best_by_hand(known, limit):
    """The name and figures of the plan by hand with the fewest products within a limit."""
    written = {"as written": known["written"]}
    fits = [
        (one["work"], one["need"], name)
        for name, one in (written | known["hands"]).items()
        if one.get("need") and one["need"] <= limit
    ]
    if not fits:
        return None
    name = min(fits)[2]
    return name, (written | known["hands"])[name]


def beyond(one, written, what):
    if not one.get(what) or not written.get(what):
        return None
    return one[what] / written[what] - 1


def is_worse(row, hand, written):
    """Whether a plan by hand costs fewer products, or is the only one that fits."""
    if hand is None or row["as_written"]:
        return False
    extra = row.get("extra")
    return extra is None or extra > beyond(hand[1], written, "work") + SAME


def percent(ratio):
    return "" if ratio is None else f"{ratio:+.1%}"


def size(number):
    return "" if number is None else f"{number / MIB:,.1f}"


def line(bench, limit, published):
    known, written = bench.known, bench.known["written"]
    row, hand = known["limits"][str(limit)], best_by_hand(known, limit)
    need = written["need"] if row["as_written"] else row.get("need")
    own = percent(0.0 if row["as_written"] else row.get("extra"))
    run = row.get("difference")
    proof = "" if row["as_written"] or need is None else "yes" if row["verified"] else "no"
    cells = [
        bench.subject.title,
        size(limit),
        f"{limit / written['need']:.0%}",
        size(need) if need else f"nothing: {size(row['least'])}",
        own,
        percent(0.0 if row["as_written"] else row.get("bytes")),
        percent(row.get("gap")),
        size(row["host"]) if row.get("host") else "",
        proof,
        row.get("promise", ""),
        "" if run is None else f"{run:.0e}",
        row["compiles"],
        f"{row['seconds']:.0f}",
        *("", "", "", ""),
        published,
    ]
    if hand is not None:
        name, one = hand
        figures = [beyond(one, written, what) for what in ("work", "bytes")]
        mark = "**worse than** " if is_worse(row, hand, written) else ""
        cells[13:17] = [mark + name, size(one["need"]), *map(percent, figures)]
    return f"| {' | '.join(map(str, cells))} |"


def reasons(bench, limit):
    """Why a row is not as it should be, in words."""
    known, row = bench.known, bench.known["limits"][str(limit)]
    where = f"- {bench.subject.title}, {size(limit)} MiB: "
    if is_worse(row, best_by_hand(known, limit), known["written"]):
        yield where + "worse than by hand. " + "; ".join(row["notes"])
    elif row.get("need") is None and not row["as_written"]:
        yield where + "nothing fits. " + "; ".join(row["notes"])
    for other, one in known["limits"].items():
        is_apart = ("without" in one) != ("without" in row)  # other kinds of changes were tried
        if is_apart or row.get("extra") is None or one.get("extra") is None:
            continue
        if one["need"] <= limit and one["extra"] < row["extra"] - SAME:
            plan = f"the plan for {size(int(other))} MiB needs {size(one['need'])}"
            yield where + f"not the best: {plan}, for {percent(one['extra'])}."
    if "without" in row and row.get("need") is not None:
        also = " ".join(f"`--also {one}`" for one in bench.subject.last)
        yield f"{where}with {also}; without it nothing fits, and {size(row['without'])} are least."
    if row.get("steps"):
        yield where + "by hand: " + "; ".join(row["steps"])
    if row.get("instead"):
        yield (
            f"{where}the need fell by {size(row['missing'])} MiB less than promised for what is "
            f"gone, since the plan holds {size(sum(row['instead'].values()))} instead, which no "
            f"promise knows ({', '.join(row['instead'])})."
        )
    if row.get("unrun"):
        yield where + "not run: " + row["unrun"]
    if (row.get("difference") or 0.0) > UNEQUAL and "rounding" in row:
        yield (
            f"{where}the program as written differs from itself by {row['rounding']:.0e} where "
            "each of its arguments is the next float32."
        )


@dataclass
class Rows:
    """The rows and the notes of a program."""

    lines: dict[str, str] = field(default_factory=dict)
    """By the text of the limit."""
    notes: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, bench):
        """Those of the results of a program."""
        rows, known, title = cls(), bench.known, bench.subject.title
        if "written" not in known:
            return rows
        published = bench.subject.published or [""] * len(bench.limits())
        for limit, text in zip(bench.limits(), published, strict=True):
            if str(limit) in known["limits"]:
                rows.lines[size(limit)] = line(bench, limit, text)
                rows.notes += reasons(bench, limit)
        rows.notes += [
            f"- {title}, {hand}: {one['error']}"
            for hand, one in known["hands"].items()
            if "error" in one
        ]
        rest = [size(one) for one in bench.limits() if size(one) not in rows.lines]
        if rest and rows.lines:
            rows.notes.append(f"- {title}: not run at {', '.join(rest)} MiB.")
        return rows


def page(benches):
    programs = [Rows.of(bench) for bench in benches]
    lines = [one for rows in programs for one in rows.lines.values()]
    notes = [one for rows in programs for one in rows.notes]
    missing = [bench.name for bench, rows in zip(benches, programs, strict=True) if not rows.lines]
    notes += [f"- {name}: not run." for name in missing]
    proofs = [one.split(" | ")[8].strip() for one in lines]
    worse = sum("**worse than**" in one for one in lines)
    total = (
        f"{len(benches) - len(missing)} programs, {len(lines)} limits: a plan by hand is better "
        f"for {worse}. Of {sum(map(bool, proofs))} plans {proofs.count('yes')} are proved."
    )
    text = PAGE.format(
        jax=version("jax"),
        total=total,
        table="\n".join([*HEAD, *lines]),
        notes="\n".join([*notes, ""]),
    )
    return text.replace(f"{HERE}/", "")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, default=[*PROGRAMS])
    parser.add_argument("--keep", type=Path, default=HERE / "frontier", help="folder for results")
    parser.add_argument("--limits", type=int, metavar="N", help="run the first N of each alone")
    parser.add_argument("--write", action="store_true", help="run nothing, write frontier.md")
    parser.add_argument("--compare", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compare:
        print(*compare(*options.compare))
        return
    os.environ |= {"JAX_PLATFORMS": "cpu", "BUFDB_CACHE": "off"}
    keep, written = options.keep.resolve(), HERE / "frontier.md"
    keep.mkdir(parents=True, exist_ok=True)
    for name in [] if options.write else options.only:
        with tempfile.TemporaryDirectory(prefix="frontier-") as folder:
            try:
                Bench(name, keep).run(Path(folder), options.limits)
            except BufdbError as error:
                print(f"{name}: {error}", file=sys.stderr, flush=True)
    written.write_text(page([Bench(name, keep) for name in PROGRAMS]))


if __name__ == "__main__":
    main()
