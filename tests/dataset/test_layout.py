"""Names of objects, versions, days."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bufdb.dataset import layout

keys = st.integers(0, 2**63 - 1)
contents = st.lists(st.text(max_size=5), max_size=3)


@given(st.sampled_from(layout.tables()), keys, keys)
def test_a_name_says_whose_rows_an_object_has(table, key, version):
    name = layout.object_name(table, "2026-01-31", key, version)
    assert layout.parse(name) == layout.Name(table, "2026-01-31", key, version, layout.LOOSE)


@given(st.sampled_from(layout.tables()), keys, st.integers(0, 10**6))
def test_a_name_says_which_part_it_is_of(table, part, number):
    name = layout.part_name(table, "2026-01-31", part, number)
    assert layout.parse(name) == layout.Name(table, "2026-01-31", None, None, part)


@pytest.mark.parametrize(
    "name",
    [
        "values/dt=2026-01-31/.tmp-1.parquet",
        "values/dt=2026-1-31/0000000000000001-0000000000000001.parquet",
        "values/dt=2026-01-31/0000000000000001-0000000000000001.parquet.tmp",
        "values/0000000000000001-0000000000000001.parquet",
        "_staging/x/0000000000000001-0000000000000001.parquet",
    ],
)
def test_what_else_lies_there_is_no_object(name):
    assert layout.parse(name) is None


@pytest.mark.slow
@given(contents, contents)
def test_equal_content_keeps_its_version(one, other):
    first = layout.version_of(one, None)
    assert layout.version_of(one, None) == first == layout.version_of(one, first)
    second = layout.version_of(other, first)
    assert (second == first) if one == other else (second > first)
    assert 0 <= second < 2**63


@pytest.mark.slow
@given(contents, contents)
def test_what_comes_back_is_a_later_version(one, other):
    first = layout.version_of(one, None)
    second = layout.version_of(other, first)
    assert one == other or layout.version_of(one, second) > second


@given(st.integers(0, 2**62))
def test_a_part_comes_after_those_before(part):
    assert layout.next_part(part) > part > layout.LOOSE - 1


@pytest.mark.parametrize(
    ("seconds", "day"),
    [
        (0, "1970-01-01"),
        (1_750_000_000, "2025-06-15"),
        (None, "1970-01-01"),
        (float("inf"), "1970-01-01"),
        (float("nan"), "1970-01-01"),
        (1e300, "1970-01-01"),
    ],
)
def test_a_day_is_that_of_utc_and_a_fixed_one_if_unknown(seconds, day):
    assert layout.day_of(seconds) == day


def test_markers_are_stored_last(fresh):
    con = fresh()
    columns = layout.columns(con, con.execute("SELECT current_database()").fetchall()[0][0])
    assert layout.tables()[-2:] == ["runs", "modules"]
    assert all(columns.values())
    assert columns.keys() - layout.tables() == layout.CONSTANT
    for table in layout.tables():
        types = columns[table]
        # Whose rows they are is asked of the table itself; contents are those of any module.
        assert table in ("shapes", "file_contents") or "module_id" in types or "run_name" in types


def test_a_day_is_a_date():
    assert all(map(layout.is_day, ("2026-01-31", "2024-02-29", layout.UNKNOWN_DAY)))
    odd = ("2026-99-99", "2026-02-29", "0000-01-01", "20260131", "2026-W05-6", "", "２０２６-01-31")
    assert not any(map(layout.is_day, odd))


def test_tables_are_counted_through_views_of_views():
    """live_moments names live_accounts, and that live_profiles; live_parts names two tables."""
    assert layout.times_named("SELECT 1 FROM live_moments") == {
        "live_totals": 1,
        "live_profiles": 1,
    }
    assert layout.times_named("FROM live_parts; FROM live_arrays -- live_arrays") == {
        "live_arrays": 2,
        "live_programs": 1,
    }
    assert layout.times_named("SELECT live_arrays.shape FROM live_arrays") == {"live_arrays": 1}


def test_words_of_texts_name_no_table():
    assert layout.named("SELECT 'of uses -- x' FROM peaks -- XLA's kernels aren't") == {"peaks"}
    assert layout.times_named("SELECT 'kernels', 'it''s uses' FROM modules") == {"modules": 1}
    assert "allocations" not in layout.named("SELECT peak_bytes FROM memory_figures")
