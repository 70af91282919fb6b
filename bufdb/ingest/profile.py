"""Profiles of `jax.profiler` into the table instruction_times, by module and instruction names."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import duckdb

from bufdb.database import runs, store
from bufdb.dumps.profiles import NO_GRAPHS, hidden, load
from bufdb.errors import listed, one_line
from bufdb.proto.xplane import Profile, Program, Timed, Times

_MOST_NAMED = 5
_LEAST_KNOWN = 0.9
"""Share of the names in a profile that a module must have, if numbers do not say that it is it."""
_LEAST_TIMED = 0.5
"""Share of a module's work that a profile must time then: names such as fusion.1 are everywhere."""
_LEAST_KNOWN_BY_NUMBER = 0.5
_MODULES = """
SELECT module_id, module_name, hlo_module_name, module_number, platform
FROM modules
WHERE run_name = $run AND ($ids IS NULL OR list_contains($ids::BIGINT[], module_id))
ORDER BY module_id
"""
_NAMES = """
SELECT module_id, instruction_name,
  program_order IS NOT NULL AND coalesce(opcode, '') NOT IN (
    'parameter', 'constant', 'get-tuple-element', 'tuple', 'bitcast', 'while', 'call',
    'conditional', 'iota', 'after-all', 'partition-id', 'replica-id', 'opt-barrier'
  )
FROM instructions
WHERE list_contains(?::BIGINT[], module_id)
"""
CODES = ("unknown_instruction", "profile_of_other_process", "unmatched_profile", "hidden_times")
"""Codes of diagnostics that a profile gives, and the next one replaces."""


@dataclass(frozen=True)
class _Module:
    module_id: int
    number: int | None
    platform: str | None
    names: dict[str, bool]
    """Instructions, and whether each is work."""


@dataclass
class Report:
    """The outcome for a run."""

    lines: list[str] = field(default_factory=list)
    """What was timed, module by module."""
    unmatched: list[str] = field(default_factory=list)
    """Why programs were not matched, and what has no name."""


