"""Words put in place of others: the same for the same, in every text, and never one that stays.

A text is words and what stands between them. Since words and the rest are kept apart, and no two
words become one, two texts are the same afterwards exactly if they were before: what is found by
its name is still found. Numbers and punctuation stay, so sizes, lines and shapes do.
"""

from __future__ import annotations

import re
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
_SHORT = re.compile("[A-Za-z]")
"""A single letter stays: it says nothing, and XLA uses most of them."""


class Words:
    """What takes the place of each word, for one export."""

    def __init__(self) -> None:
        self.known = known_words()
        self.codes: dict[str, str] = {}
        self.unused = (code for number in count(1) if (code := _code(number)) not in self.known)

    def text(self, text: str) -> str:
        """The text with all words replaced that are not known."""
        return _WORD.sub(self._replaced, text)

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
