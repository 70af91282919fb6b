"""Tests that a change touches are found by imports and by names."""

from pathlib import PurePosixPath

import pytest
from touched import Touched

UNTOUCHED = "read/test_hlo.py"


@pytest.mark.parametrize(
    ("file", "test"),
    [
        ("bufdb/what_if/verify.py", "what_if/test_verify.py"),
        ("bufdb/rows/attribution.py", "rows/test_attribution.py"),
        ("queries/padding.sql", "queries/test_padding.py"),
        ("schema/views/named_uses.sql", "queries/test_diff_peak.py"),
        ("schema/macros/are_multiples.sql", "queries/test_diff_pairs.py"),
        ("tests/support/fuzz.py", "whole/test_fuzz.py"),
    ],
)
def test_a_change_touches_what_imports_or_names_it(file, test):
    chosen = {str(one.relative_to("tests")) for one in Touched([PurePosixPath(file)]).chosen}
    assert test in chosen
    assert UNTOUCHED not in chosen
