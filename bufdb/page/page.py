"""The report as one file: its data and the static files put together under a policy."""

from __future__ import annotations

import base64
import hashlib
import html
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from bufdb import __version__
from bufdb.answers.devices import limit_of
from bufdb.answers.opening import Open
from bufdb.answers.summary import set_limit
from bufdb.answers.summary_text import sections, sentences, step_words
from bufdb.database.definitions import CATALOG
from bufdb.errors import BufdbError, listed
from bufdb.page import comparison, contents, tables
from bufdb.page.comparison import Compared, Module
from bufdb.page.contents import Contents, Shown
from bufdb.page.slots import TooLargeError, pack, slot
from bufdb.query.catalogue import own as own_queries
from bufdb.query.parameters import Known, glob, why_nothing

if TYPE_CHECKING:
    from bufdb.query.header import Value


# -- Combine the page's static files, with a policy that lets nothing else run ---------------------
#
# Names from dumps are data: they are base64-encoded in elements that no browser executes. The
# policy allows the script and the style by their hashes and forbids everything else, including all
# requests.

_ORDER = "order.txt"
_MARK = re.compile(r"\{\{(\w+)\}\}")
_IMPORT = re.compile(r"^import [^;]*;\n", re.MULTILINE)
_EXPORT = re.compile(r"^export ", re.MULTILINE)
_MARKS = ["csp", "title", "style", "slots", "script"]


@dataclass(frozen=True)
class Frame:
    """The parts that are the same on every page."""

    template: str
    """HTML with a {{mark}} for each part that is filled in."""
    style: str
    script: str

    @property
    def policy(self) -> str:
        """The content security policy."""
        return (
            f"default-src 'none'; script-src {text_hash(self.script)}; "
            f"style-src {text_hash(self.style)}; "
            "base-uri 'none'; form-action 'none'"
        )

    def fill(self, title: str, slots: Sequence[bytes]) -> str:
        """Return the page with its data.

        All parts are inserted in a single pass, so that no part is searched for marks.
        """
        parts = {
            "csp": self.policy,
            "title": html.escape(title),
            "style": self.style,
            "script": self.script,
            "slots": "\n".join(_slot(number, data) for number, data in enumerate(slots)),
        }
        return _MARK.sub(lambda mark: parts[mark[1]], self.template)


@cache
def page_frame() -> Frame:
    """Return bufdb's static files; order.txt has the order of scripts and styles.

    Scripts (.js) are inserted unchanged, followed by the modules (.mjs) in one shared scope.
    """
    folder = files(__package__) / "static"

    def text(name: str) -> str:
        # A browser normalizes \r\n to \n, so the hash would not match.
        return (folder / name).read_text(encoding="utf-8").replace("\r\n", "\n")

    lines = (line.partition("#")[0].strip() for line in text(_ORDER).splitlines())
    names = [line for line in lines if line]
    scripts = "".join(text(name) + "\n" for name in names if name.endswith(".js"))
    modules = [_without_module(text(name)) for name in names if name.endswith(".mjs")]
    if modules:
        scripts += '(() => {\n"use strict";\n' + "".join(modules) + "})();\n"
    styles = "".join(text(name) + "\n" for name in names if name.endswith(".css"))
    template = text("page.html")
    if sorted(_MARK.findall(template)) != sorted(_MARKS):
        raise ValueError(f"page.html wants each of the marks {', '.join(_MARKS)} once")
    return Frame(template, _within(styles, "style"), _within(scripts, "script"))


def _without_module(text: str) -> str:
    """Strip imports and exports from a module: all modules share one scope.

    A page from disk may not load modules; Node and the type checker use the files unchanged.
    """
    return _EXPORT.sub("", _IMPORT.sub("", text))


def _within(text: str, element: str) -> str:
    """Escape a text so that it neither ends its element nor starts an HTML comment."""
    text = re.sub(rf"</(?={element})", r"<\\/", text, flags=re.IGNORECASE)
    return text.replace("<!--", r"<\!--")


def text_hash(text: str) -> str:
    """Return how a policy names a script or a style."""
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"


def _slot(number: int, data: bytes) -> str:
    text = base64.b64encode(data).decode()
    return f'<script type="application/octet-stream" id="slot-{number}">{text}</script>'


# -- The report: contents and pictures as one page within a budget of bytes ------------------------
#
# Invariant: a module without a slot keeps its row, which says why and how to get it.

