"""The database file: open, version, tables and views, runs, checksums, faults in plain words."""
