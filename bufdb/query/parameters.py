"""Values of parameters: from text, known names, memory spaces, and why nothing matches them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from bufdb.errors import UsageError, did_you_mean, listed, quote
from bufdb.query.header import Parameter, SavedQuery, Value, parse_value
from bufdb.query.sizes import parse_size, require_unit

if TYPE_CHECKING:
    from pathlib import Path

    import duckdb


# -- The text that a user gives a parameter, as the value that a person means by it ----------------
#
# A size may have a unit where the header says [bytes], a list may have blanks after its commas, and
# a memory space may have a name, which stays a text here: only a database knows its number.

_SPACE_NAME = r"[A-Za-z_]\w*"


def glob(name: str) -> str:
    """Return a glob that matches only this name: brackets make each character literal."""
    return re.sub(r"[*?[]", lambda match: f"[{match[0]}]", name)


def is_size(param: Parameter) -> bool:
    """Return whether the parameter is a number of bytes, which may have a unit."""
    return param.type == "BIGINT" and "[bytes]" in param.text


def is_list(param: Parameter) -> bool:
    """Return whether the parameter is a comma-separated list."""
    return param.type == "VARCHAR" and "separated by commas" in param.text


def is_space(param: Parameter) -> bool:
    """Return whether the parameter is a memory space: its number, or a name for `numbered`."""
    return param.name == "color" and param.type == "VARCHAR"


def value(query: SavedQuery, param: Parameter, text: str) -> Value:
    """Return the value of a parameter; the name of a memory space is not resolved.

    Raises:
        UsageError: the text is not valid; the message says what is expected.
    """
    try:
        parsed = _parsed(param, text)
    except (ValueError, KeyError) as error:
        raise UsageError(
            f"{query.name}: parameter {param.name} wants {_wanted(param)}, got {quote(text)}"
        ) from error
    if param.choices and parsed not in param.choices:
        choices = ", ".join(repr(choice) for choice in param.choices)
        raise UsageError(
            f"{query.name}: parameter {param.name} is one of {choices}, got {quote(text)}"
        )
    return parsed


def _parsed(param: Parameter, text: str) -> Value:
    if is_space(param):
        name = text.strip()
        return name if re.fullmatch(_SPACE_NAME, name) else str(parse_value("BIGINT", name))
    if is_size(param):
        if param.name == "budget":
            require_unit(text.strip(), f"{param.name} {text}")
        return parse_value(param.type, str(parse_size(text)))
    if is_list(param):
        items = [item.strip() for item in text.split(",")]
        return ",".join(item for item in items if item)
    return parse_value(param.type, text)


def _wanted(param: Parameter) -> str:
    if is_space(param):
        return "a memory space, such as 0, hbm or all"
    if is_size(param):
        return "bytes, such as 33554432 or 32MiB"
    return param.type


# -- Names in a database that a question may use: runs, functions, modules, memory spaces ----------
#
# Queries the tables of the file itself, so that it also sees rows hidden by narrowing.

SELECTORS = """
SELECT run_name, run_name AS selector FROM {catalog}runs
UNION ALL
SELECT run_name, label || '=' || label_value AS selector FROM {catalog}run_labels
"""
"""The view run_selectors, for a connection that may not have it."""
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
"""The meaning of parameters in saved queries."""
FILTERS = tuple(_FILTERS)


class Known:
    """The names in the tables of one catalog."""

    def __init__(self, con: duckdb.DuckDBPyConnection, catalog: str | None = None) -> None:
        """Query `con`; `catalog` is the file's, if other objects could shadow its names."""
        self.con = con
        self.catalog = f"{catalog}.main." if catalog else ""

    def selectors(self) -> list[str]:
        """Return the names of runs, then their labels as LABEL=VALUE, each sorted."""
        rows = self._rows(
            f"SELECT selector FROM ({SELECTORS}) "
            "GROUP BY selector ORDER BY bool_and(run_name <> selector), selector"
        )
        return [name for (name,) in rows]

    def runs(self) -> list[str]:
        """Return the names of runs, sorted."""
        rows = self._rows("SELECT run_name FROM {catalog}runs ORDER BY ALL")
        return [name for (name,) in rows]

    def labels(self) -> list[str]:
        """Return the names of labels, sorted."""
        rows = self._rows("SELECT DISTINCT label FROM {catalog}run_labels ORDER BY ALL")
        return [name for (name,) in rows]

    def spaces(self, platforms: list[str]) -> list[tuple[str, int, str]]:
        """Return (platform, number, name) of the named memory spaces of some platforms."""
        return self._rows(
            "SELECT platform, color, memory_space_name FROM {catalog}memory_spaces "
            "WHERE list_contains($platforms, platform) ORDER BY ALL",
            platforms=platforms,
        )

    def names(self, what: str, values: Mapping[str, Value] | None = None) -> list[str]:
        """Return the values of `what` (FILTERS) in the modules that `values` select."""
        return self._facts(f"SELECT DISTINCT {what} FROM facts WHERE {what} IS NOT NULL", values)

    def runs_of(self, values: Mapping[str, Value]) -> list[str]:
        """Return the runs of the modules that `values` select."""
        return self._facts("SELECT DISTINCT run_name FROM facts WHERE TRUE", values)

    def peaks(self, values: Mapping[str, Value]) -> list[str | None]:
        """Return, per module that `values` select, why its peak is unknown; None if it is known."""
        select = "SELECT any_value(peak_unknown_reason) FROM facts WHERE TRUE"
        return self._facts(select, values, end="GROUP BY module_id ORDER BY 1")

    def era_count(self, values: Mapping[str, Value], era: str) -> int:
        """Return how many of the modules that `values` select are of an era of the format."""
        select = f"SELECT count(DISTINCT module_id) FROM facts WHERE format_era = '{era}'"
        return int(self._facts(select, values)[0])

    def _facts(
        self, select: str, values: Mapping[str, Value] | None, end: str = "ORDER BY 1"
    ) -> list[Any]:
        values = values or {}
        chosen = {name: values[name] for name in FILTERS if values.get(name) is not None}
        filters = "".join(f" AND {_FILTERS[name]}" for name in chosen)
        sql = f"WITH facts AS ({_FACTS}) {select}{filters} {end}"
        return [text for (text,) in self._rows(sql, run=values.get("run"), **chosen)]

    def _rows(self, sql: str, **values: object) -> list[Any]:
        text = sql.replace("{catalog}", self.catalog)
        return self.con.execute(text, values or None).fetchall()


