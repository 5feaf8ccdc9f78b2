"""Types of bodies -> JSON Schema, as OpenAPI 3.1 has it (JSON Schema 2020-12)."""

from __future__ import annotations

import types
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class Schemas:
    """Collects what is named, for `components/schemas`."""

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type: TypedDict, list, dict, Literal, Enum, union, plain, or Any."""
        if kind is Any:
            return {}
        if kind in _PLAIN:
            return {"type": _PLAIN[kind]}
        if is_typeddict(kind):
            return self._reference(kind)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"type": "string", "enum": [member.value for member in kind]}
        return self._generic(get_origin(kind), get_args(kind))

    def _generic(self, origin: Any, inner: tuple[Any, ...]) -> dict[str, Any]:
        if origin is list:
            return {"type": "array", "items": self.of(inner[0])}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(inner[1])}
        if origin is Literal:
            return {"type": "string", "enum": list(inner)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self.of(part) for part in inner]}
        raise TypeError(f"no schema for {origin}[{inner}]")

    def _reference(self, kind: Any) -> dict[str, Any]:
        name = kind.__name__
        if name not in self.named:
            self.named[name] = {}  # it may refer to itself
            hints = get_type_hints(kind)
            self.named[name] = {
                "type": "object",
                "properties": {key: self.of(part) for key, part in hints.items()},
                "required": sorted(kind.__required_keys__),
                "additionalProperties": False,
            }
        return {"$ref": f"#/components/schemas/{name}"}
