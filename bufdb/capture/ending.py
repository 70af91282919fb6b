"""How a captured process ends: with a profile of its memory, or with a note on why there is none.

The first part runs in the user's processes, also in a Python without bufdb: it imports only the
standard library, and what the program does is not changed.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import json
import os
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

WRITTEN, PROFILE = "memory.watch.json", "memory.prof"
"""What `bufdb.capture.watched` writes."""
LIMIT, EVERY, HOLDERS = "BUFDB_WATCH_LIMIT", "BUFDB_WATCH_EVERY", "BUFDB_WATCH_HOLDERS"
"""Variables of the environment of a captured program: bytes, seconds, 1."""
ENDED = ".ended-"
"""Beginning of a file's name, before the number of a process: the signal that ended it."""


class _Finder:
    """Begins to watch when the program has imported the part of JAX that executes programs."""

    def __init__(self, name: str, start: Callable[[], None]) -> None:
        self.name, self.start = name, start

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """Find that part by the other finders, and begin when it has been executed."""
        if name != self.name:
            return None
        sys.meta_path[:] = [one for one in sys.meta_path if one is not self]
        spec = importlib.util.find_spec(name)
        loader: Any = None if spec is None else spec.loader
        if hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                self.start()

            loader.exec_module = exec_module
        return spec


class _Process:
    """This process: how it ends, and what it then writes."""

    def __init__(self, own: Any, watched: Any, snapshots: Any, holders: Any) -> None:
        """Watch a process with a folder of its own (`bufdb.capture.processes.OwnFolder`)."""
        limit = os.environ.get(LIMIT)
        self.own, self.watched = own, watched
        self.watch = watched.Watch(own.path, int(limit) if limit else None)
        self.watch.on_first_call = self.first_call
        if os.environ.get(HOLDERS):
            self.watch.find_holders = holders.find
        every = os.environ.get(EVERY)
        self.snapshots = snapshots.Snapshots(watched, self.watch, float(every) if every else None)
        self.is_forked = self.has_called = False
        self._ends: list[int] = []
        """Threads that end this process by the signal, which each appends to at once."""
        os.register_at_fork(after_in_child=self.forked)

    def forked(self) -> None:
        """Begin again in a forked process, which holds nothing of its own."""
        watch = self.watch
        watch.folder = self.own.path
        watch.has_failed = watch.has_ended = False
        watch._calls.clear()
        watch.lock, watch._writer = threading.RLock(), None
        watch.began = time.monotonic()
        self.snapshots.begin()
        watch.on_first_call = self.first_call
        self.is_forked, self.has_called, self._ends = True, False, []
        if watch._undo:
            with suppress(Exception):
                self.on_termination()

    def first_call(self) -> None:
        """Arrange for a profile at the end; until then it is noted that there is none."""
        self.has_called = True
        self.ended(None)
        # Later than JAX's own, which removes its devices at the end.
        atexit.register(self.end)
        util = sys.modules.get("multiprocessing.util")
        if self.is_forked and util is not None:
            # It ends by os._exit, before Python 3.12 without calling what is registered.
            util.Finalize(None, self.end, exitpriority=-1000)
        self.snapshots.start()
        # A runtime that was initialized meanwhile may have set a handler of its own.
        if signal.getsignal(signal.SIGTERM) == self.terminated:
            with suppress(ValueError):  # not in the main thread
                signal.signal(signal.SIGTERM, self.terminated)

    def end(self) -> None:
        """Write what the process holds at its end, after the last snapshot."""
        self.snapshots.stop()
        self.watch.end()

    def ended(self, how: str | None) -> None:
        """Note how the process ends, if that leaves no time for a profile."""
        if self.has_called and not self.watch.has_failed and not self.watch.has_ended:
            with suppress(OSError):
                data = json.dumps({"ended": how, "pid": os.getpid()}).encode()
                self.watched.put(self.watch.folder / WRITTEN, data)

    def start(self) -> None:
        """See calls, and a signal to end, from now on."""
        self.watch.start()
        with suppress(Exception):  # as in another thread
            if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                signal.signal(signal.SIGTERM, self.terminated)
                self.on_termination()

    def on_termination(self) -> None:
        """See the signal also while the main thread waits for a device: in a thread.

        Python writes the number of a signal to a socket at once, and calls the handler later. After
        a fork two processes write to it, so the number of the writer is looked at.
        """
        if signal.getsignal(signal.SIGTERM) != self.terminated or not hasattr(
            socket, "SO_PASSCRED"
        ):
            return
        source, sink = socket.socketpair()
        source.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        sink.setblocking(False)
        before = signal.set_wakeup_fd(sink.fileno(), warn_on_full_buffer=False)
        if before != -1 and not self.is_forked:  # the program's own
            signal.set_wakeup_fd(before)
            return
        ends = (source, sink)
        threading.Thread(target=self._wait, args=ends, name="bufdb", daemon=True).start()

    def _wait(self, source: socket.socket, _sink: socket.socket) -> None:
        credentials = struct.Struct("3i")
        while True:
            data, more, _, _ = source.recvmsg(1, socket.CMSG_SPACE(credentials.size))
            sender = credentials.unpack(more[0][2][: credentials.size])[0] if more else 0
            is_ours = signal.getsignal(signal.SIGTERM) == self.terminated
            if data == bytes([signal.SIGTERM]) and sender == os.getpid() and is_ours:
                self.terminated()

    def terminated(self, *_: object) -> None:
        """Write what the process holds, then end by the signal as without bufdb."""
        thread = threading.get_ident()
        self._ends.append(thread)
        if self._ends[0] != thread:
            return  # the other thread writes, and then ends the process
        if self._ends.count(thread) == 1 and self.has_called:
            while self.watch._writer not in (None, thread):  # a failure is being written
                time.sleep(0.01)
            self.watch.end(is_hurried=True)
        ctypes.CDLL(None).signal(int(signal.SIGTERM), None)  # in any thread, unlike signal.signal
        os.kill(os.getpid(), signal.SIGTERM)


