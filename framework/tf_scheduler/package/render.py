"""Render the Marathon app of a package as Cosmos does (PackageDefinitionRenderer).

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
from collections.abc import Mapping
from typing import Any

from tf_scheduler.errors import CosmosError, OptionsMismatchError
from tf_scheduler.options.load import merge

from . import mustache
from .options_check import Json, defaults, mismatches

_DEFINITION_TYPE = "application/vnd.dcos.universe.package+json;charset=utf-8;version=v4"


def render_app(
    package: Mapping[str, Json], options: Mapping[str, Json] | None = None, source: str = "", app_id: str | None = None
) -> dict[str, Json]:
    """Render the Marathon app of a package (one object of a repository document).

    `source`: URI of its repository. Raises OptionsMismatchError for invalid options, CosmosError otherwise.
    """
    resource = {"resource": package["resource"]} if "resource" in package else {}
    app = _parsed(mustache.render(template_of(package), {**resolve_options(package, options), **resource}))
    labels = {**_labels_of(app), **package_labels(package, options or {}, source)}
    identity = {} if app_id is None else {"id": "/" + app_id.strip("/")}
    return {**app, **identity, "labels": labels}


def resolve_options(package: Mapping[str, Json], options: Mapping[str, Json] | None) -> dict[str, Json]:
    """Add the defaults. Raises OptionsMismatchError, or CosmosError without schema."""
    schema = package.get("config")
    merged = merge(defaults(schema or {}), options or {})
    if merged and schema is None:
        raise CosmosError("OptionsNotAllowed", "No schema available to validate the provided options")
    if merged and schema is not None and (problems := mismatches(merged, schema)):
        raise OptionsMismatchError(problems)
    return merged


def template_of(package: Mapping[str, Json]) -> str:
    """Return marathon.json.mustache. Raises CosmosError for a package without one."""
    try:
        encoded = package["marathon"]["v2AppMustacheTemplate"]
    except KeyError:
        about = {"packageName": package["name"], "packageVersion": package["version"]}
        name = f"Package: [{package['name']}] version: [{package['version']}]"
        message = f"{name} does not have a Marathon template defined and can not be rendered"
        raise CosmosError("ServiceMarathonTemplateNotFound", message, about) from None
    return base64.b64decode(encoded).decode()


def package_labels(package: Mapping[str, Json], options: Mapping[str, Json], source: str) -> dict[str, str]:
    """Return the labels by which Cosmos recognizes an app's package and options."""
    return {
        "DCOS_PACKAGE_NAME": package["name"],
        "DCOS_PACKAGE_VERSION": package["version"],
        "DCOS_PACKAGE_SOURCE": source,
        "DCOS_PACKAGE_OPTIONS": _encoded(options),
        "DCOS_PACKAGE_DEFINITION": _encoded(_envelope(package)),
    }


def _envelope(package: Mapping[str, Json]) -> dict[str, Json]:
    data = gzip.compress(_without_nulls(package).encode(), mtime=0)
    metadata = {"Content-Type": _DEFINITION_TYPE, "Content-Encoding": "gzip"}
    return {"metadata": metadata, "data": base64.b64encode(data).decode()}


def _encoded(value: Json) -> str:
    return base64.b64encode(_without_nulls(value).encode()).decode()


def _without_nulls(value: Json) -> str:
    """Compact JSON without null members, like Cosmos' printer."""
    return json.dumps(_dropped(value), separators=(",", ":"), ensure_ascii=False)


def _dropped(value: Json) -> Json:
    if isinstance(value, Mapping):
        return {name: _dropped(item) for name, item in value.items() if item is not None}
    return [_dropped(item) for item in value] if isinstance(value, list) else value


def _parsed(text: str) -> dict[str, Json]:
    try:
        app = json.loads(text)
    except json.JSONDecodeError as error:
        why = f"{error.msg} at line {error.lineno} column {error.colno}"
        facts = {"underlyingType": "io.circe.Json", "parsingErrorMessage": why, "parsingInput": text}
        raise CosmosError("JsonParsingError", "Unable to parse the string as a JSON value", facts) from error
    if not isinstance(app, dict):
        raise CosmosError("MarathonTemplateMustBeJsonObject", "Rendered Marathon JSON must be a JSON object")
    return app


def _labels_of(app: Mapping[str, Any]) -> dict[str, str]:
    labels = app.get("labels", {})
    if not isinstance(labels, dict) or not all(isinstance(text, str) for text in labels.values()):
        kind = "scala.collection.immutable.Map"
        facts = {"typeName": kind, "decodingErrorMessage": "labels must be texts", "decodeInput": json.dumps(app)}
        raise CosmosError("JsonDecodingError", f"Unable to decode the JSON value as a {kind}", facts)
    return labels
