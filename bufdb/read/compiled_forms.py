"""The lines in which logs have the sums of programs that compiled (format section 9.2).

libtpu's summary of a compilation, JAX's `CompiledMemoryStats(…)`, MaxText's "Total memory size".
"""

from __future__ import annotations

import re

from bufdb.read.amount import Amount, amount_of
from bufdb.read.message import Message
from bufdb.read.oom_rules import Rule

# -- libtpu ----------------------------------------------------------------------------------------


def _use(message: Message, title: re.Match[str]) -> None:
    """Take the program's part of a memory space.

    In HBM arguments are not in it, so that "Total hbm usage" is the total if it is there; of other
    spaces it is everything that is used, which may be more than "Program smem requirement".
    """
    if message.space != "hbm" or message.total is None:
        message.total = amount_of(title["size"])
        message.is_program_alone = message.space == "hbm"


# -- JAX and MaxText -------------------------------------------------------------------------------

_STATISTIC = re.compile(
    r"\b(?P<host>host_)?(?P<name>generated_code|argument|output|alias|temp)_size_in_bytes="
    r"(?P<size>\d{1,18})\b"
)
_FIGURE = re.compile(
    r"(?P<name>Total memory|Output|Temp|Argument|Host temp) size: "
    r"(?P<size>\d{1,15}(?:\.\d{1,3})? ?[KMGTP]?B)"
)


def _statistics(message: Message, match: re.Match[str]) -> None:
    """Take the figures of a line; -1 and None, which are "unknown", are left out."""
    for one in _STATISTIC.finditer(match.string, match.start()):
        where = message.host() if one["host"] else message
        name = "code" if one["name"] == "generated_code" else one["name"]
        where.amounts[name] = Amount(int(one["size"]), 0)
    for where in (message, *message.more):
        known = [where.amounts.get(name) for name in ("argument", "output", "temp", "alias")]
        if None not in known:
            argument, output, temp, alias = (one.size_bytes for one in known if one is not None)
            size = argument + output + temp - alias
            where.total = Amount(size, 0) if size >= 0 else None


def _sizes(message: Message, title: re.Match[str]) -> None:
    """Take MaxText's line, in which GB are 2^30 bytes; what is donated follows from the total."""
    sizes: dict[str, Amount] = {}
    for one in _FIGURE.finditer(title.string, title.start()):
        amount = amount_of(one["size"].replace(" ", ""))
        if amount is not None:
            sizes.setdefault(one["name"], amount)
    names = {"Output": "output", "Temp": "temp", "Argument": "argument"}
    parts = {names[name]: amount for name, amount in sizes.items() if name in names}
    message.total = sizes.get("Total memory")
    message.amounts |= parts
    if "Host temp" in sizes:
        message.host().amounts["temp"] = sizes["Host temp"]
    if len(parts) == len(names) and message.total is not None:
        every = parts["output"] + parts["temp"] + parts["argument"]
        alias = every.size_bytes - message.total.size_bytes
        slack = every.slack_bytes + message.total.slack_bytes
        # Rounded figures agree to some digits: then none or all of the outputs are shared.
        if abs(alias) <= slack:
            alias = 0
        elif abs(alias - parts["output"].size_bytes) <= slack:
            alias = parts["output"].size_bytes
        if alias >= 0:
            message.amounts["alias"] = Amount(alias, slack)
            message.total = Amount(every.size_bytes - alias, message.total.slack_bytes)


SUMS = ("module", "use")
"""Titles of libtpu's summary."""
STATISTICS = ("statistics", "sizes")
"""Titles that hold all sums of a program."""
TITLED = [
    Rule(
        r"XLA::TPU module name: (?P<function>[\w.<>-]*[\w<>-])", part="module", form="summary"
    ),
    Rule(
        r"XLA::TPU program (?P<space>[A-Z]+) usage: (?P<size>SIZE) / (?P<limit>SIZE)",
        part="use", form="summary", then=_use,
    ),
    Rule(r"CompiledMemoryStats\(", part="statistics", form="statistics", then=_statistics),
    Rule(
        r"Total memory size: [\d.]+ ?[KMGTP]?B, ", part="sizes", form="statistics", then=_sizes
    ),
]  # fmt: skip
FIELDS = [
    Rule(r"\b(?:host_)?(?:\w+_size|peak_memory)_in_bytes=", form="statistics", then=_statistics),
]
"""Lines of a CompiledMemoryStats that was printed over several."""
_PLACES = ("reserved", "program", "arguments", "global", "scoped", "HLO temp", "overlays")
_PART = re.compile(rf"(?P<part>{'|'.join(_PLACES)}|Output size) +(?:\d|unknown)")


def place_of(line: str) -> int | None:
    """Return the place of a sum below its title, in which sums ascend; None for other lines."""
    match = _PART.search(line)
    return None if match is None else (*_PLACES, "Output size").index(match["part"])


BETWEEN = Rule(
    r"Note that --xla_tpu_\w+ is not specified|Program divided into \d+ overlays|stage duration: \d"
)
"""Lines of libtpu's log between those of a summary, which have no figure of it."""
TITLES = (
    r"|XLA::TPU module name: |XLA::TPU program [A-Z]+ usage: |CompiledMemoryStats\("
    r"|Total memory size: [\d.]+ ?[KMGTP]?B, "
)
