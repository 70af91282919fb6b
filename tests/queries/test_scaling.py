import itertools
import math

import pytest
from small_db import Module, answer, in_bulk, insert
from tables import holds

from bufdb.errors import BufdbError

GUESS = "beyond twice the largest size it is a guess: compile that size to prove it"


def test_nothing_in_an_empty_database(con):
    holds(con, "scaling", "function_name")


def compiled(con, module_id, run_name, size, labels, function="f", temp=1):
    module = Module(con, module_id, run_name, function, platform="cpu")
    module.allocation(0, "output", size)
    module.allocation(1, "temp", temp)
    module.value(1, 1, 0, 1)
    module.allocation(2, "thread_local", 1000)
    module.close()
    for label, value in labels.items():
        insert(con, "run_labels", run_name=run_name, label=label, label_value=value)


def sizes(con, peaks, **labels):
    """Make a run for each size, with its peak [bytes]."""
    with in_bulk(con):
        for module_id, (size, peak) in enumerate(peaks.items()):
            compiled(con, module_id, f"b{size}", peak - 1, {"batch": str(size), **labels})


@pytest.mark.slow
def test_points_on_a_line(con):
    sizes(con, {2: 300, 4: 500, 8: 900})
    # 100 + 100 * batch, whichever point is left out
    row = ("f", "cpu", 1, 0, "", 3, 2.0, 8.0, 900, 3, "linear", 100, 100.0, 0.0, 0.0)
    assert answer(con, "scaling") == [(*row, *[None] * 12)]
    # Beyond 8 a twentieth of the growth less or more, and a quarter of 900 / 8 - 100 more.
    low, high = 900 + 800 * 0.95, 900 + 8 * (105 + 3.125)
    ends = [math.floor(low / 1.002), 1700, math.ceil(high * 1.002)]
    (cells,) = answer(con, "scaling", size=16)
    assert cells == (*row, *ends, *[None] * 7, 2.0, None)
    assert answer(con, "scaling", budget="1100B")[0][18:20] == (9, 10)
    holds(con, "scaling", "function_name", label="rank")


@pytest.mark.slow
def test_no_range_is_empty_and_all_grow_with_the_distance(con):
    sizes(con, {2: 300, 4: 500, 8: 900})
    widths = []
    for size in (1, 5, 8, 16, 32, 128):
        low, middle, high = answer(con, "scaling", size=size)[0][15:18]
        assert low < middle < high
        widths.append((high - low) / middle)
    assert widths[2:] == sorted(widths[2:]) and widths[0] < 0.02 < 0.05 < widths[3]


@pytest.mark.slow
def test_what_was_compiled_goes_before_what_a_curve_says(con):
    # The curve is up to a hundredth off.
    sizes(con, {1: 1_000, 2: 2_030, 3: 3_000, 4: 4_030})
    for budget, sure, low, high in ((3_000, 3, 3, 3), (2_029, 1, 1, 1), (4_030, 4, 4, 4)):
        row = answer(con, "scaling", budget=f"{budget}B")[0]
        assert (row["measured_largest_size"], *row[18:20]) == (sure, low, high)
    row = answer(con, "scaling", budget="999B")[0]
    assert (
        row["measured_largest_size"] is None
        and row["low_largest_size"] <= row["high_largest_size"] <= 0
    )


@pytest.mark.slow
def test_what_is_far_from_the_points_is_a_guess(con):
    sizes(con, {2: 300, 4: 500, 8: 900})
    near, far = (answer(con, "scaling", size=size)[0][25:27] for size in (16, 17))
    assert near == (2.0, None)
    assert far["distance_factor"] == 2.125 and "compile that size" in far["guess_reason"]
    # 100 + 100 * batch would be 40; the largest that was compiled is 8.
    row = answer(con, "scaling", budget="4100B")[0]
    assert (
        row["low_largest_size"] < 38 < 40 < row["high_largest_size"]
        and row["measured_largest_size"] == 8
    )
    assert (
        row["distance_factor"] > row["high_largest_size"] / 8 - 0.2
        and row["guess_reason"] is not None
    )


