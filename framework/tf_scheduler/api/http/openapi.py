"""OpenAPI document of the API, generated from endpoints and types of bodies."""

from __future__ import annotations

import re
import types
from collections.abc import Iterable
from enum import Enum
from http import HTTPStatus
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from tf_scheduler.api.views.types import ErrorBody

from .auth import HEALTH_PATH
from .endpoint import TOO_MANY_REQUESTS, Endpoint, EndpointAccess, QueryParameter

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class Schemas:
    """Convert types to JSON Schema (2020-12); named types are collected in `named`."""

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a TypedDict, list, dict, Literal, Enum, union, scalar, Any."""
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
            self.named[name] = {}  # the type may refer to itself
            hints = get_type_hints(kind)
            self.named[name] = {
                "type": "object",
                "properties": {key: self.of(part) for key, part in hints.items()},
                "required": sorted(kind.__required_keys__),
                "additionalProperties": False,
            }
        return {"$ref": f"#/components/schemas/{name}"}


#: Version of the API, not of the program.
VERSION = "1"
_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"basic": []}, {}]
_SCHEMES = {"bearer": {"type": "http", "scheme": "bearer"}, "basic": {"type": "http", "scheme": "basic"}}
_FILE = {"type": "object", "required": ["file"], "properties": {"file": {"type": "string", "format": "binary"}}}
_FORM: dict[str, Any] = {"multipart/form-data": {"schema": _FILE}}
#: Statuses that the DC/OS SDK defines, and 317.
_HEALTH_CODES = {
    317: "Calls refused",
    318: "Initializing",
    319: "Waiting for the store",
    320: "Backing up",
    321: "Restoring",
}


def openapi_document(table: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    schemas = Schemas()
    paths: dict[str, dict[str, Any]] = {}
    for row in table:
        paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "TensorFlow on Mesos",
            "version": VERSION,
            "description": "Scheduler of one service: plans, tasks, training. See docs/api.md.",
        },
        # Relative to the document, because the API is also served below /service/NAME/.
        "servers": [{"url": ".."}],
        "paths": paths,
        "components": {"schemas": schemas.named, "securitySchemes": _SCHEMES},
    }


def _operation(row: Endpoint, schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": row.summary,
        # Unique, such as `get_plans_plan`.
        "operationId": "_".join([row.method.lower(), *re.findall(r"\w+", row.path)]),
        "tags": [row.path.split("/")[2]],
        "responses": _responses(row, schemas),
    }
    parameters = [_path_parameter(name, row.path_formats.get(name)) for name in re.findall(r"{(\w+)}", row.path)]
    if parameters or row.query:
        operation["parameters"] = [*parameters, *map(_query_parameter, row.query)]
    if row.body_type is not None:
        content = _FORM if row.body_type is bytes else {"application/json": {"schema": schemas.of(row.body_type)}}
        operation["requestBody"] = {"required": not row.body_optional, "content": content}
    if row.access is not EndpointAccess.OPEN:
        operation["security"] = _SECURITY
    return operation


def _path_parameter(name: str, form: str | None) -> dict[str, Any]:
    schema = {"type": "string", "minLength": 1, **({"format": form} if form else {})}
    return {"name": name, "in": "path", "required": True, "schema": schema}


def _query_parameter(item: QueryParameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _PLAIN[item.kind]}
    if item.kind is int:
        schema |= {"minimum": item.minimum, "maximum": item.maximum}
    if item.pattern:
        schema["pattern"] = item.pattern
    if item.default is not None:
        schema["default"] = item.default
    return {"name": item.name, "in": "query", "required": False, "description": item.description, "schema": schema}


def _responses(row: Endpoint, schemas: Schemas) -> dict[str, Any]:
    bodies = dict(row.responses)
    if row.access is not EndpointAccess.OPEN:
        bodies = {**bodies, 401: ErrorBody, 403: str}
    if row.path != HEALTH_PATH:
        bodies[TOO_MANY_REQUESTS] = ErrorBody
    bodies.setdefault(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str)
    if row.query or row.body_type is not None:
        bodies.setdefault(400, str)
    return {str(code): _response(row, code, kind, schemas) for code, kind in sorted(bodies.items())}


def _response(row: Endpoint, code: int, kind: Any, schemas: Schemas) -> dict[str, Any]:
    description = _HEALTH_CODES.get(code) or HTTPStatus(code).phrase
    if kind is None:
        return {"description": description}
    content: dict[str, Any] = {}
    if kind is str:
        content["text/plain"] = {"schema": {"type": "string"}}
        if code >= HTTPStatus.BAD_REQUEST:
            # For clients that accept JSON.
            content["application/json"] = {"schema": schemas.of(ErrorBody)}
    else:
        content["application/json"] = {"schema": schemas.of(kind)}
    if row.events and code == HTTPStatus.OK:
        content["text/event-stream"] = {"schema": _events(row, schemas)}
    return {"description": description, "content": content}


def _events(row: Endpoint, schemas: Schemas) -> dict[str, Any]:
    """Describe a stream in the extension `x-events`: OpenAPI 3.1 cannot describe it."""
    description = f"Server-sent events {', '.join(row.events)} with JSON data; their schemas are in x-events."
    events = {name: schemas.of(kind) for name, kind in row.events.items()}
    return {"type": "string", "description": description, "x-events": events}
