"""Some hundred cases of every reader in each test run; a million on demand, see fuzz.py."""

import os

import fuzz
import pytest

CASES = int(os.environ.get("BUFDB_FUZZ_CASES", "2000"))
"""Cases of each reader; a quarter of them always run."""


@pytest.mark.parametrize("cases", [CASES // 4, pytest.param(CASES, marks=pytest.mark.slow)])
@pytest.mark.parametrize("reader", fuzz.READERS)
def test_no_text_disturbs_a_reader_or_its_neighbours(reader: str, cases: int) -> None:
    failures = fuzz.run(reader, 0, cases)
    assert not failures, f"{len(failures)} of {cases} cases:\n" + "\n\n".join(failures[:3])


def test_a_case_is_its_number() -> None:
    assert fuzz.text_of("shape", 5) == fuzz.text_of("shape", 5) != fuzz.text_of("shape", 6)


def test_a_reader_that_mixes_its_cases_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def mixed(cases: list[fuzz.Case]) -> fuzz.Outcome:
        return {number: len(cases) for number, _ in cases}

    monkeypatch.setitem(fuzz.READERS, "shape", mixed)
    assert len(fuzz.run("shape", 0, 10)) == 10


def test_a_reader_that_fails_is_found_out_by_its_case(monkeypatch: pytest.MonkeyPatch) -> None:
    bad = fuzz.text_of("shape", 7)

    def failing(cases: list[fuzz.Case]) -> fuzz.Outcome:
        assert bad not in [text for _, text in cases]
        return {number: text for number, text in cases}

    monkeypatch.setitem(fuzz.READERS, "shape", failing)
    (failure,) = fuzz.run("shape", 0, 10)
    assert failure.startswith("shape 7:")
