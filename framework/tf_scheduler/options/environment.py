"""Options <-> environment variables of the scheduler.

On DC/OS the options reach the scheduler through its Marathon app: Cosmos fills marathon.json.mustache with them, and
Marathon sets the variables. Both directions are here, and the lines of the template between them.

A list is one variable: each of its entries is ended by RECORD_END, and of an entry that is an object each field by
UNIT_END. An environment is `name=value` entries.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from marshmallow import fields

from .fields import RECORD_END, UNIT_END, Environment, Flag, Number, Text, Whole
from .lists import Records, Wholes
from .loader import resolve
from .tree import OPTIONS, Option


def variable(option: Option) -> str:
    """The name: that of the original package where it has one, else the path in capitals."""
    given: str | None = option.said("environment")
    return given or "_".join("PS" if name == "parameter_server" else name.upper() for name in option.path)


def to_environment(options: Mapping[str, Any]) -> dict[str, str]:
    """Resolved options -> every variable, with the values that the rendered template gives them."""
    return {variable(option): _text(option.field, option.value(options)) for option in OPTIONS}


def template_lines() -> list[str]:
    """The `env` of marathon.json.mustache for all options: `"NAME": "{{path}}"`, one each, without commas."""
    return [f"{json.dumps(variable(option))}: {json.dumps(_tag(option))}" for option in OPTIONS]


def to_document(environment: Mapping[str, str]) -> dict[str, Any]:
    """Variables -> the options document, without what is at its default or not set. Other variables are ignored.

    A value that is none of its option's is kept as text: the schema refuses it with the option's name.
    """
    document: dict[str, Any] = {}
    for option in OPTIONS:
        text = environment.get(variable(option))
        if text is None or text == _text(option.field, option.default):
            continue
        section = document
        for name in option.path[:-1]:
            section = section.setdefault(name, {})
        section[option.path[-1]] = _value(option.field, text)
    return document


def load_environment(
    environment: Mapping[str, str], defaults: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Variables -> resolved options; `defaults` as for `loader.load`. Raise OptionsError with every problem."""
    return resolve(to_document(environment), defaults)


def _text(field: fields.Field[Any], value: Any) -> str:
    """A value as Cosmos renders it by the option's tag."""
    if value is None:
        return ""
    if isinstance(field, Records):
        return "".join(f"{_record(field, record)}{RECORD_END}" for record in value)
    if isinstance(field, Environment):
        return "".join(f"{name}={text}{RECORD_END}" for name, text in value.items())
    if isinstance(field, Wholes):
        return "".join(f"{item}{RECORD_END}" for item in value)
    if isinstance(field, Flag):
        return json.dumps(value)
    whole = isinstance(value, float) and value.is_integer()
    return str(int(value) if whole else value)


def _record(field: Records, record: Mapping[str, Any]) -> str:
    return "".join(f"{record[name]}{UNIT_END}" for name in field.schema.fields)


def _tag(option: Option) -> str:
    entry = _entry_tag(option.field)
    return f"{{{{#{option}}}}}{entry}{RECORD_END}{{{{/{option}}}}}" if entry else f"{{{{{option}}}}}"


def _entry_tag(field: fields.Field[Any]) -> str:
    """Of one entry of a list; empty for what is no list."""
    if isinstance(field, Records):
        return "".join(f"{{{{{name}}}}}{UNIT_END}" for name in field.schema.fields)
    if isinstance(field, Environment):
        return "{{name}}={{value}}"
    return "{{.}}" if isinstance(field, Wholes) else ""


def _value(field: fields.Field[Any], text: str) -> Any:
    for kind, read in _READERS.items():
        if isinstance(field, kind):
            return read(field, text)
    raise TypeError(field)


def _entries(text: str) -> list[str]:
    return text.split(RECORD_END)[:-1]


def _read_records(field: Records, text: str) -> list[dict[str, str]]:
    return [_read_record(field, entry.split(UNIT_END)) for entry in _entries(text)]


def _read_record(field: Records, parts: list[str]) -> dict[str, str]:
    """A field that is empty was left out, as far as it may be."""
    named = zip(field.schema.fields.items(), parts, strict=False)
    return {name: part for (name, kind), part in named if part or kind.required}


def _read_variables(text: str) -> list[dict[str, str]]:
    return [dict(zip(("name", "value"), entry.split("=", 1), strict=False)) for entry in _entries(text)]


def _read_number(text: str, read: Callable[[str], float]) -> float | str:
    try:
        return read(text)
    except ValueError:
        return text


_READERS: Mapping[type, Callable[[Any, str], Any]] = {
    Text: lambda _, text: text,
    Flag: lambda _, text: {"true": True, "false": False}.get(text, text),
    Whole: lambda _, text: _read_number(text, int),
    Number: lambda _, text: _read_number(text, float),
    Environment: lambda _, text: _read_variables(text),
    Wholes: lambda _, text: [_read_number(entry, int) for entry in _entries(text)],
    Records: _read_records,
}
