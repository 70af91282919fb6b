"""Processes that tests look for."""

from pathlib import Path


def is_running(pid):
    """Return whether a process is there and has not ended."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"
