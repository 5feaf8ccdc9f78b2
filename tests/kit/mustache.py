"""Mustache with Cosmos' semantics (PackageDefinitionRenderer on mustache.java).

Differences from Python's mustache libraries:

    {{x}}                    nothing is escaped for HTML
    text                     written as inside a JSON string, without the quotes around it
    text in a list           with the quotes, also when `{{.}}` in the list's section shows it
    a list                   `[1, "a"]`: JSON unless the list contains an object, which is rendered as `{a=b}`
    1.0                      `1`: whole numbers lose their fraction
    {{#x}}                   omitted for null, false, "" and []; *not* for 0 and {}

White space is kept, also around tags alone on a line: in JSON it makes no difference.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

from tf_scheduler.package.template import Node, TemplateSection, TemplateVariable, lookup, parse


def render(template: str, context: Mapping[str, Any]) -> str:
    """Render a template with a JSON object. Raises PackageError."""
    return "".join(_nodes(parse(template), (_java(context),)))


def _java(value: Any, *, in_list: bool = False) -> Any:
    """Encode all texts as JSON before rendering, as Cosmos does for mustache.java."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text if in_list else text[1:-1]
    if isinstance(value, Mapping):
        return {name: _java(item) for name, item in value.items()}
    return [_java(item, in_list=True) for item in value] if isinstance(value, list) else value


def _nodes(nodes: Sequence[Node], scopes: tuple[Any, ...]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, TemplateSection):
            yield from _section(node, scopes)
        elif isinstance(node, TemplateVariable):
            value = lookup(node.name, scopes)
            yield "" if value is None else format_value(value)
        else:
            yield node


def _section(section: TemplateSection, scopes: tuple[Any, ...]) -> Iterator[str]:
    value = lookup(section.name, scopes)
    if section.inverted:
        yield from () if is_rendered(value) else _nodes(section.nodes, scopes)
    elif isinstance(value, list):
        for item in value:
            yield from _nodes(section.nodes, (*scopes, item))
    elif is_rendered(value):
        yield from _nodes(section.nodes, scopes if value is True else (*scopes, value))


def is_rendered(value: Any) -> bool:
    """Whether a section of this value is rendered; unlike in Python, 0 and {} are."""
    return not (value is None or value is False or value in ("", []))


def format_value(value: Any) -> str:
    """Format a value for the output; texts are already encoded."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, (int, float)):
        return format_number(value)
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{name}={format_value(item)}" for name, item in value.items()) + "}"
    return "[" + ", ".join(map(format_value, value)) + "]"


def format_number(value: float) -> str:
    """Format a whole number as digits, others as java.lang.Double.toString."""
    if value == int(value):
        return str(int(value))
    if 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    sign, (first, *rest), exponent = Decimal(repr(float(value))).as_tuple()
    return f"{'-' * sign}{first}.{''.join(map(str, rest)) or '0'}E{len(rest) + int(exponent)}"
