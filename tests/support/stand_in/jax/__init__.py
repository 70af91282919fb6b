"""JAX for tests of `bufdb explain`: no more than that calls, on the path of its process alone.

A function is traced by calling it. It compiles to the dump in the folder STAND_IN_DUMP, for a time
of STAND_IN_SECONDS, during which there is a file "compiling", and is refused with the text
STAND_IN_REFUSAL, before there is a dump if STAND_IN_DUMP is empty; where the text is "abort" the
process ends. On standard error there is what plugins of XLA say.
"""

import os
import shutil
import sys
import time
import types
from pathlib import Path

print("I0000 cudart_stub.cc:31] Could not find cuda drivers", file=sys.stderr)


class ShapeDtypeStruct:
    def __init__(self, shape, dtype, sharding=None):
        self.shape, self.dtype, self.sharding = shape, dtype, sharding


def _leaves(tree):
    if isinstance(tree, dict):
        tree = tuple(tree.values())
    return [one for part in tree for one in _leaves(part)] if isinstance(tree, tuple) else [tree]


def _map(function, tree):
    if isinstance(tree, dict):
        return {name: _map(function, part) for name, part in tree.items()}
    return (
        tuple(_map(function, part) for part in tree) if isinstance(tree, tuple) else function(tree)
    )


class _Named:
    pass


tree = types.SimpleNamespace(leaves=_leaves, map=_map)
tree_util = types.SimpleNamespace(tree_leaves=_leaves, tree_map=_map)
sharding = types.SimpleNamespace(NamedSharding=_Named, SingleDeviceSharding=lambda device: device)


def devices(platform="cpu"):
    return [types.SimpleNamespace(device_kind=platform, platform=platform)]


class _Lowered:
    def compile(self, compiler_options):
        if "STAND_IN_SECONDS" in os.environ:
            Path("compiling").touch()
            time.sleep(float(os.environ["STAND_IN_SECONDS"]))
        if os.environ.get("STAND_IN_DUMP"):
            folder = Path(compiler_options["xla_dump_to"])
            shutil.copytree(os.environ["STAND_IN_DUMP"], folder, dirs_exist_ok=True)
        if os.environ.get("STAND_IN_REFUSAL") == "abort":
            os.write(2, b"F0000 x.cc:1] Check failed: ptxas\n    @ frame\n")
            os.abort()
        if os.environ.get("STAND_IN_REFUSAL"):
            raise RuntimeError(os.environ["STAND_IN_REFUSAL"])


class _Jitted:
    def __init__(self, function):
        self.function = self.__wrapped__ = function

    def __call__(self, *args, **kwargs):
        return self.function(*args, **kwargs)

    def lower(self, *args, lowering_platforms=None, **kwargs):
        if lowering_platforms is None:
            self.function(*args, **kwargs)
        return _Lowered()

    def trace(self, *args, **kwargs):
        self.function(*args, **kwargs)
        return types.SimpleNamespace(lower=self.lower)


jit = _Jitted
