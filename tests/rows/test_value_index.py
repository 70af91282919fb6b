"""Values are found by name and number, in columns of any width."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bufdb.rows.value_index import LARGEST_ID, ValueIndex

IDS = st.integers(0, 9) | st.sampled_from([2**31 - 1, 2**31, LARGEST_ID, LARGEST_ID + 1, 2**62])
NAMED = st.tuples(st.integers(0, 2), IDS, st.integers(0, 6))
VALUES = st.lists(NAMED, unique_by=lambda value: value[:2], max_size=20)


def index_of(values, rounds=1):
    """(module, number, name) each; the hash of a name is a multiple of 2^50."""
    index = ValueIndex()
    for part in range(rounds):
        some = values[part::rounds]
        module, value_id, name = np.array(some, np.int64).reshape(-1, 3).T
        name_key = name.astype(np.uint64) << np.uint64(50)
        key = name_key ^ value_id.astype(np.uint64)
        zeros = np.zeros(len(some), np.int64)
        index.add(
            module=module,
            value_id=value_id,
            name_key=name_key,
            key=key,
            extra=name.astype(np.uint64),
            allocation_index=zeros - 1,
            offset_bytes=zeros + 2**40,
            size_bytes=zeros,
            is_phi=zeros > 0,
            logical_bytes=zeros - 1,
        )
    index.finish()
    return index


@given(VALUES, st.lists(st.tuples(st.integers(0, 6), st.integers(-1, 19)), max_size=9))
@example([], [(1, -1)])
def test_a_name_is_found_whatever_value_is_next_to_it(values, pairs):
    index = index_of(values)
    names = sorted({name for _, _, name in values})
    pairs = [(name, min(row, len(values) - 1)) for name, row in pairs]
    name, rows = np.array(pairs, np.int64).reshape(-1, 2).T
    numbers = index.names_of(name.astype(np.uint64) << np.uint64(50), rows)
    assert numbers.tolist() == [names.index(n) if n in names else -1 for n in name.tolist()]


@pytest.mark.slow
@given(VALUES, st.integers(1, 3))
@example([(0, 3, 1), (0, 1, 2)], 1)
@example([(0, 2**62, 1), (0, LARGEST_ID, 2)], 1)
def test_each_value_is_found_and_no_other(values, rounds):
    index, ordered = index_of(values, rounds), sorted(values)
    module, value_id, name = np.array(ordered, np.int64).reshape(-1, 3).T
    assert (index.module.tolist(), index.value_id.tolist()) == (module.tolist(), value_id.tolist())
    name_key = name.astype(np.uint64) << np.uint64(50)
    rows = np.arange(len(ordered))
    assert index.name_keys(rows).tolist() == name_key.tolist()
    check = name_key ^ value_id.astype(np.uint64) ^ name.astype(np.uint64)
    assert index.checks(rows).tolist() == check.tolist()
    assert index.offset_bytes.tolist() == [2**40] * len(ordered)
    row_numbers = index.by_number(module, value_id)
    pairs = [value[:2] for value in ordered]
    # Numbers beyond 40 bits are never found, because the index cannot distinguish them.
    expected = [-1 if pair[1] >= LARGEST_ID else pairs.index(pair) for pair in pairs]
    assert row_numbers.tolist() == expected
    assert (index.by_number(module, value_id * 0 + 5) >= 0).tolist() == [
        (pair[0], 5) in pairs for pair in pairs
    ]
