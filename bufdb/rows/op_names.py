"""op_names taken apart: scope paths, numbered layers, phases."""

from __future__ import annotations

import marshal
import re
import zlib
from array import array
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from bufdb.columnar.scan import Bools, Ints, Text
from bufdb.read import jax_names

# -- Scope paths of op_names, as the macros op_path and strip_op_path of `schema/` give them -------
#
# They are defined twice, since what a peak would be without an op is computed before the database
# sees a row; a test compares the two. A scope is read element by element, which are few and cached:
# 2 microseconds each, where the macro's regular expressions take 10.

_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[['0-9-]|[.][A-Za-z_])")
_INDEX, _DIVIDER = re.compile(r"\['?|'?\]"), re.compile(r"/+[.]?|[.]")
_MERGED = re.compile(r"/[(]([^:]*):.*[)]\Z")
_PARAMETERS = re.compile(r"\[[a-z_]+=.*\Z|/jit[(]main[)]")

_TRANSFORM = rf"(?:{'|'.join(jax_names.TRANSFORMS)})[(]"
_CALL = re.compile(rf"(?:{_TRANSFORM})*(?:{'|'.join(jax_names.FUNCTIONS)})[(][^/]*")
_LOOP = re.compile(rf"(?:{_TRANSFORM})*{jax_names.LOOP}[)]*")
_LOOP_PART = re.compile("|".join(jax_names.LOOP_PARTS))
_CHOICE = re.compile(rf"(?:{_TRANSFORM})*{jax_names.CHOICE}[)]*")
_BRANCH = re.compile(jax_names.BRANCH)
_WORDS = (
    jax_names.LOOP,
    *jax_names.CHECKPOINTS,
    *jax_names.SCAN_STEPS,
    *jax_names.CALLS,
)
_WORD = re.compile(rf"(?:{_TRANSFORM})+[)]+|(?:{_TRANSFORM})*(?:{'|'.join(_WORDS)})[)]*")
_SCOPE = re.compile(rf"(?:{_TRANSFORM})+([^()/]*)[)]+")
_BACKWARD, _AFTER = jax_names.BACKWARD + jax_names.GRADIENT, f"/{jax_names.GRADIENT}"
_DEPENDS = "?"
"""Never the text of an element: these end with a divider."""


def op_path(op_name: str) -> str:
    """Return the path in one spelling, whichever version of JAX wrote it."""
    # Few have what the expressions look for; these take three times as long as the rest.
    if ("[" in op_name or "." in op_name) and _ARGUMENT.match(op_name):
        return _DIVIDER.sub("/", _INDEX.sub("/", op_name)).rstrip("/")
    first = op_name.partition(";")[0]
    if "/(" in first:
        first = _MERGED.sub(r"/\1", first)
    if "[" in first or "/jit(main)" in first:
        first = _PARAMETERS.sub("", first)
    return first


def strip_op_path(path: str) -> str:
    """Return the path without the elements that JAX adds above the operation."""
    scope, divider, operation = path.rpartition("/")
    return (_strip_scope(scope) + operation).lstrip("/") if divider else operation


@lru_cache(maxsize=1 << 12)
def _strip_scope(scope: str) -> str:
    """Strip a scope; many operations are in one scope, mostly one after the other."""
    elements = scope.split("/")
    if _BACKWARD in scope and _AFTER in scope:
        return _strip_elements(elements)
    texts = [*map(_text_alone, elements)]
    # Most scopes have no element that depends on others, and then take a tenth of the time.
    return _strip_elements(elements) if _DEPENDS in texts else "".join(texts)


@lru_cache(maxsize=1 << 12)
def _text_alone(element: str) -> str:
    """Return what is left of an element, and a divider; `_DEPENDS` if later ones decide."""
    if _is_call(element):
        return ""
    if _LOOP.fullmatch(element) or _CHOICE.fullmatch(element):
        return _DEPENDS
    text = _own_text(element)
    return "" if text is None else f"{text}/"


def _strip_elements(elements: list[str]) -> str:
    """Return the same for any elements."""
    called = [
        element
        for element, after in zip(elements, [*elements[1:], ""], strict=True)
        # The scope around a checkpoint occurs twice in its gradient.
        if not (element.startswith(_BACKWARD) and after.startswith(jax_names.GRADIENT))
        and not _is_call(element)
    ]
    kept, at = [], 0
    while at < len(called):
        if at + 1 < len(called) and _is_part(called[at], called[at + 1]):
            at += 2
            continue
        text = _own_text(called[at])
        if text is not None:
            kept.append(text)
        at += 1
    return "".join(f"{text}/" for text in kept)


@lru_cache(maxsize=1 << 12)
def _is_call(element: str) -> bool:
    """Return whether it names a function that is called: jit(f), jvp(jit(f)), remat(core)."""
    return _CALL.fullmatch(element) is not None


@lru_cache(maxsize=1 << 12)
def _is_part(element: str, after: str) -> bool:
    """Return whether both are a loop or a conditional and a part of it."""
    if _LOOP_PART.fullmatch(after):
        return _LOOP.fullmatch(element) is not None
    return _BRANCH.fullmatch(after) is not None and _CHOICE.fullmatch(element) is not None


@lru_cache(maxsize=1 << 12)
def _own_text(element: str) -> str | None:
    """Return the scope in transpose(jvp(scope)); None for words about how code is called."""
    if _WORD.fullmatch(element):
        return None
    match = _SCOPE.fullmatch(element)
    return element if match is None else match[1]


# -- The op_names of a batch by number, and what is left of them without what JAX adds -------------
#
# A program of millions of instructions has about as many op_names. Each is stripped where it is met
# first, what is left is kept in packed parts, and what is only compared is compared by hashes.

_REMEMBERED = 1 << 13
"""Op_names known not to be new, as many as fit a cache: equal ones are mostly close together. An
op_name that was forgotten and occurs again has two numbers, which is harmless: numbers of equal
texts become one in `Stripped`."""
PART = 1 << 12
"""Texts that are packed together, to about a tenth: scopes occur in them again and again."""


class _Numbers(dict[bytes | None, int]):
    """Op_names with their numbers; the number of an unknown one is asked for once."""

    def __init__(self, add: Callable[[bytes], int]) -> None:
        """Start with nothing known except that no op_name has the number -1."""
        self._add = add
        self[None] = -1

    def __missing__(self, op_name: bytes) -> int:
        number = self[op_name] = self._add(op_name)
        return number


class OpNames:
    """What is left of op_names, by number."""

    def __init__(self) -> None:
        """Start without any op_name."""
        self._texts: list[str] = []
        """The last texts, which are not packed yet."""
        self._packed: list[bytes] = []
        """The others, the same number in each."""
        self._unpacked: tuple[int, list[str]] = -1, []
        """The part that was asked for last."""
        self.hashes = array("q")
        """Hash of each text."""
        self.is_backward = array("b")
        """Whether the backward pass computes each one."""
        self._numbers = _Numbers(self._add)

    def __len__(self) -> int:
        return len(self.hashes)

    def __getitem__(self, number: int) -> str:
        part, place = divmod(number, PART)
        if part == len(self._packed):
            return self._texts[place]
        if self._unpacked[0] != part:
            self._unpacked = part, marshal.loads(zlib.decompress(self._packed[part]))
        return self._unpacked[1][place]

    def numbers(self, op_name: Text) -> Ints:
        """Return the number of each op_name, -1 where there is none.

        One by one: hashing and sorting them as columns took three times as long.
        """
        if len(self._numbers) > _REMEMBERED:
            self._numbers = _Numbers(self._add)
        numbers = map(self._numbers.__getitem__, op_name.tolist())
        return np.fromiter(numbers, np.int64, len(op_name))

    def _add(self, op_name: bytes) -> int:
        """Return the number of a new one."""
        if len(self._texts) == PART:
            self._packed.append(zlib.compress(marshal.dumps(self._texts), 1))
            self._texts = []
        text = strip_op_path(op_path(op_name.decode(errors="replace")))
        self._texts.append(text)
        self.hashes.append(hash(text))
        self.is_backward.append(jax_names.is_backward(op_name))
        return len(self.hashes) - 1


class Stripped(Sequence[str]):
    """What is left of some op_names, each text once; several op_names may have one text."""

    def __init__(self, op_names: OpNames, is_wanted: Bools) -> None:
        """Take the op_names that are wanted, by number."""
        self._op_names = op_names
        wanted = np.flatnonzero(is_wanted)
        hashes = np.array(op_names.hashes)[wanted]
        order = np.argsort(hashes, kind="stable")
        self._hashes = hashes[order]
        del hashes
        is_new = np.append(True, self._hashes[1:] != self._hashes[:-1])[: len(order)]
        self._hashes = self._hashes[is_new]
        self._examples = wanted[order[is_new]]
        self._places: Ints = np.full(len(op_names) + 1, -1)
        self._places[wanted[order]] = np.cumsum(is_new) - 1

    def places(self, numbers: Ints) -> Ints:
        """For each op_name, by number or -1, where in this its text is."""
        return self._places[numbers]

    def find(self, text: str) -> int:
        """Return where a text is, or -1."""
        place = int(np.searchsorted(self._hashes, hash(text)))
        return place if place < len(self) and self._hashes[place] == hash(text) else -1

    def __len__(self) -> int:
        return len(self._hashes)

    # A sequence takes slices too, which no caller uses here.
    def __getitem__(self, place: int) -> str:  # type: ignore[override]
        return self._op_names[int(self._examples[place])]

    def __iter__(self) -> Iterator[str]:
        return (self[place] for place in range(len(self)))
