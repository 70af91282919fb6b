"""bufdb for Python: `Database`, `explain`, and tools for coding assistants."""
