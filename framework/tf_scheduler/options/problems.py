"""marshmallow's messages -> what a person reads: a path and a sentence each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from marshmallow import Schema, fields

from tf_scheduler.errors import Problem

from .fields import shown
from .lists import Records

#: Above so many, the names of a section are no help.
_MANY = 12

_SENTENCES = {
    "Field may not be null.": "must not be null; leave it out for its default",
    "Missing data for required field.": "is needed",
}

#: What the keys of a level of messages are names in: options of a section, places in a list, or neither.
_Level = Schema | Records | None


def problems(messages: Mapping[str, Any], level: _Level, document: object) -> Iterator[Problem]:
    """Messages mirror the document, so its values can be told with them."""
    for name, found in messages.items():
        field, value = _field(level, name), document.get(name) if isinstance(document, Mapping) else None
        if not isinstance(found, Mapping):
            yield from (Problem(name, _sentence(message, name, level)) for message in found)
        elif found.keys() == {"_schema"}:
            yield Problem(name, f"must be an object, not {shown(value)}")
        else:
            inner = field.schema if isinstance(field, fields.Nested) else field
            below = problems(found, inner if isinstance(inner, (Schema, Records)) else None, value)
            yield from (Problem(f"{name}.{problem.path}", problem.message) for problem in below)


def _field(level: _Level, name: str) -> fields.Field[Any] | None:
    if isinstance(level, Records):
        return fields.Nested(level.schema)
    return None if level is None else level.fields.get(name)


def _sentence(message: str, name: str, level: _Level) -> str:
    if message == "Unknown field." and isinstance(level, Schema):
        return f"is no option{_suggestion(name, level)}"
    return _SENTENCES.get(message, message)


def _suggestion(name: str, schema: Schema) -> str:
    close = get_close_matches(name, schema.fields, n=1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(sorted(schema.fields))}" if len(schema.fields) <= _MANY else ""
