"""What sqlglot is for: saved queries held against the schema and put into other dialects."""
