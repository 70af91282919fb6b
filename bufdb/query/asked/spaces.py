"""Memory spaces by name: `hbm` for color 0 of a TPU, as the table memory_spaces has them.

Invariant: a name stands for one memory space of one platform. What one number means differs from
platform to platform, so a name that several of those asked about have is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bufdb.errors import UsageError, did_you_mean, quote
from bufdb.query.asked.known import Known

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from bufdb.query.header import SavedQuery, Value


ALL = "all"
"""Every memory space, in place of a number."""


def is_plain(color: Value) -> bool:
    """Whether it is what SQL knows, a number or ALL, and not a name that only a database knows."""
    return not isinstance(color, str) or color == ALL or color.isdecimal()


def numbered(
    con: duckdb.DuckDBPyConnection, query: SavedQuery, values: Mapping[str, Value]
) -> dict[str, Value]:
    """The values with the number of a memory space in place of its name, and with its platform.

    Raises:
        UsageError: no platform asked about, or more than one, has a memory space of that name.
    """
    name = values.get("color")
    if name is None or is_plain(name):
        return dict(values)
    platform, color = find(con, query.name, str(name), values)
    numbers: dict[str, Value] = {**values, "color": str(color)}
    if query.param("platform") is not None:
        numbers["platform"] = platform
    return numbers


def find(
    con: duckdb.DuckDBPyConnection, asker: str, name: str, values: Mapping[str, Value]
) -> tuple[str, int]:
    """Platform and number of the memory space of a name, on the platforms that `values` ask for.

    Raises:
        UsageError: there is none or more than one; the message begins with `asker`.
    """
    known = Known(con)
    asked = {key: values[key] for key in ("run", "platform") if values.get(key) is not None}
    platforms = known.names("platform", asked)
    spaces = known.spaces(platforms)
    found = [(platform, color) for platform, color, known_name in spaces if known_name == name]
    if len(found) == 1:
        return found[0]
    if found:
        where = ", ".join(f"{color} on {platform}" for platform, color in found)
        raise UsageError(
            f"{asker}: memory space {quote(name)} is {where}; say which with --platform or --run"
        )
    names = [known_name for *_, known_name in spaces]
    hint = did_you_mean(name, names)
    if not hint:
        groups = (
            f"{platform} has {', '.join(n for of, _, n in spaces if of == platform)}"
            for platform in dict.fromkeys(platform for platform, *_ in spaces)
        )
        hint = f"; {'; '.join(groups) or 'no platform asked about has names for them'}"
    raise UsageError(f"{asker}: no memory space {quote(name)}{hint}")
