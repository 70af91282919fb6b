"""The database file: open, version, tables and views, runs, faults in plain words."""