@pytest.mark.slow
def test_the_case_that_did_not_fit(con):
    """A decoder from batches 2, 4 and 8: 8 MiB came on top between 8 and 29, and 32 of 740 MiB."""
    mib = 2**20
    sizes(con, {n: round((118.3 + 19.3125 * n) * mib) for n in (2, 4, 8)})
    low, _, high = answer(con, "scaling", size=32)[0][15:18]
    assert low < 744.4 * mib < high
    low, high = answer(con, "scaling", budget=f"{4096 * mib}B")[0][18:20]
    assert low <= 206 <= high
    low, high = answer(con, "scaling", budget=f"{740 * mib}B")[0][18:20]
    assert low < 32 <= high


def test_a_forecast_is_as_wide_as_its_points_are_apart(con):
    sizes(con, {1: 1000, 2: 2010, 3: 3000})
    (row,) = answer(con, "scaling", size=10, budget="10000B")
    assert row["model"] == "linear"
    # 1,010 a step without the last, 990 without the first, 1,000 without the middle; beyond a
    # share of the growth more.
    assert (
        row["low_predicted_bytes"] < 9930
        and row["predicted_bytes"] == 10_028
        and row["high_predicted_bytes"] > 10_090
    )
    assert row["low_largest_size"] <= 9 and row["high_largest_size"] > 10


