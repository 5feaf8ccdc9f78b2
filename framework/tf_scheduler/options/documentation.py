"""The schema -> docs/options.md."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from marshmallow import Schema, fields

from .config_schema import json_default, json_type
from .environment import variable
from .lists import Records
from .schema import Options
from .tree import Option, options_of

_HEAD = """\
# Options

The options of a service are one JSON file, the same for `dcos package install tensorflow --options=FILE` and for
`dcos-tensorflow local run FILE`. What you leave out has its default. Names, types and defaults of the DC/OS package
beta-tensorflow (0.2.0-1.5.0) are kept, so files written for it can be used as they are.

    {
      "service": {"name": "mnist", "command": "python train.py", "job_url": "https://example.com/train.py"},
      "worker": {"count": 4, "mem": 8192}
    }

| command | does |
| --- | --- |
| `dcos-tensorflow options validate FILE` | tells all that is wrong, one `path: message` per line |
| `dcos-tensorflow options show FILE` | prints every option with the value it has; secrets are hidden |
| `dcos-tensorflow options diff OLD NEW` | tells what an update would do: which tasks restart, what is refused |
| `dcos-tensorflow options explain PATH` | tells all about one option or section |
| `dcos-tensorflow options schema` | prints the JSON Schema of the file |

The shell completes commands, files and the options of `explain` after
`eval "$(_DCOS_TENSORFLOW_COMPLETE=bash_source dcos-tensorflow)"` (for zsh: `zsh_source`, for fish: `fish_source`).

Unknown names are errors. An option that has no effect, or none yet, is accepted with a notice.

*Update* says what a new value does to a service that runs. *live*: no task restarts for it; *scale*: tasks are added or
removed, and those that must know every address restart; *restart*: the tasks that it concerns restart; *fixed*: it is
refused, install another service. *Variable* is the environment variable that carries the option to the scheduler. A
list travels in it with the control character 0x1e after each entry, and 0x1f after each field of an entry that is an
object.

This page is generated from the schema by `scripts/generate-options`.
"""


def markdown() -> str:
    """The whole page."""
    schema = Options()
    return "\n".join([_HEAD, *(_section(name, field) for name, field in schema.fields.items())])


def explain(option: Option) -> str:
    """All about one option, in lines."""
    facts = [f"{option}: {_type(option)}", f"  {option.description}"]
    facts += [f"  default: {_json(json_default(option))}"] if option.default is not None else ["  no default"]
    facts += [f"  example: {_json(example)}" for example in option.said("examples") or ()]
    return "\n".join([*facts, f"  update: {option.change.value}", f"  variable: {variable(option)}"])


def _section(name: str, field: fields.Field[Any]) -> str:
    if isinstance(field, fields.Nested):
        options = tuple(options_of(field.schema, (name,)))
        return _page_part(name, field.metadata["description"], options)
    option = Option((name,), field)
    inner = field.schema if isinstance(field, Records) else Schema()
    rows = [f"| `{part}` | {_type(part)} | {_said(part)} |" for part in options_of(inner)]
    table = ["| field | type | meaning |", "| --- | --- | --- |", *rows]
    facts = f"A list of objects; default `[]`; update: {option.change.value}; variable `{variable(option)}`."
    return "\n".join([f"## {name}", "", option.description, facts, "", *table, ""])


def _page_part(name: str, description: str, options: tuple[Option, ...]) -> str:
    head = ["| option | type | default | meaning | update | variable |", "| --- | --- | --- | --- | --- | --- |"]
    return "\n".join([f"## {name}", "", description, "", *head, *(_row(option) for option in options), ""])


def _row(option: Option) -> str:
    default = "" if option.default is None else f"`{_escaped(_json(json_default(option)))}`"
    cells = (f"`{option}`", _type(option), default, _said(option), option.change.value, f"`{variable(option)}`")
    return f"| {' | '.join(cells)} |"


def _said(option: Option) -> str:
    examples = option.said("examples")
    told = f" Such as {', '.join(f'`{_json(example)}`' for example in examples)}." if examples else ""
    return _escaped(f"{option.description}{told}")


def _type(option: Option) -> str:
    return "; ".join(_facts(json_type(option.field), option.said("unit")))


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
    """A bar would end the cell."""
    return text.replace("|", "\\|")
