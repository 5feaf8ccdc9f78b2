"""The schema -> config.json, the JSON Schema (draft 4) by which DC/OS checks options and makes its forms.

What it allows is what our fields allow, except that the rules over several options have no place in it, and that
environments are lists there: DC/OS cannot render an object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from marshmallow import Schema, fields

from .fields import VARIABLE, Environment, Flag, Number, Text, Whole
from .lists import Records, Wholes
from .schema import Options
from .tree import Option

Json = dict[str, Any]


def config_schema() -> Json:
    """The whole document."""
    return {"$schema": "http://json-schema.org/schema#", **_object(Options())}


def json_type(field: fields.Field[Any]) -> Json:
    """Type and bounds of a field."""
    for kind, describe in _TYPES.items():
        if isinstance(field, kind):
            return describe(field)
    raise TypeError(field)


def json_default(option: Option) -> Any:
    """The default as it stands in JSON."""
    default = option.default
    if isinstance(option.field, Environment):
        return [{"name": name, "value": value} for name, value in default.items()]
    return list(default) if isinstance(default, tuple) else default


def _object(schema: Schema) -> Json:
    required = [name for name, field in schema.fields.items() if field.required or field.metadata.get("required")]
    return {
        "type": "object",
        "properties": {name: _property(name, field) for name, field in schema.fields.items()},
        # Draft 4 allows no empty list here.
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _property(name: str, field: fields.Field[Any]) -> Json:
    if isinstance(field, fields.Nested):
        return {"description": field.metadata["description"], **_object(field.schema)}
    option = Option((name,), field)
    unit = f" In {option.said('unit')}." if option.said("unit") else ""
    default = None if field.required else json_default(option)
    return {
        "description": f"{option.description}{unit}",
        **json_type(field),
        **({"default": default} if default is not None else {}),
        **({"media": field.metadata["media"]} if "media" in field.metadata else {}),
    }


def _text(field: Text) -> Json:
    return {
        "type": "string",
        **({"enum": list(field.choices)} if field.choices else {}),
        **({"minLength": 1} if field.filled else {}),
        **({"pattern": _whole(field.pattern, field.filled)} if field.pattern else {}),
    }


def _whole(pattern: str, filled: bool) -> str:
    """As JSON schema has it, where a part that fits is enough."""
    return f"^({pattern})$" if filled else f"^({pattern})?$"


def _number(kind: str) -> Callable[[Whole | Number], Json]:
    return lambda field: {"type": kind, "minimum": field.least, "maximum": field.most}


def _variables(_: Environment) -> Json:
    properties = {"name": {"type": "string", "pattern": _whole(VARIABLE, filled=True)}, "value": {"type": "string"}}
    entry = {"type": "object", "properties": properties, "required": ["name", "value"], "additionalProperties": False}
    return {"type": "array", "items": entry}


def _list(field: Wholes) -> Json:
    return {"type": "array", "items": json_type(field.item)}


def _records(field: Records) -> Json:
    return {"type": "array", "items": _object(field.schema)}


_TYPES: Mapping[type, Callable[[Any], Json]] = {
    Text: _text,
    Flag: lambda _: {"type": "boolean"},
    Whole: _number("integer"),
    Number: _number("number"),
    Environment: _variables,
    Wholes: _list,
    Records: _records,
}
