"""`python -m bufdb`."""

import os
import sys

if not sys.flags.safe_path and not __file__.startswith(sys.path[0] + os.sep):
    # The working directory, unless bufdb is there: a json.py in it is not run.
    del sys.path[0]

from bufdb.cli import main

if __name__ == "__main__":
    main()
