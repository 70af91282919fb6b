"""XLA's warnings about memory in logs: what it plans for, what it replicates, what it tuned.

Written by `hlo_rematerialization.cc`, `gpu_hlo_schedule.cc`, `spmd_partitioner.cc` and the
autotuner (format section 9.2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bufdb.read.instruction import metadata_of

_SIZE = r"-?\d{1,15}(?:\.\d{1,3})?(?:[KMGTPE]i)?B"
_REDUCED = re.compile(
    rf"t reduce memory use below (?P<limit>{_SIZE})(?: \((?P<limit_bytes>-?\d{{1,18}}) bytes\))?"
    rf"(?: by rematerialization)?; only reduced to (?P<least>{_SIZE})"
    rf"(?: \((?P<least_bytes>\d{{1,18}}) bytes\))?, down from (?P<first>{_SIZE})"
    rf"(?: \((?P<first_bytes>\d{{1,18}}) bytes\))?"
)
_REPLICATED = re.compile(r"\[spmd\] Involuntary full rematerialization", re.IGNORECASE)
_SHARDINGS = re.compile(
    r"from sharding (?P<old>\{.*?\}) to (?P<new>\{.*?\}) (?:without|efficiently)"
)
_INSTRUCTION = re.compile(
    r"(?:HLO operation:?|(?:algorithm|tried) for:?|failed for HLO:|^) *"
    r"%?(?P<name>[^\s=%]+) = (?P<shape>\(.*?\)|[a-z]\w*\[\S*) (?P<opcode>[a-z][a-z0-9-]*)\("
)
_TUNED = re.compile(
    r"best cudnn convolution algorithm for:|All algorithms tried for|Autotuning failed for HLO: "
    r"|%\S+ = .* custom-call\(.*custom_call_target=\"__cudnn\$conv"
)
_EXCEEDED = re.compile(
    r"byte size of input/output arguments \((?P<arguments>\d{1,18})\) exceeds the base limit "
    r"\((?P<base>\d{1,18})\)"
)
TITLES = (
    r"|t reduce memory use below -?\d|\[(?:spmd|SPMD)\] Involuntary full rematerialization"
    r"|best cudnn convolution algorithm for:|All algorithms tried for|Autotuning failed for HLO: "
    r"|__cudnn\$conv|exceeds the base limit \(\d"
)
REDUCED, REPLICATED, TUNED = "memory_not_reduced", "involuntary_rematerialization", "autotuned"
EXCEEDED = "arguments_exceed_limit"


@dataclass(frozen=True)
class Warned:
    """A warning in a log."""

    code: str
    text: str
    sizes: tuple[tuple[str, str], ...] = ()
    """Sizes as printed, by the columns of scheduled_limits."""


def warning_of(line: str) -> tuple[Warned, int] | None:
    """Return the warning of a line, and where it begins; None for other lines."""
    if "t reduce memory use below" in line and (match := _REDUCED.search(line)):
        sizes = tuple((f"{n}_bytes", f"{match[f'{n}_bytes']}B" if match[f"{n}_bytes"] else match[n])
                      for n in ("limit", "least", "first"))  # fmt: skip
        return Warned(REDUCED, _not_reduced(match), sizes), match.start()
    if "exceeds the base limit" in line and (match := _EXCEEDED.search(line)):
        text = (
            f"arguments and outputs alone have {match['arguments']} bytes, and XLA plans for "
            f"{match['base']}: it saves memory wherever it can, at any cost in time"
        )
        sizes = (("limit_bytes", "0B"), ("base_bytes", f"{match['base']}B"))
        return Warned(EXCEEDED, text, sizes), match.start()
    if "ematerialization" in line and (match := _REPLICATED.search(line)):
        return Warned(REPLICATED, _replicated(line[match.start() :])), match.start()
    return None


def tuned_of(line: str) -> Warned | None:
    """Return the operation that autotuning names in a line; None for other lines."""
    if " = " not in line:
        return None
    match = _TUNED.search(line)
    named = None if match is None else _named(line[match.start() :])
    return None if named is None else Warned(TUNED, f"it failed while XLA tuned {named}")


def _not_reduced(match: re.Match[str]) -> str:
    least, first = (_exact(match, name) for name in ("least", "first"))
    text = f"XLA's estimate of the program is {least} after rematerialization, {first} before"
    if match["limit"].startswith("-"):
        limit = _spaced(match["limit"].removeprefix("-"))
        return f"{text}: arguments and outputs alone are {limit} more than it may use"
    return f"{text}; it may use {_spaced(match['limit'])}: rematerialization does not make it fit"


def _exact(match: re.Match[str], name: str) -> str:
    size = match[f"{name}_bytes"]
    return _spaced(match[name]) + (f" ({size} bytes)" if size is not None else "")


def _spaced(size: str) -> str:
    """Return a size with a blank before its unit."""
    return re.sub(r"(?<=\d)(?=\D+$)", " ", size)


def _replicated(text: str) -> str:
    named = _named(text)
    sentence = "each device gets the whole of a tensor to change its sharding"
    if named is not None:
        sentence = f"each device gets the whole of {named} to change its sharding"
    if shardings := _SHARDINGS.search(text):
        sentence += f" from {shardings['old']} to {shardings['new']}"
    return sentence


def _named(text: str) -> str | None:
    """Return an instruction with its shape, its op and its line; None without one."""
    match = _INSTRUCTION.search(text)
    if match is None:
        return None
    parsed = metadata_of(text[match.end("opcode") :].encode())
    op_name, file, line = (parsed.get(key) for key in ("op_name", "source_file", "source_line"))
    parts = [match["opcode"], match["shape"]]
    parts += [op_name.decode(errors="replace")] if op_name else []
    parts += [file.decode(errors="replace") + (f":{line}" if line else "")] if file else []
    return f"%{match['name']} ({', '.join(parts)})"
