"""Modules of frameworks that make a wide value, by what their interceptors of methods see.

Where the text of a program does not show what is before the wide value and what makes it, as in a
compact module of flax.linen, a patch takes the input of that module, and puts parts of it there.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bufdb.fitting.plans import Head, Site

_LIBRARIES: Mapping[str, str] = {"flax.linen": "path", "haiku": "module_name"}
"""By the module that has `intercept_methods`: the attribute that names a module."""
_Shape = tuple[int, ...]


@dataclass
class Headed:
    """Methods that give a value of some size, of one array alone."""

    count: int
    """Elements of the value."""
    methods: list[tuple[tuple[str, str, str], _Shape]] = field(default_factory=list)
    """In the order of the calls, innermost alone: library, name and method, and what it gets."""

    @contextlib.contextmanager
    def watching(self) -> Iterator[Headed]:
        """Note the methods that are called."""
        with contextlib.ExitStack() as stack:
            for library in _LIBRARIES:
                if library in sys.modules:
                    how = sys.modules[library].intercept_methods(self._interceptor(library))
                    stack.enter_context(how)
            yield self

    def _interceptor(self, library: str) -> Callable[..., Any]:
        def intercept(call: Any, args: Sequence[Any], kwargs: Mapping[str, Any], at: Any) -> Any:
            before = len(self.methods)
            result = call(*args, **kwargs)
            is_inner = len(self.methods) == before
            if is_inner and len(args) == 1 and math.prod(_shape(result)) == self.count:
                name = repr(getattr(at.module, _LIBRARIES[library])).replace("'", '"')
                self.methods.append(((library, name, at.method_name), _shape(args[0])))
            return result

        return intercept


def _shape(value: Any) -> _Shape:
    """Return the shape of an array; of anything else that of none."""
    return tuple(getattr(value, "shape", None) or (0,))


def head_of(full: Headed, part: Headed, count: int, call: Site) -> Head | None:
    """Return the method that makes a wide value; None unless it is the only one, of the batch.

    Args:
        full: of the whole batch.
        part: of one of `count` parts of it.
        count: of parts.
        call: the expression in which the method is called.
    """
    if len(full.methods) != 1 or len(part.methods) != 1:
        return None
    (method, shape), (other, small) = full.methods[0], part.methods[0]
    if method != other or shape != (count * small[0], *small[1:]):
        return None
    library, name, word = method
    return Head(call, library, _LIBRARIES[library], name, word)
