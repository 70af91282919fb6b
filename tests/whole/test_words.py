"""Words that an engineer would not write, in prose and as names."""

import pytest
import words
from places import ROOT


@pytest.mark.parametrize(
    "patterns",
    [
        ("*.md", "schema/**/*.*", "queries/**/*.*"),
        ("bufdb/**/*.md", "bufdb/**/*.py", "data/**/*.md", "data/**/*.py"),
        pytest.param(("tests/**/*.md", "tests/**/*.py"), marks=pytest.mark.slow),
    ],
)
def test_prose_uses_plain_words(patterns):
    odd_by_file = {
        str(path.relative_to(ROOT)): odd
        for pattern in patterns
        for path in sorted(ROOT.glob(pattern))
        if not path.name.endswith("_pb2.py") and "node_modules" not in path.parts
        if (odd := words.odd_words(path))
    }
    assert odd_by_file == {}


@pytest.mark.parametrize(
    "pattern",
    ["bufdb/**/*.py", "data/**/*.py", pytest.param("tests/**/*.py", marks=pytest.mark.slow)],
)
def test_names_say_what_they_name(pattern):
    odd = {str(path.relative_to(ROOT)): words.odd_names(path) for path in ROOT.glob(pattern)}
    assert {path: names for path, names in odd.items() if names} == {}


def test_odd_names_are_those_that_are_bound(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("def given(mine):\n    self.said = found = theirs(ours=1).whose\n")
    names = [(1, "given"), (1, "mine"), (2, "found"), (2, "said")]
    assert [(line, name) for line, name, better in words.odd_names(path)] == names


@pytest.mark.parametrize(
    ("name", "text", "odd"),
    [
        (
            "a.py",
            '"""A.\n\nAnew `told`.\n"""\nx = "told" # beside\n',
            [(3, "Anew"), (5, "beside")],
        ),
        ("a.py", "f(\n  help='Who '\n  'tells',\n  name='anew')\n", [(3, "tells")]),
        ("a.py", "# The x of\n# which y.  Some of which.", [(1, "of which")]),
        ("a.sql", "-- Anew.\nSELECT 'told' AS \"anew\" -- behind", [(1, "Anew"), (2, "behind")]),
        ("a.sql", "COMMENT ON t IS\n'It''s\ntold: \"told\".';", [(3, "told")]),
        ("a.md", "```\ntold\n```\n> told\n\n[told](anew), `told`.", [(6, "told")]),
        ("a.md", "# What it does\n## What is it?\n", [(1, "# What")]),
    ],
)
def test_odd_words_are_found_in_prose_alone(tmp_path, name, text, odd):
    path = tmp_path / name
    path.write_text(text)
    assert [(line, word) for line, word, better in words.odd_words(path)] == odd