# -- Memory spaces by name: `hbm` for color 0 of a TPU, as the table memory_spaces has them --------
#
# Invariant: a name is one memory space of one platform. The meaning of a number depends on the
# platform, so a name that several of the selected platforms have is rejected.

ALL = "all"
"""Every memory space, in place of a number."""


def is_plain_space(color: Value) -> bool:
    """Return whether a color is a number or ALL, as in SQL; a name needs a lookup in a database."""
    return not isinstance(color, str) or color == ALL or color.isdecimal()


def numbered(
    con: duckdb.DuckDBPyConnection, query: SavedQuery, values: Mapping[str, Value]
) -> dict[str, Value]:
    """Return the values with a memory space's number in place of its name, and its platform.

    Raises:
        UsageError: no platform asked about, or more than one, has a memory space of that name.
    """
    name = values.get("color")
    if name is None or is_plain_space(name):
        return dict(values)
    platform, color = find_space(con, query.name, str(name), values)
    numbers: dict[str, Value] = {**values, "color": str(color)}
    if query.param("platform") is not None:
        numbers["platform"] = platform
    return numbers


def find_space(
    con: duckdb.DuckDBPyConnection, asker: str, name: str, values: Mapping[str, Value]
) -> tuple[str, int]:
    """Return platform and number of a memory space by name, on the platforms in `values`.

    Raises:
        UsageError: there is none or more than one; the message begins with `asker`.
    """
    known = Known(con)
    filters = {key: values[key] for key in ("run", "platform") if values.get(key) is not None}
    platforms = known.names("platform", filters)
    spaces = known.spaces(platforms)
    spaces_of_name = [
        (platform, color) for platform, color, known_name in spaces if known_name == name
    ]
    if len(spaces_of_name) == 1:
        return spaces_of_name[0]
    if spaces_of_name:
        where = ", ".join(f"{color} on {platform}" for platform, color in spaces_of_name)
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
        hint = f"; {'; '.join(groups) or 'no selected platform has names for them'}"
    raise UsageError(f"{asker}: no memory space {quote(name)}{hint}")