class Timing:
    """A profile on its way to the modules of a run."""

    def __init__(self, profile: Profile) -> None:
        self.profile = profile
        self.report = Report()
        self._of_program: dict[Program, dict[Timed, Times]] = {}
        for key, times in profile.times.items():
            self._of_program.setdefault(key.program, {})[key] = times
        self._why: dict[Program, str] = {}
        """Programs that are not matched, and why."""
        self._matched: set[Program] = set()

    def add(
        self, con: duckdb.DuckDBPyConnection, run: str, ids: Collection[int] | None = None
    ) -> None:
        """Store the times of the modules of a run, all or some."""
        chosen = self._match(_modules(con, run, self._of_program, ids))
        for program, module in chosen.items():
            self._store(con, run, program, module)
        self._matched |= chosen.keys()

    def finish(self, con: duckdb.DuckDBPyConnection, run: str) -> Report:
        """Store what was not matched, and return the outcome."""
        self.report.unmatched = [
            *(
                self._unmatched(program)
                for program in sorted(self._of_program, key=str)
                if program not in self._matched
            ),
            *hidden(self.profile),
        ]
        _replace_findings(con, run, None, [("unmatched_profile", self.report.unmatched)])
        return self.report

    def _unmatched(self, program: Program) -> str:
        times = self._of_program[program].values()
        spent = sum(one.self_ps for one in times) / 1e9
        why = self._why.get(program, "the run has no module of that name")
        return f"{_named(program)}, {len(times)} instructions and {spent:.3f} ms: {why}"

    def _match(self, modules: Mapping[str, Sequence[_Module]]) -> dict[Program, _Module]:
        """Return the module of each program, as far as it is certain."""
        chosen: dict[Program, _Module] = {}
        for program in self._of_program:
            for module in self._candidates(program, modules):
                if module.number is not None and module.number == program.program_id:
                    if self._known(program, module) >= _LEAST_KNOWN_BY_NUMBER:
                        chosen[program] = module
                    else:
                        self._why[program] = (
                            "the module of that number has other instructions: the profile is of "
                            "another compilation"
                        )
        taken = {module.module_id for module in chosen.values()}
        likely: dict[int, list[tuple[Program, _Module]]] = {}
        for program in self._of_program.keys() - chosen.keys() - self._why.keys():
            left = [
                (self._known(program, one), one)
                for one in self._candidates(program, modules)
                if one.module_id not in taken and self._timed(program, one) >= _LEAST_TIMED
            ]
            best = max((known for known, _ in left), default=0)
            best_known = [one for known, one in left if known == best and best >= _LEAST_KNOWN]
            if len(best_known) == 1:
                likely.setdefault(best_known[0].module_id, []).append((program, best_known[0]))
            elif best_known:
                self._why[program] = f"{len(best_known)} modules of that name have its instructions"
            elif any(True for _ in self._candidates(program, modules)):
                self._why[program] = "no module of that name has its instructions"
        for pairs in likely.values():
            if len(pairs) == 1:
                chosen |= dict(pairs)
            else:
                for program, _ in pairs:
                    self._why[program] = f"{len(pairs)} programs of the profile fit one module"
        return chosen

    def _candidates(
        self, program: Program, modules: Mapping[str, Sequence[_Module]]
    ) -> Iterator[_Module]:
        """Yield the modules of a program's name, of the platform on which it ran."""
        devices = {key.device.rpartition("/")[2] for key in self._of_program[program]}
        for module in modules.get(program.module_name, ()):
            if module.platform is None or any(
                device.lower().startswith(module.platform) for device in devices
            ):
                yield module

    def _known(self, program: Program, module: _Module) -> float:
        """Return the share of the timed names that are the module's."""
        names = {key.instruction_name for key in self._of_program[program]}
        return len(names & module.names.keys()) / len(names)

    def _timed(self, program: Program, module: _Module) -> float:
        """Return the share of the module's work that is timed."""
        work = {name for name, is_work in module.names.items() if is_work}
        names = {key.instruction_name for key in self._of_program[program]}
        return len(work & names) / len(work) if work else 1.0

    def _store(
        self, con: duckdb.DuckDBPyConnection, run: str, program: Program, module: _Module
    ) -> None:
        """Replace the times of a module."""
        times = self._of_program[program]
        rows = _rows(module.module_id, times, self.profile.run_counts)
        con.execute("DELETE FROM instruction_times WHERE module_id = ?", [module.module_id])
        columns = [list(column) for column in zip(*rows, strict=True)]
        unnested = ", ".join("unnest(?)" for _ in columns)
        con.execute(f"INSERT INTO instruction_times SELECT {unnested}", columns)
        _count_rows(con, module.module_id, "instruction_times")
        names = {key.instruction_name for key in times}
        unknown = sorted(names - module.names.keys())
        findings = []
        if unknown:
            message = f"{len(unknown)} timed instructions are none of the module's: "
            findings.append(("unknown_instruction", [message + _some(unknown)]))
        if program.program_id is not None and module.number not in (None, program.program_id):
            is_counted = module.platform in ("cpu", "gpu")
            message = (
                f"the profile numbers the module {program.program_id}, its dump {module.number}: "
                "it is of another process, and times are right if that compiled the same program"
            )
            findings += [("profile_of_other_process", [message])] if is_counted else []
        work = {name for name, is_work in module.names.items() if is_work}
        untimed = sorted(work - names)
        if untimed and any("GPU" in key.device for key in times) and self.profile.unnamed:
            message = (
                f"{len(untimed)} instructions have no time ({_some(untimed)}), and events without "
                f"the name of an instruction may be theirs; {NO_GRAPHS} switches off command "
                "buffers, which hide names"
            )
            findings.append(("hidden_times", [message]))
        _replace_findings(con, run, module.module_id, findings)
        runs_on = {row[2]: row[4] for row in rows}
        where = ", ".join(
            f"{device} ({count} run{'s' if count > 1 else ''})"
            for device, count in sorted(runs_on.items())
        )
        self.report.lines.append(
            f"{_named(program)}: {len(work & names)} of {len(work)} instructions timed on {where}"
        )


