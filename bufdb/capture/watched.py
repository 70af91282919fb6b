"""The memory of a process, written when a device runs out of it, and at the end.

Invariant: what the program does is not changed. It runs in the user's process, also in a Python
without bufdb's packages, so it imports only the standard library; nothing here may raise.

Which arrays are the arguments of a call is seen where JAX executes programs (ExecuteReplicated).
JAX's fast path in C++ does not go there, so programs that need much memory are kept off it: that
costs a tenth of a millisecond a call. Smaller programs run as without bufdb.
"""

from __future__ import annotations

import importlib
import json
import re
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

NAME = "memory"
"""Name of the profile, without its suffix."""
PROFILE, WATCHED = ".prof", ".watch.json"
SMALL_BYTES = 64 << 20
SMALL_SHARE = 256
"""Programs that need less than this, or than this part of the limit, stay on JAX's fast path."""
_CALLS = 64
_SHORT = {
    **{"bfloat": "bf", "float": "f", "uint": "u", "int": "s", "complex": "c", "bool": "pred"},
}
"""Beginnings of the names of types in NumPy, and in XLA."""
_SAMPLE = 5
"""Arrays of a line and shape whose holder is searched for."""
_NAMED = 200
"""Loaded programs whose names are looked up, the largest: each takes a millisecond."""
_EXHAUSTED = "RESOURCE_EXHAUSTED"
_REQUESTED = re.compile(r"allocat(?:e|ing) (\d+) bytes")
EXECUTES = "jax._src.interpreters.pxla"
"""The part of JAX that executes programs."""
_HOOK = "this version of JAX has no place where bufdb sees calls"
_NO_CALL = (
    "the call that failed was not seen: it is of a program that needs little memory, or long past, "
    "or its results are gone"
)
_DOUBT = (
    "it is not certain which call failed: what it was given is gone, and an earlier call may have "
    "failed to make it"
)
_NO_FAILURE = "nothing failed"
_NOT_RAISED = "a program failed, and its error was not raised: what is alive is of a later moment"


class Call(NamedTuple):
    """A program that was called, and what it took and gave, as far as that is still there."""

    program: Any
    arguments: list[weakref.ref[Any]]
    outputs: list[weakref.ref[Any]]


def stem_of(ordinal: int | None) -> str:
    """Return the name of the files of a snapshot, or of the failure or end, without suffixes."""
    return NAME if ordinal is None else f"{NAME}-{ordinal:06d}"


def is_exhausted(error: BaseException) -> bool:
    """Return whether an error says that a device has run out of memory."""
    return _EXHAUSTED in str(error)[:4096]


