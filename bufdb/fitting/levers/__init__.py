"""The kinds of changes that `bufdb fit` tries, one module each, as `bufdb.fitting.lever` has it.

Their order is that of edits, and of words in an answer.
"""

from bufdb.fitting.also import Rewrite
from bufdb.fitting.lever import Lever
from bufdb.fitting.levers.attention import Attention
from bufdb.fitting.levers.blocks import Blocks
from bufdb.fitting.levers.calls import Calls
from bufdb.fitting.levers.carried import Carried
from bufdb.fitting.levers.chunks import Chunks
from bufdb.fitting.levers.depth import Depths
from bufdb.fitting.levers.donation import Donation
from bufdb.fitting.levers.flags import Flags
from bufdb.fitting.levers.host import Host
from bufdb.fitting.levers.microbatch import Microbatch
from bufdb.fitting.levers.products import Products
from bufdb.fitting.levers.saved import Saved
from bufdb.fitting.levers.vmap import Vmap
from bufdb.fitting.levers.vmem import Vmem

LEVERS: tuple[Lever, ...] = (
    Saved(), Host(), Carried(), Calls(), Products(), Depths(), Donation(), Flags(),
)  # fmt: skip
"""Those that every search tries."""
ON_DEMAND: tuple[Rewrite, ...] = (Microbatch(), Chunks())
"""Those that `--also` names: they change the program's text."""
OF_TEXT: tuple[Lever, ...] = (Attention(), Vmap(), Blocks(), Vmem())
"""Those that `--also` names, and whose plans are compiled from the patched files."""
EVERY: tuple[Lever, ...] = (*LEVERS, *ON_DEMAND, *OF_TEXT)
