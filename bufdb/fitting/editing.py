"""The edits of a plan, made one after another; what cannot be made safely is a step in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from bufdb.fitting.edits import Refused
from bufdb.fitting.places import place
from bufdb.fitting.plans import Plan, Program, Site
from bufdb.fitting.source import Source

LONGEST = 60
"""Characters of an expression that a step repeats."""


@dataclass
class Editing:
    """A plan on its way into the user's files."""

    program: Program
    plan: Plan
    texts: Mapping[str, str]
    steps: list[str] = field(default_factory=list)
    """In words, with file and line, what is to be done by hand."""
    sources: dict[str, Source] = field(default_factory=dict)

    def attempt(self, site: Site, how: str, make: Callable[..., None], *arguments: object) -> None:
        """Make an edit, or say in words what it would have been.

        Args:
            site: what is edited.
            how: what to do there by hand.
            make: makes the edit in a source, which it gets before `arguments`; it may refuse.
            arguments: other arguments of it.
        """
        where = place(site)
        source = None
        count = imports = 0
        try:
            source = self._source(site.file)
            count, imports = len(source.edits), len(source.imports)
            make(source, *arguments)
        except Refused as why:
            what = ""
            if source is not None:
                del source.edits[count:], source.imports[imports:]
                what = "" if site == self.program.function_site else _excerpt(source, site)
            self.steps.append(f"{where}: by hand, {how}{what}: {why}")

    def results(self) -> dict[str, str]:
        """Return the new text of each file; one that cannot be edited is a step."""
        texts = {}
        for path, source in self.sources.items():
            try:
                texts[path] = source.result()
            except Refused as why:
                self.steps.append(f"{Path(path).name}: nothing is changed: {why}")
        return texts

    def _source(self, path: str) -> Source:
        if path not in self.texts:
            raise Refused("the text of the file is not at hand")
        if path not in self.sources:
            self.sources[path] = Source(path, self.texts[path])
        return self.sources[path]


def _excerpt(source: Source, site: Site) -> str:
    try:
        text = " ".join(source.of(source.find(site)).split())
    except Refused:
        return " what is there"
    return f" `{text if len(text) <= LONGEST else text[: LONGEST - 1] + '…'}`"
