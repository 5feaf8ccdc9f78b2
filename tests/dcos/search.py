"""`dcos package search` (dcos/cosmos, PackageSearchHandler and PackageCollection)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Json = Any


def matching(packages: Iterable[Mapping[str, Json]], query: str) -> list[dict[str, Json]]:
    """Search name, description and tags of packages; selected packages come first.

    `packages`: the preferred version of each first.
    """
    matches = _matcher(query)
    found: dict[str, dict[str, Json]] = {}
    for package in packages:
        if any(map(matches, (package["name"], package["description"], *package["tags"]))):
            entry = found.setdefault(package["name"], _entry(package))
            entry["versions"][package["version"]] = package["releaseVersion"]
    return sorted(found.values(), key=lambda entry: (not entry["selected"], entry["name"]))


def _entry(package: Mapping[str, Json]) -> dict[str, Json]:
    return {
        "name": package["name"],
        "currentVersion": package["version"],
        "versions": {},
        "description": package["description"],
        "framework": package.get("framework", False),
        "tags": package["tags"],
        "selected": package.get("selected", False),
        "images": package.get("resource", {}).get("images", {}),
    }


def _matcher(query: str) -> Callable[[str], bool]:
    """Match a pattern with `*`, or a part of the text; case-insensitive."""
    if "*" in query:
        pattern = re.compile(".*".join(map(re.escape, query.split("*"))), re.IGNORECASE | re.DOTALL)
        return lambda text: pattern.fullmatch(text) is not None
    return lambda text: query.lower() in text.lower()
