"""Records as JSON, between processes and in files, and back."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Sequence
from typing import Any, Literal, TypeVar

from bufdb.fitting.plans import Site

Record = TypeVar("Record")


def as_json(record: Any) -> Any:
    """Return a record as dicts, lists, numbers and strings."""
    if isinstance(record, Site):
        return list(record)
    if dataclasses.is_dataclass(record):
        return {
            field.name: as_json(getattr(record, field.name)) for field in dataclasses.fields(record)
        }
    if isinstance(record, dict):
        return {key: as_json(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [as_json(item) for item in record]
    return record


def from_json(kind: type[Record], value: Any) -> Record:
    """Return the record that `as_json` made `value` of."""
    record: Record = _read(kind, value)
    return record


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read(kind: Any, value: Any) -> Any:
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if value is None or kind is Any or origin is Literal:
        return value
    if origin in (types.UnionType, typing.Union):
        return _read(next(item for item in inner if item is not type(None)), value)
    if kind is Site:
        return Site(*value)
    if dataclasses.is_dataclass(kind):
        hints = _hints(typing.cast(type, kind))
        return kind(**{name: _read(hints[name], item) for name, item in value.items()})  # type: ignore[operator]
    if origin is tuple and isinstance(value, Sequence):
        return tuple(_read(inner[0], item) for item in value)
    return value
