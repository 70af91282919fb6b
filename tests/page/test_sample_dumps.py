"""Reports of the sample dumps: every picture is what the database says, and the page is small."""

import pytest
from report_making import report
from shared_dumps import DUMPS, LOOPS, needs_dumps, needs_loops

from bufdb.database import store
from bufdb.ingest.ingest import ingest

STEPS = """
SELECT start_time, end_time, occupied_bytes
FROM memory_steps
JOIN modules USING (module_id)
WHERE module_key = ? AND color = ?
ORDER BY start_time
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "folder",
    [
        pytest.param(DUMPS, marks=[needs_dumps, pytest.mark.by_hand]),
        pytest.param(LOOPS / "dumps", marks=needs_loops),
    ],
    ids=["dumps", "loops"],
)
def test_every_picture_adds_up_at_every_step(folder, tmp_path):
    path = str(tmp_path / "samples.duckdb")
    ingest(path, [folder], run="samples")
    with store.open_readable(path) as con:
        page = report(con)
        pictures = list(page.pictures())
        assert len(pictures) > 40 and len(page.html) < 4_500_000
        for row, picture in pictures:
            steps = con.execute(STEPS, [row["module_key"], row["color"]]).fetchall()
            sums = [size for start, end, size in steps for _ in range(start, end + 1)]
            assert picture.sums(row["length"]) == sums, row["module_key"]
            assert sums[row["peak_time"]] == max(sums) == row["peak_bytes"]
        known = [row for row in page.modules if row["peak_bytes"] is not None]
        assert len(pictures) == len(known)
