"""Cosmos: render the app of a package, and refuse wrong options.

Facts: dcos/cosmos, PackageDefinitionRenderer, and the fge json-schema-validator (draft 4), whose messages carry facts
(`found`, `expected`, `unwanted`) that the dcos command prints.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jsonschema import Draft4Validator, Draft6Validator, ValidationError
from jsonschema.validators import extend

from kit import mustache
from tf_scheduler.errors import SchedulerError
from tf_scheduler.options.load import merge
from tf_scheduler.package.render import defaults, package_labels

Json = Any
Facts = tuple[str, dict[str, Any]]

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
#: Accepts 1.0 as an integer: Cosmos turns whole numbers into integers before it validates.
_Validator = extend(Draft4Validator, type_checker=Draft6Validator.TYPE_CHECKER)  # type: ignore[no-untyped-call]


class CosmosError(SchedulerError):
    """Cosmos refuses a request; `kind` and `data` come from its error document."""

    def __init__(self, kind: str, message: str, data: Mapping[str, Any] | None = None, http_status: int = 400) -> None:
        super().__init__(message)
        self.kind, self.message, self.data, self.http_status = kind, message, data, http_status

    def document(self) -> dict[str, Any]:
        """Return the body of Cosmos' answer."""
        return {"type": self.kind, "message": self.message, **({"data": self.data} if self.data else {})}


class OptionsMismatchError(CosmosError):
    """Options with defaults violate config.json; `mismatches` are in Cosmos' format."""

    def __init__(self, mismatches: Sequence[Mapping[str, Any]]) -> None:
        super().__init__("JsonSchemaMismatch", "Options JSON failed validation", {"errors": list(mismatches)})
        self.mismatches = tuple(mismatches)


def render_app(
    package: Mapping[str, Json], options: Mapping[str, Json] | None = None, source: str = "", app_id: str | None = None
) -> dict[str, Json]:
    """Render the Marathon app of a package (one object of a repository document).

    `source`: URI of its repository. Raises OptionsMismatchError for invalid options.
    """
    template = base64.b64decode(package["marathon"]["v2AppMustacheTemplate"]).decode()
    context = {**resolve_options(package, options), "resource": package["resource"]}
    app = json.loads(mustache.render(template, context))
    identity = {} if app_id is None else {"id": "/" + app_id.strip("/")}
    return {**app, **identity, "labels": {**app["labels"], **package_labels(package, options or {}, source)}}


def resolve_options(package: Mapping[str, Json], options: Mapping[str, Json] | None) -> dict[str, Json]:
    """Add the defaults. Raises OptionsMismatchError."""
    merged = merge(defaults(package["config"]), options or {})
    if problems := mismatches(merged, package["config"]):
        raise OptionsMismatchError(problems)
    return merged


def mismatches(options: Mapping[str, Json], schema: Mapping[str, Json]) -> list[dict[str, Any]]:
    """List all problems of the options in the order of the schema."""
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for error in _Validator(schema).iter_errors(options):
        entry = _entry(error)
        # One entry for all missing properties of an object, as in fge.
        entries.setdefault((entry["schema"]["pointer"] + entry["keyword"], entry["instance"]["pointer"]), entry)
    return list(entries.values())


def _entry(error: ValidationError) -> dict[str, Any]:
    keyword = str(error.validator)
    message, facts = _FACTS[keyword](error) if keyword in _FACTS else (error.message, {})
    return {
        "level": "error",
        "schema": {"loadingURI": "#", "pointer": _pointer(list(error.absolute_schema_path)[:-1])},
        "instance": {"pointer": _pointer(error.absolute_path)},
        "domain": "validation",
        "keyword": keyword,
        "message": message,
        **facts,
    }


def _pointer(parts: Any) -> str:
    """Return the JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in parts)


def _compact(value: Json) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def _type(error: ValidationError) -> Facts:
    wanted: Any = error.validator_value
    allowed = sorted({*([wanted] if isinstance(wanted, str) else wanted), *(["integer"] if "number" in wanted else [])})
    found = "null" if error.instance is None else _TYPES[type(error.instance)]
    message = f"instance type ({found}) does not match any allowed primitive type (allowed: {_compact(allowed)})"
    return message, {"found": found, "expected": allowed}


def _required(error: ValidationError) -> Facts:
    wanted: Any = error.validator_value
    present: Any = error.instance
    required = sorted(wanted)
    missing = [name for name in required if name not in present]
    return f"object has missing required properties ({_compact(missing)})", {"required": required, "missing": missing}


def _additional(error: ValidationError) -> Facts:
    schema: Any = error.schema
    instance: Any = error.instance
    unwanted = sorted(set(instance) - set(schema.get("properties", {})))
    message = f"object instance has properties which are not allowed by the schema: {_compact(unwanted)}"
    return message, {"unwanted": unwanted}


def _bound(error: ValidationError) -> Facts:
    name, limit, value = str(error.validator), error.validator_value, error.instance
    relation = "lower" if name == "minimum" else "greater"
    values = f"{name}: {_compact(limit)}, found: {_compact(value)}"
    return f"numeric instance is {relation} than the required {name} ({values})", {name: limit, "found": value}


def _enum(error: ValidationError) -> Facts:
    allowed = error.validator_value
    message = f"instance value ({_compact(error.instance)}) not found in enum (possible values: {_compact(allowed)})"
    return message, {"value": error.instance, "enum": allowed}


def _pattern(error: ValidationError) -> Facts:
    regex, text = error.validator_value, error.instance
    message = f"ECMA 262 regex {_compact(regex)} does not match input string {_compact(text)}"
    return message, {"regex": regex, "string": text}


_FACTS: Mapping[str, Callable[[ValidationError], Facts]] = {
    "type": _type,
    "required": _required,
    "additionalProperties": _additional,
    "minimum": _bound,
    "maximum": _bound,
    "enum": _enum,
    "pattern": _pattern,
}
