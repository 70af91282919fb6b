"""What a dump should have and has not: files, sections, totals (format sections 1 and 12)."""

from __future__ import annotations

from collections.abc import Iterator

from bufdb.columnar.account import Finding
from bufdb.dumps.batch import Batch
from bufdb.dumps.files import ModuleFiles
from bufdb.link.context import ModuleFacts


def missing(
    files: ModuleFiles, facts: ModuleFacts, era: str, source: Batch, number: int
) -> Iterator[Finding]:
    """What is missing of the module with this number in its batch.

    A file that another one points to and that may not have been kept is a notice; a part that XLA
    always writes into a file that is there is data loss.
    """
    header, derived = source.headers.get(number), source.modules[number].derived
    if facts.needs_frames and (header is None or not header.frames):
        why = "source lines are unknown: instructions name stack frames, and the tables are"
        if header is None or not header.module_name:
            message = f"{why} in the HLO text {files.key}.txt, which is not there"
            yield Finding(number, "notice", "missing_hlo_text", message)
        else:
            has = "proto" if "hlo" in derived else "HLO text"
            flag = "" if "hlo" in derived else ", as --xla_dump_disable_metadata leaves it"
            message = f"{why} not in its {has}{flag}"
            yield Finding(number, "notice", "missing_stack_frames", message)
    if era == "C":
        yield from _missing_files(files, derived, number)
    if number not in source.has_block_layout:
        is_one_file = number in source.one_file
        for what in _missing_sections(facts, era, is_one_file, "live_range" in derived):
            path = next(iter(files.files.values())).name
            message = f"{what} missing; the file may have been cut off"
            yield Finding(number, "data_loss", "missing_section", message, path)


def _missing_files(files: ModuleFiles, derived: frozenset[str], number: int) -> Iterator[Finding]:
    for kind, suffix, what in (
        ("buffer_assignment", "-buffer-assignment.txt", "sizes and offsets"),
        ("values", "-buffer-assignment-values.txt", "positions, uses and opcodes"),
        ("live_range", "-live-range.txt", "live ranges and the peak"),
    ):
        if kind not in files.files and kind not in derived:
            message = f"{what} are unknown: {files.key}{suffix} is not there"
            yield Finding(number, "notice", "missing_file", message)


def _missing_sections(
    facts: ModuleFacts, era: str, is_one_file: bool, is_derived: bool
) -> Iterator[str]:
    """Parts that the version of XLA that wrote the rest has always written."""
    # The total came in 2019-10, addresses went in 2022-09, shapes of parameters came in 2019-12.
    has_total = not facts.has_pointer or facts.has_shapes or facts.has_descriptions
    is_old = facts.has_pointer and facts.has_shapes and facts.has_allocations
    if (facts.has_used_values or is_old) and has_total and facts.total_bytes is None:
        yield "the line 'Total bytes used' is"
    if is_one_file:
        # Live ranges came in 2021-04, the human form of the total in 2021-08.
        has_ranges = facts.has_descriptions or facts.human_total is not None
        if has_ranges and not facts.has_live_ranges and facts.live.peak_status is None:
            yield "the live ranges are"
        if facts.has_live_ranges and not facts.has_used_values:
            yield "the list of used values is"
    if facts.has_live_ranges and facts.live.peak_status is None:
        yield "the peak listing is"
    # The tree came with jaxlib 0.7.1, stack frames with 0.8.2.
    # No proto has it.
    is_new = (era == "C" or facts.needs_frames) and not is_derived
    if facts.live.peak_status == "printed" and is_new and facts.live.tree_bytes is None:
        yield "the stack trace breakdown of the peak is"
