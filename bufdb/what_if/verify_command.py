"""Run a changed program, and compare what it needs with what `what-if` promised."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bufdb.answers.opening import Open
from bufdb.database.store import require_storable
from bufdb.recording.command import Captured, Dumps, capture, dump_folder
from bufdb.what_if.ask import WhatIf
from bufdb.what_if.verify import Verification, verify_asked

LABELS = "SELECT label, label_value FROM run_labels WHERE run_name = ? AND NOT is_metadata"


def verify_command(
    opened: Open,
    promised: WhatIf,
    command_line: Sequence[str],
    db: str,
    note: Callable[[str], None],
) -> tuple[Captured, Verification | None]:
    """Capture the changed program as the run RUN:verify, and compare; None if nothing was stored.

    Args:
        opened: opens the database.
        promised: the promise, of the run RUN.
        command_line: compiles the changed program.
        db: the database file.
        note: receives what the user should know, a line or more at a time.

    Raises:
        CommandError: the command cannot be started.
        DatabaseError: the run cannot be stored.
    """
    base = promised.answer.choice.run_name
    name = f"{base}:verify"
    require_storable(db)
    # Runs of other labels are not compared.
    con = opened(LABELS)
    labels = dict(con.execute(LABELS, [base]).fetchall())
    con.close()
    with Dumps(dump_folder(None), False, db, name, labels, is_quiet=True, note=note) as dumps:
        done = capture(dumps, command_line)
    return done, verify_asked(opened, promised, name) if done.is_stored else None
