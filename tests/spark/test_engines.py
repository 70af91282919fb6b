"""Saved queries give DuckDB's rows in DuckDB's order on Spark and on Sail, as their headers claim.

`--update-golden` writes the claims: of the engines that are installed, as they answer.
"""

from __future__ import annotations

import signal

import pytest
from engine_claims import comparable, plain, reasons_of, with_claim

from bufdb import resources
from bufdb.errors import BufdbError
from bufdb.lint import translate
from bufdb.query import catalogue, execute
from bufdb.query.header import ENGINES

CATALOGUE = catalogue.Catalogue([resources.query_folder()])
QUERIES = {query.name: query for query in CATALOGUE.load_all()}
ALIASES = {name: CATALOGUE.find(name) for name in CATALOGUE.aliases}
SIDES = {"base": "cpu_b8", "new": "cpu_b16"}
CASES = {
    "advice": [{"run": "length_2048"}],
    "at-offset": [{"offset": 4096}],
    "at-step": [{"step": 10}, {"instruction": "maximum_bitcast_fusoin"}],
    "scaling": [
        {"label": "length"},
        {"label": "length", "budget": 1 << 30, "size": "4096"},
        {"label": "batch,rank", "fixed": "", "max_error": 9.0, "budget": 1 << 30},
    ],
    "first-regression": [{"label": "batch"}],
    "ranks": [{"label": "length"}],
    "series": [{"label": "length"}, {"only": "regressions", "figure": "temps"}],
    "idle-at-peak": [{"remedy": "offload"}],
    "copies": [{"only": "carry"}],
    "peak-by": [{"by": "op", "depth": 2, "merge_numbers": True}, {"by": "role"}],
    "peaks": [{"function": "train_step"}],
    "peak-by-stack": [{"frames": "all", "depth": 2}],
    "diff-peak": [{"by": "stack", "unchanged": True}],
    "new-temporaries": [{"by": "stack", "grown": True}],
}
"""Arguments to try in addition to the defaults and the filters."""
FILTERS = {"run": "*_b8*", "function": "train*", "platform": "cpu", "top_n": 7}
LONGEST_SECONDS = 300
"""An engine that takes longer counts as not answering: DuckDB takes a second."""

each_query = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())


def cases(query):
    """Values of parameters to ask an engine with."""
    return [of_query(query, values) for values in ({}, *CASES.get(query.name, []))]


def of_query(query, values):
    """Those of some values that the query has; a comparison always has its sides."""
    names = {param.name for param in query.params}
    return {name: value for name, value in {**SIDES, **values}.items() if name in names}


def refusal(query):
    """Return why the query cannot be translated for other engines at all; None if it can."""
    try:
        translate.body(query, "spark")
    except BufdbError as error:
        return str(error).partition(" cannot be written for spark: ")[2]
    return None


@each_query
def test_the_claim_says_why_an_engine_is_missing(query):
    reasons = reasons_of(query.engines_reason)
    assert {*query.engines} | reasons.keys() == set(ENGINES)
    assert not {*query.engines} & reasons.keys()


@pytest.mark.sample(20)
@each_query
def test_what_cannot_be_said_to_other_engines_is_claimed_so(query, request):
    reason = refusal(query)
    if reason and request.config.getoption("--update-golden"):
        text = query.path.read_text(encoding="utf-8")
        reason = reason.replace("(", "").replace(")", "").replace(";", ",")
        query.path.write_text(with_claim(text, dict.fromkeys(("spark", "sail"), reason)))
    elif reason:
        assert query.engines == ("duckdb",)


def difference(engine, duck, query, choices=None):
    """Why an engine does not give DuckDB's rows; None if it does."""
    for values in choices or cases(query):
        expected = comparable(execute.execute_query(duck, query, values).rows)
        try:
            rows = comparable(engine.answer(query, values).rows)
        except BufdbError as error:
            return plain(str(error).partition(": Spark: ")[2])
        except TimeoutError:
            return "it does not answer within minutes"
        if rows != expected:
            pairs = zip(rows, expected, strict=False)
            place = next(
                (place for place, pair in enumerate(pairs) if pair[0] != pair[1]),
                min(len(rows), len(expected)),
            )
            return f"its row {place} of {len(expected)} is another"
    return None


def interrupted(*_):
    raise TimeoutError


def some_aliases():
    """Aliases of a query, one text with other parameters: each third query's first always."""
    seen = []
    for name, query in ALIASES.items():
        is_first = query.path not in seen
        seen += [query.path] * is_first
        marks = [] if is_first and len(seen) % 3 == 1 else [pytest.mark.by_hand]
        yield pytest.param(query, id=name, marks=marks)


@pytest.mark.parametrize("query", list(some_aliases()))
def test_an_alias_gives_the_same_there(engine, duck, query):
    assert difference(engine, duck, query) is None


@pytest.mark.sample(8)
@pytest.mark.parametrize("connection", ["sail"], indirect=True)
@each_query
def test_filters_leave_the_same_rows_there(engine, duck, query):
    if engine.name in query.engines:
        assert difference(engine, duck, query, [of_query(query, FILTERS)]) is None


@each_query
def test_the_claim_is_what_the_engine_gives(engine, duck, query, request):
    """Every claim holds; `--update-golden` checks whether more could be claimed."""
    if not request.config.getoption("--update-golden"):
        if engine.name in query.engines:
            assert difference(engine, duck, query) is None
        return
    if refusal(query):
        return
    signal.signal(signal.SIGALRM, interrupted)
    signal.alarm(LONGEST_SECONDS)
    try:
        reason = difference(engine, duck, query)
    finally:
        signal.alarm(0)
    now = catalogue.load(query.path)
    others = set(ENGINES) - {*now.engines, engine.name}
    reasons = dict.fromkeys(others, "not asked yet") | reasons_of(now.engines_reason)
    reasons.pop(engine.name, None)
    if reason:
        reasons[engine.name] = reason
    query.path.write_text(with_claim(query.path.read_text(encoding="utf-8"), reasons))
