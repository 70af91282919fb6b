"""Scope paths of op_names, as the macros op_path and strip_op_path of `schema/` give them.

They are said twice, since what a peak would be without an op is computed before the database sees
a row; a test holds the two to each other. A scope is taken element by element, which are few and
remembered: 2 microseconds each, where the macro's regular expressions take 10.
"""

from __future__ import annotations

import re
from functools import lru_cache

_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\[['0-9-]|[.][A-Za-z_])")
_INDEX, _DIVIDER = re.compile(r"\['?|'?\]"), re.compile(r"/+[.]?|[.]")
_MERGED = re.compile(r"/[(]([^:]*):.*[)]\Z")
_PARAMETERS = re.compile(r"\[[a-z_]+=.*\Z|/jit[(]main[)]")

_TRANSFORM = r"(?:jvp|transpose|vmap|linearize)[(]"
_CALL = re.compile(
    rf"(?:{_TRANSFORM})*"
    r"(?:p?jit|pmap|xla_call|xla_pmap|core_call|remat|checkpoint)[(][^/]*"
)
_LOOP, _LOOP_PART = re.compile(rf"(?:{_TRANSFORM})*while[)]*"), re.compile("body|cond")
_CHOICE, _BRANCH = re.compile(rf"(?:{_TRANSFORM})*cond[)]*"), re.compile("branch_[0-9]+_fun")
_WORD = re.compile(
    rf"(?:{_TRANSFORM})+[)]+"
    rf"|(?:{_TRANSFORM})*"
    r"(?:while|checkpoint|remat|rematted_computation|closed_call|core_call|eval_jaxpr"
    r"|shard_map|custom_jvp_call|custom_vjp_call|custom_vjp_call_jaxpr)[)]*"
)
_SCOPE = re.compile(rf"(?:{_TRANSFORM})+([^()/]*)[)]+")
_DEPENDS = "?"
"""No text of an element: these end with a divider."""


def op_path(op_name: str) -> str:
    """The path in one spelling, whichever version of JAX wrote it."""
    # Few have what the expressions look for, which take three times as long as the rest.
    if ("[" in op_name or "." in op_name) and _ARGUMENT.match(op_name):
        return _DIVIDER.sub("/", _INDEX.sub("/", op_name)).rstrip("/")
    first = op_name.partition(";")[0]
    if "/(" in first:
        first = _MERGED.sub(r"/\1", first)
    if "[" in first or "/jit(main)" in first:
        first = _PARAMETERS.sub("", first)
    return first


def strip_op_path(path: str) -> str:
    """The path without the elements that JAX adds above the operation."""
    scope, divider, operation = path.rpartition("/")
    return (_strip_scope(scope) + operation).lstrip("/") if divider else operation


@lru_cache(maxsize=1 << 12)
def _strip_scope(scope: str) -> str:
    """Many operations stand in one scope, mostly one after the other."""
    elements = scope.split("/")
    if "transpose(jvp(" in scope and "/jvp(" in scope:
        return _strip_elements(elements)
    texts = [*map(_text_alone, elements)]
    # Most scopes have no element that depends on others, and then take a tenth of the time.
    return _strip_elements(elements) if _DEPENDS in texts else "".join(texts)


@lru_cache(maxsize=1 << 12)
def _text_alone(element: str) -> str:
    """What is left of an element, and a divider; `_DEPENDS` if that depends on those behind it."""
    if _is_call(element):
        return ""
    if _LOOP.fullmatch(element) or _CHOICE.fullmatch(element):
        return _DEPENDS
    text = _own_text(element)
    return "" if text is None else f"{text}/"


def _strip_elements(elements: list[str]) -> str:
    """The same whatever the elements are."""
    called = [
        element
        for element, behind in zip(elements, [*elements[1:], ""], strict=True)
        # The scope around a checkpoint stands twice in its gradient.
        if not (element.startswith("transpose(jvp(") and behind.startswith("jvp("))
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
    """Whether it names a function that is called: jit(f), jvp(jit(f)), remat(core) of old."""
    return _CALL.fullmatch(element) is not None


@lru_cache(maxsize=1 << 12)
def _is_part(element: str, behind: str) -> bool:
    """Whether both are a loop or a conditional and a part of it."""
    if _LOOP_PART.fullmatch(behind):
        return _LOOP.fullmatch(element) is not None
    return _BRANCH.fullmatch(behind) is not None and _CHOICE.fullmatch(element) is not None


@lru_cache(maxsize=1 << 12)
def _own_text(element: str) -> str | None:
    """The scope in transpose(jvp(scope)); None for words that only say how code is called."""
    if _WORD.fullmatch(element):
        return None
    found = _SCOPE.fullmatch(element)
    return element if found is None else found[1]
