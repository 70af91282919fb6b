"""Where the SQL files are: in the installed package, or beside it in a checkout.

The only module that knows. A wheel carries `schema/` and `queries/` inside the package; an
editable install or a checkout has them next to it.
"""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def _folder(name: str) -> Path:
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name


def schema_files(*folders: str) -> list[Path]:
    """The SQL files of these folders of the schema; each holds one object, of the file's name."""
    return [file for name in folders for file in sorted((_folder("schema") / name).glob("*.sql"))]


def query_folder() -> Path:
    """Return the folder of the saved queries that come with bufdb."""
    return _folder("queries")


def common_header() -> Path:
    """Return the file with the parameters and columns that many saved queries share."""
    return query_folder() / "common" / "header.sql"


def check_folder() -> Path:
    """Return the folder of the invariants that `bufdb check` holds a database to."""
    return query_folder() / "checks"


def advice_page(kind: str) -> str:
    """Return the page about a kind of advice, with the code to type."""
    return (query_folder() / "advice" / f"{kind}.md").read_text("utf-8")
