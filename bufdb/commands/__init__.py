"""The commands, one module each; `bufdb.cli` imports a module when its command is named.

They are part of the command line: with `bufdb.cli` the only code that prints, exits or imports
click. A module offers its click command as `command` and imports DuckDB, sqlglot and the ingest
path inside functions, so that no command pays for another.
"""
