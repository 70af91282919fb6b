"""What a database holds that a question can name: runs, functions, modules, memory spaces.

Asks the tables of the file itself, so that it knows too what a question has narrowed away.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bufdb.query.header import Value

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

SELECTORS = """
SELECT run_name, run_name AS selector FROM {catalog}runs
UNION ALL
SELECT run_name, label || '=' || label_value AS selector FROM {catalog}run_labels
"""
"""The view run_selectors, for a connection on which it may not have been made."""
_FACTS = f"""
SELECT DISTINCT
  modules.module_id,
  coalesce(modules.function_name, modules.module_key) AS function,
  modules.module_key AS module,
  modules.platform,
  memory_sums.color::VARCHAR AS color,
  modules.run_name,
  modules.format_era,
  modules.peak_unknown_reason
FROM {{catalog}}modules AS modules
LEFT JOIN {{catalog}}memory_sums AS memory_sums ON memory_sums.module_id = modules.module_id
WHERE $run::VARCHAR IS NULL OR modules.run_name IN (
  SELECT run_name FROM ({SELECTORS}) WHERE selector GLOB $run::VARCHAR
)
"""
_FILTERS = {
    "function": "function GLOB $function",
    "module": "module GLOB $module",
    "platform": "platform = $platform",
    "color": "(color IS NULL OR $color::VARCHAR IN ('all', color))",
}
"""How saved queries understand their parameters."""
FILTERS = tuple(_FILTERS)


class Known:
    """What the tables of one catalog hold."""

    def __init__(self, con: duckdb.DuckDBPyConnection, catalog: str | None = None) -> None:
        """Ask `con`; `catalog` is that of the file, where other names could be in front of it."""
        self.con = con
        self.catalog = f"{catalog}.main." if catalog else ""

    def selectors(self) -> list[str]:
        """Names of runs, then their labels as LABEL=VALUE, each sorted."""
        rows = self._rows(
            f"SELECT selector FROM ({SELECTORS}) "
            "GROUP BY selector ORDER BY bool_and(run_name <> selector), selector"
        )
        return [name for (name,) in rows]

    def has_run(self, glob: str) -> bool:
        """Whether the glob selects a run."""
        sql = f"SELECT count(*) > 0 FROM ({SELECTORS}) WHERE selector GLOB $glob"
        return bool(self._rows(sql, glob=glob)[0][0])

    def runs(self) -> list[str]:
        """Names of runs, sorted."""
        rows = self._rows("SELECT run_name FROM {catalog}runs ORDER BY ALL")
        return [name for (name,) in rows]

    def labels(self) -> list[str]:
        """Names of labels, sorted."""
        rows = self._rows("SELECT DISTINCT label FROM {catalog}run_labels ORDER BY ALL")
        return [name for (name,) in rows]

    def spaces(self, platforms: list[str]) -> list[tuple[str, int, str]]:
        """(platform, number, name) of the memory spaces of some platforms that have names."""
        return self._rows(
            "SELECT platform, color, memory_space_name FROM {catalog}memory_spaces "
            "WHERE list_contains($platforms, platform) ORDER BY ALL",
            platforms=platforms,
        )

    def names(self, what: str, values: Mapping[str, Value] | None = None) -> list[str]:
        """What the modules that `values` ask for have as function, module, platform or color."""
        return self._facts(f"SELECT DISTINCT {what} FROM facts WHERE {what} IS NOT NULL", values)

    def runs_of(self, values: Mapping[str, Value]) -> list[str]:
        """Runs of the modules that `values` ask for."""
        return self._facts("SELECT DISTINCT run_name FROM facts WHERE TRUE", values)

    def peaks(self, values: Mapping[str, Value]) -> list[str | None]:
        """Of each module that `values` ask for, why its peak is unknown; None if it is not."""
        select = "SELECT any_value(peak_unknown_reason) FROM facts WHERE TRUE"
        return self._facts(select, values, end="GROUP BY module_id ORDER BY 1")

    def message_count(self, values: Mapping[str, Value]) -> int:
        """How many of the modules that `values` ask for are out-of-memory messages."""
        select = "SELECT count(DISTINCT module_id) FROM facts WHERE format_era = 'M'"
        return int(self._facts(select, values)[0])

    def _facts(
        self, select: str, values: Mapping[str, Value] | None, end: str = "ORDER BY 1"
    ) -> list[Any]:
        values = values or {}
        given = {name: values[name] for name in FILTERS if values.get(name) is not None}
        filters = "".join(f" AND {_FILTERS[name]}" for name in given)
        sql = f"WITH facts AS ({_FACTS}) {select}{filters} {end}"
        return [text for (text,) in self._rows(sql, run=values.get("run"), **given)]

    def _rows(self, sql: str, **values: object) -> list[Any]:
        text = sql.replace("{catalog}", self.catalog)
        return self.con.execute(text, values or None).fetchall()
