"""Generate config.json (JSON Schema draft 4) and explanations of the options.

config.json omits rules over several options. In it, environments are lists, because DC/OS cannot render an object.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from marshmallow import Schema, fields

from .environment import variable_name
from .schema.document import Option, Options
from .schema.fields import (
    VARIABLE_PATTERN,
    Boolean,
    Environment,
    Integer,
    IntegerList,
    NameList,
    Number,
    RecordList,
    String,
)

Json = dict[str, Any]

#: Words of option names that titles spell in another way.
_WORDS = {
    **{word: word.upper() for word in ("acl", "api", "ca", "gpu", "hdfs", "http", "id", "kdc", "tls", "uri", "url")},
    "count": "number of tasks",
    "cpus": "CPU",
    "dcos": "DC/OS",
    "dir": "folder",
    "env": "environment variable",
    "gcs": "Google Cloud",
    "gpus": "GPUs",
    "grace": "grace period",
    "max": "maximum",
    "mem": "memory",
    "mesos": "Mesos",
    "min": "minimum",
    "nice": "niceness",
    "python": "Python interpreter",
    "sha256": "SHA-256 digest",
    "statsd": "StatsD server",
    "tensorboard": "TensorBoard",
    "tf": "TensorFlow",
}


def config_schema() -> Json:
    """Return the content of config.json."""
    return {"$schema": "http://json-schema.org/schema#", **_object(Options())}


def json_type(field: fields.Field[Any]) -> Json:
    """Return the JSON Schema type and bounds of a field."""
    match field:
        case String():
            return {
                "type": "string",
                **({"enum": list(field.choices)} if field.choices else {}),
                **({"minLength": 1} if field.non_empty else {}),
                **({"pattern": _whole(field.pattern, field.non_empty)} if field.pattern else {}),
            }
        case Boolean():
            return {"type": "boolean"}
        case Integer() | Number():
            kind = "integer" if isinstance(field, Integer) else "number"
            return {"type": kind, "minimum": field.minimum, "maximum": field.maximum}
        case Environment():
            name = {"title": "Name", "type": "string", "pattern": _whole(VARIABLE_PATTERN, non_empty=True)}
            value = {"title": "Value", "type": "string"}
            return {"type": "array", "items": _entry({"name": name, "value": value}, ["name", "value"])}
        case IntegerList() | NameList():
            return {"type": "array", "items": json_type(field.item)}
        case RecordList():
            return {"type": "array", "items": _object(field.schema)}
    raise TypeError(field)


def json_default(option: Option) -> Any:
    """Return the default in its JSON form."""
    default = option.default
    if isinstance(option.field, Environment):
        return [{"name": name, "value": value} for name, value in default.items()]
    return list(default) if isinstance(default, tuple) else default


def _object(schema: Schema) -> Json:
    required = [name for name, field in schema.fields.items() if field.required or field.metadata.get("required")]
    return _entry({name: _property(name, field) for name, field in schema.fields.items()}, required)


def _entry(properties: Json, required: list[str]) -> Json:
    """Return an object's schema; omit an empty `required` list, which draft 4 forbids."""
    needed = {"required": required} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


def _property(name: str, field: fields.Field[Any]) -> Json:
    if isinstance(field, fields.Nested):
        return {"title": _title(name, field), "description": field.metadata["description"], **_object(field.schema)}
    option = Option((name,), field)
    unit = f" In {option.metadata('unit')}." if option.metadata("unit") else ""
    default = None if field.required else json_default(option)
    return {
        "title": _title(name, field),
        "description": f"{option.description}{unit}",
        **json_type(field),
        **({"default": default} if default is not None else {}),
        **({"media": field.metadata["media"]} if "media" in field.metadata else {}),
    }


def _title(name: str, field: fields.Field[Any]) -> str:
    """Return the label of an option or a section in a form, with the unit."""
    unit = field.metadata.get("unit", "")
    words = [_WORDS.get(word, word) for word in name.removesuffix(f"_{unit}").split("_")]
    text = field.metadata.get("title") or " ".join(words)
    return f"{text[0].upper()}{text[1:]}{f' ({unit})' if unit else ''}"


def _whole(pattern: str, non_empty: bool) -> str:
    """Return the pattern with anchors, because JSON Schema matches substrings."""
    return f"^({pattern})$" if non_empty else f"^({pattern})?$"


def explain(option: Option) -> str:
    """Describe one option: type, default, examples, effect of an update, variable."""
    facts = [f"{option}: {option_type(option)}", f"  {option.description}"]
    facts += [f"  default: {_json(json_default(option))}"] if option.default is not None else ["  no default"]
    facts += [f"  example: {_json(example)}" for example in option.metadata("examples") or ()]
    return "\n".join([*facts, f"  update: {option.on_update.value}", f"  variable: {variable_name(option)}"])


def option_type(option: Option) -> str:
    """Describe type, unit and bounds of an option."""
    return "; ".join(_facts(json_type(option.field), option.metadata("unit")))


def _facts(schema: dict[str, Any], unit: str | None) -> Iterator[str]:
    kind = "list" if schema["type"] == "array" else schema["type"]
    yield f"{kind} of {schema['items']['type']}" if kind == "list" else kind
    if unit:
        yield unit
    if "enum" in schema:
        yield f"one of {', '.join(schema['enum'])}"
    if "minimum" in schema:
        yield f"{schema['minimum']:.12g} to {schema['maximum']:.12g}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
