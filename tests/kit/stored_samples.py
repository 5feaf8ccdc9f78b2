"""A sample of every stored value, and its recordings for each schema of the state.

`scripts/record-state` records the current schema until a release contains the schema.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import unified_diff
from enum import Enum
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from builders import a_spec
from tf_scheduler.model import effects
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.store import records
from tf_scheduler.store.interface import Put

_HOME = Path(__file__).resolve().parents[2]
_FOLDER = _HOME / "tests" / "framework" / "store" / "samples"
_SCALARS: Mapping[Any, Any] = {bool: True, int: 7, float: 1.5, str: "text", Any: "text"}
#: Values of the two kinds that are stored.
_RESOURCES = (Resource("cpus", 1500, '{"role": "r"}'), Resource("ports", ((31000, 31001),)))


def sample_file(schema: int) -> Path:
    return _FOLDER / f"schema-{schema}.json"


def recorded(schema: int) -> dict[str, Any]:
    """Return the recording of a schema."""
    document: dict[str, Any] = json.loads(sample_file(schema).read_text())
    return document


def stored_values(recording: Mapping[str, Any]) -> dict[str, bytes]:
    """Return the values of a recording as a store contains them."""
    return {key: json.dumps(value, sort_keys=True).encode() for key, value in recording["values"].items()}


def last_release() -> str:
    """Return the newest version with a date in the changelog; empty before the first."""
    match = re.search(r"^## (\d\S*) \(\d{4}-", (_HOME / "CHANGELOG.md").read_text(), re.MULTILINE)
    return match.group(1) if match else ""


def is_released(recording: Mapping[str, Any]) -> bool:
    """Whether a version with this schema was released: programs exist that read it."""
    return bool(recording["after"] != last_release())


def differences(recording: Mapping[str, Any]) -> list[str]:
    """Return the lines that differ between a recording and this build."""
    before, after = (json.dumps(comparable(item), indent=2).splitlines() for item in (recording, current()))
    return list(unified_diff(before, after, "recorded", "this build", n=4, lineterm=""))


def comparable(recording: Mapping[str, Any]) -> dict[str, Any]:
    """Return what does not depend on the version of the program."""
    own = ("crc32", "program")
    values = {
        key: {name: item for name, item in value.items() if name not in own}
        for key, value in recording["values"].items()
    }
    return {"types": recording["types"], "values": values}


def current() -> dict[str, Any]:
    """Return the recording of this build."""
    return {"schema": records.SCHEMA, "after": last_release(), "types": stored_types(), "values": sample_values()}


def sample_changes() -> Iterator[effects.Change]:
    """One change of each kind that stores a value, every field of it set."""
    for kind in get_args(effects.Change):
        change = _sample(kind)
        if any(isinstance(write, Put) for write in records.writes(change, SchedulerState(a_spec()))):
            yield change


def sample_values() -> dict[str, Any]:
    """Stored key -> content, of each sample."""
    puts = [write for change in sample_changes() for write in records.writes(change, SchedulerState(a_spec()))]
    return {put.key: json.loads(put.value) for put in puts if isinstance(put, Put)}


def stored_types() -> dict[str, Any]:
    """Change -> stored names and types of its fields."""
    return {type(change).__name__: _type(type(change)) for change in sample_changes()}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _sample(kind: Any) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if hasattr(kind, "__supertype__"):
        return _sample(kind.__supertype__)
    if origin is Literal:
        return arguments[0]
    if origin in (Union, UnionType):
        return _sample(arguments[0])
    if origin is tuple and arguments[0] is Resource:
        return _RESOURCES
    if origin in (tuple, frozenset, Sequence):
        items = [_sample(argument) for argument in arguments if argument is not Ellipsis]
        return items if origin is Sequence else origin(items)
    if origin is Mapping:
        return {_sample(arguments[0]): _sample(arguments[1])}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    if isinstance(kind, type) and is_dataclass(kind):
        return kind(**{field.name: _sample(_hints(kind)[field.name]) for field in fields(kind)})
    return _SCALARS[kind]


def _type(kind: Any) -> Any:
    """Describe what is stored of a type, without names of classes: they may change."""
    origin, arguments = get_origin(kind), get_args(kind)
    if hasattr(kind, "__supertype__"):
        return _type(kind.__supertype__)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return "one of " + ", ".join(member.value for member in kind)
    if isinstance(kind, type) and is_dataclass(kind):
        return {field.name: _type(_hints(kind)[field.name]) for field in fields(kind)}
    if origin is None:
        return "null" if kind is type(None) else "any" if kind is Any else kind.__name__
    parts = [_type(argument) for argument in arguments if argument is not Ellipsis]
    if all(isinstance(part, str) for part in parts):
        return " or ".join(parts) if origin in (Union, UnionType) else f"{origin.__name__} of {', '.join(parts)}"
    return {origin.__name__: parts}
