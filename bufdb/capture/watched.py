"""The memory of a process, written when a device runs out of it, and at the end.

Invariant: what the program does is not changed. It runs in the user's process, also in a Python
without bufdb's packages, so it imports only the standard library; nothing here may raise.

Which arrays are the arguments of a call is seen where JAX executes programs (ExecuteReplicated).
JAX's fast path in C++ does not go there, so programs that need much memory are kept off it: that
costs a tenth of a millisecond a call. Smaller programs run as without bufdb.
"""

from __future__ import annotations

import atexit
import importlib
import importlib.util
import json
import os
import re
import sys
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

NAME = "memory"
"""Name of the profile, without its suffix."""
PROFILE, WATCHED = ".prof", ".watch.json"
SMALL_BYTES = 64 << 20
SMALL_SHARE = 256
"""Programs that need less than this, or than this part of the limit, stay on JAX's fast path."""
_CALLS = 64
_NAMED = 200
"""Loaded programs whose names are looked up, the largest: each takes a millisecond."""
_SEEN = "_bufdb_seen"
"""Attribute of an error: the ids of what has written it."""
_EXHAUSTED = "RESOURCE_EXHAUSTED"
_REQUESTED = re.compile(r"allocat(?:e|ing) (\d+) bytes")
_EXECUTES = "jax._src.interpreters.pxla"
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


class Call(NamedTuple):
    """A program that was called, and what it took and gave, as far as that is still there."""

    program: Any
    arguments: list[weakref.ref[Any]]
    outputs: list[weakref.ref[Any]]


def is_exhausted(error: BaseException) -> bool:
    """Return whether an error says that a device has run out of memory."""
    return _EXHAUSTED in str(error)[:4096]


