"""OpenAPI document of the API, generated from endpoints and types of bodies."""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from http import HTTPStatus
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints, is_typeddict

from tf_executor.contract.bodies import ErrorBody, MessageBody, required_names

from .auth import HEALTH_PATH, TOKEN_HEADER
from .endpoint import NO_MAXIMUM, TOO_MANY_REQUESTS, UNAVAILABLE, Endpoint, EndpointAccess, QueryParameter

#: Request bodies, with JSON Schema for the OpenAPI document; handlers validate the values themselves.
Update = Annotated[
    dict[str, Any], '{"properties": {"options": {"type": "object"}, "environment": {"type": ["object", "null"]}}}'
]
ExecCommand = Annotated[
    dict[str, Any],
    '{"required": ["command"], "properties": {"command": {"type": "array", "minItems": 1, "items": {"type": "string", '
    r'"minLength": 1, "pattern": "^[^\\u0000]*$"}}, "timeout": {"type": "number", "minimum": 1, "maximum": 3600}}, '
    '"additionalProperties": false}',
]
Scale = Annotated[
    dict[str, Any],
    '{"required": ["worker"], "properties": {"worker": {"type": "integer", "minimum": 1}}, '
    '"additionalProperties": false}',
]
TaskNames = Annotated[list[Annotated[str, '{"minLength": 1}']], '{"maxItems": 1}']
Variables = Annotated[
    dict[str, Annotated[str, r'{"pattern": "^[^\\u0000]*$"}']],
    '{"propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"}}',
]

_PLAIN = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


class Schemas:
    """Convert types to JSON Schema (2020-12); named types are collected in `named`."""

    def __init__(self) -> None:
        self.named: dict[str, Any] = {}

    def of(self, kind: Any) -> dict[str, Any]:
        """Return the schema of a TypedDict, list, dict, Literal, Enum, union, scalar, Any.

        The metadata of `Annotated` is the text of a JSON Schema.
        """
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
        if origin is Annotated:
            return {**self.of(inner[0]), **json.loads(inner[1])}
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
                "required": sorted(required_names(kind)),
                "additionalProperties": False,
            }
        return {"$ref": f"#/components/schemas/{name}"}


#: Version of the API, not of the program.
VERSION = "1"
_SCHEMES = {
    "token": {"type": "apiKey", "in": "header", "name": TOKEN_HEADER},
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic"},
}
_SECURITY: list[dict[str, list[str]]] = [{"token": []}, {"bearer": []}, {"basic": []}, {}]
_FILE = {"type": "string", "format": "binary", "maxLength": 1024}
_FORM = {"type": "object", "required": ["file"], "properties": {"file": _FILE}}
_UPLOAD: dict[str, Any] = {
    "multipart/form-data": {"schema": _FORM},
    "application/octet-stream": {"schema": {**_FILE, "minLength": 1}},
}
#: Statuses that the DC/OS SDK defines, 316 and 317.
_HEALTH_CODES = {
    316: "Not connected",
    317: "Calls refused",
    318: "Initializing",
    319: "Waiting for the store",
    320: "Backing up",
    321: "Restoring",
}