def test_points_off_a_line_may_start_a_parabola(con):
    # 1,000 + n * n / 64, which bends at 512 only.
    sizes(con, {n: 10_000 + 100 * n + n * n // 64 for n in (16, 32, 64)})
    (row,) = answer(con, "scaling", size=1024)
    assert row["model"] == "linear"
    assert (
        row["predicted_bytes"]
        < 10_000 + 100 * 1024 + 1024 * 1024 // 64
        < row["high_predicted_bytes"]
    )


def test_a_line_that_is_flat_may_begin_to_grow(con):
    # What XLA reserves for a train step that is mostly weights.
    sizes(con, {8: 6299744, 16: 6307936, 32: 6324320})
    (row,) = answer(con, "scaling", size=512)
    assert row["predicted_bytes"] < 11010144 < row["high_predicted_bytes"]


def test_two_points_are_on_every_line(con):
    sizes(con, {8: 800, 16: 1600})
    (row,) = answer(con, "scaling", size=64, budget="16000B")
    assert row[:10] == ("f", "cpu", 1, 0, "", 2, 8.0, 16.0, 1600, 2)
    assert set(row[10:23]) == {None}
    assert row["no_fit_reason"] == "a line through fewer than three sizes says nothing"


@pytest.mark.slow
def test_a_quadratic_program_is_fitted_by_a_parabola(con):
    sizes(con, {n: 500 + 30 * n + 2 * n * n for n in (16, 32, 64, 128)})
    (row,) = answer(con, "scaling", size=1024, budget=500 + 30 * 1000 + 2 * 1000 * 1000)
    assert row[9:15] == (4, "quadratic", 500, 30.0, 2.0, 0.0)
    assert (
        row["low_predicted_bytes"]
        < 2_128_372
        == row["predicted_bytes"]
        < row["high_predicted_bytes"]
        and row["low_largest_size"] < 1000 < row["high_largest_size"]
    )
    assert row["high_predicted_bytes"] / row["low_predicted_bytes"] < 1.15
    # A line through the same would be off by more than half there.
    assert answer(con, "scaling", size=1024, budget="400B")[0]["high_largest_size"] <= 0


def test_a_nearer_parabola_wins(con):
    sizes(con, {n: 100_000 + 1000 * n + n * n for n in (10, 20, 30, 40)})
    assert answer(con, "scaling")[0]["model"] == "quadratic"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("peaks", "reason"),
    [
        ({1: 10, 2: 10, 3: 40}, "no line fits, and a parabola takes four sizes"),
        (
            {1: 10, 2: 40, 3: 10, 4: 90},
            "neither a line nor a parabola is within max_error of every figure",
        ),
        # It would fall for ever.
        (
            {1: 1000, 2: 1800, 3: 2400, 4: 2800},
            "neither a line nor a parabola is within max_error of every figure",
        ),
    ],
)
def test_where_no_curve_fits_there_is_no_forecast(con, peaks, reason):
    sizes(con, peaks)
    (row,) = answer(con, "scaling", size=9, budget="1000B")
    assert set(row[10:23]) == {None}
    assert row["no_fit_reason"] == reason
    assert answer(con, "scaling", max_error=9)[0]["model"] == "linear"


@pytest.mark.slow
def test_other_labels_keep_fits_apart(con):
    number = 0
    for dtype in ("f32", "bf16"):
        for batch in (1, 2, 3):
            labels = {"batch": str(batch), "dtype": dtype, "commit": str(number)}
            compiled(con, number, f"r{number}", 99 * batch, labels)
            number += 1
    holds(con, "scaling", """
        other_labels        | point_count | slope_bytes
        commit=2 dtype=f32  | 1           | NULL
        commit=5 dtype=bf16 | 1           | NULL
        commit=1 dtype=f32  | 1           | NULL
        commit=4 dtype=bf16 | 1           | NULL
        commit=0 dtype=f32  | 1           | NULL
        commit=3 dtype=bf16 | 1           | NULL
    """)  # fmt: skip
    holds(con, "scaling", """
        other_labels | point_count | slope_bytes
        dtype=bf16   | 3           | 99.0
        dtype=f32    | 3           | 99.0
    """, fixed="dtype, remat")  # fmt: skip
    assert len(answer(con, "scaling", top_n=3)) == 3


@pytest.mark.slow
def test_metrics(con):
    for module_id, batch in enumerate((1, 2, 3)):
        labels = {"batch": str(batch)}
        compiled(con, module_id, f"b{batch}", 100 * batch, labels, temp=1000 * batch)
    names = ("peak", "temp", "total", "need")
    slopes = [answer(con, "scaling", metric=name)[0]["slope_bytes"] for name in names]
    # Of the temp allocation one byte is in use.
    assert slopes == [100.0, 1000.0, 1100.0, 1100.0]
    assert answer(con, "scaling") == answer(con, "scaling", metric="need")


@pytest.mark.slow
def test_what_does_not_grow_has_no_largest_size(con):
    for module_id, batch in enumerate(("1", "2", "full", "nan")):
        compiled(con, module_id, f"b{batch}", 7, {"batch": batch})
    assert answer(con, "scaling", size=5, budget="100B") == [
        ("f", "cpu", 1, 0, "", 2, 1.0, 2.0, 8, 2, "constant", 8, 0.0, 0.0, 0.0, 7, 8, 9,
         *[None] * 6, 2.0, 2.5, GUESS),
    ]  # fmt: skip


@pytest.mark.slow
def test_an_unknown_peak_is_no_point_and_is_told(con):
    for module_id, batch in enumerate((1, 2, 4)):
        compiled(con, module_id, f"b{batch}", 100 * batch, {"batch": str(batch)})
    con.execute("UPDATE modules SET peak_unknown_reason = 'why' WHERE module_id = 2")
    con.execute("DELETE FROM occupied_peaks WHERE module_id = 2")
    row = answer(con, "scaling", metric="peak")[0]
    assert (row["point_count"], row["max_size"], row["largest_bytes"], *row[27:]) == (
        2,
        2.0,
        201,
        1,
        "why",
    )
    # What XLA reserves is known all the same.
    assert (
        answer(con, "scaling")[0]["point_count"]
        == answer(con, "scaling", metric="temp")[0]["point_count"]
        == 3
    )
    con.execute("UPDATE modules SET peak_unknown_reason = 'why'")
    con.execute("DELETE FROM occupied_peaks")
    nothing = ("f", "cpu", 1, 0, "", 0, *[None] * 21, 3, "why")
    assert answer(con, "scaling", metric="peak") == [nothing]
    assert answer(con, "scaling")[0]["model"] == "linear"


def test_what_has_a_fit_comes_first(con):
    compiled(con, 1, "a", 1, {"batch": "1"})
    compiled(con, 2, "b", 1, {"batch": "2"})
    compiled(con, 3, "b", 900, {}, function="once")
    holds(con, "scaling", """
        function_name | point_count
        f             | 2
        once          | 1
    """)  # fmt: skip


# -- two labels ------------------------------------------------------------------------------------

PRODUCT = {"label": "batch,length"}


def grid(con, peak, batches=(1, 2, 4), lengths=(10, 20), **labels):
    """A run for each batch and length, with the peak that the function `peak` says."""
    for batch in batches:
        for length in lengths:
            run_labels = {"batch": str(batch), "length": str(length), **labels}
            number = 1000 * batch + length
            compiled(con, number, f"r{number}", peak(batch, length) - 1, run_labels)


@pytest.mark.slow
def test_a_line_over_the_product_of_two_labels(con):
    grid(con, lambda batch, length: 500 + 7 * batch * length)
    # 6 points, products 10, 20, 40 and 80; 20 and 40 occur twice.
    row = ("f", "cpu", 1, 0, "", 6, 10.0, 80.0, 1060, 4, "product", 500, 7.0, 0.0, 0.0)
    assert answer(con, "scaling", **PRODUCT) == [(*row, *[None] * 12)]
    (predicted,) = answer(con, "scaling", **PRODUCT, size="3,30")
    assert predicted[:15] == row
    assert (
        predicted["low_predicted_bytes"]
        < 500 + 7 * 3 * 30
        == predicted["predicted_bytes"]
        < predicted["high_predicted_bytes"]
    )
    assert answer(con, "scaling", **PRODUCT, size="90") == [predicted]


@pytest.mark.slow
def test_a_product_is_fitted_as_one_label_of_that_size_is(con):
    for number, (batch, length) in enumerate(itertools.product((1, 2, 5), (10, 30, 40))):
        size = batch * length
        run_labels = {"batch": str(batch), "length": str(length), "tokens": str(size)}
        compiled(con, number, f"r{number}", 90_000 + 1003 * size + 311 * (size % 7), run_labels)
    values = {"size": "400", "budget": 2**24, "fixed": "none"}
    (one,) = answer(con, "scaling", label="tokens", **values)
    rows = answer(con, "scaling", **{**values, **PRODUCT})
    assert (
        one["model"] == "linear"
        and one["low_predicted_bytes"] < one["predicted_bytes"] < one["high_predicted_bytes"]
        and one["low_largest_size"] < one["high_largest_size"]
    )
    # Of one label a parabola, too, is in the range.
    assert [(*row[:10], *row[11:17]) for row in rows] == [(*one[:10], *one[11:17])] * 3
    assert all(
        row["high_predicted_bytes"] <= one["high_predicted_bytes"]
        and row["low_largest_size"] >= one["low_largest_size"]
        for row in rows
    )
    holds(con, "scaling", """
        second_size | low_largest_first | high_largest_first
        10.0        | 215               | 3346
        30.0        | 71                | 1115
        40.0        | 53                | 836
    """, size="400", budget=16777216, fixed="none", label="batch,length")  # fmt: skip


@pytest.mark.slow
def test_the_largest_first_label_at_each_value_of_the_second(con):
    grid(con, lambda batch, length: 500 + 7 * batch * length)
    holds(con, "scaling", """
        low_largest_size | high_largest_size | second_size | low_largest_first | high_largest_first
        99               | 106               | 10.0        | 9                 | 10
        99               | 106               | 20.0        | 4                 | 5
    """, label="batch,length", budget="1235B")  # fmt: skip
    holds(con, "scaling", """
        low_largest_size | high_largest_size | second_size | low_largest_first | high_largest_first
        99               | 106               | 1.0         | 99                | 106
        99               | 106               | 2.0         | 49                | 53
        99               | 106               | 4.0         | 24                | 26
    """, label="length,batch", budget="1235B")  # fmt: skip


@pytest.mark.slow
def test_the_largest_of_two_labels_is_a_range_too(con):
    grid(con, lambda batch, length: 1000 * batch * length + 10 * (batch == 2))
    rows = answer(con, "scaling", **PRODUCT, budget="1000000B")
    assert all(
        row["low_largest_size"] < row["high_largest_size"]
        and row["low_largest_first"] <= row["high_largest_first"]
        for row in rows
    )
    assert all(
        row["low_largest_first"] == row["low_largest_size"] // row["second_size"] for row in rows
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("points", "reason"),
    [
        # The product takes two values.
        (((1, 20), (2, 10), (2, 20), (4, 10)), "a line through fewer than three products says no"),
        # Four times the batch at twice the length: it may be the square of the length as well.
        (((1, 10), (4, 20), (16, 40)), "one label follows from the other: vary each while the ot"),
        (((1, 10), (2, 10), (4, 10)), "one label follows from the other: vary each while the oth"),
        (((1, 10), (2, 10), (4, 20)), "one label follows from the other: vary each while the oth"),
    ],
)
def test_two_labels_that_tell_too_little_give_no_forecast(con, points, reason):
    for number, (batch, length) in enumerate(points):
        run_labels = {"batch": str(batch), "length": str(length)}
        compiled(con, number, f"r{number}", 7 * batch * length, run_labels)
    (row,) = answer(con, "scaling", **PRODUCT, size="8,80", budget="10000B")
    assert set(row[10:23]) == {None}
    assert row["no_fit_reason"].startswith(reason)


@pytest.mark.slow
def test_a_square_of_one_label_is_no_line_over_the_product(con):
    grid(con, lambda batch, length: 500 + batch * length * length)
    (row,) = answer(con, "scaling", **PRODUCT, size="8,80", budget="10000B")
    assert set(row[10:23]) == {None}
    assert row["no_fit_reason"] == "no line over the product is within max_error of every figure"


@pytest.mark.slow
def test_what_grows_with_neither_label_is_constant(con):
    grid(con, lambda batch, length: 500)
    holds(con, "scaling", """
        model    | predicted_bytes | low_largest_size | high_largest_size | second_size
        constant | 500             | NULL             | NULL              | 10.0
        constant | 500             | NULL             | NULL              | 20.0

        low_largest_first | high_largest_first
        NULL              | NULL
        NULL              | NULL
    """, label="batch,length", size="8,80", budget="10000B")  # fmt: skip


@pytest.mark.slow
def test_other_labels_keep_products_apart(con):
    grid(con, lambda batch, length: 500 + batch * length, remat="none")
    compiled(con, 1, "lacking", 9, {"batch": "8"})
    compiled(con, 2, "text", 9, {"batch": "8", "length": "long", "remat": "none"})
    holds(con, "scaling", """
        other_labels | point_count
        remat=none   | 6
    """, **PRODUCT)  # fmt: skip
    one = answer(con, "scaling", label="batch")
    assert ("length=10 remat=none", 3) in [(row["other_labels"], row["point_count"]) for row in one]


@pytest.mark.slow
def test_three_labels_make_no_curve(con):
    grid(con, lambda batch, length: 500 + batch * length, depth="3")
    (row,) = answer(con, "scaling", label="batch,length,depth", size="8", budget="100B")
    assert set(row[10:23]) == {None}
    assert row["no_fit_reason"] == "a curve takes one label or two"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"size": "1,2"}, "size is one number, or as many as there are labels"),
        ({**PRODUCT, "size": "1,2,3"}, "size is one number, or as many as there are labels"),
        ({"size": "large"}, "Could not convert string 'large' to DOUBLE"),
    ],
)
def test_a_size_that_is_none_is_refused(con, params, reason):
    sizes(con, {2: 300, 4: 500, 8: 900}, length="4")
    with pytest.raises(BufdbError, match=reason):
        answer(con, "scaling", **params)
