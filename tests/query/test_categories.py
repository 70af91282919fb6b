"""Rules of what arrays are for, from a file of the user's."""

import pytest

from bufdb.errors import UsageError
from bufdb.query import parameters


def read(tmp_path, text):
    path = tmp_path / "rules.toml"
    path.write_text(text)
    return parameters.read_categories(path)


def test_rules_of_every_section_in_the_order_of_the_file(tmp_path):
    rules = read(
        tmp_path,
        '[operations]\n"*/attn/*" = "attention"\n[phases]\n"*/loss/*" = "loss"\n'
        '[parameters]\n"params?ema*" = "averages"\n"params*" = ""\n',
    )
    assert rules == {
        "op_categories": [(-1, "*/loss/*", None, "loss")],
        "role_rules": [
            (-3, "parameter", "params?ema*", "averages"),
            (-2, "parameter", "params*", None),
            (-1, "operation", "*/attn/*", "attention"),
        ],
    }


def test_an_empty_file_has_no_rules(tmp_path):
    assert read(tmp_path, "") == {"op_categories": [], "role_rules": []}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[params]\n", "expected [parameters], [operations], [phases], found 'params'; did you"),
        ("params* = 'x'\n", "not TOML: "),
        ("parameters = 3\n", "expected a table [parameters], found '3'"),
        ("[operations]\na = 3\n", "[operations]: expected \"GLOB\" = \"WORD\", found '3' for 'a'"),
        ("[operations]\na.b = 'c'\n", '[operations]: expected "GLOB" = "WORD", found'),
    ],
)
def test_what_is_no_rule_is_refused(tmp_path, text, message):
    with pytest.raises(UsageError) as error:
        read(tmp_path, text)
    assert str(error.value).startswith(f"{tmp_path}/rules.toml: ")
    assert message in str(error.value)


def test_a_file_that_is_not_there_or_no_text(tmp_path):
    with pytest.raises(UsageError, match="cannot read"):
        parameters.read_categories(tmp_path / "none.toml")
    (tmp_path / "odd.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not TOML"):
        parameters.read_categories(tmp_path / "odd.toml")
