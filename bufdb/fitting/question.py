"""What `bufdb fit` is asked, and how it divides its budget of compilations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from bufdb.errors import UsageError
from bufdb.fitting.last_resort import FLAGS
from bufdb.fitting.levers import OF_TEXT, ON_DEMAND
from bufdb.fitting.levers.attention import Attention
from bufdb.fitting.levers.blocks import Blocks
from bufdb.fitting.ranking import PRODUCTS

ATTENTION = Attention.name
BLOCKS = Blocks.name
VERIFIED = 1
"""Compilations of the budget that are kept for the patched files."""
KINDS = (*(lever.name for lever in (*ON_DEMAND, *OF_TEXT)), FLAGS)
"""What is tried on demand: changes of the program's text, and options of the compiler."""
WHOLE = 3
"""Compilations to find a plan without a step by hand, if what fits has one."""
ALSO = 3
"""Compilations of the budget that are kept for each kind of these."""
ROLLED = 2
"""Those that are kept for a kind that is tried by itself, such as a scan over equal blocks: of the
function as written, and of the plan of the least need."""
LARGE = 0.25
"""Share of the need as written from which on compilations are kept for scores of attention."""


@dataclass(frozen=True)
class Question:
    """What `bufdb fit` is asked."""

    limit_bytes: int | None = None
    compile_budget: int = 12
    """Compilations besides that of the function as written."""
    also: tuple[str, ...] = ()
    """Which of `KINDS` to try, too."""
    order: str = PRODUCTS
    """Which of the costs `ranking.ORDERS` ranks the plans."""
    db: str | None = None
    """Where to store what was compiled; None: nowhere."""
    run: str = "fit"
    """Beginning of the names of its runs."""
    labels: Mapping[str, str] = field(default_factory=dict)
    source_path: str | None = None
    own_globs: Sequence[str] | None = None
    """What of libraries counts as the user's."""
    observer: Callable[[str], None] = lambda text: None
    is_over: Callable[[], bool] = lambda: False
    improved: Callable[[str], None] = lambda text: None
    """Receives the best so far, in words, whenever it is another one."""
    is_interruptible: bool = False
    """Whether Ctrl-C ends the search with an answer, as the time does."""

    def search_budget(self, kinds: int, kept: int) -> int:
        """Return how many compilations the search may do besides those of some kinds, and more."""
        return max(1, self.compile_budget - VERIFIED - ALSO * kinds - kept)


def kinds_of(words: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds of changes to try, each once.

    Raises:
        UsageError: a word is none of `KINDS`.
    """
    kinds = words.split(",") if isinstance(words, str) else words
    for word in kinds:
        if word not in KINDS:
            raise UsageError(f"expected {' or '.join(KINDS)} as what to try also, found {word!r}")
    return tuple(kind for kind in KINDS if kind in kinds)
