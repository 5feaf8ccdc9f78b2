"""The shapes of package.json, resource.json and a repository's package, as JSON Schema (draft 4).

Facts: mesosphere/universe, repo/meta/schema; the tests compare what these accept with what those do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Shape = Mapping[str, Any]

_TEXT: Shape = {"type": "string"}
_URL: Shape = {"type": "string", "pattern": "^https?://"}
_FLAG: Shape = {"type": "boolean"}
_TEXTS: Shape = {"type": "array", "items": _TEXT}


def _object(required: Mapping[str, Shape] | None = None, **optional: Shape) -> dict[str, Any]:
    """An object with these members and no other."""
    wanted = {"required": sorted(required)} if required else {}
    return {"type": "object", "properties": {**(required or {}), **optional}, "additionalProperties": False, **wanted}


def _texts_by_name() -> Shape:
    return {"type": "object", "additionalProperties": _TEXT}


_REQUIRED: Mapping[str, Shape] = {
    "packagingVersion": {"enum": ["4.0"]},
    "name": {"type": "string", "pattern": "^[a-z][a-z0-9-]*[a-z0-9]$"},
    "version": {"type": "string", "pattern": "^[-a-zA-Z0-9.]+$"},
    "maintainer": _TEXT,
    "description": _TEXT,
    "tags": {"type": "array", "items": {"type": "string", "pattern": r"^[^\s]+$"}},
}
_OPTIONAL: Mapping[str, Shape] = {
    "scm": _TEXT,
    "website": _TEXT,
    "framework": _FLAG,
    "selected": _FLAG,
    "preInstallNotes": _TEXT,
    "postInstallNotes": _TEXT,
    "postUninstallNotes": _TEXT,
    "licenses": {"type": "array", "items": _object({"name": _TEXT, "url": _URL})},
    "minDcosReleaseVersion": {"type": "string", "pattern": r"^(0|[1-9][0-9]*)(\.(0|[1-9][0-9]*))*$"},
    "hasKnownIssues": _FLAG,
    "lastUpdated": {"type": "integer"},
    "upgradesFrom": _TEXTS,
    "downgradesTo": _TEXTS,
}


def _resource(url: Shape) -> dict[str, Any]:
    digest = _object({"algo": {"enum": ["sha256"]}, "value": _TEXT})
    digests = {"type": "array", "minItems": 1, "items": digest}
    binary = _object({"url": url, "kind": {"enum": ["executable", "zip"]}, "contentHash": digests})
    platform = _object({"x86-64": binary})
    platforms = {**_object(linux=platform, darwin=platform, windows=platform), "minProperties": 1}
    icons: dict[str, Shape] = {f"icon-{size}": _TEXT for size in ("small", "medium", "large")}
    return _object(
        assets=_object(uris=_texts_by_name(), container=_object(docker=_texts_by_name())),
        images=_object(**icons, screenshots=_TEXTS),
        cli=_object({"binaries": platforms}),
    )


#: package.json, packaging version 4.0.
PACKAGE: Shape = _object(_REQUIRED, **_OPTIONAL)
#: resource.json as it lies in package/: its addresses are filled in by the build.
RESOURCE: Shape = _resource(_TEXT)
#: One package of a repository document, all its files in one object.
ENTRY: Shape = _object(
    {**_REQUIRED, "releaseVersion": {"type": "integer", "minimum": 0}},
    **_OPTIONAL,
    config={},
    resource=_resource(_URL),
    marathon=_object({"v2AppMustacheTemplate": {"type": "string", "pattern": "^[A-Za-z0-9+/]+={0,2}$"}}),
)
