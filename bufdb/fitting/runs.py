"""What was compiled for an answer, as stored runs."""

from __future__ import annotations

from collections.abc import Container, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from bufdb.answers.summary import DEVICE_LABEL
from bufdb.database import store
from bufdb.database.runs import names, remove_runs
from bufdb.dumps.place import Files
from bufdb.fitting.plans import Answer, Plan
from bufdb.fitting.question import Question
from bufdb.fitting.session import Dumped
from bufdb.ingest.ingest import ingest

AS_WRITTEN = "as-written"


def stored(answer: Answer, question: Question, dumps: Mapping[Plan, Dumped], device: str) -> Answer:
    """Store what was compiled as runs, in place of those of an earlier question."""
    if question.db is None:
        return answer
    ranks = {row.plan: row.rank for row in answer.plans if row.plan in dumps}
    names = {plan: run_name(question, rank) for plan, rank in [(Plan(), None), *ranks.items()]}
    dumped = {name: dumps[plan] for plan, name in names.items()}
    drop_plans(question, question.db, dumped)
    store_runs(question, dumped, device, answer.program.target)
    as_written = replace(answer.as_written, run=names[Plan()])
    plans = [replace(row, run=names.get(row.plan)) for row in answer.plans]
    return replace(answer, as_written=as_written, plans=tuple(plans))


def drop_plans(question: Question, db: str, replaced: Container[str]) -> None:
    """Remove the plans of an earlier question without those that others replace."""
    if not Path(db).exists():
        return
    with closing(store.open_writable(db)) as con:
        own_runs = f"{question.run}:plan-", f"{run_name(question, None)}:"
        earlier = [name for name in names(con) if name.startswith(own_runs)]
        if gone := [name for name in earlier if name not in replaced]:
            remove_runs(con, gone)


def run_name(question: Question, rank: int | None, at: str = "") -> str:
    """Return the name of the run of a plan, or as written; `at` is what is varied, `b=24`."""
    name = f"{question.run}:{AS_WRITTEN if rank is None else f'plan-{rank}'}"
    return f"{name}:{at}" if at else name


def store_runs(
    question: Question, dumps: Mapping[str, Dumped], device: str, target: str | None
) -> None:
    """Store compilations as runs, by name, in place of those of the same names."""
    assert question.db is not None
    ingest(
        question.db,
        [Files(name, one.files, question.source_path or name) for name, one in dumps.items()],
        labels=question.labels,
        metadata={DEVICE_LABEL: device} | ({"target": target} if target else {}),
        own_globs=question.own_globs,
        replace=True,
    )