# -- Why an answer has no rows: what was named that is not there, and what is there instead --------

_WILD = r"[*?]"
_SPECIAL = r"[*?[]"
_SHOWN = 6
"""Names listed if none is similar."""


def notes_on_nothing(
    known: Known, query: SavedQuery, values: Mapping[str, Value], row_count: int
) -> list[str]:
    """Return notes on labels that do not exist, and why an answer has no rows."""
    why = [] if row_count else [why_nothing(known, query, values)]
    return [*unknown_labels(known, query, values), *why]


def why_nothing(known: Known, query: SavedQuery, values: Mapping[str, Value]) -> str:
    """Return, on one line, why a query has no rows."""
    if not query.is_own:  # its parameters may mean anything
        return "no rows"
    if not known.runs():
        return "no rows: no run is stored"
    for side in ("base", "new"):
        if query.param(side) is not None and values.get(side) is None:
            return f"no rows: {query.name} compares two runs: -p base RUN -p new RUN"
    return "no rows: " + (
        _no_module(known, values) or _no_label(known, query, values) or _no_row(known, values)
    )


def unknown_labels(known: Known, query: SavedQuery, values: Mapping[str, Value]) -> list[str]:
    """Return a line for each label in a list of labels that no run has: it separates no runs."""
    own = query.params if query.is_own else ()
    # A run without one of `label` has no row: `why_nothing` gives the reason.
    lists = [param.name for param in own if is_list(param) and param.text.startswith("Labels")]
    names = [name for key in lists for name in str(values.get(key) or "").split(",") if name]
    labels = known.labels() if names else []
    return [f"no run has a label {_near(name, labels)}" for name in names if name not in labels]


def _no_module(known: Known, values: Mapping[str, Value]) -> str | None:
    """Return the filter that no module passes, alone or with the others."""
    runs = {"run": values["run"]} if values.get("run") is not None else {}
    filters = {name: values[name] for name in FILTERS if values.get(name) is not None}
    for name, value in filters.items():
        if not known.runs_of({**runs, name: value}):
            elsewhere = known.runs_of({name: value}) if runs else []
            if elsewhere:
                return (
                    f"run {quote(str(runs['run']))} has no {name} {quote(str(value))}; "
                    f"it is in {listed(elsewhere, _SHOWN)}"
                )
            return f"no {name} {_near(str(value), known.names(name, runs))}"
    if runs and not filters and not known.runs_of(runs):
        run = str(runs["run"])
        return (
            f"run {quote(run)} has no module; "
            f"'bufdb summary --run {shlex.quote(run)}' shows what it has"
        )
    if not known.runs_of({**runs, **filters}):
        pairs = " and ".join(f"{name} {quote(str(v))}" for name, v in {**runs, **filters}.items())
        return f"no module has {pairs}" if pairs else "no module is stored"
    return None


def _no_label(known: Known, query: SavedQuery, values: Mapping[str, Value]) -> str | None:
    param = query.param("label")
    # Processes of one run, which have profiles, are compared without a label.
    if param is None or (query.param("profile") and not values.get("label")):
        return None
    label = values.get("label") or param.default
    labels = known.labels()
    names = [] if label is None else str(label).split(",") if is_list(param) else [str(label)]
    missing = [name for name in names if name not in labels]
    return f"no run has a label {_near(missing[0], labels)}" if missing else None


def _no_row(known: Known, values: Mapping[str, Value]) -> str:
    """Describe a lack of rows although the modules exist: other parameters, unknown peaks."""
    peaks = known.peaks(values)
    text = "nothing of this kind in " + (
        "the selected module" if len(peaks) == 1 else f"the {len(peaks)} selected modules"
    )
    others = {name: value for name, value in values.items() if name not in (*FILTERS, "run")}
    if others:
        text += " with " + ", ".join(f"{name} {value}" for name, value in others.items())
    reasons = [reason for reason in peaks if reason is not None]
    if reasons:
        text += f"; the peak of {len(reasons)} is unknown: {reasons[0]}"
    for era, what in (
        ("M", "an out-of-memory message, which has"),
        ("L", "a log's sums, which have"),
    ):
        if count := known.era_count(values, era):
            text += f"; {count} known only from {what} no live ranges"
    return text


