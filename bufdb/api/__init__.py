"""bufdb for Python: `Database`, `explain`, tools for assistants; `questions` are the commands'."""
