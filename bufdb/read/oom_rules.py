"""A rule for a line of a memory message: groups of its pattern say where its figures go."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import InitVar, dataclass, field

from bufdb.read.amount import LIMIT, PATTERN, Amount, amount_of
from bufdb.read.message import Message

_WORDS = {
    "FRONT": r"(?:^|(?<=[\s\]|:>\"'`+]))",
    "END": r"[\s|\"',]*$",
    "SIZE": PATTERN,
    "NUMBER": r"(?:0x[\da-f]{1,15}|\d{1,18})",
}
"""Words in patterns; at END a table's cell or a quotation may close, but no more text follows."""
_FIELDS = ("total", "limit", "excess")
_AMOUNTS = (
    *("argument", "output", "alias", "temp", "fragmentation", "scoped", "constant", "held"),
    *("tensor", "sparse"),
)


def pattern_of(text: str) -> re.Pattern[str]:
    """Return a pattern in which words in capitals are parts that many lines have."""
    for word, part in _WORDS.items():
        text = text.replace(word, part)
    return re.compile(text)


@dataclass(frozen=True)
class Rule:
    """One kind of line.

    Of the pattern's groups `need` is what the compiler or the runtime asked for, which is the
    total; `total`, `limit`, `excess` and `function` are fields of `Message`, names of amounts are
    among its amounts, and all others are read by `then` or the caller.
    """

    text: InitVar[str]
    part: str = ""
    """Name of the title that it is; '' for a line below one."""
    form: str | None = None
    """`Message.form` from here on."""
    is_program_alone: bool | None = None
    """`Message.is_program_alone` from here on."""
    need_is: str | None = None
    """The amount that the need is, too."""
    scale: int = 1
    """Bytes of a number without a unit."""
    then: Callable[[Message, re.Match[str]], None] | None = None
    """Reads what the groups do not say."""
    pattern: re.Pattern[str] = field(init=False)

    def __post_init__(self, text: str) -> None:
        object.__setattr__(self, "pattern", pattern_of(text))

    def search(self, line: str) -> re.Match[str] | None:
        """Return where a line is of this kind."""
        return self.pattern.search(line)

    def apply(self, message: Message, line: re.Match[str]) -> None:
        """Write what a line says into its message."""
        message.form = self.form or message.form
        if self.is_program_alone is not None:
            message.is_program_alone = self.is_program_alone
        for name, text in line.groupdict().items():
            if name == "function":
                message.function = text
            elif name == "need":
                message.needed = message.total = self._amount(text)
                if self.need_is is not None and message.total is not None:
                    message.amounts[self.need_is] = message.total
            elif name in _FIELDS:
                setattr(message, name, self._amount(text))
            elif name in _AMOUNTS and text and (amount := self._amount(text)) is not None:
                message.amounts[name] = amount
        if self.then is not None:
            self.then(message, line)

    def _amount(self, text: str) -> Amount | None:
        """Return the bytes of a size, or of a number without a unit."""
        if not text.isdecimal() and not text.startswith("0x"):
            return amount_of(text)
        size = int(text, 16 if text.startswith("0x") else 10) * self.scale
        return Amount(size, 0) if size < LIMIT else None
