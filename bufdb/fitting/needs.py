"""What plans of a program need, and where their dumps are, as earlier calls compiled them.

The name of a file is a hash of what identifies the function as it is compiled as written, with the
lines of its source, of its regions and switches, and of bufdb's code. So a plan of it is known to
be the program that was compiled for it, without being traced and lowered again.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from bufdb.capture import cache
from bufdb.capture.before import is_kept, put
from bufdb.fitting.figures import code
from bufdb.fitting.lever import Atom
from bufdb.fitting.plans import Learned, Plan, Program
from bufdb.fitting.records import as_json, from_json
from bufdb.fitting.session import Dumped, dumped_in

FAMILIAR = 3
"""Other limits that were asked for before what their plans need is enough to choose by."""
_SUFFIX = ".needs"


class Needs:
    """What is known of the plans of a program."""

    def __init__(self, written: Dumped, program: Program, limit: int | None, folder: Path) -> None:
        """Take the function as written, the limit of now, and a folder for dumps."""
        self._place = cache.folder() if written.placed else None
        self._limit, self._folder = limit, folder
        self._learned: dict[tuple[int | None, Plan], Learned] = {}
        self._dumps: dict[str, tuple[str, str]] = {}
        """By what was compiled, what identifies its dump."""
        if self._place is None:
            return
        facts = json.dumps(as_json(replace(program, notes=(), changes=())))
        digest = hashlib.sha256(repr((written.placed, facts, code())).encode())
        self._name = digest.hexdigest() + _SUFFIX
        data = cache.read(self._place, self._name)
        known = {"plans": [], "dumps": {}} if data is None else json.loads(zlib.decompress(data))
        self._dumps = {
            what: (program, placed) for what, (program, placed) in known["dumps"].items()
        }
        for at, plan, away, need, hoped in known["plans"]:
            atoms = frozenset(Atom(lever, name, tuple(regions)) for lever, name, regions in away)
            own = Learned(from_json(Plan, plan), atoms, need, hoped)
            self._learned[at, own.plan] = own

    def known(self) -> Sequence[Learned]:
        """Return what was compiled for other limits; nothing if these are few."""
        is_enough = len({at for at, _ in self._earlier()}) >= FAMILIAR
        return self.before() if is_enough else ()

    def before(self) -> Sequence[Learned]:
        """Return what was compiled for other limits, however few."""
        return tuple({one.plan: one for _, one in self._earlier()}.values())

    def _earlier(self) -> Iterator[tuple[int | None, Learned]]:
        """Yield other limits with what was compiled for them.

        Of a limit that was asked for before it is what was known then, so that the same call has
        the same answer.
        """
        rows = ((at, one) for (at, _), one in self._learned.items())
        return takewhile(lambda row: row[0] != self._limit, rows)

    def learn(self, one: Learned) -> None:
        """Keep what a plan needs for later calls."""
        self._learned.setdefault((self._limit, one.plan), one)

    def is_kept(self, plan: Plan) -> bool:
        """Return whether the dump of a plan is there again without the compiler."""
        identity = self._dumps.get(_text([plan]))
        return identity is not None and is_kept(identity)

    def dumped(self, *what: Any) -> Dumped | None:
        """Return the dump of a plan, or of its patched files, that an earlier call made."""
        identity = self._dumps.get(_text(what))
        if self._place is None or identity is None:
            return None
        folder = Path(tempfile.mkdtemp(prefix="kept-", dir=self._folder))
        return dumped_in(folder, None, 0.0) if put(identity, folder) else None

    def keep(self, dumped: Dumped, *what: Any) -> None:
        """Keep where the dump of a plan is, or of its patched files."""
        if dumped.placed and dumped.refusal is None:
            self._dumps[_text(what)] = dumped.program, dumped.placed

    def write(self) -> None:
        """Keep what is known now."""
        if self._place is None:
            return
        rows = [
            [at, as_json(one.plan), sorted(one.away), one.need_bytes, one.hoped_bytes]
            for (at, _), one in self._learned.items()
        ]
        known = json.dumps({"plans": rows, "dumps": self._dumps})
        cache.write(self._place, self._name, zlib.compress(known.encode()))


def _text(what: Sequence[Any]) -> str:
    """Return what identifies a plan, with the texts of its patched files."""
    parts = [one if isinstance(one, Mapping) else as_json(one) for one in what]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()
