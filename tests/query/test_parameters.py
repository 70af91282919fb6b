"""Arguments of a query: text of parameters, names of memory spaces, reasons for no match."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_db import Module, insert

from bufdb import resources
from bufdb.errors import UsageError
from bufdb.query import catalogue, parameters
from bufdb.query.execute import bind, execute_query
from bufdb.query.header import parse
from bufdb.query.parameters import Known
from bufdb.query.sizes import parse_size

QUERY = parse(
    """\
-- title: T
-- group: live
-- param color VARCHAR = NULL: A memory space.
-- param platform VARCHAR = NULL: P.
-- param least BIGINT = 1: Smallest [bytes].
-- param labels VARCHAR = NULL: Labels, separated by commas.
-- param share DOUBLE = 0.1: Bytes are no [bytes] here.
-- column color VARCHAR: N.
-- column platform VARCHAR: N.
SELECT getvariable('color')::VARCHAR AS color, getvariable('platform')::VARCHAR AS platform;
""",
    Path("asked.sql"),
)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("least", "32MiB", 32 << 20),
        ("least", "16 GiB", 16 << 30),
        ("least", " 1.5 kB ", 1500),
        ("least", "0.5B", 0),
        ("least", "123", 123),
        ("least", "-1", -1),
        ("labels", "a, b", "a,b"),
        ("labels", " a ,, b c ,", "a,b c"),
        ("color", "0", "0"),
        ("color", " 01 ", "1"),
        ("color", "all", "all"),
        ("color", " hbm", "hbm"),
    ],
)
def test_values_are_what_a_person_means(name, text, value):
    assert bind(QUERY, {name: text}) == {name: value}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("least", "32M", "parameter least wants bytes, such as 33554432 or 32MiB, got '32M'"),
        ("least", "+2%", "parameter least wants bytes, such as 33554432 or 32MiB, got '+2%'"),
        ("least", "8EiB", "parameter least wants bytes, such as 33554432 or 32MiB, got '8EiB'"),
        ("color", "1.5", "parameter color wants a memory space, such as 0, hbm or all, got '1.5'"),
        ("share", "1MiB", "parameter share wants DOUBLE, got '1MiB'"),
    ],
)
def test_or_are_refused_with_the_right_form(name, text, message):
    with pytest.raises(UsageError) as error:
        bind(QUERY, {name: text})
    assert str(error.value) == f"asked: {message}"


def test_a_budget_without_a_unit_is_asked_about():
    query = catalogue.Catalogue([resources.query_folder()]).find("scaling")
    assert bind(query, {"budget": "16GiB"}) == {"budget": 16 << 30}
    with pytest.raises(UsageError, match=r"^budget 16: 16GiB or 16B\? It wants the unit$"):
        bind(query, {"budget": "16"})


@given(st.integers(0, 2**70), st.sampled_from(["", " "]))
def test_a_whole_number_with_any_unit_is_exact(number, blank):
    for place, unit in enumerate(("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB")):
        assert parse_size(f"{number}{blank}{unit}") == number * 1024**place
    assert parse_size(f"{number}kB") == parse_size(f"{number}KB") == number * 1000


# -- names of memory spaces -----------------------------------------------------------------------


def compiled(con, module_id, run, platform, color=0, function="f", **cells):
    module = Module(con, module_id, run, function, platform=platform, **cells)
    module.allocation(0, "output", 8, color=color)
    module.close()


def numbered(con, **values):
    return parameters.numbered(con, QUERY, values)


def test_a_name_means_a_memory_space_of_one_platform(con):
    compiled(con, 1, "t", "tpu")
    compiled(con, 2, "c", "cpu")
    assert numbered(con, color="hbm") == {"color": "0", "platform": "tpu"}
    assert numbered(con, color="0") == {"color": "0"}
    assert numbered(con, color="all") == {"color": "all"}
    assert numbered(con) == {}
    assert execute_query(con, QUERY, {"color": "vmem"}).rows == [("1", "tpu")]


def test_a_name_of_several_platforms_needs_one_of_them(con):
    compiled(con, 1, "t", "tpu")
    compiled(con, 2, "c", "cpu")
    insert(con, "run_labels", run_name="c", label="who", label_value="me")
    message = "'host' is 0 on cpu, 5 on tpu; say which with --platform or --run"
    with pytest.raises(UsageError, match=message):
        numbered(con, color="host")
    assert numbered(con, color="host", platform="tpu") == {"color": "5", "platform": "tpu"}
    for run in ("c", "who=*"):
        assert numbered(con, color="host", run=run)["color"] == "0"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"color": "hmb"}, "asked: no memory space 'hmb'; did you mean 'hbm'?"),
        ({"color": "hbm", "platform": "cpu"}, "asked: no memory space 'hbm'; cpu has host"),
        ({"color": "zzz", "run": "c"}, "asked: no memory space 'zzz'; cpu has host"),
        (
            {"color": "zzz", "run": "no"},
            "asked: no memory space 'zzz'; no selected platform has names for them",
        ),
    ],
)
def test_an_unknown_name_is_refused_with_the_known_ones(con, values, message):
    compiled(con, 1, "t", "tpu")
    compiled(con, 2, "c", "cpu")
    with pytest.raises(UsageError) as error:
        numbered(con, **values)
    assert str(error.value) == message


# -- why there are no rows ------------------------------------------------------------------------


def why(con, name, **values):
    query = catalogue.Catalogue([resources.query_folder()]).find(name)
    assert execute_query(con, query, values).rows == []
    text = parameters.why_nothing(Known(con), query, values)
    assert text.startswith("no rows: ")
    return text.removeprefix("no rows: ")


def test_an_empty_database_says_so(con):
    assert why(con, "peaks") == "no run is stored"
    insert(con, "runs", run_name="r")
    assert why(con, "peaks") == "no module is stored"
    shown = "'bufdb summary --run r' shows what it has"
    assert why(con, "peaks", run="r") == f"run 'r' has no module; {shown}"


@pytest.mark.parametrize(
    ("name", "values", "reason"),
    [
        ("modules", {"function": "stp"}, "no function 'stp'; did you mean 'step'?"),
        ("modules", {"function": "zz"}, "no function 'zz'; there is init, step"),
        ("modules", {"platform": "gpu"}, "no platform 'gpu'; did you mean 'tpu'?"),
        ("modules", {"color": 3}, "no color '3'; there is 0, 1"),
        (
            "modules",
            {"run": "tpu_a", "function": "init"},
            "run 'tpu_a' has no function 'init'; it is in cpu_a",
        ),
        (
            "modules",
            {"function": "step", "platform": "cpu"},
            "no module has function 'step' and platform 'cpu'",
        ),
        ("ranks", {}, "no run has a label 'rank'; there is who"),
        (
            "rank-growth",
            {},
            "nothing of this kind in the 2 selected modules; "
            "the peak of 1 is unknown: the dump has no live ranges",
        ),
        ("rank-growth", {"label": "hwo"}, "no run has a label 'hwo'; did you mean 'who'?"),
        ("series", {"label": "hwo"}, "no run has a label 'hwo'; did you mean 'who'?"),
        # Without a label none is asked for.
        (
            "first-regression",
            {},
            "nothing of this kind in the 2 selected modules; "
            "the peak of 1 is unknown: the dump has no live ranges",
        ),
        ("scaling", {"label": "hwo"}, "no run has a label 'hwo'; did you mean 'who'?"),
        ("scaling", {"label": "who,hwo"}, "no run has a label 'hwo'; did you mean 'who'?"),
        ("diff-peak", {}, "diff-peak compares two runs: -p base RUN -p new RUN"),
        (
            "diagnostics",
            {"severity": "error"},
            "nothing of this kind in the 2 selected modules with severity error; "
            "the peak of 1 is unknown: the dump has no live ranges",
        ),
    ],
)
def test_what_is_not_there_is_named(con, name, values, reason):
    compiled(con, 1, "tpu_a", "tpu", color=1, function="step", has_live_ranges=False)
    compiled(con, 2, "cpu_a", "cpu", function="init")
    insert(con, "run_labels", run_name="tpu_a", label="who", label_value="me")
    assert why(con, name, **values) == reason


def test_of_a_query_of_the_users_own_nothing_is_claimed(con):
    assert parameters.why_nothing(Known(con), QUERY, {"run": "x"}) == "no rows"


def test_a_label_of_a_list_that_no_run_has_is_reported(con):
    insert(con, "run_labels", run_name="r", label="dtype", label_value="f32")
    query = catalogue.Catalogue([resources.query_folder()]).find("scaling")
    known = Known(con)
    assert parameters.unknown_labels(known, query, bind(query, {"fixed": "dtpe, dtype"})) == [
        "no run has a label 'dtpe'; did you mean 'dtype'?"
    ]
    assert parameters.unknown_labels(known, query, {}) == []
    # Without it there is no row, and `why` says so.
    assert parameters.unknown_labels(known, query, bind(query, {"label": "batch, dtype"})) == []
