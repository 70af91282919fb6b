"""The rule by which series follow a function is that by which two runs are compared."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from small_db import Module, in_bulk

COMPILATIONS = st.lists(
    # None: a program of torch_xla, which has a number in place of a name.
    st.tuples(
        st.sampled_from(["f", "g", None]), st.sampled_from(["x", "y", "z", None]), st.integers(0, 3)
    ),
    max_size=5,
)


def fill(con, runs):
    with in_bulk(con):
        for place, compilations in enumerate(runs):
            for number, (function, shape, size) in enumerate(compilations):
                # Numbers of one run are of other programs in the next.
                name = f"SyncTensorsGraph.{number}" if function is None else None
                made = Module(con, 10 * place + number, "abc"[place], function, platform="cpu",
                              module_name=name, module_key=f"module_{number}.{name}")  # fmt: skip
                made.allocation(0, "output", size, output_shape=shape)
                made.close()


def series(con, runs):
    """Pairs of modules of two runs that are in one series."""
    con.execute("SET VARIABLE run = $1", [f"[{runs}]"])
    members = con.execute(
        "SELECT model_module_id, module_id FROM asked_series ORDER BY module_id"
    ).fetchall()
    by_model = {}
    for model, module in members:
        by_model.setdefault(model, []).append(module)
    return sorted(tuple(modules) for modules in by_model.values())


@pytest.mark.parametrize("examples", [3, pytest.param(25, marks=pytest.mark.slow)])
def test_two_runs_are_paired_as_diff_pairs_them(fresh, examples):
    @settings(max_examples=examples)
    @given(st.lists(COMPILATIONS, min_size=2, max_size=3))
    def holds(runs):
        paired_alike(fresh, runs)

    holds()


def paired_alike(fresh, runs):
    with fresh() as con:
        fill(con, runs)
        pairs = con.execute("SELECT base_module_id, new_module_id FROM diff_pairs('a', 'b')")
        expected = [tuple(n for n in pair if n is not None) for pair in pairs.fetchall()]
        assert series(con, "ab") == sorted(expected)


@pytest.mark.parametrize("last", ["xy", "yx", "zx", "zzz"])
def test_every_compilation_is_in_one_series_and_once_in_a_run(con, last):
    runs = ["xy", "xyz", last]
    fill(con, [[("f", shape, 3 - place) for place, shape in enumerate(run)] for run in runs])
    all_series = series(con, "abc")
    assert sorted(sum(all_series, ())) == sorted(
        10 * place + number for place, run in enumerate(runs) for number in range(len(run))
    )
    assert all(len({module // 10 for module in members}) == len(members) for members in all_series)
