"""The arguments of a call as text, and what a function takes of them."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bufdb.errors import UsageError, quote

_CALL = "_"


@dataclass(frozen=True)
class Arguments:
    """What a function is called with."""

    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    is_one: bool = False
    """Whether the text was one expression: a tuple then is all arguments, if it can be."""

    def of(self, function: Callable[..., Any], name: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments that a function takes.

        Args:
            function: plain or jitted; of some no signature is known, which are taken as they are.
            name: its name, for the message.

        Raises:
            UsageError: it takes others.
        """
        named = dict(self.kwargs or {})
        given = [self.args]
        if self.is_one and type(self.args[0]) is tuple:
            given.insert(0, self.args[0])
        try:
            signature = inspect.signature(function)
        except (TypeError, ValueError):
            return given[0], named
        for args in given:
            try:
                signature.bind(*args, **named)
            except TypeError as error:
                reason = str(error)
            else:
                return args, named
        shown = "none" if not given[0] and not named else f"{_given(given[0], named)}: {reason}"
        raise UsageError(f"{name} takes {_names(signature)}; --args gives {shown}")


def _names(signature: inspect.Signature) -> str:
    """(params, batch, *, train=False), without annotations; long defaults are left out."""
    parts = [
        item.replace(annotation=item.empty, default=_Short(item.default))
        if item.default is not item.empty
        else item.replace(annotation=item.empty)
        for item in signature.parameters.values()
    ]
    return str(inspect.Signature(parts)) if parts else "no arguments"


@dataclass(frozen=True, repr=False)
class _Short:
    """A default value in a message."""

    value: Any

    def __repr__(self) -> str:
        text = repr(self.value)
        return text if len(text) <= 20 and "\n" not in text else "..."


def _given(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    parts = [str(len(args))] if args else []
    return ", ".join([*parts, *(f"{name}=" for name in kwargs)])


def arguments(text: str, names: Mapping[str, Any]) -> Arguments:
    """The value of --args: expressions with commas between, or all that a call takes.

    Args:
        text: such as `f32[8], state()`, `*args(16)` or `x=f32[8], **options`.
        names: what it may name.

    Raises:
        UsageError: it is no Python, or names what is not there.
    """
    if not text.strip():
        return Arguments()
    try:
        tree = _parsed(text.strip())
    except SyntaxError as error:
        raise UsageError(f"--args {quote(text)} is no Python: {error.msg}") from error
    space = {**names, _CALL: lambda *args, **kwargs: (args, kwargs)}
    try:
        args, kwargs = eval(compile(tree, "--args", "eval"), space)
    except NameError as error:
        raise UsageError(f"--args {quote(text)}: {error}") from error
    call = tree.body
    assert isinstance(call, ast.Call)
    is_one = len(call.args) == 1 and not kwargs and not isinstance(call.args[0], ast.Starred)
    # `x,` is a tuple with one element, which is the argument.
    return Arguments(args, kwargs, is_one and not text.strip().endswith(","))


def _parsed(text: str) -> ast.Expression:
    """A call with the text between its parentheses.

    Raises:
        SyntaxError: there is no such call.
    """
    tree = ast.parse(f"{_CALL}(\n{text}\n)", mode="eval")
    call = tree.body
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
        raise SyntaxError("unmatched ')'")  # as in `1) + (2`
    return tree