class Watch:
    """Sees calls of programs, and writes what the process holds."""

    def __init__(self, folder: Path, limit_bytes: int | None = None) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes
        limit = SMALL_SHARE * SMALL_BYTES if limit_bytes is None else limit_bytes
        self.small_bytes = min(SMALL_BYTES, limit // SMALL_SHARE)
        self.has_failed = self.has_ended = self._is_doubtful = False
        self._is_hurried = False
        self.began = time.monotonic()
        self.lock = threading.RLock()
        """Of the thread that writes."""
        self.find_holders: Callable[[list[list[Any]]], list[Any]] | None = None
        """Returns what holds each of some samples of arrays; None does not search."""
        self._writer: int | None = None
        """The thread that writes: errors that it meets are of arrays whose error was raised."""
        self._current = threading.local()
        """The program and the arguments of the call that a thread is in."""
        self._large: dict[int, bool] = {}
        """Whether a program needs much memory, by the id of its executable, which may be gone."""
        self._calls: deque[Call] = deque(maxlen=_CALLS)
        """The last calls of programs, oldest first."""
        self._undo: list[Callable[[], None]] = []
        self.on_first_call: Callable[[], object] | None = None
        self.why_no_calls: str | None = _HOOK

    # -- where JAX executes programs -------------------------------------------------------

    def start(self) -> None:
        """See the calls of programs from now on; JAX must be imported."""
        try:
            pxla: Any = importlib.import_module(EXECUTES)
            kind, fast = pxla.ExecuteReplicated, pxla.MeshExecutableFastpathData
            original = kind.__call__
            # Attributes of each such object, which `call` reads.
            _ = kind.kept_var_idx, kind.xla_executable
            clear = importlib.import_module("jax._src.lib")._jax.PjitFunctionCache.clear_all
            kept = importlib.import_module("jax._src.traceback_util").register_exclusion
        except (ImportError, AttributeError):
            return
        watch = self

        def call(executed: Any, *args: Any) -> Any:
            outer = getattr(watch._current, "call", None)
            watch._current.call = executed, args
            try:
                outputs = original(executed, *args)
            finally:
                watch._current.call = outer
            if watch.on_first_call is not None:
                watch.on_first_call()
                watch.on_first_call = None
            if watch._is_large(executed.xla_executable):
                watch._calls.append(Call(executed, _references(executed, args), _weak(outputs)))
            return outputs

        def fast_path(executable: Any, *args: Any, **kwargs: Any) -> Any:
            return None if watch._is_large(executable) else fast(executable, *args, **kwargs)

        def undo() -> None:
            kind.__call__, pxla.MeshExecutableFastpathData = original, fast
            clear()

        with suppress(Exception):  # without it the frame is in tracebacks, and nothing else
            kept(__file__)
        kind.__call__, pxla.MeshExecutableFastpathData = call, fast_path
        self._undo.append(undo)
        self._see_errors()
        self.why_no_calls = None
        clear()

    def _see_errors(self) -> None:
        """See errors as they are made: any thread may raise them, and the program catch them."""
        kind = _error_kind()
        original: Any = kind.__init__
        is_own = "__init__" in vars(kind)

        def made(error: Any, *args: Any, **options: Any) -> None:
            original(error, *args, **options)
            if _EXHAUSTED in str(args[:1])[:4096]:
                self.failed(error)

        def undo() -> None:
            kind.__init__ = original
            if not is_own:
                del kind.__init__

        with suppress(TypeError):  # a class that cannot be changed: uncaught errors are seen
            kind.__init__ = made
            self._undo.append(undo)

    def stop(self) -> None:
        """See no more calls."""
        while self._undo:
            with suppress(Exception):  # the next one is undone in any case
                self._undo.pop()()

    def _is_large(self, executable: Any) -> bool:
        """Return whether a program needs so much memory that its calls are to be seen."""
        is_large = self._large.get(id(executable))
        if is_large is None:
            sizes = [size for size in _needs(executable).values() if size is not None]
            is_large = self._large[id(executable)] = not sizes or sum(sizes) >= self.small_bytes
        return is_large

    # -- what is written -------------------------------------------------------------------

    def failed(self, error: BaseException) -> None:
        """Write what the process holds as a device runs out of memory: the first time it does."""
        if self.has_failed or self.has_ended or self._writer == threading.get_ident():
            return
        self.has_failed = True
        self._try("failure", error)

    def end(self, error: BaseException | None = None, *, is_hurried: bool = False) -> None:
        """Write what the process holds at the end, unless it was written when it failed.

        In a hurry, programs that still run are not waited for.
        """
        self._is_hurried = is_hurried
        if error is not None and is_exhausted(error):
            self.failed(error)
        if not self.has_failed and not self.has_ended:
            self.has_ended = True
            self._try("end", None)

    def snapshot(self, ordinal: int, mark: str | None) -> int | None:
        """Write what the process holds while it runs on; return its bytes, None if it failed."""
        return self._try("snapshot", None, ordinal, mark)

    def _try(
        self,
        moment: str,
        error: BaseException | None,
        ordinal: int | None = None,
        mark: str | None = None,
    ) -> int | None:
        with self.lock:
            return self._try_alone(moment, error, ordinal, mark)

    def _try_alone(
        self, moment: str, error: BaseException | None, ordinal: int | None, mark: str | None
    ) -> int | None:
        before, self._writer = self._writer, threading.get_ident()
        try:
            return self._write(moment, error, ordinal, mark)
        except Exception as problem:  # reported; it must not hide the error of the program
            name = type(problem).__name__
            print(
                f"bufdb: what the process holds is not written: {name}: {problem}", file=sys.stderr
            )
        finally:
            self._writer = before
        return None

    def _write(
        self, moment: str, error: BaseException | None, ordinal: int | None, mark: str | None
    ) -> int:
        jax = sys.modules["jax"]
        # Before anything else, since looking at arrays makes others.
        arrays = list(jax.live_arrays())
        profile = jax.profiler.device_memory_profile()
        elapsed = time.monotonic() - self.began
        hurry = self._is_hurried or ordinal is not None
        problems = [(array, _problem(array, is_hurried=hurry)) for array in arrays]
        sound = [(array, problem is None) for array, problem in problems]
        late = [one for _, one in problems if isinstance(one, Exception) and is_exhausted(one)]
        call = self._failing_call() if error is not None or late else None
        why: str | None = _NOT_RAISED
        if error is not None or not late:
            why = self._why_unknown(error, call)
        error = error or next(iter(late), None)
        message = str(error).strip().splitlines()[0][:400] if error is not None else None
        request = _REQUESTED.search(str(error)) if error is not None else None
        every = list(_seen_parts(array for array, is_sound in sound if is_sound))
        parts = list(_once(every))
        account = {
            "moment": moment,
            "elapsed_seconds": round(elapsed, 3),
            "mark": mark,
            "snapshot": ordinal,
            "failed_program": None if call is None else _module_name(call.program.xla_executable),
            "message": message,
            "requested_bytes": int(request[1]) if request else None,
            "limit_bytes": self.limit_bytes,
            "arguments_unknown_reason": why,
            "arguments": None if why else _arguments(sound, call),
            "lost": _gathered(_parts([array for array, is_sound in sound if not is_sound])),
            "shapes": self._with_holders(_gathered(parts), parts, every),
            "programs": list(_programs(jax, call)),
            "statistics": _statistics(jax),
        }
        # The profile is last: without it the other is not read.
        stem = stem_of(ordinal)
        put(self.folder / f"{stem}{WATCHED}", json.dumps(account).encode())
        put(self.folder / f"{stem}{PROFILE}", profile)
        return sum(part.size_bytes for part in parts)

    def _with_holders(
        self, shapes: list[dict[str, Any]], parts: Iterable[Part], every: Iterable[Part]
    ) -> list[dict[str, Any]]:
        """Return counts of arrays with what holds a sample of them, if that is wanted."""
        if self.find_holders is None:
            return shapes
        # Several arrays may have one buffer, and only one of them be in a variable.
        of_buffer: dict[tuple[str, int], list[Any]] = {}
        for part in every:
            of_buffer.setdefault((part.device, part.address), []).append(part.array)
        samples: dict[tuple[str, Any, str], list[Part]] = {}
        for part in parts:
            samples.setdefault((part.device, part.stack, part.shape), []).append(part)
        # Old and new ones: the last that were made are also in variables that are soon others.
        spread = [some[:: -(-len(some) // _SAMPLE)] for some in samples.values()]
        arrays = [
            [array for part in some for array in of_buffer[part.device, part.address]]
            for some in spread
        ]
        for one, holder in zip(shapes, self.find_holders(arrays), strict=True):
            one["holder"] = holder
        return shapes

    def _why_unknown(self, error: BaseException | None, call: Call | None) -> str | None:
        if error is None:
            return _NO_FAILURE
        if call is not None:
            return None
        return self.why_no_calls or (_DOUBT if self._is_doubtful else _NO_CALL)

    def _failing_call(self) -> Call | None:
        """Return the call that this thread is in, else one that has failed since."""
        executed, args = getattr(self._current, "call", None) or (None, ())
        # The error may be that of an argument, which an earlier call was to make.
        if executed is not None and not any(
            isinstance(_problem(arg), Exception) for arg in args if hasattr(arg, "is_deleted")
        ):
            return Call(executed, _references(executed, args), [])
        return self._failed_call()

    def _failed_call(self) -> Call | None:
        """Return the call whose outputs have no value, while its arguments have one.

        An argument that is gone, or was given away and so deleted, may be what an earlier call
        failed to make. Then the program is certain only if all calls that may have are of the same.
        """
        gone: list[Call] = []
        doubtful: list[Any] = []
        """Results of calls without any that would show a failure."""
        for call in self._calls:
            made = _there(call.outputs)
            outputs = [one for one in made if not one.is_deleted()]
            if not outputs:
                gone.append(call)
                doubtful += made
            elif not all(map(_is_sound, outputs)):
                present = _there(call.arguments)
                if any(not one.is_deleted() and not _is_sound(one) for one in present):
                    continue
                ids = {id(one) for one in doubtful}
                is_certain = (
                    len(present) == len(call.arguments)
                    and not any(id(one) in ids for one in present)
                ) or all(one.program is call.program for one in gone)
                self._is_doubtful = not is_certain
                return call if is_certain else None
        return None


def _there(references: Iterable[weakref.ref[Any]]) -> list[Any]:
    return [one for one in (ref() for ref in references) if one is not None]


def _references(executed: Any, args: Iterable[Any]) -> list[weakref.ref[Any]]:
    """Return references to the arguments that a program takes: unused ones are not given to it."""
    kept = executed.kept_var_idx
    return _weak(arg for number, arg in enumerate(args) if number in kept)


def _weak(values: Any) -> list[weakref.ref[Any]]:
    references = []
    for value in values if isinstance(values, Iterable) else ():
        with suppress(TypeError):
            references.append(weakref.ref(value))
    return references


def _is_sound(array: Any) -> bool:
    """Return whether an array has a value: one that a failed program was to make has none."""
    return _problem(array) is None


def _problem(array: Any, *, is_hurried: bool = False) -> Exception | str | None:
    """Return why an array has no value: the error of the program that was to make it.

    In a hurry an array that is still being made counts as one that has a value.
    """
    if array.is_deleted():
        return "deleted"
    if is_hurried and not array.is_ready():
        return None
    try:
        array.block_until_ready()
    except Exception as error:  # of whatever class JAX has for it
        return error
    return None


class Part(NamedTuple):
    """A part of an array on a device."""

    device: str
    stack: tuple[tuple[str, str, int], ...]
    shape: str
    address: int
    """0 if it has none."""
    size_bytes: int
    array: Any


def _parts(arrays: Iterable[Any], *, are_sound: bool = False) -> Iterator[Part]:
    for array in arrays:
        with suppress(Exception):  # deleted meanwhile by another thread: it is not alive
            stack = _stack(array)
            for shard in array.addressable_shards:
                data = shard.data
                # Without a value XLA ends the process when it is asked for an address.
                address = _address(array, data) if are_sound else 0
                shape = _shape(data.dtype, data.shape)
                yield Part(str(shard.device), stack, shape, address, _size(data), array)


def _seen_parts(arrays: Iterable[Any]) -> Iterator[Part]:
    """Yield the parts of arrays, without the views of shards that JAX would make and keep."""
    for array in arrays:
        with suppress(Exception):  # deleted meanwhile
            devices = [str(one) for one in array.sharding.addressable_devices]
            shape = _shape(array.dtype, array.sharding.shard_shape(array.shape))
            # An array that is still being made may yet fail: then it has no address.
            is_asked = len(devices) == 1 and array.is_ready()
            address = _address(array, array) if is_asked else -id(array)
            size, stack = _size(array) // len(devices), _stack(array)
            yield from (Part(name, stack, shape, address, size, array) for name in devices)


@cache
def _shape(dtype: Any, dimensions: tuple[int, ...]) -> str:
    """Return a shape as XLA writes it: f32[256,512]."""
    name = str(dtype)
    for prefix, short in _SHORT.items():
        if name.startswith(prefix):
            name = short + name[len(prefix) :].replace("_", "")
            break
    return f"{name}[{','.join(map(str, dimensions))}]"


def _address(array: Any, data: Any) -> int:
    """Return what distinguishes the memory of a part of an array from all others."""
    with suppress(Exception):
        return int(data.unsafe_buffer_pointer())
    return -id(array)  # a runtime that gives no addresses: the array itself


def _size(data: Any) -> int:
    with suppress(Exception):
        return int(data.on_device_size_in_bytes())
    return int(data.nbytes)


def _stack(array: Any) -> tuple[tuple[str, str, int], ...]:
    """Return the frames of the stack that made an array, callers first."""
    frames = getattr(getattr(array, "traceback", None), "frames", None) or ()
    return tuple((one.file_name, one.function_name, one.line_num) for one in reversed(frames))


def _arguments(sound: Iterable[tuple[Any, bool]], call: Call | None) -> list[dict[str, Any]]:
    """Return which of the arrays are arguments of a call, by device and stack."""
    there = [one for one in _there(call.arguments if call is not None else []) if _is_sound(one)]
    taken = {(part.device, part.address) for part in _parts(there, are_sound=True)}
    every = _once(_parts((array for array, is_sound in sound if is_sound), are_sound=True))
    return _gathered(part for part in every if (part.device, part.address) in taken)


def _once(parts: Iterable[Part]) -> Iterator[Part]:
    """Yield each buffer once.

    As in JAX's profile it counts with the array that was made last, which comes first.
    """
    seen: set[tuple[str, int]] = set()
    for part in parts:
        place = (part.device, part.address)
        if place not in seen:
            seen.add(place)
            yield part


def _gathered(parts: Iterable[Part]) -> list[dict[str, Any]]:
    """Return counts and bytes of the parts by device, stack and shape."""
    sums: dict[tuple[str, Any, str], list[int]] = {}
    for part in parts:
        of = sums.setdefault((part.device, part.stack, part.shape), [0, 0])
        of[0] += 1
        of[1] += part.size_bytes
    return [
        {"device": device, "stack": stack, "shape": shape, "count": count, "bytes": size}
        for (device, stack, shape), (count, size) in sums.items()
    ]


def _needs(executable: Any) -> dict[str, int | None]:
    names = ("argument", "output", "alias", "temp")
    try:
        stats = executable.get_compiled_memory_stats()
        needs = {f"{name}_bytes": getattr(stats, f"{name}_size_in_bytes", None) for name in names}
        return needs | {"code_bytes": getattr(stats, "generated_code_size_in_bytes", None)}
    except Exception:  # a device whose runtime does not say
        return dict.fromkeys([*(f"{name}_bytes" for name in names), "code_bytes"])


def _module_name(executable: Any) -> str:
    with suppress(Exception):
        return str(executable.hlo_modules()[0].name)
    return "(unknown)"


def _programs(jax: Any, call: Call | None) -> Iterator[dict[str, Any]]:
    """Yield what each loaded program needs, the largest first."""
    failed = None if call is None else call.program.xla_executable
    loaded: list[Any] = [] if failed is None else [failed]
    for client in {id(one.client): one.client for one in jax.local_devices()}.values():
        with suppress(Exception):  # a runtime that does not list them: the failed one is there
            loaded += [one for one in client.live_executables() if one is not failed]
    needs = [(executable, _needs(executable)) for executable in loaded]
    needs.sort(key=lambda one: (one[0] is not failed, -sum(size or 0 for size in one[1].values())))
    for executable, figures in needs[:_NAMED]:
        yield {"name": _module_name(executable), "is_failed": executable is failed, **figures}


def _statistics(jax: Any) -> dict[str, Mapping[str, int]]:
    statistics: dict[str, Mapping[str, int]] = {}
    for device in jax.local_devices():
        with suppress(Exception):  # a device without statistics has no rows
            figures = device.memory_stats() or {}
            statistics[str(device)] = {n: int(v) for n, v in figures.items() if isinstance(v, int)}
    return statistics


def put(path: Path, data: bytes) -> None:
    """Write a file as a whole, in a folder that is made if it is not there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = path.with_name(f".{path.name}.{time.monotonic_ns()}")
    made.write_bytes(data)
    made.replace(path)


def _error_kind() -> Any:
    """Return the class of the errors that XLA raises.

    Raises:
        AttributeError: this version of JAX has another.
    """
    lib: Any = importlib.import_module("jax._src.lib")
    error_type = getattr(getattr(lib, "_jax", None), "JaxRuntimeError", None)
    return error_type or lib.xla_client.XlaRuntimeError
