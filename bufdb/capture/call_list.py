"""Which jitted calls a user's command makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bufdb.capture.catching import Call
from bufdb.capture.runner import Child, Died, NotCompiledError, Watch
from bufdb.capture.script import NoCallError, Script, calls_of, short, stopped_note
from bufdb.capture.simulated import Devices
from bufdb.capture.simulation import NOTES
from bufdb.errors import BufdbError, TooSlowError
from bufdb.query.result import Result

COLUMNS = (
    ("number", "BIGINT"),
    ("function", "VARCHAR"),
    ("has_gradient", "BOOLEAN"),
    ("argument_bytes", "BIGINT"),
    ("result_bytes", "BIGINT"),
    ("constant_bytes", "BIGINT"),
    ("donated_bytes", "BIGINT"),
    ("donated", "VARCHAR"),
    ("static", "VARCHAR"),
    ("shardings", "VARCHAR"),
    ("mesh", "VARCHAR"),
    ("called_at", "VARCHAR"),
    ("defined_at", "VARCHAR"),
)
"""Columns of the answer: name and type."""


@dataclass(frozen=True)
class Listing:
    """The calls of a command."""

    calls: Sequence[Call]
    note: str
    """How far the command has run."""
    error: BufdbError | None = None
    """Why it went no further, if it failed or took too long."""
    devices: Sequence[str] = ()
    """On devices that it did not have as its job has them."""


def listed(script: Script, folder: Path, watch: Watch, devices: Devices | None = None) -> Listing:
    """Run a command up to a call, and return the calls that it makes until then.

    Raises:
        NoCallError: no Python that it runs imports JAX.
        NotCompiledError: it cannot be started, or failed before its first call.
        TooSlowError: the deadline has passed before its first call.
    """
    server = "bufdb.capture.catching"
    variables = (devices or Devices()).variables(None)
    with script.child(folder, server, script.line, watch, variables) as child:
        listing = _listed(script, child)
        return replace(listing, devices=tuple(child.known.get(NOTES, ())))


def _listed(script: Script, child: Child) -> Listing:
    try:
        script.first(child, {})
    except NoCallError as error:
        if script.is_chosen or not error.calls:
            raise
        return Listing(error.calls, f"{script.line} ran to its end, and executed its calls")
    except Died as died:
        raise NotCompiledError(f"{script.line}: {died.ended}", died.lines) from None
    except (NotCompiledError, TooSlowError) as error:
        if not (calls := calls_of(child)):
            raise
        return Listing(calls, "the calls until then are listed", error)
    return Listing(
        calls_of(child), f"{stopped_note(script, child, is_choice=False)}; --all goes on"
    )


def table(calls: Sequence[Call]) -> Result:
    """Return a row for each call, in their order."""
    return Result(list(COLUMNS), [_row(call) for call in calls])


def _row(call: Call) -> tuple[object, ...]:
    return (
        call.number,
        call.name,
        call.has_gradient,
        call.argument_bytes,
        call.result_bytes,
        call.constant_bytes,
        call.donated_bytes,
        ", ".join(call.donated) or None,
        ", ".join(call.static) or None,
        ", ".join(call.shardings) or None,
        call.mesh or None,
        short(call.call_place) or None,
        short(call.function_place) or None,
    )
