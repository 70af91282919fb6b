"""Find words in prose that an American engineer would not write, and what to write instead.

Prose: docstrings, comments and help texts of Python; comments and COMMENT texts of SQL; Markdown.
Code spans, fenced blocks, quoted lines and text in double quotes are skipped: they may be XLA's.
"""

import ast
import re
from collections.abc import Callable
from pathlib import Path

WORDS = {
    r"told": "reported, emitted, read",
    r"tells?": "report, show, distinguish",
    r"who reads?": "the reader",
    r"whoever|somebody|nobody": "the caller, the user, no X",
    r"stands?|stood|standing": "be, mean",
    r"behind": "after, past",
    r"beside": "next to, with",
    r"anew": "again",
    r"bears?|borne": "have, be attributed to",
    r"go(?:es)? ahead": "a warm-up process",
    r"a look at": "scan",
    r"all that": "everything that",
    r"(?<!each\s)(?<!some\s)of which": "whose",
    r"but for": "except",
    r"speaks?": "say, be about",
    r"likewise": "also, the same, or what it is",
    r"(?:behavi|col|fav|hon|neighb)our\w*": "the spelling with -or",
    r"(?:cancel|label|model|travel)l(?:ed|ing)": "the spelling with one l",
    r"(?:initial|\w*material|maxim|minim|normal|optim|organ|recogn|serial|summar)"
    r"is(?:e|ing|ation)\w*": "-ize",
    r"title: What|^#+ What(?=[^?\n]*$)": "an imperative, a noun or a question",
}
"""What to write instead, by pattern."""
NAMES = {
    "found": "what it is: match, rows, answer, is_…",
    "given": "what it is: filters, arguments, texts",
    "mine": "own_…, or what it is",
    "ours": "own_…, or what it is",
    "theirs": "other_…, or what it is",
    "said": "what it is: output, message, text",
    "told": "reported, read",
    "telling": "a noun",
    "came": "a noun",
    "whose": "owner, process, culprit",
    "Ask": "Question, or what is asked for",
    "asked": "filters, parameters, request",
    "Asked": "Question, or what is asked for",
}
"""What to call something instead, by identifier."""
_WORDS = [
    (re.compile(r"(?<!\w)(?:" + word.replace(" ", r"\s+") + r")(?!\w)", re.I | re.M), better)
    for word, better in WORDS.items()
]
_HELP = {"help", "short_help", "epilog"}
# As tokenize finds comments, in a fifth of its time.
_PYTHON = re.compile(
    r"(#[^\n]*)"
    r"|\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}"
    r"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'",
    re.DOTALL,
)
_SQL = re.compile(r"--(.*)|'((?:[^']|'')*)'|\"[^\"]*\"")
_QUOTED = re.compile(r"^```.*?^```|^ *>.*?$|`[^`\n]*`|\"[^\"\n]*\"|\]\([^)]*\)", re.DOTALL | re.M)


def odd_words(path: Path) -> list[tuple[int, str, str]]:
    """Return line, words and what to write instead, in the order of the file."""
    prose = _PROSE[path.suffix](path.read_text(encoding="utf-8"))
    prose = _QUOTED.sub(lambda quoted: _lines(quoted[0]), prose)
    matches = [(match, better) for word, better in _WORDS for match in word.finditer(prose)]
    return [
        (prose.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), better)
        for match, better in sorted(matches, key=lambda item: item[0].start())
    ]


def odd_names(path: Path) -> list[tuple[int, str, str]]:
    """Return line, identifier and what to write instead, of names that a Python file binds."""
    names = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                names.append((node.lineno, name))
            case ast.arg(arg=name) | ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                names.append((node.lineno, name))
    return [(line, name, NAMES[name]) for line, name in sorted(names) if name in NAMES]


def _python(text: str) -> str:
    """Return docstrings, comments and help texts, each in its line."""
    lines = text.split("\n")
    kept = [""] * len(lines)
    for node in ast.walk(ast.parse(text)):
        value = node.value if isinstance(node, ast.Expr | ast.keyword) else None
        is_help = not isinstance(node, ast.keyword) or node.arg in _HELP
        if isinstance(value, ast.Constant) and isinstance(value.value, str) and is_help:
            place = slice(value.lineno - 1, value.end_lineno)
            kept[place] = [line.replace('"""', "   ") for line in lines[place]]
    number, end = 0, 0
    for match in _PYTHON.finditer(text):
        if match[1]:
            number += text.count("\n", end, match.start())
            kept[number] = match[1].lstrip("#")
            end = match.start()
    return "\n".join(kept)


def _sql(text: str) -> str:
    """Return comments and the texts of COMMENT ON, each in its line."""
    prose, end = "", 0
    for match in _SQL.finditer(text):
        code = text[end : match.start()]
        is_text = match[1] is not None or code.rstrip().endswith(" IS")
        prose += _lines(code) + (match[1] or match[2] or "" if is_text else _lines(match[0]))
        end = match.end()
    return prose


def _lines(text: str) -> str:
    return "\n" * text.count("\n")


_PROSE: dict[str, Callable[[str], str]] = {".py": _python, ".sql": _sql, ".md": str}
