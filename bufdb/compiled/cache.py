"""JAX's caches out of the way: what comes from one is not compiled, and so not dumped."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_persistent_cache() -> Iterator[None]:
    """JAX's persistent compilation cache switched off: a hit compiles nothing, so dumps nothing.

    Imports no jax: where it is not imported nothing is compiled either.
    """
    jax = sys.modules.get("jax")
    name = "jax_enable_compilation_cache"
    before = getattr(getattr(jax, "config", None), name, None)
    if jax is None or not before:
        yield
        return
    cache = importlib.import_module("jax.experimental.compilation_cache.compilation_cache")
    jax.config.update(name, False)
    # JAX looks at the setting once, at the first compilation, and again after a reset.
    cache.reset_cache()
    try:
        yield
    finally:
        jax.config.update(name, before)
        cache.reset_cache()