def openapi_document(table: Iterable[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document."""
    schemas, rows = Schemas(), tuple(table)
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        operation = paths.setdefault(row.path, {})[row.method.lower()] = _operation(row, schemas)
        if row.links:
            operation["responses"]["200"]["links"] = dict(_links(row, rows))
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "TensorFlow on Mesos",
            "version": VERSION,
            "description": "Scheduler of one service: plans, tasks, training. See docs/reference/api.md.",
        },
        # Relative to the document, because the API is also served below /service/NAME/.
        "servers": [{"url": ".."}],
        "paths": paths,
        "components": {"schemas": schemas.named, "securitySchemes": _SCHEMES},
    }


def _operation(row: Endpoint, schemas: Schemas) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": row.summary,
        "operationId": _operation_id(row),
        "tags": [row.path.split("/")[2]],
        "responses": _responses(row, schemas),
    }
    parameters = [_path_parameter(name, row.path_schemas.get(name, {})) for name in re.findall(r"{(\w+)}", row.path)]
    if parameters or row.query:
        operation["parameters"] = [*parameters, *_query_parameters(row.query)]
    if row.body_type is not None:
        content = _UPLOAD if row.body_type is bytes else {"application/json": {"schema": schemas.of(row.body_type)}}
        operation["requestBody"] = {"required": not row.body_optional, "content": content}
    if row.access is not EndpointAccess.OPEN:
        operation["security"] = _SECURITY
    return operation


def _operation_id(row: Endpoint) -> str:
    """Return a unique id, such as `get_v1_plans_plan`."""
    return "_".join([row.method.lower(), *re.findall(r"\w+", row.path)])


def _links(row: Endpoint, rows: Iterable[Endpoint]) -> Iterator[tuple[str, Any]]:
    """Yield the operations that take a value of the row's answer as a path parameter."""
    for path, values in row.links.items():
        parameters = {name: f"$response.body#{pointer}" for name, pointer in values.items()}
        for other in rows:
            if other.path == path or other.path.startswith(f"{path}/"):
                yield _operation_id(other), {"operationId": _operation_id(other), "parameters": parameters}


def _path_parameter(name: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1, **schema}}


def _query_parameters(items: Sequence[QueryParameter]) -> Iterator[dict[str, Any]]:
    """Describe the parameters.

    If a parameter requires another, both become properties of one object: OpenAPI 3.1 has no other form for this.
    """
    pairs = {item.name: [item.requires] for item in items if item.requires}
    joined = {*pairs, *(name for names in pairs.values() for name in names)}
    yield from (_query_parameter(item) for item in items if item.name not in joined)
    if pairs:
        chosen = [item for item in items if item.name in joined]
        properties = {item.name: {**_query_schema(item), "description": item.description} for item in chosen}
        schema = {"type": "object", "properties": properties, "dependentRequired": pairs}
        yield {"name": "_".join(properties), "in": "query", "style": "form", "explode": True, "schema": schema}


def _query_parameter(item: QueryParameter) -> dict[str, Any]:
    schema = _query_schema(item)
    return {"name": item.name, "in": "query", "required": False, "description": item.description, "schema": schema}


def _query_schema(item: QueryParameter) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": _PLAIN[item.kind]}
    if item.kind is int:
        schema |= {"minimum": item.minimum, "maximum": item.maximum}
    else:
        lengths = {"minLength": item.minimum, "maxLength": item.maximum}
        schema |= {name: length for name, length in lengths.items() if length not in (0, NO_MAXIMUM)}
    if item.pattern:
        schema["pattern"] = item.pattern
    if item.default is not None:
        schema["default"] = item.default
    return schema


def _responses(row: Endpoint, schemas: Schemas) -> dict[str, Any]:
    errors: list[int] = [HTTPStatus.REQUEST_ENTITY_TOO_LARGE]
    if row.access is not EndpointAccess.OPEN:
        errors += HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN
    if row.path != HEALTH_PATH:
        errors += TOO_MANY_REQUESTS, UNAVAILABLE
    if row.query or row.body_type is not None:
        errors.append(HTTPStatus.BAD_REQUEST)
    bodies = {**dict.fromkeys(errors, str), **row.responses}
    return {str(code): _response(row, code, kind, schemas) for code, kind in sorted(bodies.items())}


def _response(row: Endpoint, code: int, kind: Any, schemas: Schemas) -> dict[str, Any]:
    description = _HEALTH_CODES.get(code) or HTTPStatus(code).phrase
    if kind is None:
        return {"description": description}
    is_error = code >= HTTPStatus.BAD_REQUEST and kind in (str, ErrorBody)
    is_problem = is_error or code == HTTPStatus.ALREADY_REPORTED
    content: dict[str, Any] = {}
    if kind is str and (row.text_errors or not is_problem):
        content["text/plain"] = {"schema": {"type": "string"}}
    if kind is not str or is_problem:
        body = ErrorBody if is_error else MessageBody if is_problem and kind is str else kind
        content["application/json"] = {"schema": schemas.of(body)}
    if row.events and code == HTTPStatus.OK:
        content["text/event-stream"] = {"schema": _event(row, schemas)}
    return {"description": description, "content": content}


def _event(row: Endpoint, schemas: Schemas) -> dict[str, Any]:
    """Return the schema of one event of a stream, as OpenAPI 3.1 tools expect it."""
    kinds = [
        {
            "type": "object",
            "required": ["event", "data"],
            "properties": {
                "event": {"type": "string", "const": name},
                "id": {"type": "string"},
                "data": {
                    "type": "string",
                    "contentMediaType": "application/json",
                    "contentSchema": schemas.of(kind),
                },
            },
        }
        for name, kind in row.events.items()
    ]
    return {"description": "One server-sent event; the data are JSON.", "anyOf": kinds}
