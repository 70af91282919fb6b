"""Draws data/pictures/terminal.svg: what `bufdb show` prints in a terminal, over the demo dumps.

Block characters are rectangles, so that the picture has no gaps whatever the font is; text keeps to
its columns by textLength. Light or dark follows the reader's own setting. The same dumps give the
same bytes.

    python data/pictures/terminal.py [FILE]
"""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).resolve().parent
DEMO = FOLDER.parent / "demo"
COMMAND = ("show", "train_step", "--run", "gpu_b8")
BEHIND = "largest values"
"""Start of the answer's text after the lines that are drawn."""
COLUMNS = 96
CELL_WIDTH, CELL_HEIGHT, MARGIN = 8, 17, 14
BASELINE = 13
_SGR = re.compile(r"\x1b\[([0-9;]*)m")
_LOWER = {character: eighths for eighths, character in enumerate("▁▂▃▄▅▆▇█", 1)}
_LEFT = {character: 8 - eighths for eighths, character in enumerate("█▉▊▋▌▍▎▏")}
LIGHT = {
    "": "#1f2328", "ground": "#ffffff", "2": "#6e7781", "63": "#3352fa", "202": "#e93f1b",
    "178": "#d9a325", "30": "#285a6a", "127": "#b72aa7", "39": "#2eb0fd", "88": "#8a2d1c",
    "245": "#868686", "240": "#b4b8bd", "16": "#000000", "231": "#ffffff",
}  # fmt: skip
DARK = {
    "": "#e6edf3", "ground": "#15181c", "2": "#8b949e", "63": "#5470ff", "30": "#3a8197",
    "88": "#b04a36", "240": "#4c535b",
}  # fmt: skip


@dataclass(frozen=True)
class Style:
    """Style of a drawn cell; colors are names of LIGHT."""

    front: str = ""
    back: str = ""
    is_bold: bool = False


def main(path: Path) -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        text = answer(Path(folder))
    lines = text.splitlines()
    end = next(place for place, line in enumerate(lines) if BEHIND in line)
    path.write_text(svg(lines[: end - 1]), encoding="utf-8", newline="\n")


def answer(folder: Path) -> str:
    """Return what the command prints in a terminal with colors."""
    bufdb = [sys.executable, "-m", "bufdb"]
    database = ["--db", str(folder / "demo.duckdb")]
    subprocess.run(
        [*bufdb, "ingest", str(DEMO), "--run-from-dir", *database],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    variables = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    variables.pop("NO_COLOR", None)
    near, far = pty.openpty()
    with subprocess.Popen([*bufdb, *COMMAND, *database], stdout=far, env=variables):
        os.close(far)
        parts = []
        while part := _read(near):
            parts.append(part)
    os.close(near)
    return b"".join(parts).decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux says so when the other end is closed
        return b""


def svg(lines: list[str]) -> str:
    """The lines as a picture."""
    width = COLUMNS * CELL_WIDTH + 2 * MARGIN
    height = (len(lines) + 2) * CELL_HEIGHT + 2 * MARGIN
    title = f"$ bufdb {' '.join(COMMAND)}"
    drawn = [shape for row, line in enumerate([title, "", *lines]) for shape in _row(row, line)]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img">',
            f"<title>{escape(title[2:])}</title>",
            f"<style>{_sheet()}</style>",
            f'<rect class="b" width="{width}" height="{height}" rx="8"/>',
            *drawn,
            "</svg>\n",
        ]
    )


def _sheet() -> str:
    font = "ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace"
    rules = [f"text{{font:13px {font};white-space:pre}}", ".w{font-weight:bold}"]
    rules += _rules(LIGHT)
    return "".join([*rules, "@media(prefers-color-scheme:dark){", *_rules(DARK), "}"])


def _rules(colours: dict[str, str]) -> list[str]:
    names = {"": "text,.f", "ground": ".b"}
    return [f"{names.get(name, f'.f{name}')}{{fill:{hex_}}}" for name, hex_ in colours.items()]


def _row(row: int, line: str) -> list[str]:
    """Shapes of one line."""
    cells = list(_cells(line))
    top = MARGIN + row * CELL_HEIGHT
    shapes, column = [], 0
    for (character, style), some in groupby(cells, key=_kind):
        text = "".join(letter for letter, _ in some)
        left, width = MARGIN + column * CELL_WIDTH, len(text) * CELL_WIDTH
        column += len(text)
        if style.back:
            shapes.append(_rect(style.back, left, top, width, CELL_HEIGHT))
        if character is None:
            shapes += _text(style, left, top, text)
        elif character in _LOWER:
            high = CELL_HEIGHT * _LOWER[character] / 8
            shapes.append(_rect(style.front, left, top + CELL_HEIGHT - high, width, high))
        elif character == "▀":
            shapes.append(_rect(style.front, left, top, width, CELL_HEIGHT / 2))
        else:
            shapes.append(
                _rect(style.front, left, top, CELL_WIDTH * _LEFT[character] / 8, CELL_HEIGHT)
            )
    return shapes


def _kind(cell: tuple[str, Style]) -> tuple[str | None, Style]:
    """Return what cells drawn together share: a block's character, None for text."""
    character, style = cell
    return (
        character if character in _LOWER or character in _LEFT or character == "▀" else None
    ), style


def _text(style: Style, left: int, top: int, text: str) -> list[str]:
    """Words of one style, each where its columns are."""
    shapes = []
    for word in re.finditer(r"\S+(?: \S+)*", text):
        names = [f"f{style.front}"] * bool(style.front) + ["w"] * style.is_bold
        kind = f' class="{" ".join(names)}"' if names else ""
        shapes.append(
            f'<text{kind} x="{left + word.start() * CELL_WIDTH}" y="{top + BASELINE}" '
            f'textLength="{len(word[0]) * CELL_WIDTH}">{escape(word[0])}</text>'
        )
    return shapes


def _rect(colour: str, left: float, top: float, width: float, height: float) -> str:
    return (
        f'<rect class="f{colour}" x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}"/>'
    )


def _cells(line: str) -> list[tuple[str, Style]]:
    """Characters with their styles."""
    cells, style, place = [], Style(), 0
    for escape_ in _SGR.finditer(line):
        cells += [(character, style) for character in line[place : escape_.start()]]
        place, style = escape_.end(), _style(escape_[1].split(";"))
    return cells + [(character, style) for character in line[place:]]


def _style(codes: list[str]) -> Style:
    """The style of an escape; bufdb sets all in one, and takes all back with 0."""
    front = back = ""
    for ground, code in zip(codes, codes[2:], strict=False):
        if ground == "38":
            front = code
        if ground == "48":
            back = code
    return Style("2" if codes == ["2"] else front, back, codes == ["1"])


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER / "terminal.svg")
