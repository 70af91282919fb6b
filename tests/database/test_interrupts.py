"""An error that Ctrl-C left is an interrupt, whatever it calls itself."""

from __future__ import annotations

import duckdb
import pytest

from bufdb.database import faults


def failed_after(first: BaseException, *, is_cause: bool) -> Exception:
    later = duckdb.TransactionException("Current transaction is aborted")
    if is_cause:
        later.__cause__ = first
    else:
        later.__context__ = first
    return later


@pytest.mark.parametrize("is_cause", [False, True])
@pytest.mark.parametrize("first", [RuntimeError("Query interrupted"), KeyboardInterrupt()])
def test_what_fails_by_an_interrupt_is_one(first, is_cause):
    assert faults.is_interrupt(failed_after(first, is_cause=is_cause))


@pytest.mark.parametrize("is_cause", [False, True])
def test_what_fails_after_another_error_is_none(is_cause):
    assert not faults.is_interrupt(failed_after(ValueError("Query"), is_cause=is_cause))
