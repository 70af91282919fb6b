"""The tools of `bufdb mcp` that run code, as functions of the SDK with their help."""

from __future__ import annotations

import itertools
from collections.abc import Awaitable, Callable
from typing import Any

from mcp.server.mcpserver import Context
from mcp.server.mcpserver.exceptions import ToolError

from bufdb.api.running import NOT_ALLOWED, Runs
from bufdb.errors import BufdbError


def of(  # long: a function for each tool, whose signature is its help
    runs: Runs | None,
) -> list[Callable[..., Awaitable[str]]]:
    """Return the tools; without `runs` each answers how its user can allow it."""

    async def answer_of(context: Context[Any, Any], name: str, *args: str, **options: Any) -> str:
        if runs is None:
            raise ToolError(NOT_ALLOWED)
        count = itertools.count(1)

        async def report(line: str) -> None:
            await context.report_progress(next(count), message=line)

        try:
            answer: str = await getattr(runs, name)(report, *args, **options)
        except BufdbError as error:
            raise ToolError(str(error)) from error
        return answer

    async def explain(
        context: Context[Any, Any],
        program: str,
        args: str | None = None,
        limit: str | None = None,
        target: str | None = None,
        call: str | None = None,
        run: str | None = None,
        argv: str | None = None,
    ) -> str:
        """Compile a program, without running it, and return what it needs and what holds it: JSON.

        program is FILE.py:FUNCTION with args as in a call ("f32[8,128], f32[]"), and argv such as
        "--config base" where FILE parses its words on import; or a command such as python train.py,
        which runs up to its training step; call names another one. limit is a size or a device;
        target is hardware that need not be there, such as v5e-8 or gpu:h100. next says what to ask
        then.
        """
        options = {"limit": limit, "target": target, "call": call, "run": run}
        return await answer_of(context, "explain", program, args=args, argv=argv, **options)

    async def fit(
        context: Context[Any, Any],
        program: str,
        limit: str,
        args: str | None = None,
        target: str | None = None,
        call: str | None = None,
        also: str | None = None,
        argv: str | None = None,
    ) -> str:
        """Find what to change so that a program fits into a limit; prove it by compiling: JSON.

        Arguments are those of explain; also tries more: microbatch, chunks, attention, vmap,
        blocks, vmem, flags, with commas. data.plans are the plans, data.patch one that was proved.
        """
        options = {"args": args, "target": target, "call": call, "also": also, "argv": argv}
        return await answer_of(context, "fit", program, limit, **options)

    async def blame(
        context: Context[Any, Any],
        program: str,
        flag: str | None = None,
        jax: str | None = None,
        args: str | None = None,
        target: str | None = None,
        argv: str | None = None,
    ) -> str:
        """Compile a program with several values of a flag, or versions of jax: JSON.

        flag is NAME=V,V without dashes; jax is versions in order, such as 0.9.0,0.10.0, which are
        installed. The answer says where the need jumps, what grew, and whose doing it is. args,
        target and argv are those of explain.
        """
        options = {"flag": flag, "jax": jax, "args": args, "target": target, "argv": argv}
        return await answer_of(context, "blame", program, **options)

    async def capture(context: Context[Any, Any], command: str, run: str | None = None) -> str:
        """Run a command with XLA's dumps, and store what it compiles as a run; it does train.

        When a device runs out of memory, what the process holds is stored with it.
        """
        return await answer_of(context, "capture", command, run=run)

    return [explain, fit, blame, capture]
