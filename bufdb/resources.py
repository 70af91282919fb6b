"""The locations of the SQL files: in the installed package, or next to it in a checkout.

Only this module knows them. A wheel has `schema/` and `queries/` inside the package; an
editable install or a checkout has them next to it.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _folder(name: str) -> Path:
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def schema_files(*folders: str) -> list[Path]:
    """Return the SQL files of these folders of the schema; each has one object of its name."""
    return [file for folder in schema_folders(*folders) for file in sorted(folder.glob("*.sql"))]


def schema_folders(*names: str) -> list[Path]:
    """Return these folders of the schema."""
    return [_folder("schema") / name for name in names]


def query_folder() -> Path:
    """Return the folder of the saved queries that come with bufdb."""
    return _folder("queries")


def common_header() -> Path:
    """Return the file with the parameters and columns that many saved queries share."""
    return query_folder() / "common" / "header.sql"


def check_folder() -> Path:
    """Return the folder of the invariants that `bufdb check` checks."""
    return query_folder() / "checks"


def advice_page(kind: str) -> str:
    """Return the page about a kind of advice, with the code to type."""
    return (query_folder() / "advice" / f"{kind}.md").read_text("utf-8")


def questions_page() -> str:
    """Return the page of questions, each with the command that answers it."""
    return (query_folder() / "QUESTIONS.md").read_text("utf-8")
