"""Selection of names by pattern."""

import pytest
from small_db import insert
from what_if_cases import Case, ask

from bufdb.errors import UsageError


@pytest.fixture
def names(con):
    """Return what patterns select in a module with one of each kind of name."""
    case = Case(con)
    case.temp(1, 1, (0, 9), "/m/model.py:53", op_name="jit(f)/net/dot", name="dot")
    case.temp(2, 1, (0, 9), "/m/x.py:1", op_name="jit(f)/while", name="while", shape_index="{0}")
    case.temp(3, 1, (0, 9), "/m/x.py:1", op_name="jit(f)/while", name="while", shape_index="{1}")
    case.origin(2, "/m/model.py:53", op_name="jit(f)/net/dot")
    case.temp(4, 1, (0, 9), name="copy", program_order=0)
    case.temp(5, 1, (0, 9), "/n/model.py:53", op_name="jit(f)/net_2/dot", name="m", program_order=1)
    case.use(4, "m")
    case.close()
    return lambda *patterns: [
        row.name for row in ask(con, *patterns).rows if row.what != "together"
    ]


def test_the_end_of_a_path_selects_saved_and_copied(names):
    assert names("line:model.py:53") == [
        "/m/model.py:53", "saved /m/model.py:53", "for /n/model.py:53", "/n/model.py:53"
    ]  # fmt: skip
    assert names("line:m/model.py:53") == ["/m/model.py:53", "saved /m/model.py:53"]


@pytest.mark.slow
def test_a_library_is_a_word_before_the_name(con):
    case = Case(con)
    installed = "/l/site-packages/flax/linen/linear.py:271"
    case.temp(1, 1, (0, 9), installed, op_name="jit(f)/dot", name="dot", program_order=1)
    case.temp(2, 1, (0, 9), name="copy", program_order=0)
    case.temp(3, 1, (0, 9), "/m/model/linear.py:271", op_name="jit(f)/exp", name="exp")
    case.use(2, "dot")
    case.close()

    def taken(pattern):
        return [row.name for row in ask(con, pattern).rows if row.what != "together"]

    library = "library flax/linen/linear.py:271"
    assert taken("line:library flax/*") == taken(f"line:{library}") == [library]
    assert taken("line:for library flax/*") == [f"for {library}"]
    assert taken("line:linear.py:271") == [
        library, f"for {library}", "/m/model/linear.py:271"
    ]  # fmt: skip


@pytest.mark.slow
def test_a_name_in_full_is_that_alone(names):
    assert names("line:/m/model.py:53") == ["/m/model.py:53"]
    assert names("op:net/dot") == ["net/dot"]
    assert names("value:while{1}") == ["while{1}"]


def test_a_word_before_the_name_takes_only_names_with_it(names):
    assert names("line:saved model.py:5*") == ["saved /m/model.py:53"]
    assert names("op:for *") == ["for net_2/dot"]


@pytest.mark.slow
def test_an_op_is_a_glob_or_the_last_elements(names):
    assert names("op:net*/dot") == ["net/dot", "saved net/dot", "for net_2/dot", "net_2/dot"]
    assert names("op:dot") == ["net/dot", "saved net/dot", "for net_2/dot", "net_2/dot"]


@pytest.mark.slow
def test_an_instruction_is_everything_that_it_gives(names):
    assert names("value:while") == ["while{0}", "while{1}"]
    assert names("value:whi*") == ["while{0}", "while{1}"]


def test_each_name_once(names):
    assert names("op:dot", "op:net/dot")[:1] == ["net/dot"]
    assert len(names("op:dot", "op:net/dot")) == 4


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        (
            "line:modle.py:53",
            "no line 'modle.py:53' has temporary memory; did you mean 'model.py:5",
        ),
        ("op:net/dott", "did you mean 'net/dot'"),
        ("op:jit(f)/net/dot", "without jit and transformations it is 'net/dot'"),
        ("value:copi", "did you mean 'copy'"),
        ("value:zzzzzzz", "'bufdb query savings -p what value"),
        ("model.py:53", "--without wants line:GLOB, op:GLOB or value:GLOB, got 'model.py:53'"),
        ("line:", "--without wants"),
    ],
)
def test_what_takes_nothing_says_what_is_near(names, pattern, message):
    with pytest.raises(UsageError) as error:
        names(pattern)
    assert message in str(error.value)


@pytest.mark.slow
def test_brackets_of_a_name_match_themselves_too(con):
    case = Case(con)
    case.temp(1, 1, (0, 9), "/m/a.py:1", op_name="jit(f)/layer[0]/dot")
    case.close()
    for pattern in ("op:layer[0]/*", "op:layer[[]0]/*", "op:l[a]yer*"):
        assert ask(con, pattern).rows[0].name == "layer[0]/dot"


def test_a_name_of_parts_of_other_buffers_is_not_meant(con):
    case = Case(con)
    case.value(1, 0, 0, 4, live=(1, 3), name="w", is_phi=True, op_name="jit(f)/while")
    case.value(2, 0, 0, 4, live=(3, 3), name="next", op_name="jit(f)/body/add")
    insert(con, "positions", module_id=1, value_id=1, shape_index="{0}", instruction_name="w")
    insert(con, "positions", module_id=1, value_id=2, position_ordinal=1, shape_index="{0}",
           instruction_name="root")  # fmt: skip
    case.close()
    with pytest.raises(UsageError) as error:
        ask(con, "op:add")
    assert str(error.value) == (
        "no op 'add' has temporary memory of its own: its results are in buffers of other "
        "names; value:GLOB removes them"
    )