def _near(name: str, names: Iterable[str]) -> str:
    """Return a missing name with the most similar existing name, or the first few names."""
    names = list(names)
    if name in names:  # a name that, as a glob, does not match itself
        literal = re.sub(_SPECIAL, r"[\g<0>]", name)
        return f"{quote(name)}; where [ * ? match other characters, the name is {quote(literal)}"
    hint = did_you_mean(re.sub(_WILD, "", name), names)
    return quote(name) + (hint or f"; there is {listed(names, _SHOWN) or 'none'}")


# -- The scope of an answer: counts of selected modules, and findings of ingest; as SQL ------------

COUNTS = """
WITH lists AS (
  SELECT
    list_distinct(list(run_name)) AS runs,
    list_distinct(list(module_id)) AS modules,
    list_distinct(list(coalesce(function_name, module_key))) AS functions,
    list_distinct(list(platform)) AS platforms
  FROM asked_modules
)
SELECT
  coalesce(len(runs), 0) AS run_count,
  coalesce(len(modules), 0) AS module_count,
  coalesce(len(functions), 0) AS function_count,
  nullif(array_to_string(list_sort(platforms), ' '), '') AS platforms
FROM lists
"""
"""One row: run_count, module_count, function_count, and platforms.

With count(DISTINCT …) it has twice the operators, and takes twice the time."""
FINDINGS = """
SELECT findings.severity, findings.code, count(*) AS finding_count
FROM findings
WHERE findings.run_name IN (SELECT run_name FROM asked_runs)
  AND (
    findings.module_id IS NULL
    OR findings.module_id IN (SELECT module_id FROM asked_modules)
  )
GROUP BY findings.severity, findings.code
ORDER BY
  CASE findings.severity
    WHEN 'error' THEN 0 WHEN 'data_loss' THEN 1 WHEN 'notice' THEN 2 ELSE 3
  END,
  finding_count DESC, findings.code
"""
"""Severity, code and number of findings about the dumps, worst first."""
NOTED = ("diagnostics", "live_profiles")
"""There are no findings where these tables have no rows."""


# --------------------------------------------------------------------------------------------------
# A user's rules for the roles of arrays in the model, from a file: they precede bufdb's own rules.
#
# Invariant: the rules of a file apply to one question and are never stored. They keep the order of
# the file, and precede all rules in the database.

PHASES = "phases"
SUBJECTS = {"parameters": "parameter", "operations": "operation"}
"""Sections of the file with globs for names, and role_rules.subject of each."""

Rows = dict[str, list[tuple[Any, ...]]]
"""Rows of op_categories and role_rules, by table."""


def read_categories(path: Path) -> Rows:
    """Read rules from a TOML file: `"GLOB" = "WORD"` under [parameters], [operations], [phases].

    "" in place of a word means that the role of what the glob matches is unknown.

    Raises:
        UsageError: the file cannot be read, is not TOML, or has other content.
    """
    import tomllib  # 2 ms, for a file that few have

    try:
        document = tomllib.loads(path.read_bytes().decode())
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: not TOML: {error}") from error
    known = [*SUBJECTS, PHASES]
    for section in document:
        if section not in known:
            hint = did_you_mean(section, known)
            wanted = "], [".join(known)
            raise UsageError(f"{path}: expected [{wanted}], found {quote(section)}{hint}")
    phases = [(glob, None, word) for glob, word in _rules(path, PHASES, document)]
    roles = [
        (subject, glob, word)
        for section, subject in SUBJECTS.items()
        for glob, word in _rules(path, section, document)
    ]
    return {"op_categories": _numbered(phases), "role_rules": _numbered(roles)}


def _rules(path: Path, section: str, document: dict[str, Any]) -> list[tuple[str, str | None]]:
    """Return the globs of a section with their words; None for an empty one."""
    table = document.get(section, {})
    if not isinstance(table, dict):
        raise UsageError(f"{path}: expected a table [{section}], found {quote(str(table))}")
    for glob, word in table.items():
        if not isinstance(word, str):
            raise UsageError(
                f'{path}: [{section}]: expected "GLOB" = "WORD", found {quote(str(word))} for '
                f"{quote(glob)}"
            )
    return [(glob, word or None) for glob, word in table.items()]


def _numbered(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return the rows, each with a negative number in their order: rule_order."""
    return [(order, *row) for order, row in enumerate(rows, -len(rows))]
