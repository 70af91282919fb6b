"""The measured errors of recompiled.md in the help of query savings; `recompile.py` writes them.

python figures.py
"""

import textwrap
from pathlib import Path

TABLES = Path(__file__).resolve().parent / "recompiled.md"
QUERY = TABLES.parents[2] / "queries" / "savings.sql"
BEGIN = "-- Measured error of recompiled changes"
MEASURED = (
    "Measured error of recompiled changes, in percent of the peak (median, 90th percentile, "
    "largest; data/studies/recompiled.md has each change):"
)


def with_figures(query: str, text: str) -> str:
    """The saved query with the measured errors in its help.

    Args:
        query: queries/savings.sql.
        text: recompiled.md.
    """
    kinds: dict[str, list[str]] = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 8 and cells[1] in ("cpu", "gpu", "tpu"):
            title, backend, _, median, tenth, largest, *_ = cells
            figures = ", ".join(cell.removesuffix("%") for cell in (median, tenth, largest))
            kinds.setdefault(title, []).append(f"{backend.upper()} {figures}")
    sentences = [f"{title}: {'; '.join(errors)}." for title, errors in kinds.items()]
    measured = f"{MEASURED} {' '.join(sentences)}"
    begin = query.index(BEGIN)
    end = query.index("\n--\n", begin)
    lines = textwrap.fill(measured, 100, initial_indent="-- ", subsequent_indent="-- ")
    return query[:begin] + lines + query[end:]


def write(text: str) -> None:
    """Put the figures of recompiled.md where they are shown."""
    QUERY.write_text(with_figures(QUERY.read_text("utf-8"), text), encoding="utf-8")


if __name__ == "__main__":
    write(TABLES.read_text("utf-8"))
