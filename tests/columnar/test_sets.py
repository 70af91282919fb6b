"""Arrays as sets give what NumPy's own functions give, without what those import."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as some
from places import DEMO

from bufdb.columnar.sets import among, distinct, union

arrays = st.sampled_from([np.uint64, np.int64, np.int32, np.uint8]).flatmap(
    lambda kind: st.tuples(*[some.arrays(kind, st.integers(0, 9)) for _ in range(2)])
)


@given(arrays)
def test_they_are_numpys(pair):
    one, other = pair
    for actual, expected in (
        (distinct(one), np.unique(one)),
        (union(one, other), np.union1d(one, other)),
        (among(one, other), np.isin(one, other, kind="sort")),
    ):
        assert actual.dtype == expected.dtype
        assert actual.tolist() == expected.tolist()


@pytest.mark.slow
def test_an_ingest_needs_no_masked_arrays():
    code = (
        "import sys; from pathlib import Path; from bufdb.ingest.ingest import ingest; "
        f"ingest(':memory:', [Path({str(DEMO / 'cpu_b8')!r})]); print('numpy.ma' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