def install(own: Any, watched: Any, snapshots: Any, holders: Any) -> None:
    """Watch this process from when it has imported JAX to its end.

    Args:
        own: its folder (`bufdb.capture.processes.OwnFolder`).
        watched: the module `bufdb.capture.watched`, loaded without its package.
        snapshots: the module `bufdb.capture.snapshots`, loaded so, too.
        holders: the module `bufdb.capture.holders`, loaded so, too.
    """
    process = _Process(own, watched, snapshots, holders)
    sys.meta_path.insert(0, _Finder(watched.EXECUTES, process.start))
    before, before_of_threads = sys.excepthook, threading.excepthook

    def hook(kind: Any, error: Any, traceback: Any) -> None:
        if error is not None and "jax" in sys.modules and watched.is_exhausted(error):
            process.watch.failed(error)
        before(kind, error, traceback)

    def thread_hook(args: Any) -> None:
        if (
            args.exc_value is not None
            and "jax" in sys.modules
            and watched.is_exhausted(args.exc_value)
        ):
            process.watch.failed(args.exc_value)
        before_of_threads(args)

    sys.excepthook, threading.excepthook = hook, thread_hook
    _note_ends(process, own.root)


def _note_ends(process: _Process, root: Path) -> None:
    """Note that this process leaves or becomes another program, and how those it waits for end."""

    def noting(name: str) -> None:
        original: Any = getattr(os, name)

        def leave(*args: Any) -> Any:
            process.ended(f"os.{name}({args[0]})" if name == "_exit" else f"os.{name}")
            try:
                return original(*args)
            except BaseException:
                process.ended(None)
                raise

        setattr(os, name, leave)

    for name in ("_exit", "execv", "execve"):
        noting(name)
    wait = os.waitpid

    def waitpid(pid: int, options: int) -> tuple[int, int]:
        ended, status = wait(pid, options)
        if ended > 0 and os.WIFSIGNALED(status):
            with suppress(OSError):
                (root / f"{ENDED}{ended}").write_text(str(os.WTERMSIG(status)))
        return ended, status

    os.waitpid = waitpid


# -- In bufdb, after the command -------------------------------------------------------------------


def note_ended(folder: Path, signals: Mapping[int, int]) -> None:
    """Write how processes ended that have no memory profile, to what they wrote when they began.

    Args:
        folder: the directory that has the folders of the processes.
        signals: the signal that ended a process, by its number, as far as that is known.
    """
    known = dict(signals)
    for path in folder.glob(f"{ENDED}*"):
        with suppress(ValueError):
            known[int(path.name[len(ENDED) :])] = int(path.read_text())
        path.unlink()
    for path in folder.glob(f"*/{WRITTEN}"):
        note = json.loads(path.read_text(encoding="utf-8"))
        if path.with_name(PROFILE).exists() or "ended" not in note:
            continue
        number = known.get(note["pid"])
        if number is not None:
            how = f"ended by signal {number}"
        elif note["ended"] is not None:
            how = f"ended by {note['ended']}"
        elif Path(f"/proc/{note['pid']}").exists():
            how = "still running when the command ended"
        else:
            how = "ended by a signal or a crash"
        text = json.dumps({"ended": how, "pid": note["pid"]})
        path.write_text(text, encoding="utf-8")
