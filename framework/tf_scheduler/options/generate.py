"""Generate config.json (JSON Schema, draft 4) and docs/options.md from the options schema.

config.json omits the rules over several options. Its environments are lists, because DC/OS cannot render an object.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from marshmallow import Schema, fields

from .environment import variable_name
from .schema.document import Option, Options, options_of
from .schema.fields import VARIABLE_PATTERN, Boolean, Environment, Integer, IntegerList, Number, RecordList, String

Json = dict[str, Any]


def config_schema() -> Json:
    """Return the content of config.json."""
    return {"$schema": "http://json-schema.org/schema#", **_object(Options())}


def json_type(field: fields.Field[Any]) -> Json:
    """Return the JSON Schema type and bounds of a field."""
    for kind, describe in _TYPES.items():
        if isinstance(field, kind):
            return describe(field)
    raise TypeError(field)


def json_default(option: Option) -> Any:
    """Return the default in its JSON form."""
    default = option.default
    if isinstance(option.field, Environment):
        return [{"name": name, "value": value} for name, value in default.items()]
    return list(default) if isinstance(default, tuple) else default


def _object(schema: Schema) -> Json:
    required = [name for name, field in schema.fields.items() if field.required or field.metadata.get("required")]
    return {
        "type": "object",
        "properties": {name: _property(name, field) for name, field in schema.fields.items()},
        # Draft 4 forbids an empty list.
        **({"required": required} if required else {}),
        "additionalProperties": False,
    }


def _property(name: str, field: fields.Field[Any]) -> Json:
    if isinstance(field, fields.Nested):
        return {"description": field.metadata["description"], **_object(field.schema)}
    option = Option((name,), field)
    unit = f" In {option.metadata('unit')}." if option.metadata("unit") else ""
    default = None if field.required else json_default(option)
    return {
        "description": f"{option.description}{unit}",
        **json_type(field),
        **({"default": default} if default is not None else {}),
        **({"media": field.metadata["media"]} if "media" in field.metadata else {}),
    }


def _text(field: String) -> Json:
    return {
        "type": "string",
        **({"enum": list(field.choices)} if field.choices else {}),
        **({"minLength": 1} if field.non_empty else {}),
        **({"pattern": _whole(field.pattern, field.non_empty)} if field.pattern else {}),
    }


def _whole(pattern: str, non_empty: bool) -> str:
    """Anchor the pattern, because JSON Schema matches substrings."""
    return f"^({pattern})$" if non_empty else f"^({pattern})?$"


def _number(kind: str) -> Callable[[Integer | Number], Json]:
    return lambda field: {"type": kind, "minimum": field.minimum, "maximum": field.maximum}


def _variables(_: Environment) -> Json:
    properties = {
        "name": {"type": "string", "pattern": _whole(VARIABLE_PATTERN, non_empty=True)},
        "value": {"type": "string"},
    }
    entry = {"type": "object", "properties": properties, "required": ["name", "value"], "additionalProperties": False}
    return {"type": "array", "items": entry}


def _list(field: IntegerList) -> Json:
    return {"type": "array", "items": json_type(field.item)}


def _records(field: RecordList) -> Json:
    return {"type": "array", "items": _object(field.schema)}


_TYPES: Mapping[type, Callable[[Any], Json]] = {
    String: _text,
    Boolean: lambda _: {"type": "boolean"},
    Integer: _number("integer"),
    Number: _number("number"),
    Environment: _variables,
    IntegerList: _list,
    RecordList: _records,
}


_HEAD = """\
# Options

The options of a service are one JSON file, the same for `dcos package install tensorflow --options=FILE` and for
`dcos-tensorflow local run FILE`. Omitted options have their defaults. Options files of the DC/OS package
beta-tensorflow (0.2.0-1.5.0) work unchanged: names, types and defaults are the same.

    {
      "service": {"name": "mnist", "command": "python train.py", "job_url": "https://example.com/train.py"},
      "worker": {"count": 4, "mem": 8192}
    }

| command | purpose |
| --- | --- |
| `dcos-tensorflow options validate FILE` | list all errors, one `path: message` per line |
| `dcos-tensorflow options show FILE` | print every option with its value; secrets are hidden |
| `dcos-tensorflow options diff OLD NEW` | preview an update: restarted tasks and refused changes |
| `dcos-tensorflow options explain PATH` | describe one option or section |
| `dcos-tensorflow options schema` | print the JSON Schema of the file |

The shell completes commands, files and the options of `explain` after
`eval "$(_DCOS_TENSORFLOW_COMPLETE=bash_source dcos-tensorflow)"` (for zsh: `zsh_source`, for fish: `fish_source`).

Unknown names are errors. Options without effect are accepted with a warning.

*Update* is the effect of a new value on a running service. *live*: no task restarts; *scale*: tasks are added or
removed, and tasks that need every address restart; *restart*: the affected tasks restart; *fixed*: the change is
refused, install another service. *Variable* is the environment variable that carries the option to the scheduler. In
a list, the control character 0x1e ends each entry, and 0x1f ends each field of an object.

This page is generated from the schema by `scripts/generate-options`.
"""


def options_page() -> str:
    """Return the content of docs/options.md."""
    schema = Options()
    return "\n".join([_HEAD, *(_section(name, field) for name, field in schema.fields.items())])


def explain(option: Option) -> str:
    """Describe one option: type, default, examples, effect of an update, variable."""
    facts = [f"{option}: {_type(option)}", f"  {option.description}"]
    facts += [f"  default: {_json(json_default(option))}"] if option.default is not None else ["  no default"]
    facts += [f"  example: {_json(example)}" for example in option.metadata("examples") or ()]
    return "\n".join([*facts, f"  update: {option.on_update.value}", f"  variable: {variable_name(option)}"])


def _section(name: str, field: fields.Field[Any]) -> str:
    if isinstance(field, fields.Nested):
        options = tuple(options_of(field.schema, (name,)))
        return _page_part(name, field.metadata["description"], options)
    option = Option((name,), field)
    inner = field.schema if isinstance(field, RecordList) else Schema()
    rows = [f"| `{part}` | {_type(part)} | {_meaning(part)} |" for part in options_of(inner)]
    table = ["| field | type | meaning |", "| --- | --- | --- |", *rows]
    facts = f"A list of objects; default `[]`; update: {option.on_update.value}; variable `{variable_name(option)}`."
    return "\n".join([f"## {name}", "", option.description, facts, "", *table, ""])


def _page_part(name: str, description: str, options: tuple[Option, ...]) -> str:
    head = ["| option | type | default | meaning | update | variable |", "| --- | --- | --- | --- | --- | --- |"]
    return "\n".join([f"## {name}", "", description, "", *head, *(_row(option) for option in options), ""])


def _row(option: Option) -> str:
    default = "" if option.default is None else f"`{_escaped(_json(json_default(option)))}`"
    cells = (
        f"`{option}`",
        _type(option),
        default,
        _meaning(option),
        option.on_update.value,
        f"`{variable_name(option)}`",
    )
    return f"| {' | '.join(cells)} |"


def _meaning(option: Option) -> str:
    examples = option.metadata("examples")
    suffix = f" Examples: {', '.join(f'`{_json(example)}`' for example in examples)}." if examples else ""
    return _escaped(f"{option.description}{suffix}")


def _type(option: Option) -> str:
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


def _escaped(text: str) -> str:
    """Escape bars, which would end the table cell."""
    return text.replace("|", "\\|")
