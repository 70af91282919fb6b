"""Whether more memory ever costs more: `bufdb fit` at 15 limits of a program.

    python monotone.py [--only carry ...] [--count 15] [--target gpu:h100] [--keep FILE] [--write]

Limits are at equal distances from the least need that is known to that as written. Of each program
every plan is compiled once, ahead of time, and used by each question as if it were the first.
Results are kept in FILE as they come; `monotone.md` is written of it, and a program without results
there keeps its section.
"""

import argparse
import functools
import json
import os
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from bufdb.fitting.fit import Fitting
from bufdb.fitting.question import Question
from bufdb.fitting.session import Apart

HERE = Path(__file__).resolve().parent
PAGE = HERE / "monotone.md"
MIB = 2**20
SAME = 0.0005
"""Share of all products that is no difference."""
PROGRAMS = {
    "carry": ("scanned layers", "frontier/plain.py:carry", "*carry_args()"),
    "half": ("blocks in a row", "frontier/plain.py:half", "*half_args()"),
    "vgg16": ("VGG-16", "frontier/convnets.py:vgg16", "*vgg16_args()"),
    "unet": ("U-Net, a quarter of the pixels", "frontier/convnets.py:unet",
             "*unet_args(11, 208, 304)"),
    "experts": ("mixture of experts", "fitted/experts.py:step", "*args()"),
    "state_space": ("state space model", "fitted/state_space.py:step", "*args()"),
    "unet_nnx": ("U-Net of flax.nnx", "fitted/unet.py:step", "*args()"),
}  # fmt: skip
MORE = {"carry": (800 * MIB,)}
"""Further limits."""
NOTES = {
    "carry": (
        "With each layer's input moved to the host by hand it needs 562.0 MiB, and moves 768 MiB:",
        "the answer at that limit. At 800 MiB fewer layers' inputs are moved, at equal products.",
        "",
    ),
}
"""What is said above the rows of a program."""


class Once:
    """A session that asks for each plan once."""

    def __init__(self, session):
        self._session = session
        for name in ("program", "trace", "recomputed", "compile"):
            setattr(self, name, functools.cache(getattr(session, name)))

    def __getattr__(self, name):
        return getattr(self._session, name)


def measured(name, count, target, folder, done):
    """Ask for each limit that is not done; yield the limit and its row."""
    _, spec, args = PROGRAMS[name]
    (folder / "fit").mkdir()
    with Apart(str(HERE / "programs" / spec), args, target, folder / "fit") as session:
        once = Once(session)

        def ask(limit):
            return Fitting(once, Question(limit), folder).answer()

        answer = ask(1)
        written = answer.as_written.need_bytes
        plain = [row for row in answer.plans if row.is_compiled and not row.options]
        least = min([row.need_bytes for row in plain], default=written)
        limits = [least + (written - least) * part // count for part in range(count)]
        for limit in [*limits, *MORE.get(name, ())]:
            if str(limit) in done:
                continue
            answer = ask(limit)
            best = next((row for row in answer.plans if row.rank == answer.best), None)
            row = {"written": written, "compiles": answer.compile_count}
            if best is not None:
                row |= {
                    "need": best.need_bytes,
                    "extra": best.extra_work_ratio,
                    "bytes": best.extra_accessed_ratio,
                    "host": best.offloaded_bytes,
                    "verified": best.is_verified,
                    "steps": len(best.steps),
                    "options": len(best.options),
                }
            yield limit, row


def faults(rows):
    """Yield in words where a plan for another limit fits, too, and costs less."""
    fitting = [(limit, row) for limit, row in rows if row.get("extra") is not None]
    for limit, row in fitting:
        for another, other in fitting:
            is_better = other["extra"] < row["extra"] - SAME and other["host"] <= row["host"]
            is_whole = row["steps"] or not other["steps"]
            if other["need"] <= limit and is_better and is_whole:
                what = f"that for {size(another)} MiB fits at {percent(other['extra'])}"
                yield f"{size(limit)} MiB costs {percent(row['extra'])}, and {what}"
                break


def percent(ratio):
    return "" if ratio is None else f"{ratio:+.1%}"


def size(number):
    return "" if number is None else f"{number / MIB:,.1f}"


def page(known, target):
    """The text of the page."""
    lines = [
        "# More memory, never more work",
        "",
        f"Written by `monotone.py` with jax {version('jax')}, ahead of time for {target}: limits",
        "at equal distances from the least need that is known to that as written, in MiB, and",
        "what `bufdb fit` answers to each as a first question. Products, and bytes read and",
        "written, are those beyond as written. A fault is a limit that the plan for another limit",
        "fits, too, at a lower cost.",
        "",
    ]
    before = PAGE.read_text().split("\n## ") if PAGE.exists() else []
    for name, (title, spec, args) in PROGRAMS.items():
        rows = sorted((int(limit), row) for limit, row in known.get(name, {}).items())
        if not rows:
            own = (text for text in before if text.partition("\n")[0] == title)
            lines += [f"## {text.rstrip()}\n" for text in own]
            continue
        wrong = list(faults(rows))
        lines += [f"## {title}", "", f"`{spec}` with `{args}`: {len(wrong)} faults.", ""]
        lines += NOTES.get(name, ())
        lines += [f"- {one}" for one in wrong] + ([""] if wrong else [])
        lines += ["| limit | needs | products | bytes | to the host | proved | compilations |"]
        lines += ["|--:|--:|--:|--:|--:|---|--:|"]
        for limit, row in rows:
            how = "yes" if row.get("verified") else "no"
            how += ", with a step by hand" if row.get("steps") else ""
            cells = [size(limit), size(row.get("need")), percent(row.get("extra"))]
            cells += [percent(row.get("bytes")), size(row["host"]) if row.get("host") else ""]
            cells += [how if "need" in row else "nothing fits", row["compiles"]]
            lines.append(f"| {' | '.join(map(str, cells))} |")
        lines.append("")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=PROGRAMS, default=[*PROGRAMS])
    parser.add_argument("--count", type=int, default=15)
    parser.add_argument("--target", default="gpu:h100")
    parser.add_argument("--keep", type=Path, help="file for results, used again if there")
    parser.add_argument("--write", action="store_true", help="run nothing, write monotone.md")
    options = parser.parse_args()
    os.environ["JAX_PLATFORMS"] = "cpu"
    keep = options.keep or Path(tempfile.mkdtemp()) / "monotone.json"
    known = json.loads(keep.read_text()) if keep.exists() else {}
    for name in [] if options.write else options.only:
        done = known.setdefault(name, {})
        with tempfile.TemporaryDirectory(prefix="monotone-") as folder:
            for limit, row in measured(name, options.count, options.target, Path(folder), done):
                done[str(limit)] = row
                keep.write_text(json.dumps(known, indent=1))
                print(f"{name}: {limit / MIB:,.1f} MiB: {row}", file=sys.stderr, flush=True)
    PAGE.write_text(page(known, options.target))


if __name__ == "__main__":
    main()
