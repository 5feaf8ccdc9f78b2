"""Validate options against config.json with Cosmos' messages; return its defaults.

Cosmos validates with the fge json-schema-validator, draft 4. Its messages carry facts (`found`, `expected`, `unwanted`)
that the dcos command prints.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jsonschema import ValidationError

Json = Any
Facts = tuple[str, dict[str, Any]]

_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}


def _is_integer(_checker: object, value: object) -> bool:
    """Accept 1.0: Cosmos turns whole numbers into integers before it validates."""
    return (isinstance(value, int) and not isinstance(value, bool)) or (isinstance(value, float) and value.is_integer())


@cache
def _validator() -> Any:
    from jsonschema import Draft4Validator  # slow to import, and most commands never validate
    from jsonschema.validators import extend

    checker = Draft4Validator.TYPE_CHECKER.redefine("integer", _is_integer)
    return extend(Draft4Validator, type_checker=checker)  # type: ignore[no-untyped-call]


def defaults(schema: Mapping[str, Json]) -> dict[str, Json]:
    """The defaults of a schema's properties; an object's own default wins."""
    values = {}
    for name, option in (schema.get("properties") or {}).items():
        if "default" in option:
            values[name] = option["default"]
        elif inner := defaults(option):
            values[name] = inner
    return values


def mismatches(options: Mapping[str, Json], schema: Mapping[str, Json]) -> list[dict[str, Any]]:
    """List all problems of the options in the order of the schema."""
    entries: dict[tuple[str, str], dict[str, Any]] = {}
    for error in _validator()(schema).iter_errors(options):
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


def option_paths(schema: Mapping[str, Json], prefix: str = "") -> Iterator[tuple[str, Mapping[str, Json]]]:
    """Dotted path and schema of every option, depth first, without parent objects."""
    for name, option in schema.get("properties", {}).items():
        if option.get("properties"):
            yield from option_paths(option, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", option
