"""Reports of damaged dumps: each is made, and what has a picture adds up all the same."""

from pathlib import Path

import damage
import pytest
from ingesting import ingest_into
from report_making import report

STEPS = """
SELECT start_time, end_time, occupied_bytes
FROM memory_steps
JOIN modules USING (module_id)
WHERE module_key = ? AND color = ?
ORDER BY start_time
"""
AT_ONCE = 40


def damaged(first: int, folder: Path) -> None:
    """Make some samples with an accident each, in a folder each."""
    samples = damage.samples()
    for number in range(first, first + AT_ONCE):
        files, _ = damage.damage(samples[number % len(samples)], number)
        (folder / str(number)).mkdir()
        for name, text in files.items():
            (folder / str(number) / name).write_bytes(text)


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(200, marks=pytest.mark.slow),  # it alone reaches 35 branches
        pytest.param(0, marks=pytest.mark.slow),
        *(
            pytest.param(n, marks=pytest.mark.by_hand)
            for n in range(AT_ONCE, 400, AT_ONCE)
            if n != 200
        ),
    ],
)
def test_reports_of_damaged_dumps_add_up(con, tmp_path, first):
    damaged(first, tmp_path)
    ingest_into(con, tmp_path, "r")
    page = report(con)
    for row in page.modules:
        assert (row["slot"] is None) == (row["left_out"] is not None)
        assert (row["peak_bytes"] is None) == (row["unknown_reason"] is not None)
    pictures = list(page.pictures())
    assert pictures
    for row, picture in pictures:
        steps = con.execute(STEPS, [row["module_key"], row["color"]]).fetchall()
        sums = [
            size for start, end, size in steps for _ in range(start, min(end, row["length"]) + 1)
        ]
        assert picture.sums(row["length"]) == sums, row["module_key"]
        assert all(
            0 <= start <= start + last <= row["length"]
            for start, last in zip(picture.value_start, picture.value_last, strict=True)
        )
