"""The tables of docs/reference/options.md, made from the options schema."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any

from marshmallow import Schema, fields

from tf_scheduler.cli.commands.options import COMMON_OPTIONS
from tf_scheduler.options.environment import variable_name
from tf_scheduler.options.generate import json_default, option_type
from tf_scheduler.options.schema.document import OPTIONS, Option, Options, options_of
from tf_scheduler.options.schema.fields import RecordList
from tf_scheduler.options.schema.queue import JobDocument


def tables() -> dict[str, str]:
    """Return the generated parts of docs/reference/options.md by name."""
    sections = Options().fields
    parts = (_section(name, field) for name, field in sections.items())
    options = "\n".join([*parts, _job()]).rstrip("\n")
    return {"common-options": "\n".join(_common([*sections, "job"])), "options": options}


def _common(sections: Iterable[str]) -> Iterator[str]:
    """Yield the options that most jobs set, and links to the sections with all others."""
    options = {str(option): option for option in OPTIONS}
    yield "| option | type | default | meaning |\n| --- | --- | --- | --- |"
    for name in COMMON_OPTIONS:
        option = options[name]
        yield f"| `{name}` | {option_type(option)} | {_default(option)} | {_meaning(option)} |"
    links = f"All others: {', '.join(f'[{name}](#{name})' for name in sections)}."
    yield f"\n{textwrap.fill(links, 120, break_on_hyphens=False)}"


def _section(name: str, field: fields.Field[Any]) -> str:
    if isinstance(field, fields.Nested):
        options = tuple(options_of(field.schema, (name,)))
        return _page_part(name, field.metadata["description"], options)
    option = Option((name,), field)
    facts = f"A list of objects; default `[]`; update: {option.on_update.value}; variable `{variable_name(option)}`."
    return "\n".join([f"## {name}", "", option.description, facts, *_records(option), ""])


def _job() -> str:
    """Return the section of job files, which are no options of a service."""
    field = JobDocument().fields["job"]
    assert isinstance(field, fields.Nested)
    return "\n".join(["## job", "", field.metadata["description"], *_table(field.schema), ""])


def _records(option: Option) -> list[str]:
    """Return the table of the objects of a list; empty for other options."""
    return _table(option.field.schema) if isinstance(option.field, RecordList) else []


def _table(schema: Schema) -> list[str]:
    """Return the fields of objects in a list, or of a section without variables."""
    rows = (f"| `{part}` | {option_type(part)} | {_default(part)} | {_meaning(part)} |" for part in options_of(schema))
    return ["", "| field | type | default | meaning |", "| --- | --- | --- | --- |", *rows]


def _page_part(name: str, description: str, options: tuple[Option, ...]) -> str:
    head = ["| option | type | default | meaning | update | variable |", "| --- | --- | --- | --- | --- | --- |"]
    lists = ((option, _records(option)) for option in options)
    more = (line for option, table in lists if table for line in ("", f"Objects of `{option}`:", *table))
    return "\n".join([f"## {name}", "", description, "", *head, *(_row(option) for option in options), *more, ""])


def _row(option: Option) -> str:
    cells = (
        f"`{option}`",
        option_type(option),
        _default(option),
        _meaning(option),
        option.on_update.value,
        f"`{variable_name(option)}`",
    )
    return f"| {' | '.join(cells)} |"


def _default(option: Option) -> str:
    if option.field.required:
        return "required"
    return "" if option.default is None else f"`{_escaped(_json(json_default(option)))}`"


def _meaning(option: Option) -> str:
    examples = option.metadata("examples")
    suffix = f" Examples: {', '.join(f'`{_json(example)}`' for example in examples)}." if examples else ""
    return _escaped(f"{option.description}{suffix}")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _escaped(text: str) -> str:
    """Escape bars, which would end the table cell."""
    return text.replace("|", "\\|")
