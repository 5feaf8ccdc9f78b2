"""libmesos on this machine: downloaded from the package index once, verified, relinked and kept in the user's cache."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
import tempfile
import zipfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import MesosLocalError
from .lock import locked
from .package_index import HONOURED, indexes, without_credentials
from .pinned import EGG, EGG_SHA256, LIBRARY, LIBRARY_SHA256, MEMBER, PROJECT, VERSION
from .telling import telling

if TYPE_CHECKING:
    from pypi_simple import DistributionPackage, PyPISimple

UNSUPPORTED = (
    "A local Mesos runs on Linux x86-64 only, and this is {system} {machine}: use a Linux x86-64 container or machine, "
    "or point the scheduler at the master of an existing Mesos instead."
)


def check_platform(system: str | None = None, machine: str | None = None) -> None:
    """Raises MesosLocalError where no build of libmesos exists. Defaults: the machine that we are on."""
    system, machine = system or platform.system(), machine or platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise MesosLocalError(UNSUPPORTED.format(system=system, machine=machine))


def default_cache() -> Path:
    """`$XDG_CACHE_HOME/dcos-tensorflow`, by default `~/.cache/dcos-tensorflow`. A relative value is ignored."""
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    if given.is_absolute():
        return given / "dcos-tensorflow"
    try:
        return Path.home() / ".cache" / "dcos-tensorflow"
    except RuntimeError as error:
        raise MesosLocalError("There is no home folder for the cache of libmesos: set XDG_CACHE_HOME.") from error


def ensure_library(cache: Path | None = None, index: str | None = None) -> Path:
    """Path of the relinked libmesos (123 MB), fetched first if the cache lacks it or holds a damaged copy.

    `index` is a package index's simple endpoint; default: those that pip uses, see package_index.py. Any number of
    processes may call this at once: one downloads, the others wait for it. A copy of the egg that a person has put
    into the cache folder is used in place of a download. Raises MesosLocalError on any failure.
    """
    check_platform()
    folder = cache or default_cache()
    library = folder / LIBRARY
    with telling("The cache folder", folder):
        if not _has_digest(library, LIBRARY_SHA256):  # asked without the lock: the cache may be read-only
            folder.mkdir(parents=True, exist_ok=True)
            with locked(folder / "lock"):
                if not _has_digest(library, LIBRARY_SHA256):
                    _build(library, index)
    return library


def _build(library: Path, index: str | None) -> None:
    from .relink import relink

    given = library.parent / EGG
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        egg = given if _has_digest(given, EGG_SHA256) else _download(Path(scratch) / EGG, index, given.parent)
        with zipfile.ZipFile(egg) as archive:
            content = relink(archive.read(MEMBER))
        temporary = Path(scratch) / LIBRARY
        temporary.write_bytes(content)
        temporary.chmod(0o644)  # tasks may run as another user
        temporary.replace(library)


def _download(path: Path, index: str | None, folder: Path) -> Path:
    """From the first index that has it; otherwise an error that says of each why not."""
    from pypi_simple import PYPI_SIMPLE_ENDPOINT

    reasons = []
    for endpoint in [index] if index else indexes(PYPI_SIMPLE_ENDPOINT):
        reason = _download_from(endpoint, path)
        if not reason:
            return path
        reasons.append(without_credentials(f"{endpoint}: {reason}", endpoint))
    raise MesosLocalError(
        f"Mesos {VERSION} cannot be downloaded from {'; '.join(reasons)}. It is needed once. Without a network, "
        f"put the file {EGG} of project {PROJECT} into {folder}.\n{HONOURED}"
    )


def _download_from(endpoint: str, path: Path) -> str:
    """Why not; empty if it is there."""
    import requests
    from pypi_simple import DigestMismatchError, NoSuchProjectError, PyPISimple, UnsupportedContentTypeError

    try:
        with PyPISimple(endpoint) as client:
            package = _find_package(client)
            if package is None:
                return f"it does not have {EGG} with the digest that this program knows"
            _transfer(client, package, path)
    except DigestMismatchError as error:
        return f"what it sent as {EGG} is damaged: {error}"
    except (requests.RequestException, NoSuchProjectError, UnsupportedContentTypeError, ValueError) as error:
        return str(error)
    return "" if _has_digest(path, EGG_SHA256) else f"what it sent as {EGG} is damaged"


def _find_package(client: PyPISimple) -> DistributionPackage | None:
    for package in client.get_project_page(PROJECT, timeout=30).packages:
        if package.filename == EGG and package.digests.get("sha256") == EGG_SHA256:
            return package
    return None


def _transfer(client: PyPISimple, package: DistributionPackage, path: Path) -> None:
    from .progress import download_bar

    with download_bar(f"libmesos {VERSION}", package.size, sys.stderr) as bar:
        client.download_package(package, path=path, verify=True, progress=bar.expect, timeout=30)


def _has_digest(path: Path, sha256: str) -> bool:
    with suppress(FileNotFoundError), path.open("rb") as content:
        digest = hashlib.sha256()
        while block := content.read(1 << 20):
            digest.update(block)
        return digest.hexdigest() == sha256
    return False
