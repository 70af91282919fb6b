"""The process in which `bufdb explain` runs a user's file: `python -m bufdb.compiled.child`.

What the file does at import, to JAX or to this process, stays here. Invariant: the parent learns
all that it needs from files in one folder, whatever the user's code prints.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from bufdb.compiled.call import arguments
from bufdb.compiled.dump import dumped
from bufdb.compiled.lower import lowered
from bufdb.compiled.target import jax_module, target
from bufdb.errors import BufdbError, UsageError, did_you_mean, quote

DUMPS = "dumps"
FOUND = "found.json"
"""What was found: {"device": kind, "refusal": XLA's line or null}, or
{"message": …, "exit_code": …, "trace": lines of the user's own}."""
DEVICE = "device"
"""The kind of the device, before it is compiled for."""
DOING = "doing"
"""What is being done."""
LINES = 12
"""Of a traceback, or of a message."""
DTYPES = {
    "f64": "float64",
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f8e4m3fn": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2",
    "s64": "int64",
    "s32": "int32",
    "s16": "int16",
    "s8": "int8",
    "u64": "uint64",
    "u32": "uint32",
    "u16": "uint16",
    "u8": "uint8",
    "pred": "bool",
    "c64": "complex64",
    "c128": "complex128",
}
"""JAX's name of an element type by XLA's."""


class Shapes:
    """`f32[8, 128]` in the text of --args: an array of a shape, without values."""

    def __init__(self, dtype: str) -> None:
        self.dtype = dtype

    def __getitem__(self, shape: Any) -> Any:
        """The array; `f32[()]` is a scalar."""
        sizes = shape if isinstance(shape, tuple) else (shape,)
        return jax_module().ShapeDtypeStruct(sizes, self.dtype)


class Failed(BufdbError):
    """The user's code, or XLA, gave up; the message says where and why."""

    def __init__(self, message: str, trace: list[str]) -> None:
        super().__init__(message)
        self.trace = trace
        """Lines of its traceback that are the user's own."""


def run(spec: str, args: str, hardware: str | None, folder: Path) -> dict[str, Any]:
    """Dump what a function of a user's file compiles to; what FOUND says of it.

    Args:
        spec: FILE.py:FUNCTION or package.module:FUNCTION.
        args: arguments as in a call: shapes as f32[8, 128], and names of the file.
        hardware: as --target names it; None for the devices of this machine.
        folder: in which there is DUMPS, where to dump to.

    Raises:
        UsageError: there is no such file, function or target, or it takes other arguments.
        BufdbError: a package is missing, or XLA wrote no dump.
        Failed: the user's code raised an exception, or XLA did before it planned the memory.
    """
    place, colon, name = spec.rpartition(":")
    if not colon:
        raise UsageError(f"expected FILE.py:FUNCTION, got {quote(spec)}")
    jax = jax_module()
    described = None if hardware is None else target(hardware)
    where = "" if hardware is None else f" for {hardware}"
    with _step(folder, f"importing {place}"):
        module = _module(place)
    function: Any = module
    for part in name.split("."):
        if not hasattr(function, part):
            known = [item for item in vars(function) if not item.startswith("_")]
            raise UsageError(f"{place} has no {quote(name)}{did_you_mean(part, known)}")
        function = getattr(function, part)
    names = {**vars(module), **{dtype: Shapes(of) for dtype, of in DTYPES.items()}}
    with _step(folder, f"evaluating --args for {spec}"):
        args_given, kwargs = arguments(args, names).of(function, name)
    with _step(folder, f"tracing {spec}{where}"):
        stage = lowered(function, args_given, kwargs, described)
    kind = described.device_kind if described else str(jax.devices()[0].device_kind)
    with _step(folder, f"compiling {spec}{where}"):
        # For when the compiler ends this process.
        (folder / DEVICE).write_text(kind, encoding="utf-8")
        options = None if described is None else described.options
        refusal = dumped(stage, folder / DUMPS, options)
    return {"device": kind, "refusal": refusal}


@contextmanager
def _step(folder: Path, what: str) -> Iterator[None]:
    """Says in DOING what is being done, and of an exception which it was.

    Raises:
        Failed: in place of any exception of the user's code.
    """
    written = folder / f"{DOING}.new"
    written.write_text(what, encoding="utf-8")
    written.replace(folder / DOING)
    try:
        yield
    except BufdbError:
        raise
    except (Exception, SystemExit) as error:  # of any code at all
        traceback.print_exc()  # for --verbose
        lines = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
        own, last = _own_frames(error)
        where = "" if last is None else f" ({Path(last.filename).name}:{last.lineno})"
        raise Failed(f"{what} failed: {reason}{where}", [*own, *lines[1:LINES]]) from error


def _own_frames(error: BaseException) -> tuple[list[str], traceback.FrameSummary | None]:
    """Frames that are the user's, as a traceback shows them, and the last of them."""
    hidden = (os.path.dirname(__file__), os.path.dirname(jax_module().__file__), "<frozen")  # noqa: PTH120
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(hidden)
    ]
    text = "".join(traceback.format_list(frames)).splitlines()
    return text[-LINES:], frames[-1] if frames else None


def _module(place: str) -> ModuleType:
    """The module of a file or of a dotted name, imported."""
    if not place.endswith(".py"):
        sys.path.insert(0, os.getcwd())  # noqa: PTH109 - as `python -m` does
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{place}.".startswith(f"{error.name}."):
                raise  # it is one that the module imports
            raise UsageError(f"no module {quote(place)}; a file's name ends in .py") from error
    path = Path(place)
    if not path.is_file():
        raise UsageError(f"no file {place}")
    sys.path.insert(0, str(path.parent.absolute()))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None  # for the name ends in .py
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def _end_with_parent(pipe: int, folder: Path) -> None:
    """End this process, and remove the folder, when the other end of a pipe is closed.

    That is so when the parent was killed. XLA may be at work on another thread meanwhile, which
    makes files where others have just been removed.
    """

    def wait() -> None:
        os.read(pipe, 1)
        for _ in range(100):
            shutil.rmtree(folder, ignore_errors=True)
            if not folder.exists():
                break
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


def main(given: list[str]) -> int:
    """Run what `bufdb explain` asks for; the exit code."""
    spec, args, hardware, place, pipe = given
    folder = Path(place)
    _end_with_parent(int(pipe), folder)
    (folder / DUMPS).mkdir()
    code = 0
    try:
        found = run(spec, args, hardware or None, folder)
    except BufdbError as error:
        code = error.exit_code
        trace = error.trace if isinstance(error, Failed) else []
        found = {"message": str(error), "exit_code": code, "trace": trace}
    (folder / FOUND).write_text(json.dumps(found), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