class Watch:
    """Sees calls of programs, and writes what the process holds."""

    def __init__(self, folder: Path, limit_bytes: int | None = None) -> None:
        self.folder, self.limit_bytes = folder, limit_bytes
        limit = SMALL_SHARE * SMALL_BYTES if limit_bytes is None else limit_bytes
        self.small_bytes = min(SMALL_BYTES, limit // SMALL_SHARE)
        self.name: str | None = None
        """Name of this process's profile, once it has written one."""
        self.has_failed = self._is_doubtful = False
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
            pxla: Any = importlib.import_module(_EXECUTES)
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
            try:
                found = original(executed, *args)
            except Exception as error:  # noted, and raised again unchanged
                if is_exhausted(error):
                    watch.failed(error, Call(executed, _references(executed, args), []))
                raise
            if watch.on_first_call is not None:
                watch.on_first_call()
                watch.on_first_call = None
            if watch._is_large(executed.xla_executable):
                watch._calls.append(Call(executed, _references(executed, args), _weak(found)))
            return found

        def fast_path(executable: Any, *args: Any, **kwargs: Any) -> Any:
            return None if watch._is_large(executable) else fast(executable, *args, **kwargs)

        def undo() -> None:
            kind.__call__, pxla.MeshExecutableFastpathData = original, fast
            clear()

        with suppress(Exception):  # without it the frame is in tracebacks, and nothing else
            kept(__file__)
        kind.__call__, pxla.MeshExecutableFastpathData = call, fast_path
        self._undo.append(undo)
        self.why_no_calls = None
        clear()

    def stop(self) -> None:
        """See no more calls."""
        while self._undo:
            with suppress(Exception):  # the next one is undone in any case
                self._undo.pop()()

    def _is_large(self, executable: Any) -> bool:
        """Return whether a program needs so much memory that its calls are to be seen."""
        found = self._large.get(id(executable))
        if found is None:
            sizes = [size for size in _needs(executable).values() if size is not None]
            found = self._large[id(executable)] = not sizes or sum(sizes) >= self.small_bytes
        return found

    # -- what is written -------------------------------------------------------------------

    def failed(self, error: BaseException, call: Call | None = None) -> None:
        """Write what the process holds now that a device has run out of memory; once an error."""
        # A reference would keep what its frames hold, and its id may be that of a later one.
        seen: set[int] = vars(error).setdefault(_SEEN, set())
        if id(self) in seen:
            return
        seen.add(id(self))
        self.has_failed = True
        self._try("failure", error, call)

    def end(self, error: BaseException | None = None) -> None:
        """Write what the process holds at the end, unless it was written when it failed."""
        if error is not None and is_exhausted(error):
            self.failed(error)
        if not self.has_failed:
            self._try("end", None, None)

    def _try(self, moment: str, error: BaseException | None, call: Call | None) -> None:
        try:
            self._write(moment, error, call)
        except Exception as problem:  # reported; it must not hide the error of the program
            name = type(problem).__name__
            print(
                f"bufdb: what the process holds is not written: {name}: {problem}", file=sys.stderr
            )

    def _write(self, moment: str, error: BaseException | None, call: Call | None) -> None:
        jax = sys.modules["jax"]
        # Before anything else, since looking at arrays makes others.
        arrays = list(jax.live_arrays())
        profile = jax.profiler.device_memory_profile()
        sound = [(array, _is_sound(array)) for array in arrays]
        if error is not None and call is None:
            call = self._failed_call()
        why = self._why_unknown(error, call)
        message = str(error).strip().splitlines()[0][:400] if error is not None else None
        asked = _REQUESTED.search(str(error)) if error is not None else None
        found = {
            "moment": moment,
            "failed_program": None if call is None else _module_name(call.program.xla_executable),
            "message": message,
            "requested_bytes": int(asked[1]) if asked else None,
            "limit_bytes": self.limit_bytes,
            "arguments_unknown_reason": why,
            "arguments": None if why else _arguments(sound, call),
            "lost": _gathered(_parts([array for array, is_sound in sound if not is_sound])),
            "programs": list(_programs(jax, call)),
            "statistics": _statistics(jax),
        }
        # The profile is last: without it the other is not read.
        data = json.dumps(found).encode()
        if self.name is None:
            path = self.folder / f"{NAME}{WATCHED}"
            self.name = NAME if _put_first(path, data) else f"{NAME}-{os.getpid()}"
        _put(self.folder / f"{self.name}{WATCHED}", data)
        _put(self.folder / f"{self.name}{PROFILE}", profile)

    def _why_unknown(self, error: BaseException | None, call: Call | None) -> str | None:
        if error is None:
            return _NO_FAILURE
        if call is not None:
            return None
        return self.why_no_calls or (_DOUBT if self._is_doubtful else _NO_CALL)

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
                given = _there(call.arguments)
                if any(not one.is_deleted() and not _is_sound(one) for one in given):
                    continue
                ids = {id(one) for one in doubtful}
                is_certain = (
                    len(given) == len(call.arguments) and not any(id(one) in ids for one in given)
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
    found = []
    for value in values if isinstance(values, Iterable) else ():
        with suppress(TypeError):
            found.append(weakref.ref(value))
    return found


def _is_sound(array: Any) -> bool:
    """Return whether an array has a value: one that a failed program was to make has none."""
    if array.is_deleted():
        return False
    try:
        array.block_until_ready()
    except Exception:  # of whatever class JAX has for it
        return False
    return True


Part = tuple[str, Any, int, int]
"""Device, stack, address and bytes of a part of an array on a device; address 0 if it has none."""


def _parts(arrays: Iterable[Any], *, are_sound: bool = False) -> Iterator[Part]:
    for array in arrays:
        with suppress(Exception):  # deleted meanwhile by another thread: it is not alive
            stack = _stack(array)
            for shard in array.addressable_shards:
                data = shard.data
                # Without a value XLA ends the process when it is asked for an address.
                address = _address(array, data) if are_sound else 0
                yield str(shard.device), stack, address, _size(data)


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
    taken = {(device, address) for device, _, address, _ in _parts(there, are_sound=True)}
    # As in JAX's profile a buffer counts with the array that was made last, which comes first.
    seen: set[tuple[str, int]] = set()
    found = []
    for part in _parts((array for array, is_sound in sound if is_sound), are_sound=True):
        place = (part[0], part[2])
        if place not in seen:
            seen.add(place)
            found += [part] if place in taken else []
    return _gathered(found)


def _gathered(parts: Iterable[Part]) -> list[dict[str, Any]]:
    sums: dict[tuple[str, Any], list[int]] = {}
    for device, stack, _, size in parts:
        of = sums.setdefault((device, stack), [0, 0])
        of[0] += 1
        of[1] += size
    return [
        {"device": device, "stack": stack, "count": count, "bytes": size}
        for (device, stack), (count, size) in sums.items()
    ]


def _needs(executable: Any) -> dict[str, int | None]:
    names = ("argument", "output", "alias", "temp")
    try:
        stats = executable.get_compiled_memory_stats()
        found = {f"{name}_bytes": getattr(stats, f"{name}_size_in_bytes", None) for name in names}
        return found | {"code_bytes": getattr(stats, "generated_code_size_in_bytes", None)}
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
    found: dict[str, Mapping[str, int]] = {}
    for device in jax.local_devices():
        with suppress(Exception):  # a device without statistics has no rows
            figures = device.memory_stats() or {}
            found[str(device)] = {n: int(v) for n, v in figures.items() if isinstance(v, int)}
    return found


def _put_first(path: Path, data: bytes) -> bool:
    """Write a file unless another process has; return whether this one did."""
    try:
        with path.open("xb") as file:
            file.write(data)
    except FileExistsError:
        return False
    return True


def _put(path: Path, data: bytes) -> None:
    made = path.with_name(f".{path.name}.{time.monotonic_ns()}")
    made.write_bytes(data)
    made.replace(path)


# -- A captured program, in whose Python bufdb need not be installed -------------------------------

FOLDER, LIMIT = "BUFDB_WATCH_FOLDER", "BUFDB_WATCH_LIMIT"
"""Variables of the environment of a captured program."""


class _Finder:
    """Begins to watch when the program has imported the part of JAX that executes programs."""

    def __init__(self, watch: Watch) -> None:
        self.watch = watch

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find that part by the other finders, and begin when it has been executed."""
        if name != _EXECUTES:
            return None
        sys.meta_path[:] = [one for one in sys.meta_path if one is not self]
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self.watch.start()

            loader.exec_module = exec_module
        return spec


def install() -> None:
    """Watch this process, as the environment says, from when it has imported JAX to its end."""
    limit = os.environ.get(LIMIT)
    watch = Watch(Path(os.environ[FOLDER]), int(limit) if limit else None)
    # Later than JAX's own, which removes its devices at the end.
    watch.on_first_call = lambda: atexit.register(watch.end)
    sys.meta_path.insert(0, _Finder(watch))
    before = sys.excepthook

    def hook(kind: Any, error: Any, traceback: Any) -> None:
        if error is not None and "jax" in sys.modules and is_exhausted(error):
            watch.failed(error)
        before(kind, error, traceback)

    sys.excepthook = hook


SITE = """\
# Written by bufdb capture --watch: watches this process, and imports what this module hides.
import importlib.util, os, sys
_here = os.path.dirname(os.path.abspath(__file__))
_path = sys.path[:]
sys.path[:] = [one for one in _path if os.path.abspath(one or ".") != _here]
_mine = sys.modules.pop("sitecustomize", None)
try:
    import sitecustomize
except ImportError as error:
    if error.name != "sitecustomize":
        raise
    sys.modules["sitecustomize"] = _mine
try:
    _spec = importlib.util.spec_from_file_location("_bufdb_watched", {file!r})
    _watched = importlib.util.module_from_spec(_spec)
    sys.modules["_bufdb_watched"] = _watched
    _spec.loader.exec_module(_watched)
    _watched.install()
except Exception as error:  # the user's program runs all the same
    print(f"bufdb: this process is not watched: {{error}}", file=sys.stderr)
"""


def environment(
    given: Mapping[str, str], site: Path, folder: Path, limit_bytes: int | None
) -> dict[str, str]:
    """Return an environment in which each Python process watches itself.

    Args:
        given: the environment.
        site: a folder, to which the module is written that Python imports at its start.
        folder: where profiles are written.
        limit_bytes: memory of the device, if it is known.
    """
    site.mkdir(parents=True, exist_ok=True)
    text = SITE.format(file=str(Path(__file__).absolute()))
    (site / "sitecustomize.py").write_text(text, encoding="utf-8")
    places = [str(site.absolute()), *filter(None, [given.get("PYTHONPATH")])]
    found = {**given, "PYTHONPATH": os.pathsep.join(places), FOLDER: str(folder.absolute())}
    if limit_bytes is not None:
        found[LIMIT] = str(limit_bytes)
    return found
