"""Pass options to the scheduler as environment variables, and read them there.

A variable contains its option's value as in the options file: text unquoted, everything but lists as JSON. On DC/OS,
Cosmos renders the options into marathon.json.mustache, and Marathon sets the variables. Cosmos cannot render a list of
objects as JSON. So RECORD_END ends each entry of a list, UNIT_END ends each field of an object, and an environment
variable is written as `name=value`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from marshmallow import fields

from .schema.document import OPTIONS, Option
from .schema.fields import RECORD_END, UNIT_END, Environment, IntegerList, RecordList, String


def variable_name(option: Option) -> str:
    """Return the variable's name: the original package's, or the path in capitals."""
    name: str | None = option.metadata("environment")
    return name or "_".join("PS" if part == "parameter_server" else part.upper() for part in option.path)


def template_lines() -> list[str]:
    """Return the `"NAME": "{{path}}"` lines for `env` in marathon.json.mustache."""
    return [f"{json.dumps(variable_name(option))}: {json.dumps(_tag(option))}" for option in OPTIONS]


def without_defaults(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables without those of options that have their default."""
    defaults = {variable_name(option): _default_text(option) for option in OPTIONS}
    return {name: text for name, text in environment.items() if text != defaults.get(name)}


def to_document(environment: Mapping[str, str]) -> dict[str, Any]:
    """Convert the known variables to an options document without defaults.

    A malformed value stays text, so that the schema rejects it with the name of the option.
    """
    document: dict[str, Any] = {}
    changed = without_defaults(environment)
    for option in OPTIONS:
        text = changed.get(variable_name(option))
        if text is not None:
            option.put(document, _value(option.field, text))
    return document


def _default_text(option: Option) -> str:
    """Return the default as Cosmos renders it; lists are empty, except of numbers."""
    default = option.default
    if isinstance(default, (tuple, dict)):
        return "".join(f"{item}{RECORD_END}" for item in default)
    if isinstance(default, bool):
        return json.dumps(default)
    if isinstance(default, float):
        return f"{default:.12g}"
    return "" if default is None else str(default)


def _tag(option: Option) -> str:
    entry = _entry_tag(option.field)
    return f"{{{{#{option}}}}}{entry}{RECORD_END}{{{{/{option}}}}}" if entry else f"{{{{{option}}}}}"


def _entry_tag(field: fields.Field[Any]) -> str:
    """Return the template of one list entry; empty if the field is not a list."""
    if isinstance(field, RecordList):
        return "".join(f"{{{{{name}}}}}{UNIT_END}" for name in field.schema.fields)
    if isinstance(field, Environment):
        return "{{name}}={{value}}"
    return "{{.}}" if isinstance(field, IntegerList) else ""


def _value(field: fields.Field[Any], text: str) -> Any:
    if isinstance(field, String):
        return text
    is_list = isinstance(field, (Environment, IntegerList, RecordList))
    if is_list and (not text or text.endswith(RECORD_END)):
        return [_entry(field, entry) for entry in text.split(RECORD_END)[:-1]]
    return _json(text)


def _entry(field: fields.Field[Any], text: str) -> Any:
    if isinstance(field, RecordList):
        pairs = zip(field.schema.fields.items(), text.split(UNIT_END), strict=False)
        return {name: _value(kind, part) for (name, kind), part in pairs if part or kind.required}
    if isinstance(field, Environment):
        return dict(zip(("name", "value"), text.split("=", 1), strict=False))
    return _json(text)


def _json(text: str) -> Any:
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # Mesos requires UTF-8, but JSON can express lone surrogates
    except (ValueError, RecursionError):
        return text
    return value
