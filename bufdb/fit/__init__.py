"""`bufdb fit`: what to change in a JAX function so that it fits, proved by compiling, as a patch.

The package is a function, too: `bufdb.fit(step, params, batch, limit="14GiB")` is
`bufdb.api.fit.fit`, which imports what it takes when it is called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any


class _Callable(ModuleType):
    """A package whose name is a function as well."""

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Return what `bufdb.api.fit.fit` does."""
        from bufdb.api.fit import fit

        return fit(*args, **kwargs)


sys.modules[__name__].__class__ = _Callable
