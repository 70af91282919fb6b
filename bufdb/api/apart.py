"""A question of an assistant in a process of its own, which can be ended at any moment.

DuckDB and Python hold what an answer needs, and end a question at points of their own choosing; a
process gives back all its memory, and the file, when it is killed. Invariant: it ends with its
answer, at `MOST_S`, when it is cancelled, and when the process that asked is gone.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import pickle
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from bufdb.api.readable import LOG
from bufdb.errors import BufdbError

if TYPE_CHECKING:
    from bufdb.api.assistant import Tools

MOST_S = 60.0
"""How long a question may take [s]."""
MOST_BYTES = 2 << 30
"""Memory that its process may ask for: more than DuckDB is given, for what Python holds."""
_SCRIPT = "from bufdb.api.apart import main; main()"


async def answered(tools: Tools, tool: str, options: dict[str, Any], most_s: float) -> str:
    """What a tool answers, with notes below.

    Raises:
        BufdbError: as the tool does; or it took too long, or too much memory.
    """
    import anyio

    asked = pickle.dumps((tools, tool, options))
    command = [sys.executable, "-P", "-c", _SCRIPT]
    async with await anyio.open_process(command, stderr=None) as child:
        try:
            assert child.stdin is not None and child.stdout is not None, "both are pipes"
            with anyio.fail_after(most_s):
                with contextlib.suppress(anyio.BrokenResourceError):
                    await child.stdin.send(len(asked).to_bytes(8, "big") + asked)
                parts = [part async for part in child.stdout]
        except TimeoutError as error:
            text = f"{tool} took more than {most_s:g} s and was ended; ask for less"
            raise BufdbError(text) from error
        finally:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
    try:
        said = json.loads(b"".join(parts))
    except ValueError as error:
        raise BufdbError(f"{tool} took too much memory and was ended; ask for less") from error
    if "error" in said:
        raise BufdbError(said["error"])
    return "\n".join([said["answer"], *(f"note: {text}" for text in said["notes"])])


def main() -> None:
    """Answer the question on standard input, on standard output."""
    given = sys.stdin.buffer
    tools, tool, options = pickle.loads(given.read(int.from_bytes(given.read(8), "big")))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _bound_memory()
    with noted() as notes:
        try:
            said = {"answer": getattr(tools, tool)(**options), "notes": notes}
        except BufdbError as error:
            said = {"error": str(error)}
        except MemoryError:
            os._exit(1)
    sys.stdout.write(json.dumps(said))
    sys.stdout.flush()
    os._exit(0)  # a connection that is at work is not waited for


def _end_with_parent() -> None:
    os.read(0, 1)  # nothing more is sent: it returns when the other end is closed
    os._exit(1)


def _bound_memory() -> None:
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        most = MOST_BYTES if hard == resource.RLIM_INFINITY else min(MOST_BYTES, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, hard))


@contextmanager
def noted() -> Iterator[list[str]]:
    """What is said of an answer within the block, in place of standard error."""
    notes: list[str] = []
    handler = logging.Handler()
    # In place of a class with this one method, which mypy does not let a function take.
    handler.emit = lambda record: notes.append(record.getMessage())  # type: ignore[method-assign]
    propagates, LOG.propagate = LOG.propagate, False
    LOG.addHandler(handler)
    try:
        yield notes
    finally:
        LOG.removeHandler(handler)
        LOG.propagate = propagates
