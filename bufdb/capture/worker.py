"""The inner side of a child that imports the user's code: requests in, steps and answers out.

`bufdb.capture.runner` is the outer side. `bufdb.blame.script` loads this file in environments
without bufdb, so it is Python 3.9 and imports nothing of bufdb.

Requests are lines of JSON on standard input; `null` ends the process, and an end without it means
that the parent was killed. Messages are lines of JSON on the named pipe ANSWERS, so that standard
output is the user's: a key STEP, KNOWN, ANSWER or FAILURE with its value.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import io
import json
import os
import queue
import select
import shutil
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn, Optional, TextIO

ANSWERS = "answers"
STEP, KNOWN, ANSWER, FAILURE = "step", "known", "answer", "failure"
"""What the child does now; what holds even if it dies; {…}; {"message": …, "exit_code": …, "trace":
the user's own lines of a traceback}."""
LINES = 12
"""Maximum lines of a traceback or of a message."""
_HIDDEN = (str(Path(__file__).parents[1]), os.path.dirname(importlib.__file__))  # noqa: PTH120
"""Folders whose frames are not the user's, besides JAX's."""


class Failed(Exception):
    """The user's code, or XLA, gave up; the message says where and why."""

    is_worded = True
    exit_code = 1

    def __init__(self, message: str, trace: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.trace = trace
        """Lines of its traceback that are the user's own."""


class _Outer:
    """The pipe to the parent."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.pid = os.getpid()

    def send(self, message: dict[str, Any]) -> None:
        if os.getpid() != self.pid:
            os._exit(0)  # a fork in the user's code that came back: one process answers
        self.stream.write(json.dumps(message) + "\n")
        self.stream.flush()


_outer: Optional[_Outer] = None  # noqa: UP045 - Python 3.9
"""None in a process that answers no requests."""


def connect(folder: Path) -> None:
    """Open the pipe to the parent, whose end without a word ends this process, too.

    Args:
        folder: has ANSWERS.
    """
    global _outer
    _outer = _Outer((folder / ANSWERS).open("w", encoding="utf-8"))
    threading.Thread(target=_end_with_reader, args=(_outer.stream.fileno(),), daemon=True).start()


def _end_with_reader(pipe: int) -> None:
    """Wait until a pipe has no reader; then end this process and what is in its group."""
    poll = select.poll()
    poll.register(pipe, select.POLLERR)
    poll.poll()
    os.killpg(0, signal.SIGKILL)


def serve(
    folder: Path,
    answer: Callable[[dict[str, Any]], dict[str, Any]],
    requests: Optional[TextIO] = None,  # noqa: UP045 - Python 3.9
) -> int:
    """Answer the requests of the parent until it wants no more; return the exit code.

    Args:
        folder: has ANSWERS; removed if the parent is killed.
        answer: takes a request. Exceptions with `is_worded` have a message for the user, others
            within a `step` are of the user's code, and all others end the process.
        requests: where they come from, by default standard input.
    """
    global _outer
    if requests is None:
        requests = os.fdopen(os.dup(0), encoding="utf-8")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)  # the user's code reads no requests
    if _outer is None:
        _outer = _Outer((folder / ANSWERS).open("w", encoding="utf-8"))
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests, waiting, folder), daemon=True).start()
    while (request := waiting.get()) is not None:
        message = _reply(answer, request)
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):  # closed or replaced by the user's code
                stream.flush()
        _outer.send(message)
    return 0


def end(code: int) -> NoReturn:
    """End this process as Python does, without taking JAX apart: that takes 0.2 s of CPU.

    Exit handlers run, and what open files have not written yet is written.
    """
    others = [one for one in threading.enumerate() if one is not threading.main_thread()]
    if not all(one.daemon for one in others):
        sys.exit(code)  # which waits for them
    atexit._run_exitfuncs()
    for one in gc.get_objects():
        if issubclass(type(one), (io.TextIOWrapper, io.BufferedWriter, io.BufferedRandom)):
            with contextlib.suppress(Exception):  # closed, or its reader is gone
                one.flush()
    with contextlib.suppress(Exception):  # what C code has printed
        importlib.import_module("ctypes").CDLL(None).fflush(None)
    os._exit(code)


def _reply(answer: Callable[[dict[str, Any]], dict[str, Any]], request: Any) -> dict[str, Any]:
    try:
        return {ANSWER: answer(request)}
    except Exception as error:  # raised again unless it has words for the user
        if not _is_worded(error):
            raise
        code, trace = getattr(error, "exit_code", 1), getattr(error, "trace", ())
        return {FAILURE: {"message": str(error), "exit_code": code, "trace": trace}}


def _read(requests: TextIO, waiting: queue.SimpleQueue[Any], folder: Path) -> None:
    """Pass requests on; end this process and what it started when the parent was killed.

    XLA may still be running on another thread, which creates files while others are being removed.
    """
    for line in requests:
        if not line.endswith("\n"):
            break
        request = json.loads(line)
        waiting.put(request)
        if request is None:
            return
    for _ in range(100):
        shutil.rmtree(folder, ignore_errors=True)
        if not folder.exists():
            break
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


def known(values: dict[str, Any]) -> None:
    """Report what holds also if this process dies: the compiler may end it."""
    if _outer is not None:
        _outer.send({KNOWN: values})


def give_up(message: str) -> None:
    """Report a usage error, and end this process: code of the user's cannot catch it."""
    if _outer is not None:
        _outer.send({FAILURE: {"message": message, "exit_code": 2, "trace": []}})
    os._exit(2)


@contextlib.contextmanager
def step(what: str) -> Iterator[None]:
    """Report the current step, and name it in errors.

    Raises:
        Failed: instead of any exception of the user's code.
    """
    if _outer is not None:
        _outer.send({STEP: what})
    try:
        yield
    except BaseException as error:  # of any code at all, SystemExit too
        if _is_worded(error):
            raise
        traceback.print_exc()  # for --verbose
        lines = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
        own, last = _own_frames(error)
        where = "" if last is None else f" ({Path(last.filename).name}:{last.lineno})"
        trace = (*own, *lines[1:LINES])
        raise Failed(f"{what} failed: {reason}{where}", trace) from error


def _is_worded(error: BaseException) -> bool:
    """Return whether the message of an exception is written for the user."""
    return getattr(error, "is_worded", False) is True


def _own_frames(
    error: BaseException,
) -> tuple[list[str], Optional[traceback.FrameSummary]]:  # noqa: UP045 - Python 3.9
    """Return the user's frames as text in traceback format, and the last of them."""
    jax = getattr(sys.modules.get("jax"), "__file__", None)
    folders = [*_HIDDEN, *([os.path.dirname(jax)] if jax else [])]  # noqa: PTH120
    hidden = (*(f"{folder}{os.sep}" for folder in folders), "<frozen")
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith(hidden)
    ]
    text = "".join(traceback.format_list(frames)).splitlines()
    return text[-LINES:], frames[-1] if frames else None
