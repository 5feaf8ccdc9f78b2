"""Repository documents: what Cosmos fetches from `dcos package repo add`.

One object per package, with its four files in it. The media type's version says which packaging versions are
understood: v3 (DC/OS up to 1.9) 2.0 and 3.0, v4 (up to 1.11) 4.0 as well, v5 (from 1.12) 5.0 as well.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

from .sources import Sources

VERSIONS = ("v3", "v4", "v5")


def content_type(version: str) -> str:
    """The media type of a repository document."""
    return f"application/vnd.dcos.universe.repo+json;charset=utf-8;version={version}"


def entry(sources: Sources, release: int) -> dict[str, Any]:
    """The package as one object, packaging version 4.0; `release` counts the versions of the package from 0."""
    template = base64.b64encode(sources.template.encode()).decode()
    return {
        **sources.package,
        "releaseVersion": release,
        "config": sources.config,
        "resource": sources.resource,
        "marathon": {"v2AppMustacheTemplate": template},
    }


def document(packages: list[dict[str, Any]], version: str) -> dict[str, Any]:
    """A repository document of one of VERSIONS."""
    return {"packages": [_older(package) if version == "v3" else package for package in packages]}


def _older(package: Mapping[str, Any]) -> dict[str, Any]:
    """Packaging version 3.0 knows no lists of upgrades; nothing else of ours is new in 4.0."""
    kept = {name: value for name, value in package.items() if name not in ("upgradesFrom", "downgradesTo")}
    return {**kept, "packagingVersion": "3.0"}
