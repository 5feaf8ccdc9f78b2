"""Parse and render marathon.json.mustache as Cosmos does.

The template uses variables, sections, inverted sections and comments of mustache. Texts are escaped as inside a JSON
string; whole numbers have no fraction. A section is omitted for null, false, "" and []. For a list, a section is
repeated for each item. For any other value, also 0, it is rendered once.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tf_scheduler.errors import PackageError

_TAG = re.compile(r"(\{\{.*?\}\})", re.DOTALL)
_NAME = re.compile(r"\{\{[#^/]?\s*([\w.-]+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class TemplateVariable:
    name: str


@dataclass(frozen=True, slots=True)
class TemplateSection:
    name: str
    inverted: bool
    nodes: tuple[Node, ...]


#: A text stands for itself.
Node = str | TemplateVariable | TemplateSection


def parse(template: str) -> tuple[Node, ...]:
    """Parse a template. Raises PackageError for unsupported or unpaired tags."""
    return tuple(_nodes(iter(_TAG.split(template)), ""))


def _nodes(parts: Iterator[str], section: str) -> Iterator[Node]:
    """Yield the nodes up to the end of the named section, or up to the template's end."""
    for part in parts:
        if not part.startswith("{{"):
            yield part
        elif not part.startswith("{{!"):
            match = _NAME.fullmatch(part)
            if match is None:
                raise PackageError(f"{part} is not supported")
            if part.startswith(("{{#", "{{^")):
                yield TemplateSection(match[1], part.startswith("{{^"), tuple(_nodes(parts, match[1])))
            elif not part.startswith("{{/"):
                yield TemplateVariable(match[1])
            elif match[1] == section:
                return
            else:
                raise PackageError(f"{part} has no start tag")
    if section:
        raise PackageError(f"{{{{#{section}}}}} has no end tag")


def render(nodes: Sequence[Node], scopes: Sequence[Any]) -> str:
    """Render a template; look up each name in the last scope first."""
    return "".join(_rendered(node, scopes) for node in nodes)


def _rendered(node: Node, scopes: Sequence[Any]) -> str:
    if isinstance(node, str):
        return node
    value = lookup(node.name, scopes)
    if isinstance(node, TemplateVariable):
        return _text(value)
    if node.inverted:
        return "" if _has_section(value) else render(node.nodes, scopes)
    items = value if isinstance(value, list) else [value] * _has_section(value)
    return "".join(render(node.nodes, (*scopes, item)) for item in items)


def _has_section(value: Any) -> bool:
    return value is not False and value not in (None, "", [])


def lookup(name: str, scopes: Sequence[Any]) -> Any:
    """Return the value of a dotted name; None if missing."""
    if name == ".":
        return scopes[-1]
    first, *rest = name.split(".")
    value = next((scope[first] for scope in reversed(scopes) if isinstance(scope, Mapping) and first in scope), None)
    for part in rest:
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)[1:-1]
    return json.dumps(int(value) if isinstance(value, float) and value.is_integer() else value)
