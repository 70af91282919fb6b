"""What a process leaves of a device's memory: a limit for a program, from a memory profile."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bufdb.answers.devices import device, limit_of, with_share
from bufdb.database.engine import duckdb
from bufdb.dumps import memory_profiles
from bufdb.errors import UsageError, quote
from bufdb.query import execute
from bufdb.query.header import SavedQuery
from bufdb.render.text import escape_control, human_bytes

ACCOUNTS = """
SELECT
  pools.profile_name, pools.device, pools.limit_bytes,
  coalesce(pools.used_bytes, pools.low_used_bytes) AS used_bytes,
  (
    SELECT sum(live_arrays.argument_bytes)::BIGINT
    FROM live_arrays
    WHERE live_arrays.run_name = pools.run_name
      AND live_arrays.profile_name = pools.profile_name
      AND live_arrays.device = pools.device
  ) AS argument_bytes,
  (
    SELECT min(run_labels.label_value)
    FROM run_labels
    WHERE run_labels.run_name = pools.run_name
      AND run_labels.label = 'memory_fraction'
  ) AS memory_fraction
FROM pools
JOIN asked_accounts
  ON asked_accounts.run_name = pools.run_name
  AND asked_accounts.profile_name = pools.profile_name
ORDER BY pools.run_name, pools.profile_name, pools.device
"""


@dataclass(frozen=True)
class Held:
    """What a device holds at one moment."""

    profile: str
    device: str
    limit_bytes: int | None
    used_bytes: int | None
    argument_bytes: int | None
    """Of these, arguments of the program that failed; None if that is not known."""
    memory_fraction: str | None = None
    """The share of a GPU that the run has, by its label."""

    @property
    def stay_bytes(self) -> int:
        """What a program does not bring itself."""
        return (self.used_bytes or 0) - (self.argument_bytes or 0)


@dataclass(frozen=True)
class Left:
    """The limit of a program on the fullest device."""

    size_bytes: int
    note: str


def require_budget(query: SavedQuery) -> None:
    """Raise UsageError unless the parameter budget of a query is what a process leaves."""
    if query.param("budget") is None:
        raise UsageError(f"{query.name}: --live sets the parameter budget, where there is one")
    if query.param("profile") is not None:
        raise UsageError(
            f"{query.name}: it takes what stays off by itself, which --live would count twice; "
            "the budget is the whole memory"
        )


def of_file(path: Path) -> list[Held]:
    """Return what each device holds by a memory profile, with what bufdb.watch wrote next to it.

    Raises:
        BufdbError: it is none, or cannot be read.
    """
    taken = memory_profiles.load(memory_profiles.named(path))
    sums: dict[str, int] = {}
    for alive, held in taken.profile.arrays.items():
        sums[alive.device] = sums.get(alive.device, 0) + held.total_bytes
    known = taken.arguments
    passed: dict[str, int] = {}
    for (alive, _), held in (known or {}).items():
        passed[alive.device] = passed.get(alive.device, 0) + held.total_bytes
    statistics: dict[str, dict[str, int]] = {}
    for row in taken.statistics:
        size = int(row["statistic_value"]) + int(row["slack_bytes"])
        statistics.setdefault(row["device"], {})[row["statistic_name"]] = size
    code = 0 if taken.profile.unsized_count else taken.profile.code_bytes
    return [
        Held(
            path.name,
            device,
            taken.limit_bytes or statistics.get(device, {}).get("bytes_limit"),
            statistics.get(device, {}).get("bytes_in_use", sums.get(device, 0) + code),
            None if known is None else passed.get(device, 0),
        )
        for device in sorted({*sums, *(d for d, of in statistics.items() if "bytes_in_use" in of)})
    ]


def of_run(con: duckdb.DuckDBPyConnection, run: str) -> list[Held]:
    """Return what each device holds by the accounts of a run (a name, a label or a glob)."""
    result = execute.execute_with(con, ACCOUNTS, {"run": run}, "--live")
    return [Held(*row) for row in result.rows]


def left_of(accounts: list[Held], live: str, limit: int | str | None) -> Left:
    """Return what is left of a limit, else of that of the account, on the fullest device.

    Raises:
        UsageError: nothing is known, or nothing is left.
    """
    size, name = limit_of(limit)
    kind = None if name is None else device(name)

    def bound_of(one: Held) -> int | None:
        if kind is not None and one.memory_fraction is not None:
            return with_share(kind, one.memory_fraction).memory_bytes
        return size or one.limit_bytes

    known = [(one, bound_of(one)) for one in accounts if one.used_bytes is not None]
    if not known:
        raise UsageError(f"--live {live}: it does not say what a device holds")
    if any(bound is None for _, bound in known):
        raise UsageError(
            f"--live {live}: it does not say what the device has; name that with --limit"
        )
    left, one, bound = min(
        ((bound - one.stay_bytes, one, bound) for one, bound in known if bound is not None),
        key=lambda each: each[0],
    )
    if left <= 0:
        raise UsageError(
            f"--live {live}: nothing is left of {human_bytes(bound)} on {quote(one.device)}, "
            f"{human_bytes(one.stay_bytes)} stay"
        )
    note = (
        f"{human_bytes(left)} are left of {human_bytes(bound)} on {one.device} ({one.profile}): "
        f"{human_bytes(one.stay_bytes)} stay"
    )
    if one.argument_bytes is None:
        note += (
            ", with the program's own arguments as far as they are alive, which then count twice: "
            "a profile of bufdb.watch distinguishes them"
        )
    return Left(left, escape_control(note))
