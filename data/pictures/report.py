"""Writes report.png, the picture of a report in README.md: demo dumps, as a reader sees them first.

`python data/pictures/report.py`, with selenium and pillow from the Python index and Debian's
chromium and chromium-driver.
"""

import sys
import tempfile
from pathlib import Path

from PIL import Image

from bufdb import cli

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import browser  # noqa: E402  # of the tests: the same window

WIDTH, HEIGHT = 1180, 1112
CHOSEN = "#by=line&block=wrapped_broadcast.3"
COLOURS = 128


def write(picture: Path) -> None:
    """A report of the demo runs on one backend, at one instant, with a block chosen."""
    with tempfile.TemporaryDirectory() as name:
        db, page = Path(name, "demo.duckdb"), Path(name, "report.html")
        for command in (
            ["ingest", ROOT / "data" / "demo" / "cpu_b8", "--run", "cpu_b8", "--db", db],
            ["report", "--function", "train_step", "--limit", "16MiB", "--db", db, "-o", page],
        ):
            if cli.run([str(word) for word in command]):
                raise SystemExit(f"{command[0]} failed")
        with browser.opened() as window:
            window.resize(WIDTH, HEIGHT)
            window.open(page, CHOSEN)
            window.run("scrollTo(0, 0)")
            window.drawn()
            window.picture(picture, HEIGHT)
    # A third of the size, and nothing to be seen of it.
    with Image.open(picture) as image:
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
            picture, optimize=True
        )


if __name__ == "__main__":
    write(HERE / "report.png")
