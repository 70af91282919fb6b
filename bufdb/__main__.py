"""`python -m bufdb`, and the script `bufdb`."""

import gc
import os
import sys

if not sys.flags.safe_path and not __file__.startswith(sys.path[0] + os.sep):
    # The working directory, unless bufdb is there: a json.py in it is not run.
    del sys.path[0]

# Little of a command is garbage: 10 ms of CPU, half of it while the command is imported.
gc.set_threshold(50_000)
from bufdb.cli import main  # noqa: E402

if __name__ == "__main__":
    main()
