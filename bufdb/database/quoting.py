"""Text and names as SQL, for the few statements that take no parameters: ATTACH, COPY, SET."""


def sql_text(text: object) -> str:
    """Return a text, or a path, as a literal of SQL."""
    return "'" + str(text).replace("'", "''") + "'"


def sql_name(name: str) -> str:
    """Return the name of a table or column as SQL."""
    return '"' + name.replace('"', '""') + '"'
