"""Saved queries give DuckDB's rows in DuckDB's order on Spark and on Sail, as their headers claim.

`--update-golden` writes the claims: of the engines that are installed, as they answer.
"""

from __future__ import annotations

import pytest
from engine_claims import comparable, with_claim

from bufdb import resources
from bufdb.errors import BufdbError
from bufdb.query import catalogue, execute
from bufdb.query.header import ENGINES

QUERIES = {
    query.name: query for query in catalogue.Catalogue([resources.query_folder()]).load_all()
}
SIDES = {"base": "cpu_b8", "new": "cpu_b16"}
CASES = {
    "at-offset": [{"offset": 4096}],
    "at-step": [{"step": 10}],
    "scaling": [{"label": "length"}, {"label": "batch", "budget": 1 << 30}],
    "series": [{"label": "length"}],
    "first-regression": [{"label": "batch"}],
    "peaks": [{"function": "train_step"}],
}
"""What is asked beside the defaults and the filters."""
FILTERS = {"run": "*_b8*", "function": "train*", "platform": "cpu", "top_n": 7}

each_query = pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES.keys())


def cases(query, engine):
    """Values of parameters to ask an engine with; a comparison always has its sides.

    Spark takes seconds to plan a query and is asked less.
    """
    names = {param.name for param in query.params}
    sides = {name: value for name, value in SIDES.items() if name in names}
    filtered = [FILTERS] if engine.name == "sail" else []
    given = [{}, *filtered, *CASES.get(query.name, [])]
    return [
        {**sides, **{name: value for name, value in values.items() if name in names}}
        for values in given
    ]


@each_query
def test_the_claim_says_why_an_engine_is_missing(query):
    assert query.engines[0] == "duckdb"
    assert (set(query.engines) == set(ENGINES)) == (query.engines_reason is None)


def difference(engine, duck, query):
    """Why an engine does not give DuckDB's rows; None if it does."""
    for values in cases(query, engine):
        expected = comparable(execute.execute_query(duck, query, values).rows)
        try:
            found = comparable(engine.answer(query, values).rows)
        except BufdbError as error:
            return str(error).removeprefix(f"{query.name}: ")
        if found != expected:
            place = next(
                (
                    n
                    for n, pair in enumerate(zip(found, expected, strict=False))
                    if pair[0] != pair[1]
                ),
                min(len(found), len(expected)),
            )
            return (
                f"{values}: row {place} of {len(expected)} is another: {found[place : place + 1]}"
            )
    return None


@each_query
def test_the_claim_is_what_the_engine_gives(engine, duck, query, request):
    found = difference(engine, duck, query)
    if request.config.getoption("--update-golden"):
        text = query.path.read_text(encoding="utf-8")
        now = catalogue.load(query.path)
        engines = {*now.engines, engine.name} - ({engine.name} if found else set())
        query.path.write_text(with_claim(text, engines, now.engines_reason, engine.name, found))
    elif engine.name in query.engines:
        assert found is None, f"claimed, but {found}"
    else:
        assert found is not None, "gives the same rows: pytest --update-golden writes the claim"