BUDGET = 4_500_000
"""Maximum bytes of a page; the module with the largest peak is included in any case."""
LEAST_BYTES = 3
"""Minimum bytes of a value on the page."""
MOST_IN_VAIN = 100
"""Consecutive modules that are read and do not fit, after which no more are read."""
_COLUMNS = (
    "run", "function", "module_key", "platform", "color", "space", "peak_bytes", "peak_time",
    "length", "occupied_temp_bytes", "fixed_bytes", "argument_bytes", "output_bytes",
    "alias_bytes", "constant_bytes", "temp_bytes", "total_bytes", "fragmentation_bytes",
    "need_bytes", "limit_bytes", "limit_name", "unknown_reason", "slot", "left_out", "command",
    "sentences", "step",
)  # fmt: skip

_UNWRAPPED = 10_000
"""Columns of a sentence, which a browser wraps."""
Limit = tuple[int | None, str | None]
Pictures = Callable[[Sequence[Module], Callable[[Module], bool]], Iterator[Shown]]


def page(
    contents: Contents,
    pictures: Pictures,
    *,
    command: str,
    limit: Limit = (None, None),
    budget: int = BUDGET,
) -> str:
    """Return the page as HTML.

    Args:
        contents: the contents.
        pictures: yields pictures of modules and answers about them, in order; see
            contents.pictures.
        command: the command that made the page.
        limit: memory of the device [bytes], and its name if it is a known one; without bytes, that
            of the device that a run is labeled with.
        budget: maximum bytes of the page, not counting those of the largest module.
    """
    for overview in contents.summaries.values():
        set_limit(overview, *limit)
    slots = _Slots(contents)
    head = {
        "version": 1,
        "bufdb": __version__,
        "command": command,
        "counts": contents.counts,
        "findings": contents.findings,
        "processes": contents.processes,
        "courses": contents.courses,
        "other_course_count": contents.other_course_count,
        "diff": None if contents.compared is None else _diff(contents.compared, contents.modules),
    }

    def first() -> bytes:
        rows = [_row(module, contents, slots) for module in contents.modules]
        return pack({**head, "modules": {"columns": _COLUMNS, "rows": rows}})

    frame, title = page_frame(), _title(contents)
    slots.room = budget - len(frame.fill(title, [first()]).encode())
    slots.add_all(pictures)
    return frame.fill(title, [first(), *slots.packed])


class _Slots:
    """Data of the modules that fit."""

    def __init__(self, contents: Contents) -> None:
        self.contents = contents
        self.room = 0
        """Bytes left on the page."""
        self.in_vain = 0
        """Consecutive modules that were read and did not fit."""
        self.is_begun = False
        self.packed: list[bytes] = []
        self.number: dict[tuple[int, int | None], int] = {}
        self.left_out: dict[tuple[int, int | None], str] = {}
        self.rows = {module.place: row for row, module in enumerate(contents.modules)}

    def add_all(self, pictures: Pictures) -> None:
        """Add modules by need, the largest compilation of each function first; unknown peaks last.

        A peak without an instant, as in an out-of-memory message, cannot be drawn either.
        """
        known = [module for module in self.contents.modules if module.peak_time is not None]
        unknown = [module for module in self.contents.modules if module.peak_time is None]
        known.sort(key=lambda module: not module.is_largest)
        for module in unknown:
            if module.color is None:
                self.left_out[module.place] = "it has no allocations"
        unknown = [module for module in unknown if module.color is not None]
        for shown in pictures([*known, *unknown], self._is_wanted):
            self._add(shown)

    def _is_wanted(self, module: Module) -> bool:
        """Return whether a module may fit; if not, it is left out unread."""
        is_first, self.is_begun = not self.is_begun, True
        least = 0 if module.peak_time is None else module.value_count * LEAST_BYTES
        if is_first or (least <= self.room and self.in_vain < MOST_IN_VAIN):
            return True
        self._leave_out(module)
        return False

    def _leave_out(self, module: Module) -> None:
        self.left_out[module.place] = "there is no room for it on the page"

    def _add(self, shown: Shown) -> None:
        module, picture, answers = shown
        filters = self.contents.filters[module.place]
        top = ("--top", str(tables.TOP))
        command = tables.command("QUERY", module, filters, *top)
        try:
            texts = sections(self.contents.summaries[module.place])
            data = slot(self.rows[module.place], picture, answers, texts, command)
        except TooLargeError as error:
            self.left_out[module.place] = str(error)
            return
        size = (len(data) + 2) // 3 * 4 + 80
        if size > self.room and self.packed:
            self._leave_out(module)
            self.in_vain += 1
            return
        self.in_vain = 0
        self.packed.append(data)
        self.number[module.place] = len(self.packed)
        self.room -= size


