"""The lowest versions that pyproject.toml allows, as pip wants them: `click==8.2 duckdb==2.0 …`."""

import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lowest() -> list[str]:
    """Requirements with the lowest version of each dependency."""
    project = tomllib.loads(PROJECT.read_text())["project"]
    dependencies = [*project["dependencies"], *project["optional-dependencies"]["proto"]]
    # A marker has spaces, and this Python is the one that they are about.
    return [one.partition(";")[0].strip().replace(">=", "==") for one in dependencies]


if __name__ == "__main__":
    print(*lowest())
