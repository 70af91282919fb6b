"""A module's rows depend on its own files alone: some cases, and that the cases are fit."""

from __future__ import annotations

import os

import pytest
from isolation import alone, base, case, contents, failures, ingest_alone, pool

CASES = int(os.environ.get("BUFDB_ISOLATION_CASES", "75"))
"""Cases in a test run."""
CHUNKS = 25
"""Test functions they are spread over."""


@pytest.mark.sample(25)
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_a_modules_rows_depend_on_its_own_files_alone(chunk: int) -> None:
    numbers = range(CASES * chunk // CHUNKS, CASES * (chunk + 1) // CHUNKS)
    messages = list(failures(numbers))
    assert not messages, f"{len(messages)} of {len(numbers)} cases:\n\n" + "\n\n".join(messages[:3])


def test_a_case_is_its_number() -> None:
    assert str(case(17)) == str(case(17)) != str(case(18))


def test_the_comparison_sees_a_changed_row() -> None:
    whole = next(d for d in pool(0) if d.accident == 0 and d.sample.generation.startswith("demo"))
    expected = alone(whole)
    ingest_alone(whole)
    base().con.execute('UPDATE "values" SET offset_bytes = offset_bytes + 1')
    tables = contents(base().con)[whole.number]
    assert [table for table in expected if expected[table] != tables[table]] == ["values"]
