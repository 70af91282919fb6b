"""What was compiled for an answer, as stored runs.

A run that has the same program as before is not read again: for the next limit of a function that
is most of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from bufdb.answers.summary import DEVICE_LABEL
from bufdb.database.runs import names, remove_runs
from bufdb.dumps.place import Files
from bufdb.fitting.plans import Answer, Plan
from bufdb.fitting.question import Question
from bufdb.fitting.session import Dumped
from bufdb.ingest.ingest import ingest

if TYPE_CHECKING:
    import duckdb

AS_WRITTEN = "as-written"


def stored(answer: Answer, question: Question, dumps: Mapping[Plan, Dumped], device: str) -> Answer:
    """Store what was compiled as runs, in place of those of an earlier question."""
    if question.db is None:
        return answer
    ranks = {row.plan: row.rank for row in answer.plans if row.plan in dumps}
    names = {plan: run_name(question, rank) for plan, rank in [(Plan(), None), *ranks.items()]}
    dumped = {name: dumps[plan] for plan, name in names.items()}

    def drop_earlier(con: duckdb.DuckDBPyConnection) -> None:
        _drop_earlier(con, question, dumped)

    store_runs(question, dumped, device, answer.program.target, drop_earlier)
    as_written = replace(answer.as_written, run=names[Plan()])
    plans = [replace(row, run=names.get(row.plan)) for row in answer.plans]
    return replace(answer, as_written=as_written, plans=tuple(plans))


def _drop_earlier(
    con: duckdb.DuckDBPyConnection, question: Question, dumps: Mapping[str, Dumped]
) -> None:
    """Remove the runs of an earlier question, but those whose programs are stored again."""
    plans = f"{question.run}:plan-", f"{run_name(question, None)}:"
    known = _programs(con)
    same = {name for name, one in dumps.items() if known.get(name) == _programs_of(one)}
    own = (name for name in names(con) if name in dumps or name.startswith(plans))
    if gone := [name for name in own if name not in same]:
        remove_runs(con, gone)
    for name in same:  # those of this question replace them
        con.execute("DELETE FROM run_labels WHERE run_name = ?", [name])


def _programs(con: duckdb.DuckDBPyConnection) -> dict[str, set[str]]:
    """Return what identifies the programs of each run, see `bufdb.capture.dump.programs`."""
    sql = "SELECT run_name, list(split_part(module_key, '/', 1)) FROM modules GROUP BY run_name"
    return {run: set(keys) for run, keys in con.execute(sql).fetchall()}


def _programs_of(dumped: Dumped) -> set[str]:
    return {name.partition("/")[0] for name in dumped.files}


def run_name(question: Question, rank: int | None, at: str = "") -> str:
    """Return the name of the run of a plan, or as written; `at` is what is varied, `b=24`."""
    name = f"{question.run}:{AS_WRITTEN if rank is None else f'plan-{rank}'}"
    return f"{name}:{at}" if at else name


def store_runs(
    question: Question,
    dumps: Mapping[str, Dumped],
    device: str,
    target: str | None,
    before: Callable[[duckdb.DuckDBPyConnection], object] = lambda con: None,
) -> None:
    """Store compilations as runs, by name, in place of those of the same names.

    What has not changed of these stays as it is. `before` is that of an ingest.
    """
    assert question.db is not None
    ingest(
        question.db,
        [Files(name, one.files, question.source_path or name) for name, one in dumps.items()],
        before,
        labels=question.labels,
        metadata={DEVICE_LABEL: device} | ({"target": target} if target else {}),
        own_globs=question.own_globs or (),  # not those of an earlier question
        prune=True,
    )
