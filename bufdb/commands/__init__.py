"""The commands, one module each; `bufdb.cli` imports a module when its command is used.

Together with `bufdb.cli`, this is the only code that prints, exits or imports click. A module
provides its click command as `command` and imports DuckDB, sqlglot and the ingest path inside
functions, so that no command pays for another's imports.
"""
