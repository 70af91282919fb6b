"""Configuration: a file, and key=value."""

import types
from pathlib import Path


def initialize(argv):
    values = {}
    with Path(argv[1]).open() as file:
        for line in file:
            key, colon, value = line.partition("#")[0].partition(":")
            if colon:
                values[key.strip()] = value.strip()
    for word in argv[2:]:
        key, _, value = word.partition("=")
        if key not in values:
            raise ValueError(f"{key} is no key of {argv[1]}")
        values[key] = value
    return types.SimpleNamespace(
        **{key: float(v) if "." in v else int(v) for key, v in values.items()}
    )
