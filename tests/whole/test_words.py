"""Words that an engineer would not say, in the docstrings and comments of bufdb/."""

import ast
import io
import re
import tokenize

from places import ROOT

WORDS = {
    "told": "reported, emitted, read",
    "tells": "says, shows",
    "who reads": "the reader",
    "whoever": "the caller, the user",
    "somebody": "the caller, the user",
    "nobody": "no caller, no user",
    "stands": "is",
    "behind": "after",
    "beside": "next to, with",
    "anew": "again",
    "bears": "has, is attributed to",
    "goes ahead": "a warm-up process",
    "a look at": "scan",
}
PATTERN = re.compile(rf"\b({'|'.join(WORDS)})\b", re.IGNORECASE)


def prose(text):
    """Return (line, text) of each docstring and comment."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.lineno, str(node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def odd_words(text):
    """Return line, word and what to write instead."""
    return [
        (line, word, WORDS[word.lower()])
        for line, said in prose(text)
        for word in PATTERN.findall(said)
    ]


def test_docstrings_and_comments_use_plain_words():
    found = {
        str(path.relative_to(ROOT)): words
        for path in sorted((ROOT / "bufdb").rglob("*.py"))
        if not path.name.endswith("_pb2.py") and (words := odd_words(path.read_text("utf-8")))
    }
    assert found == {}


def test_an_odd_word_is_found():
    assert odd_words('"""What is told."""\nx = "told"  # beside\n') == [
        (1, "told", WORDS["told"]),
        (2, "beside", WORDS["beside"]),
    ]
