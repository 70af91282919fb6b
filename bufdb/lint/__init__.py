"""Uses of sqlglot: check saved queries against the schema, and translate them."""
