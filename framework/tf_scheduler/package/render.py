"""Render the Marathon app of a package, as Cosmos does on DC/OS.

defaults of config.json <- options           objects merged, the rest replaced
validated against config.json
<- {"resource": resource.json}               wins over an option of that name
template -> text -> JSON object
id := the requested app id                   if one is given
labels <- DCOS_PACKAGE_*                     win over the template's
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from tf_scheduler.errors import OptionsError, PackageError, Problem
from tf_scheduler.options.load import merge, parse

from . import template
from .sources import TEMPLATE, PackageSources, repository_entry

if TYPE_CHECKING:
    from jsonschema import ValidationError

Json = Any

_DEFINITION_TYPE = "application/vnd.dcos.universe.package+json;charset=utf-8;version=v4"


def render_app(
    sources: PackageSources,
    options: Mapping[str, Json] = MappingProxyType({}),
    source: str = "",
    app_id: str | None = None,
) -> dict[str, Json]:
    """Render the Marathon app of a package whose addresses and digests are filled in.

    `source`: URI of the package's repository. Raises OptionsError for invalid options, and PackageError if the template
    does not render to a JSON object.
    """
    resolved = merge(defaults(sources.config), options)
    if problems := mismatches(resolved, sources.config):
        raise OptionsError(problems)
    text = template.render(template.parse(sources.template), ({**resolved, "resource": sources.resource},))
    try:
        app = parse(text.encode(), "the app")
    except OptionsError as error:
        raise PackageError(f"{TEMPLATE}: {error}") from error
    identity = {} if app_id is None else {"id": "/" + app_id.strip("/")}
    labels = package_labels(repository_entry(sources), options, source)
    return {**app, **identity, "labels": {**app.get("labels", {}), **labels}}


def defaults(schema: Mapping[str, Json]) -> dict[str, Json]:
    """Return the defaults of a schema's properties; prefer an object's own default."""
    values = {}
    for name, option in (schema.get("properties") or {}).items():
        if "default" in option:
            values[name] = option["default"]
        elif inner := defaults(option):
            values[name] = inner
    return values


def mismatches(document: Mapping[str, Json], schema: Mapping[str, Json]) -> list[Problem]:
    """List all problems of a document, with dotted paths, in the order of the schema."""
    errors = schema_errors(document, schema)
    return [Problem(".".join(map(str, error.absolute_path)), error.message) for error in errors]


def schema_errors(document: Mapping[str, Json], schema: Mapping[str, Json]) -> Iterator[ValidationError]:
    """Validate by JSON Schema, draft 4, but accept 1.0 as an integer, as Cosmos does."""
    from jsonschema import Draft4Validator, Draft6Validator  # slow to import, and most commands never validate
    from jsonschema.validators import extend

    validator = extend(Draft4Validator, type_checker=Draft6Validator.TYPE_CHECKER)  # type: ignore[no-untyped-call]
    yield from validator(schema).iter_errors(document)


def package_labels(package: Mapping[str, Json], options: Mapping[str, Json], source: str) -> dict[str, str]:
    """Return the labels by which Cosmos recognizes an app's package and options.

    `package`: the package's object in a repository document.
    """
    definition = gzip.compress(_without_nulls(package).encode(), mtime=0)
    metadata = {"Content-Type": _DEFINITION_TYPE, "Content-Encoding": "gzip"}
    envelope = {"metadata": metadata, "data": base64.b64encode(definition).decode()}
    return {
        "DCOS_PACKAGE_NAME": package["name"],
        "DCOS_PACKAGE_VERSION": package["version"],
        "DCOS_PACKAGE_SOURCE": source,
        "DCOS_PACKAGE_OPTIONS": _encoded(options),
        "DCOS_PACKAGE_DEFINITION": _encoded(envelope),
    }


def _encoded(value: Json) -> str:
    return base64.b64encode(_without_nulls(value).encode()).decode()


def _without_nulls(value: Json) -> str:
    """Return compact JSON without null members, as Cosmos prints it."""
    return json.dumps(_dropped(value), separators=(",", ":"), ensure_ascii=False)


def _dropped(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {name: _dropped(item) for name, item in value.items() if item is not None}
    return [_dropped(item) for item in value] if isinstance(value, list) else value
