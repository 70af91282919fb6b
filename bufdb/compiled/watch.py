"""A block of a program in which all that JAX compiles is dumped, without a start of its own."""

from __future__ import annotations

import importlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bufdb.compiled.cache import without_persistent_cache
from bufdb.compiled.dump import FLAGS, dump_options, settle
from bufdb.errors import BufdbError

_COMPILER = "jax._src.compiler"
_FUNCTION = "get_compile_options"


@contextmanager
def watched(folder: Path) -> Iterator[None]:
    """Within the block XLA dumps what JAX compiles in this process; after it, it is in `folder`.

    Also where the block fails, for a program that XLA refuses is in its dump.

    XLA reads XLA_FLAGS once, when a process starts to use it, and JAX has no setting for options of
    all compilations: so the function that gathers them is replaced while the block runs.

    Raises:
        BufdbError: this JAX has no such function; or nothing was compiled within the block.
    """
    outside = f"run the program with 'bufdb capture -- COMMAND', or with {FLAGS} and ingest DIR"
    try:
        compiler = importlib.import_module(_COMPILER)
        original = getattr(compiler, _FUNCTION)
    except (ImportError, AttributeError) as error:
        raise BufdbError(
            f"JAX is not installed here, or has no {_COMPILER}.{_FUNCTION} to put dump options "
            f"into; {outside}"
        ) from error

    def with_dumps(*arguments: Any, **options: Any) -> Any:
        given = original(*arguments, **options)
        overrides = [*given.env_option_overrides, *dump_options(dump).items()]
        given.env_option_overrides = overrides
        return given

    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as name:
        dump = Path(name)
        setattr(compiler, _FUNCTION, with_dumps)
        try:
            with without_persistent_cache():
                yield
        finally:
            setattr(compiler, _FUNCTION, original)
            settle(dump, folder)
    if not any(folder.iterdir()):
        raise BufdbError(
            "nothing was compiled in this block: a function that was compiled before is not "
            f"compiled again. Call jax.clear_caches() first; or {outside}"
        )
