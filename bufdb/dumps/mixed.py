"""Whether the files in a directory are of several processes, which overwrite each other's.

XLA numbers the modules of a process from 0, and writes each file once (format section 2). So in the
dumps of one process a number has one name, and modules begin in the order of their numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from bufdb.dumps.files import BEFORE, BUFFER_KINDS, ModuleFiles, Problem, base_name

SEVERAL = "several_processes"
"""Code of the problem."""
_WHAT = (
    "files of several processes: {}. Those of equal number and name overwrote each other, so "
    "modules are missing, or put together from two; dump each process to a directory of its own, "
    "or use bufdb capture"
)
_APART_NS = 500_000_000
"""Modules that threads compile at once may begin in another order, but not half a second apart."""
_TOGETHER_NS = 2_000_000_000
"""XLA writes the buffer files of a module one after the other."""


def mixed(modules: Iterable[ModuleFiles]) -> Iterator[Problem]:
    """Yield what shows that several processes wrote to a directory, once for each."""
    folders: dict[str, list[ModuleFiles]] = {}
    for module in modules:
        if module.name.module_number is not None:
            folder = module.key.removesuffix(base_name(module.key))
            folders.setdefault(folder, []).append(module)
    for folder, of_folder in folders.items():
        why = _numbered_twice(of_folder) or _disordered(of_folder) or _torn(of_folder)
        if why is not None:
            yield Problem(folder.rstrip("/") or None, "notice", SEVERAL, _WHAT.format(why))


def _numbered_twice(modules: Iterable[ModuleFiles]) -> str | None:
    """Return why a number is that of two modules; backends of several libraries count apart."""
    seen: dict[tuple[int | None, str | None, bool], ModuleFiles] = {}
    for module in modules:
        if not set(module.files) & set(BUFFER_KINDS):
            continue
        name = module.name
        key = (name.module_number, name.backend, name.cl_number is None)
        first = seen.setdefault(key, module).name
        if (first.module_name, first.dump_time_us) != (name.module_name, name.dump_time_us):
            both = f"{first.module_name} and {name.module_name}"
            if first.module_name == name.module_name:
                both = f"{name.module_name} at two times"
            return f"module {name.module_number} is {both}"
    return None


def _disordered(modules: Iterable[ModuleFiles]) -> str | None:
    """Return why modules began in another order than that of their numbers."""
    begun = []
    for module in modules:
        began = _began(module)
        if began is None:
            return None
        begun.append((module.name.module_number or 0, began, module.name))
    begun.sort(key=lambda one: one[0])
    latest = begun[0] if begun else None
    for one in begun:
        if latest is not None and one[1] < latest[1] - _APART_NS:
            return f"module {one[0]} was written before module {latest[0]}"
        latest = max(latest, one, key=lambda two: two[1]) if latest is not None else one
    return None


def _began(module: ModuleFiles) -> int | None:
    """Return when XLA began with a module [ns]; None if its files do not show it.

    That is in its name, or the time of the text that it received. A copy may have set the times:
    then the order in which XLA writes the files of a module is lost, too.
    """
    if module.name.dump_time_us is not None:
        return module.name.dump_time_us * 1000
    times = _times(module)
    if BEFORE not in times or any(times[BEFORE] > time for time in times.values()):
        return None
    return times[BEFORE]


def _torn(modules: Iterable[ModuleFiles]) -> str | None:
    """Return why the buffer files of a module are not of one compilation."""
    for module in modules:
        times = [time for kind, time in _times(module).items() if kind in BUFFER_KINDS]
        began = _began(module)
        if began is not None and times and max(times) - min(times) > _TOGETHER_NS:
            number = module.name.module_number
            return f"the buffer files of module {number} were written at two times"
    return None


def _times(module: ModuleFiles) -> dict[str, int]:
    """Return when files were written [ns], of those that are files themselves."""
    try:
        return {
            kind: file.path.stat().st_mtime_ns
            for kind, file in module.files.items()
            if isinstance(file.path, Path) and file.stop < 0
        }
    except OSError:
        return {}
