"""Callbacks to Python in a program for a GPU that is only described.

`jax.debug.print`, `jax.pure_callback` and what checks values with them (equinox.error_if) are calls
of a function in this process. To lower one for a GPU, JAX looks for the backend of one
(`jax._src.callback.emit_python_callback`), and its client without a device takes none to compile.
The program has the same custom call and so the same buffers without them. `bufdb.blame.script`
loads this file in environments without bufdb, so it is Python 3.9 and imports nothing of bufdb.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any, Optional


def unbound(platform: Optional[str], lower: Callable[[], Any]) -> Any:  # noqa: UP045 - Python 3.9
    """Return what `lower()` does, a lowered function, without the functions that it calls back.

    Args:
        platform: that of a target; only "cuda" needs this.
        lower: traces and lowers for it.
    """
    if platform != "cuda":
        return lower()
    bridge: Any = importlib.import_module("jax._src.xla_bridge")
    original = bridge.canonicalize_platform

    @functools.wraps(original)
    def canonicalize(name: str) -> str:
        try:
            return str(original(name))
        except RuntimeError:  # no GPU is here
            if name != "gpu":
                raise
            return "cuda"

    bridge.canonicalize_platform = canonicalize
    try:
        stage = lower()
    finally:
        bridge.canonicalize_platform = original
    arguments = getattr(getattr(stage, "_lowering", None), "compile_args", {})
    if arguments.get("host_callbacks"):
        arguments["host_callbacks"] = []
    return stage
