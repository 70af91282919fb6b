"""A function of a user's file, compiled in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from bufdb.errors import BufdbError, UsageError

_QUIET = {
    "JAX_PLATFORMS": "cpu",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TPU_SKIP_MDS_QUERY": "1",
    "TPU_WORKER_HOSTNAMES": "localhost",
    "TPU_ACCELERATOR_TYPE": "v5litepod-4",
}
"""For a target: no device is looked for, neither here nor in the cloud."""


def compiled_apart(spec: str, args: str, target: str | None, folder: Path) -> tuple[Path, str]:
    """Compile FILE:FUNCTION in a process of this Python; where its dump is, and for which device.

    What the file prints goes to standard error, for standard output is for the answer.

    Raises:
        UsageError: there is no such file, function or target.
        BufdbError: the file failed, which has told why; or nothing was dumped.
    """
    from bufdb.compiled.child import DUMPS, FOUND

    environment = dict(os.environ)
    if target is not None:
        environment |= _QUIET
    command = [sys.executable, "-m", "bufdb.compiled.child", spec, args, target or "", str(folder)]
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=sys.stderr, check=False
    )
    try:
        found = json.loads((folder / FOUND).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BufdbError(
            f"{spec} could not be compiled: its process ended with code {done.returncode}"
        ) from None
    if "message" in found:
        kind = UsageError if found["exit_code"] == UsageError.exit_code else BufdbError
        raise kind(found["message"])
    return folder / DUMPS, str(found["device"])
