"""The table of figures: read off what the commands print, and there in full."""

import pytest
import trust_figures
from trust_figures import HEADER, MEASURES, README, has_wrong, rows_in, rows_of, with_rows, written

PRINTED = {
    "kills": ("   3 with nothing stored\n\n100 kills, 0 wrong\n", [(100, 0)]),
    "dumps": ("100000 dumps of 24 generations, 3 failed\n", [(100_000, 3)]),
    "isolation": ("5000 cases of 24 generations, 0 failed\n", [(5000, 0)]),
    "accounting": ("2 failed, 410 passed in 3.0s\n", [(412, 2)]),
    "fuzz": (
        "scan: 10 cases, 0 failed, 900/s\nhlo: 11 cases, 1 failed, 9/s\n21 cases, 1 failed\n",
        [(10, 0), (11, 1)],
    ),
    "linear": ("40 passed, 9 deselected in 3.0s\n", [(40, 0)]),
    "corruptions": ("x.duckdb: found 197 of 200\n", [(200, 3)]),
    "faults": ("130 passed in 3.0s\n", [(130, 0)]),
    "messages": ("749 passed in 3.0s\n", [(749, 0)]),
    "files": ("1 failed, 123 passed in 3.0s\n", [(124, 1)]),
    "attacks": ("1 failed, 60 passed, 9 deselected in 3.0s\n", [(61, 1)]),
}


@pytest.mark.parametrize("measure", MEASURES, ids=lambda measure: measure.name)
def test_counts_are_read_off_what_is_printed(measure: trust_figures.Measure) -> None:
    output, expected = PRINTED[measure.name]
    cells = [row.split(" | ")[1:3] for row in rows_of(measure, output, "x")]
    assert [tuple(int(cell.replace(",", "")) for cell in row) for row in cells] == expected


def test_a_command_that_prints_no_count_is_no_success() -> None:
    (row,) = rows_of(MEASURES[0], "Traceback", "x")
    assert has_wrong(f"{HEADER}\n{row}")


def test_at_most_one_in_twenty_corruptions_is_missed() -> None:
    def new(what: str, wrong: int) -> str:
        return f"{HEADER}\n| {what} | 200 | {wrong} | `x` |"

    assert [has_wrong(new("single corruptions", n)) for n in (10, 11)] == [False, True]
    assert [has_wrong(new("kills", n)) for n in (0, 1)] == [False, True]


def test_the_readme_has_a_table_of_all_measures() -> None:
    text = README.read_text(encoding="utf-8")
    for measure in MEASURES:
        assert measure.command.format(db="DATABASE") in text, measure.name
    assert written(written(text, "a"), "b") == written(text, "b")


def test_some_rows_are_written_and_the_others_stay() -> None:
    old = [
        "| a | 1 | 0 | `x` |",
        "| b | 2 | 0 | `y` |",
        "| c | 3 | 0 | `y` |",
        "| d | 4 | 0 | `z` |",
    ]
    new = ["| e | 5 | 1 | `y` |", "| f | 6 | 0 | `y` |", "| g | 7 | 0 | `y` |"]
    assert with_rows(old, new).splitlines()[2:] == [old[0], *new, old[3]]
    with pytest.raises(ValueError, match="no row"):
        with_rows(old[:1], new)
    text = README.read_text(encoding="utf-8")
    assert written(text, with_rows(rows_in(text), [])) == text
