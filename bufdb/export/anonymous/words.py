"""Words put in place of others: the same for the same, in every text, and never one that stays.

A text is words and what stands between them. Since words and the rest are kept apart, and no two
words become one, two texts are the same afterwards exactly if they were before: what is found by
its name is still found. Numbers and punctuation stay, so sizes, lines and shapes do. A user's
functions and files are replaced whole, whatever words and numbers they are made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import count
from string import ascii_lowercase

from bufdb.export.anonymous.vocabulary import known_words

# A hash in hexadecimal, such as a commit; else everything but digits, ASCII punctuation and blanks,
# with XLA's octal escapes of UTF-8.
_WORD = re.compile(
    r"(?<![A-Za-z0-9])(?=[0-9]*[a-f])[0-9a-f]{7,64}(?![A-Za-z0-9])"
    r"|(?:[^\x00-\x40\x5b-\x60\x7b-\x7f]|\\[0-7]{3})+"
)
_ESCAPE = re.compile(rb"\\([0-7]{3})")
_SUFFIX = re.compile("py|txt|pb|log|gz|zst|json|toml|zip|tar")
_SHORT = re.compile("[A-Za-z]")
"""A single letter stays: it says nothing, and XLA uses most of them."""


_PART = r"[\w.+@~-]+"
_BEGIN = r"(?<![\w.+@~/-])"
_WHOLE = re.compile(
    # Files: absolute, or Python's; folders before a module's files; addresses.
    rf"(?P<path>(?<![\w.)\]}}>*/+@~-])/(?:{_PART}/)*{_PART}"
    rf"|{_BEGIN}(?:{_PART}/)*{_PART}\.py(?!\w)"
    rf"|{_BEGIN}(?:{_PART}/)+(?=module_\d{{4}}))"
    r"|(?P<address>(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.]))"
    # Functions: where JAX names them, and names of several words.
    r"|(?<=jit\()(?P<called>\w+)|(?P<name>[^\W\d]\w*)"
)
_NAME = re.compile(r"[^\W\d]\w*")
_NO_FUNCTIONS = ("main", "locals", "lambda", "module")
"""JAX's name of a program, and Python's of what has no name."""
_LIBRARY = re.compile(r"(?:^|/)(?:site-packages|dist-packages|lib/python[\d.]+)(?:/|$)")
"""What comes after it is an installed package's, or Python's."""


class Words:
    """What takes the place of each word, for one export."""

    def __init__(self, functions: Iterable[str] = ()) -> None:
        """`functions` are the user's."""
        self.functions = frozenset(
            part for name in functions for part in _NAME.findall(name) if part not in _NO_FUNCTIONS
        )
        self.known = known_words()
        self.codes: dict[str, str] = {}
        self.unused = (code for number in count(1) if (code := _code(number)) not in self.known)

    def text(self, text: str) -> str:
        """The text with all words replaced that are not known."""
        if text in self.functions:
            return self.whole(text)
        parts, at = [], 0
        for found in _WHOLE.finditer(text):
            replaced = self._whole_of(found)
            if replaced is not None:
                parts += [_WORD.sub(self._replaced, text[at : found.start()]), replaced]
                at = found.end()
        return "".join([*parts, _WORD.sub(self._replaced, text[at:])])

    def rule(self, text: str) -> str:
        """The same of a rule, in which a word of bufdb's is none of the user's."""
        return _WORD.sub(self._replaced, text)

    def whole(self, text: str) -> str:
        """A word in place of a whole text; a single letter stays."""
        if text and not _SHORT.fullmatch(text) and text not in self.codes:
            self.codes[text] = next(self.unused)
        return self.codes.get(text, text)

    def _whole_of(self, found: re.Match[str]) -> str | None:
        """What takes the place of a user's file, function or address; None if it is none."""
        text = found[0]
        if found["address"]:
            return self.whole(text)
        if found["path"]:
            return self._path(text)
        if found["called"]:
            is_one = text.strip("_").lower() in self.known and text not in self.functions
            return None if is_one else self.whole(text)
        # A single word that is XLA's as well is one of XLA's here.
        if text in self.functions and text.strip("_").lower() not in self.known:
            return self.whole(text)
        jit, _, name = text.partition("jit_")
        return f"jit_{self.whole(name)}" if not jit and name in self.functions else None

    def _path(self, text: str) -> str:
        library = _LIBRARY.search(text)
        own = text[: library.start()] if library else text
        stem, dot, suffix = own.rpartition(".")
        if not dot or "/" in suffix or not _SUFFIX.fullmatch(suffix):
            stem, dot, suffix = own, "", ""
        parts = "/".join(map(self.whole, stem.split("/")))
        rest = _WORD.sub(self._replaced, text[len(own) :])
        return f"{parts}{dot}{suffix}{rest}"

    def _replaced(self, found: re.Match[str]) -> str:
        word = _unescaped(found[0])
        if word.lower() in self.known or _SHORT.fullmatch(word):
            return found[0]
        if word not in self.codes:
            self.codes[word] = next(self.unused)
        return self.codes[word]


def _unescaped(word: str) -> str:
    """The word behind octal escapes, as other texts have it."""
    if "\\" not in word:
        return word
    data = _ESCAPE.sub(lambda found: bytes([int(found[1], 8) & 0xFF]), word.encode())
    return data.decode(errors="backslashreplace")


def _code(number: int) -> str:
    """A word: xa, xb, …, xz, xaa and so on."""
    letters = ""
    while number:
        number, place = divmod(number - 1, len(ascii_lowercase))
        letters = ascii_lowercase[place] + letters
    return "x" + letters