def _named(program: Program) -> str:
    number = "" if program.program_id is None else f"({program.program_id % (1 << 64)})"
    return one_line(program.module_name) + number


def _some(names: Sequence[str]) -> str:
    return one_line(listed(names, _MOST_NAMED))


def _modules(
    con: duckdb.DuckDBPyConnection,
    run: str,
    programs: Iterable[Program],
    ids: Collection[int] | None,
) -> dict[str, list[_Module]]:
    """Return the modules of a run that have the name of a program, by that."""
    wanted = {program.module_name for program in programs}
    parameters = {"run": run, "ids": None if ids is None else list(ids)}
    rows = [row for row in con.execute(_MODULES, parameters).fetchall() if wanted & set(row[1:3])]
    names: dict[int, dict[str, bool]] = {row[0]: {} for row in rows}
    for module_id, name, is_work in con.execute(_NAMES, [list(names)]).fetchall():
        names[module_id][name] = is_work
    modules: dict[str, list[_Module]] = {}
    for module_id, name, hlo_name, number, platform in rows:
        module = _Module(module_id, number, platform, names[module_id])
        for one in wanted & {name, hlo_name}:
            modules.setdefault(one, []).append(module)
    return modules


def _rows(
    module_id: int,
    times: Mapping[Timed, Times],
    run_counts: Mapping[tuple[Program, str], int],
) -> list[tuple[int, str, str, bool, int, int, int, int, int, int]]:
    least: dict[str, int] = {}
    for key, one in times.items():
        least[key.device] = min(least.get(key.device, one.execution_count), one.execution_count)
    return [
        (
            module_id,
            key.instruction_name,
            key.device,
            key.is_overlapped,
            run_counts.get((key.program, key.device), least[key.device]),
            one.execution_count,
            _ns(one.total_ps),
            _ns(one.self_ps),
            _ns(one.least_ps),
            _ns(one.largest_ps),
        )
        for key, one in sorted(times.items())
    ]


def _ns(ps: int) -> int:
    return (ps + 500) // 1000


def _replace_findings(
    con: duckdb.DuckDBPyConnection,
    run: str,
    module_id: int | None,
    findings: Iterable[tuple[str, Sequence[str]]],
) -> None:
    con.execute(
        "DELETE FROM diagnostics WHERE run_name = ? AND module_id IS NOT DISTINCT FROM ? "
        "AND list_contains(?, code)",
        [run, module_id, list(CODES)],
    )
    for code, messages in findings:
        for message in messages:
            con.execute(
                "INSERT INTO diagnostics VALUES (?, ?, 'notice', ?, NULL, NULL, ?)",
                [run, module_id, code, message],
            )
    if module_id is not None:
        _count_rows(con, module_id, "diagnostics")


def _count_rows(con: duckdb.DuckDBPyConnection, module_id: int, table: str) -> None:
    con.execute("DELETE FROM row_counts WHERE module_id = ? AND table_name = ?", [module_id, table])
    con.execute(
        f"INSERT INTO row_counts SELECT module_id, '{table}', count(*) FROM {table} "
        "WHERE module_id = ? GROUP BY module_id",
        [module_id],
    )


def add_profile(db: str, path: Path, run: str, note: Callable[[str], None]) -> Report:
    """Store the times of a profile with the modules of a run in a database file.

    Raises:
        UsageError: there is no such run, or no profile.
        BufdbError: the profile cannot be read; nothing is changed.
    """
    profile = load(path, note)
    with contextlib.closing(store.open_writable(db)) as con:
        runs.require(con, [run])
        timing = Timing(profile)
        con.execute("BEGIN")
        timing.add(con, run)
        report = timing.finish(con, run)
        con.execute("COMMIT")
    return report