def _row(module: Module, contents: Contents, slots: _Slots) -> list[Any]:
    overview, step = contents.summaries[module.place], contents.steps.get(module.place)
    bytes_, name = overview.limit_bytes, overview.limit_name
    name = name if overview.device is None else overview.device.title
    if module.color != 0:  # a limit applies to the device's own memory
        bytes_, name = None, None
    one = ["--run", glob(module.run_name), "--module", glob(module.module_key)]
    return [
        *module[1:20],
        bytes_,
        name,
        module.unknown_reason,
        slots.number.get(module.place),
        slots.left_out.get(module.place),
        shlex.join(["bufdb", "report", *one]),
        [one._asdict() for one in sentences(overview, width=_UNWRAPPED)],
        None if step is None else step_words(step),
    ]


def _diff(compared: Compared, modules: Sequence[Module]) -> dict[str, Any]:
    places = {
        (module.run_name, module.module_key, module.color): row
        for row, module in enumerate(modules)
    }
    command = ["bufdb", "diff", compared.base, compared.new]
    pairs = {
        row.place: [
            row.place,
            places.get((row.base_run_name or "", row.base_module_key or "", row.color)),
            places.get((row.new_run_name or "", row.new_module_key or "", row.color)),
        ]
        for row in compared.figures
    }

    def table(name: str, title: str, rows: Sequence[Any], *options: str) -> Mapping[str, Any]:
        return {
            "name": name,
            "title": title,
            "command": shlex.join([*command, *options]),
            "columns": compared.columns,
            "rows": rows,
            "is_cut": compared.is_cut,
            "note": None,
        }

    return {
        "base": compared.base,
        "new": compared.new,
        "command": shlex.join(command),
        "figures": table("diff", "Figures of both sides", compared.figures),
        "parts": {
            key: table("diff", f"Change of each peak by {key}", rows, "--by", key)
            for key, rows in compared.parts.items()
        },
        "pairs": list(pairs.values()),
    }


def _title(contents: Contents) -> str:
    runs = list(dict.fromkeys(module.run_name for module in contents.modules))
    return f"bufdb report: {listed(runs, 3)}"


# -- `report` as a function: one page of HTML about the compiled modules ---------------------------


def report(
    opened: Open,
    *,
    run: str | None = None,
    function: str | None = None,
    module: str | None = None,
    platform: str | None = None,
    base: str | None = None,
    limit: int | str | None = None,
) -> str:
    """Return the page as text; arguments as the options of `bufdb report`.

    Args:
        opened: opens the database.
        run: glob of runs, or of LABEL=VALUE; with `base` the new side of the comparison.
        function: glob of functions.
        module: glob of modules' keys.
        platform: cpu, gpu or tpu.
        base: a run or LABEL=VALUE to compare with.
        limit: memory of the device: bytes, a size like "16GiB", or a name like "TPU v5e".

    Raises:
        UsageError: wrong usage.
        BufdbError: no module matches.
    """
    limits = limit_of(limit)
    globs = {"run": run, "function": function, "module": module, "platform": platform}
    filters: dict[str, Value] = {name: text for name, text in globs.items() if text is not None}
    catalogue = own_queries()
    sql = contents.sql(catalogue)
    runs = None if run is None else [run] if base is None else [run, glob(base)]
    con = opened(sql if base is None else sql + comparison.SQL, runs=runs)
    compared = None if base is None else comparison.compared(con, base, filters)
    sides = [filters] if compared is None else compared.sides(filters)
    content = contents.contents(con, catalogue, sides, compared)
    if not content.modules:
        why = why_nothing(Known(con, CATALOG), catalogue.find("modules"), filters)
        raise BufdbError(f"nothing to report: {why}")
    options = {**globs, "diff": base, "limit": None if limit is None else str(limit)}
    words = [word for name, text in options.items() if text for word in (f"--{name}", text)]
    return page(
        content,
        partial(contents.pictures, con, content),
        command=shlex.join(["bufdb", "report", *words]),
        limit=limits,
    )
