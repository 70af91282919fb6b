"""Tools for assistants that run the user's code: commands of bufdb in a process that is confined.

Invariant: a command writes below one folder alone, which the kernel sees to; it is bounded in time
and memory, and ends with everything that it has started when its call is canceled.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

from bufdb.capture.confined import why_not
from bufdb.errors import BufdbError, UsageError

MOST_S = 1800.0
"""Time limit of a command [s]."""
NOT_ALLOWED = (
    "this server runs no code: its user has to start it with a folder, as in "
    "bufdb mcp --allow-run DIR"
)
_STATE = ".bufdb-run"
"""Folder for what commands keep and write on the way."""
_MOST_ITEMS, _MOST_TEXT = 10, 20_000
_MESSAGE_EVERY_S = 1.0
Report = Callable[[str], Awaitable[None]]
"""Takes a line of progress."""


class Runs:
    """The commands that an assistant may have run, below a folder."""

    def __init__(self, folder: Path, db: str, most_bytes: int | None = None) -> None:
        """Allow commands in a folder.

        Args:
            folder: the only place where they write; their working directory.
            db: the database, in the folder.
            most_bytes: of memory for each process; by default half of what the machine has.

        Raises:
            UsageError: there is no such folder, or the database is elsewhere.
            BufdbError: this machine cannot confine a process.
        """
        self.folder = folder.resolve()
        if not self.folder.is_dir():
            raise UsageError(f"--allow-run wants a folder, got {folder}")
        self.db = str(Path(db).resolve())
        if self.folder not in Path(self.db).parents:
            raise UsageError(
                f"with --allow-run the database is in the folder that is written: --db "
                f"{self.folder / Path(db).name}"
            )
        if (reason := why_not()) is not None:
            raise BufdbError(f"--allow-run: {reason}")
        pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.most_bytes = most_bytes or pages // 2

    async def explain(self, report: Report, program: str, **options: str | None) -> str:
        """Compile a program, and return what it needs and what to ask next."""
        got = await self._run(report, "explain", _words("explain", program, options))
        data = got["data"]
        limit = options.get("limit")
        if isinstance(data, dict) and (data.get("limit_ratio") or 0) > 1 and limit:
            arguments = {"program": program, **_set(options)}
            got["next"] = {"tool": "fit", "arguments": arguments}
        elif isinstance(data, dict) and data.get("peak"):
            got["next"] = {"tool": "advice", "arguments": {"run": data["peak"]["run_name"]}}
        return _text(got)

    async def fit(self, report: Report, program: str, limit: str, **options: str | None) -> str:
        """Find what to change so that a program fits, and return the plans and a patch."""
        settings = {"limit": limit, **options}
        got = await self._run(report, "fit", _words("fit", program, settings))
        data = got["data"]
        if isinstance(data, dict) and data.get("patch"):
            got["next"] = "apply data.patch with `git apply`: it was compiled, and it fits"
        elif isinstance(data, dict) and data.get("untried"):
            also = ",".join(data["untried"])
            arguments = {"program": program, **_set(settings), "also": also}
            got["next"] = {"tool": "fit", "arguments": arguments}
        return _text(got)

    async def blame(self, report: Report, program: str, **options: str | None) -> str:
        """Compile a program with several flags or versions, and return where its need jumps."""
        return _text(await self._run(report, "blame", _words("blame", program, options)))

    async def capture(self, report: Report, command: str, **options: str | None) -> str:
        """Run a command with dumps, and return the peak of what it compiles."""
        run = options.get("run") or "captured"
        words = ["--watch", "--run", run, "--", *_split(command)]
        got = await self._run(report, "capture", words, has_json=False)
        got["next"] = {"tool": "summary", "arguments": {"run": run}}
        return _text(got)

    async def _run(
        self, report: Report, name: str, words: Sequence[str], *, has_json: bool = True
    ) -> dict[str, Any]:
        """Run a command of bufdb in a confined process; return its answer, notes and exit code.

        Raises:
            BufdbError: it failed, or took too long.
        """
        import anyio

        state = self.folder / _STATE
        (state / "tmp").mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            **dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(state / "tmp")),
            "XDG_CACHE_HOME": str(state / "cache"),
            "BUFDB_CACHE": str(state / "cache" / "bufdb"),
            "PYTHONDONTWRITEBYTECODE": "1",
            "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",  # else libtpu locks a file in /tmp
        }
        python = [sys.executable, "-P", "-m"]
        command = [
            *(*python, "bufdb.capture.confined", str(self.folder), str(self.most_bytes)),
            *(*python, "bufdb", name, "--db", self.db),
            *(("--format", "json") if has_json else ()),
            *words,
        ]
        out: list[bytes] = []
        lines: list[str] = []
        async with await anyio.open_process(
            command, cwd=self.folder, env=environment, stdin=None, start_new_session=True
        ) as child:
            try:
                with anyio.fail_after(MOST_S):
                    async with anyio.create_task_group() as both:
                        both.start_soon(_gather, child.stdout, out)
                        both.start_soon(_relay, child.stderr, lines, report)
                    code = await child.wait()
            except TimeoutError as error:
                raise BufdbError(f"{name} took more than {MOST_S:g} s and was ended") from error
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
        # 1: answered, and something is over its limit.
        if code > 1 or (code and has_json and not out):
            raise BufdbError("\n".join(lines[-20:]) or f"{name} ended with exit code {code}")
        try:
            data = json.loads(b"".join(out)) if has_json else None
        except ValueError as error:
            raise BufdbError(f"{name} gave no answer; {' '.join(lines[-3:])}") from error
        return {"exit_code": code, "data": data, "notes": lines[-20:], "next": None}


async def _gather(stream: Any, parts: list[bytes]) -> None:
    parts.extend([part async for part in stream])


async def _relay(stream: Any, lines: list[str], report: Report) -> None:
    """Keep the lines of standard error, and report the last one now and then."""
    import anyio

    reported, rest = 0.0, b""
    async for part in stream:
        *whole, rest = (rest + part).split(b"\n")
        lines += [line.decode("utf-8", "replace") for line in whole]
        if whole and anyio.current_time() - reported >= _MESSAGE_EVERY_S:
            reported = anyio.current_time()
            await report(lines[-1])
    if rest:
        lines.append(rest.decode("utf-8", "replace"))


def _words(name: str, program: str, options: dict[str, str | None]) -> list[str]:
    """Return the words of a command line about a program: FILE:FUNCTION, or a command."""
    words = [word for option, text in _set(options).items() for word in (f"--{option}", text)]
    parts = _split(program)
    is_function = len(parts) == 1 and ":" in parts[0]
    return [*words, parts[0]] if is_function else [*words, "--", *parts]


def _set(options: dict[str, str | None]) -> dict[str, str]:
    return {option: text for option, text in options.items() if text}


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"{command!r}: {error}") from error
    if not words:
        raise UsageError("which program? FILE.py:FUNCTION, or a command such as python train.py")
    return words


def _text(answer: dict[str, Any]) -> str:
    return json.dumps(_shortened(answer), ensure_ascii=False)


def _shortened(value: Any) -> Any:
    """Return an answer with the first items of long lists, and the beginning of long texts."""
    if isinstance(value, dict):
        return {key: _shortened(one) for key, one in value.items()}
    if isinstance(value, list):
        more = len(value) - _MOST_ITEMS
        return [*map(_shortened, value[:_MOST_ITEMS]), *([f"({more} more)"] if more > 0 else [])]
    if isinstance(value, str) and len(value) > _MOST_TEXT:
        return f"{value[:_MOST_TEXT]}… ({len(value)} characters)"
    return value
