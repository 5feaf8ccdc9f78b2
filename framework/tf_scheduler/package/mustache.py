"""Mustache with Cosmos' semantics (PackageDefinitionRenderer on mustache.java).

Differences from Python's mustache libraries:

    {{x}}, {{{x}}}, {{&x}}   the same: nothing is escaped for HTML
    text                     written as inside a JSON string, without the quotes around it
    text in a list           with the quotes, also when `{{.}}` in the list's section shows it
    a list                   `[1, "a"]`: JSON unless the list contains an object, which is rendered as `{a=b}`
    1.0                      `1`: whole numbers lose their fraction
    {{#x}}                   omitted for null, false, "" and []; *not* for 0 and {}
    {{#asJson}}x{{/asJson}}  the top-level text x unchanged; `null` if x is not a text

White space is kept, also around tags alone on a line: in JSON it makes no difference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tf_scheduler.errors import PackageError

_TAG = re.compile(r"\{\{(?:\{(?P<triple>[^{}]*)\}|(?P<kind>[#^/&!>=]?)(?P<name>.*?))\}\}", re.DOTALL)
_AS_JSON = "asJson"


class TemplateError(PackageError):
    """Malformed template; the message names the line."""


@dataclass(frozen=True, slots=True)
class TemplateText:
    value: str


@dataclass(frozen=True, slots=True)
class TemplateVariable:
    name: str


@dataclass(frozen=True, slots=True)
class TemplateSection:
    """`{{#name}}...{{/name}}`, or inverted `{{^name}}`; `source`: text between tags."""

    name: str
    inverted: bool
    nodes: tuple[Node, ...]
    source: str


Node = TemplateText | TemplateVariable | TemplateSection


@dataclass(slots=True)
class _Open:
    """A section that is not closed yet; the outermost one has no tag."""

    tag: re.Match[str] | None
    nodes: list[Node]


def parse(template: str) -> tuple[Node, ...]:
    """Parse a template. Raises TemplateError, also for partials and new delimiters."""
    stack, end = [_Open(None, [])], 0
    for tag in _TAG.finditer(template):
        stack[-1].nodes.append(TemplateText(template[end : tag.start()]))
        end = tag.end()
        _add_tag(tag, stack, template)
    if stack[-1].tag is not None:
        raise _error(stack[-1].tag, template, "has no end tag")
    return (*stack[0].nodes, TemplateText(template[end:]))


def _add_tag(tag: re.Match[str], stack: list[_Open], template: str) -> None:
    kind, name = tag["kind"] or "", (tag["triple"] if tag["triple"] is not None else tag["name"]).strip()
    if kind in ("", "&") and name and "{" not in name:
        stack[-1].nodes.append(TemplateVariable(name))
    elif kind in ("#", "^"):
        stack.append(_Open(tag, []))
    elif kind == "/":
        stack[-2:] = [_close(tag, name, stack, template)]
    elif kind != "!":
        raise _error(tag, template, "is not supported" if kind else "has no name")


def _close(tag: re.Match[str], name: str, stack: list[_Open], template: str) -> _Open:
    opened = stack[-1].tag
    if opened is None or opened["name"].strip() != name:
        raise _error(tag, template, "has no start tag" if opened is None else f"comes before the end of {opened[0]}")
    nodes = (*stack[-1].nodes,)
    section = TemplateSection(name, opened["kind"] == "^", nodes, template[opened.end() : tag.start()])
    return _Open(stack[-2].tag, [*stack[-2].nodes, section])


def _error(tag: re.Match[str], template: str, problem: str) -> TemplateError:
    return TemplateError(f"line {template.count(chr(10), 0, tag.start()) + 1}: {tag[0]} {problem}")


def render(template: str, context: Mapping[str, Any]) -> str:
    """Render a template with a JSON object. Raises TemplateError."""
    return "".join(_Renderer(context).nodes(parse(template), (_java(context),)))


def _java(value: Any, *, in_list: bool = False) -> Any:
    """Encode all texts as JSON before rendering, as Cosmos does for mustache.java."""
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)
        return text if in_list else text[1:-1]
    if isinstance(value, Mapping):
        return {name: _java(item) for name, item in value.items()}
    return [_java(item, in_list=True) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True, slots=True)
class _Renderer:
    #: The context without encoding, for the function asJson.
    raw: Mapping[str, Any]

    def nodes(self, nodes: Sequence[Node], scopes: tuple[Any, ...]) -> Iterator[str]:
        for node in nodes:
            if isinstance(node, TemplateText):
                yield node.value
            elif isinstance(node, TemplateVariable):
                value = lookup(node.name, scopes)
                yield "" if value is None else format_value(value)
            else:
                yield from self._section(node, scopes)

    def _section(self, section: TemplateSection, scopes: tuple[Any, ...]) -> Iterator[str]:
        if section.name == _AS_JSON and not section.inverted:
            raw = self.raw.get(section.source)
            # Its result is rendered as a template, as mustache.java does for every TemplateFunction.
            yield from self.nodes(parse(raw if isinstance(raw, str) else "null"), scopes)
            return
        value = lookup(section.name, scopes)
        if section.inverted:
            yield from () if is_rendered(value) else self.nodes(section.nodes, scopes)
        elif isinstance(value, list):
            for item in value:
                yield from self.nodes(section.nodes, (*scopes, item))
        elif is_rendered(value):
            yield from self.nodes(section.nodes, scopes if value is True else (*scopes, value))


def is_rendered(value: Any) -> bool:
    """Whether a section of this value is rendered; unlike in Python, 0 and {} are."""
    return not (value is None or value is False or value in ("", []))


def lookup(name: str, scopes: Sequence[Any]) -> Any:
    """Look up a dotted name: its first part from the innermost scope outward."""
    if name == ".":
        return scopes[-1]
    first, *rest = name.split(".")
    value = next((scope[first] for scope in reversed(scopes) if isinstance(scope, Mapping) and first in scope), None)
    for part in rest:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


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
