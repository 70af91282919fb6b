"""What a command left in its dump directory, or why it left nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from bufdb.capture.environment import Environment
from bufdb.dumps.files import BUFFER_KINDS, PARTS, ModuleFiles


def cached_modules(folder: Path) -> list[str]:
    """Names of modules that came out of a compilation cache: dumped as HLO text alone."""
    names = {path.name for path in folder.rglob("module_*") if path.is_file()}
    compiled = {_id(name) for name in names if name.endswith(tuple(PARTS))}
    text = ".after_optimizations.txt"
    return sorted(
        name.removesuffix(text)
        for name in names
        if name.endswith(text) and _id(name) not in compiled
    )


def is_shared(modules: Sequence[ModuleFiles]) -> bool:
    """Whether several processes wrote the dumps: a process gives each module its own number."""
    seen: dict[tuple[str, int], str | None] = {}
    for module in modules:
        name = module.name
        if name.module_number is None or not set(module.files) & set(BUFFER_KINDS):
            continue
        key = (module.key.rpartition("/")[0], name.module_number)
        if seen.setdefault(key, name.module_name) != name.module_name:
            return True
    return False


def why_nothing(folder: Path, given: Environment, exit_code: int) -> str:
    """Why a command usually leaves no buffer assignment in the directory, and what to do."""
    cached = cached_modules(folder)
    if cached:
        return (
            f"nothing was compiled: {len(cached)} modules came out of a compilation cache, such as "
            f"{cached[0]}. The program turns the cache on itself "
            "(jax_enable_compilation_cache); turn it off there, or remove the cached files"
        )
    reasons = []
    if exit_code:
        reasons.append(f"the command failed (exit code {exit_code}) before it compiled anything")
    if given.hiding_flags:
        reasons.append(f"XLA_FLAGS have {' '.join(given.hiding_flags)}: try without")
    if any(folder.iterdir()):
        reasons.append("XLA dumped other files only: a compilation did not get far enough")
    else:
        reasons += [
            "nothing was jitted: no function under jax.jit was called, lowered and compiled",
            "the program sets XLA_FLAGS itself, or starts its worker without our environment "
            "(sudo, ssh, a scheduler): it must add to XLA_FLAGS, not replace them",
            "it computes with no XLA compiler, such as PyTorch without torch_xla",
        ]
    return "nothing was dumped. Usual reasons:\n" + "\n".join(f"  - {text}" for text in reasons)


def _id(name: str) -> str:
    """`module_0007` of a dump file's name, by which the files of a module are known."""
    found = re.search(r"module_\d+", name)
    return found[0] if found else name
