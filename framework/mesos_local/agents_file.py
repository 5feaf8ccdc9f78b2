"""The agents file: a JSON list of agents. Everything that is wrong with it is told at once."""

from __future__ import annotations

import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from .agent_rules import Fields, describe, errors_of, shown
from .agents import AgentSpec, with_ports
from .errors import MesosLocalError
from .telling import reason

_LARGEST = 10 << 20  # bytes; thousands of agents
_KNOWN = ("hostname", "resources", "attributes")
_REQUIRED = ("hostname", "resources")
_FORM = 'it must be a list of at least one object {"hostname": ..., "resources": ..., "attributes": ...}'


class _Object(dict[str, Any]):
    """A JSON object that remembers which names it had twice."""

    repeated: tuple[str, ...] = ()

    @classmethod
    def of(cls, pairs: list[tuple[str, Any]]) -> _Object:
        found = cls(pairs)
        names = [name for name, _ in pairs]
        found.repeated = (
            tuple(sorted({name for name in names if names.count(name) > 1})) if len(found) < len(names) else ()
        )
        return found


def load_agents(path: Path) -> tuple[AgentSpec, ...]:
    """Read an agents file: a JSON list of {"hostname", "resources", "attributes"}, see AgentSpec; fills in ports.

    Raises MesosLocalError that lists every error in the file.
    """
    content = _parse(_read(path), path)
    if not isinstance(content, list) or not content:
        raise _not_valid(path, [_FORM])
    entries = [_well_shaped(entry) for entry in content]
    errors = [error for position, entry in enumerate(content) for error in _shape_errors(position, entry)]
    if errors := errors + errors_of(entries):
        raise _not_valid(path, errors)
    return with_ports([AgentSpec(**entry) for entry in content])


def _read(path: Path) -> bytes:
    """Never waits: a pipe that nobody writes to is refused as all is that is no file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as content:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise MesosLocalError(f"The agents file {path} is not a regular file.")
            if status.st_size > _LARGEST:
                raise MesosLocalError(f"The agents file {path} is too large: at most {_LARGEST >> 20} MB.")
            return content.read()
    except OSError as error:
        raise MesosLocalError(f"The agents file {path} cannot be read: {reason(error, path)}") from error


def _parse(data: bytes, path: Path) -> object:
    try:
        return json.loads(
            data.decode("utf-8-sig"),
            object_pairs_hook=_Object.of,
            parse_int=_parse_int,
            parse_float=_parse_float,
            parse_constant=_refuse,
        )
    except UnicodeDecodeError as error:
        raise MesosLocalError(f"The agents file {path} is not UTF-8 text: byte {error.start} does not fit") from error
    except json.JSONDecodeError as error:
        message = f"The agents file {path} is not JSON: line {error.lineno}, column {error.colno}: {error.msg}"
        raise MesosLocalError(message) from error
    except ValueError as error:
        raise MesosLocalError(f"The agents file {path} is not valid: {error}") from error
    except RecursionError as error:
        raise MesosLocalError(f"The agents file {path} is not valid: it is nested too deeply") from error


def _parse_int(text: str) -> int:
    return int(text) if len(text) < 20 else _refuse(text)


def _parse_float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _refuse(text)


def _refuse(text: str) -> NoReturn:
    raise ValueError(f"{shown(text)[1:-1]} is not a number that Mesos can count with")


def _well_shaped(entry: object) -> Fields:
    """Those of its fields that have the right type: their values can be judged whatever else is wrong."""
    if not isinstance(entry, dict):
        return {}
    return {name: value for name, value in entry.items() if name in _KNOWN and not _type_error(name, value)}


def _shape_errors(position: int, entry: object) -> Iterator[str]:
    if not isinstance(entry, _Object):
        yield f"agent {position + 1}: {shown(entry)} is not an object"
        return
    where = describe(position, entry)
    yield from (f"{where}: {error}" for error in _entry_errors(entry))


def _entry_errors(entry: _Object) -> Iterator[str]:
    for name in entry:
        if name not in _KNOWN:
            near = get_close_matches(name[:80], _KNOWN, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"allowed: {', '.join(_KNOWN)}"
            yield f"unknown key {shown(name)}: {hint}"
    yield from (f"{shown(name)} is given twice" for name in entry.repeated)
    yield from (f"{name} is missing" for name in _REQUIRED if name not in entry)
    for name in _KNOWN:
        if name in entry:
            yield from _type_error(name, entry[name])
            yield from _repeated_inside(name, entry[name])


def _repeated_inside(name: str, value: object) -> Iterator[str]:
    for inner in value.repeated if isinstance(value, _Object) else ():
        yield f"{name.removesuffix('s')} {shown(inner)} is given twice"


def _type_error(name: str, value: object) -> list[str]:
    if name == "hostname":
        return [] if isinstance(value, str) else [f"hostname {shown(value)} is not text"]
    if not isinstance(value, str | Mapping):
        return [f"{name} {shown(value)} is neither text nor an object"]
    return []


def _not_valid(path: Path, errors: list[str]) -> MesosLocalError:
    return MesosLocalError(f"The agents file {path} is not valid:\n" + "\n".join(f"  {error}" for error in errors))
