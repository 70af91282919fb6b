"""Records as JSON, between processes and in files, and back."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

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
    record: Record = _reader(typing.cast(Any, kind))(value)
    return record


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


@functools.cache
def _reader(kind: Any) -> Callable[[Any], Any]:
    """Return what makes a value of a kind, with None for None; a search reads a thousand plans."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in (types.UnionType, typing.Union):
        return _reader(next(item for item in inner if item is not type(None)))
    if kind is Site:
        return lambda value: None if value is None else Site(*value)
    if dataclasses.is_dataclass(kind):
        return lambda value: None if value is None else _record(kind, value)
    if origin is tuple:
        read = _reader(inner[0])
        return lambda value: tuple(map(read, value)) if isinstance(value, Sequence) else value
    return lambda value: value


def _record(kind: Any, value: Mapping[str, Any]) -> Any:
    hints = _hints(kind)
    return kind(**{name: _reader(hints[name])(item) for name, item in value.items()})
