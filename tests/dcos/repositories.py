"""Package repositories, as edited by `dcos package repo`, and their packages.

FOLDER/repositories.json keeps the list. A repository is fetched again for each request, because it may have changed.
"""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from kit.cosmos import CosmosError
from tf_scheduler.package.sources import VERSIONS, content_type

Json = Any

_TIMEOUT = 20.0  # seconds
_ACCEPT = ",".join(content_type(version) for version in VERSIONS)


@dataclass(frozen=True, slots=True)
class Repository:
    name: str
    uri: str


class Repositories:
    """The list of repositories; `first`: its initial content. Thread-safe."""

    def __init__(self, folder: Path, first: Sequence[Repository]) -> None:
        self._file = folder / "repositories.json"
        self._first = tuple(first)
        self._lock = threading.Lock()

    def listed(self) -> list[Repository]:
        """The repositories in their order of precedence."""
        try:
            return [Repository(**entry) for entry in json.loads(self._file.read_text())]
        except FileNotFoundError:
            return list(self._first)

    def add(self, name: str, uri: str, index: int | None = None) -> list[Repository]:
        """Add a repository at `index` (default: last). Raises CosmosError on any failure."""
        if urlsplit(uri).scheme not in ("http", "https"):
            message = f"Repository URI [{uri}] uses an unsupported scheme. Only http and https are supported"
            raise CosmosError("UnsupportedRepositoryUri", message, {"uri": uri})
        with self._lock:
            listed = self.listed()
            _refuse_known(listed, name, uri)
            place = len(listed) if index is None else index
            if not 0 <= place <= len(listed):
                message = f"Index ({place}) is out of range. Index value must be between 0 and {len(listed)} inclusive."
                raise CosmosError("RepositoryAddIndexOutOfBounds", message, {"attempted": place, "max": len(listed)})
            fetch(Repository(name, uri))
            return self._write([*listed[:place], Repository(name, uri), *listed[place:]])

    def delete(self, name: str | None, uri: str | None) -> list[Repository]:
        """Delete a repository by name or URI. Raises CosmosError if it does not exist."""
        if name is None and uri is None:
            message = "Must specify either the name or URI of the repository"
            raise CosmosError("RepoNameOrUriMissing", message)
        with self._lock:
            listed = self.listed()
            left = [found for found in listed if name not in (None, found.name) or uri not in (None, found.uri)]
            if len(left) == len(listed):
                what = f"name [{name}]" if name is not None else f"URI [{uri}]"
                message = f"Repository {what} is not present in the list"
                raise CosmosError("RepositoryNotPresent", message, {"nameOrUri": name or uri})
            return self._write(left)

    def _write(self, listed: list[Repository]) -> list[Repository]:
        draft = self._file.with_suffix(".new")
        draft.write_text(json.dumps([asdict(repository) for repository in listed], indent=1))
        draft.replace(self._file)
        return listed

    def packages(self, name: str | None = None) -> list[tuple[dict[str, Json], Repository]]:
        """All packages, or those of one name; ordered by repository, then newest first."""
        return [found for repository in self.listed() for found in _of(repository, name)]

    def package(self, name: str, version: str | None = None) -> tuple[dict[str, Json], Repository]:
        """The preferred package. Raise CosmosError PackageNotFound or VersionNotFound."""
        found = self.packages(name)
        if not found:
            raise CosmosError("PackageNotFound", f"Package [{name}] not found", {"packageName": name})
        for package, repository in found:
            if version in (None, package["version"]):
                return package, repository
        message = f"Version [{version}] of package [{name}] not found"
        raise CosmosError("VersionNotFound", message, {"packageName": name, "packageVersion": version})


def fetch(repository: Repository) -> list[dict[str, Json]]:
    """Fetch a repository's packages. Raises CosmosError if unavailable or empty."""
    headers = {"Accept": _ACCEPT, "User-Agent": "cosmos/0.6 dcos/2.2"}
    request = urllib.request.Request(repository.uri, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=_TIMEOUT) as answer:
            packages: list[dict[str, Json]] = json.load(answer)["packages"]
            return packages
    except (OSError, ValueError, KeyError, TypeError) as error:
        message = f"Could not access data at URI for repository [{repository.name}]: {repository.uri}"
        about = {"repository": asdict(repository), "cause": str(error)}
        raise CosmosError("RepositoryUriConnection", message, about) from error


def _of(repository: Repository, name: str | None) -> Iterator[tuple[dict[str, Json], Repository]]:
    packages = [package for package in fetch(repository) if name in (None, package["name"])]
    for package in sorted(packages, key=lambda found: -int(found["releaseVersion"])):
        yield package, repository


def _refuse_known(listed: Sequence[Repository], name: str, uri: str) -> None:
    for found in listed:
        what = f"name [{name}]" if found.name == name else f"URI [{uri}]" if found.uri == uri else ""
        if what:
            message = f"Repository {what} is already present in the list"
            raise CosmosError("RepositoryAlreadyPresent", message, {"nameOrUri": name or uri})


def metadata(package: Mapping[str, Json]) -> dict[str, Json]:
    """A package without its files, for lists."""
    left_out = ("config", "marathon", "resource", "command", "releaseVersion")
    return {name: value for name, value in package.items() if name not in left_out}
