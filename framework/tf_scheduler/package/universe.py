"""package/ -> universe/: what a Universe repository holds of us, and the documents that a cluster can add as one.

    DIR/repo/packages/T/tensorflow/0/   the four files, addresses and digests filled in
    DIR/universe-v3.json ...            repository documents, see repository.py
    DIR/artefacts/                      what they point to, with SHA256SUMS; only where artefacts are built

Placeholders of resource.json: `{{artefacts-url}}`, and `{{sha256:FILE}}` for an artefact's digest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tf_scheduler.errors import PackageError, Problem
from tf_scheduler.zipapp_builder import write

from . import sources as package_sources
from .artefacts import COMMAND, Artefact, build_artefacts, command_bytes, sha256
from .sources import CONFIG, PACKAGE, RESOURCE, TEMPLATE, PackageSources

#: Where the artefacts of a published package lie, unless --artefacts-url says otherwise: nowhere (RFC 2606).
PLACEHOLDER_URL = "https://example.com/dcos-tensorflow"
#: The first and only version of the package so far.
RELEASE = 0
ARTEFACTS, SUMS = "artefacts", "SHA256SUMS"
_DIGEST = re.compile(r"\{\{sha256:([^{}]+)\}\}")


def check_and_fill(sources: PackageSources, url: str = PLACEHOLDER_URL) -> PackageSources:
    """The sources with addresses and digests in resource.json. Raise PackageError when the package breaks a rule."""
    from .validate import validate  # a run of a package that is known to be right does not load it

    _refuse(validate(sources))
    return fill_placeholders(sources, url)


def fill_placeholders(sources: PackageSources, url: str) -> PackageSources:
    """The same of sources that are known to keep the rules: to look takes longer than all else."""
    home = f"{url.rstrip('/')}/{sources.package['version']}"
    text = json.dumps(sources.resource).replace("{{artefacts-url}}", home)
    resource = json.loads(_DIGEST.sub(_digest, text))
    return PackageSources(sources.package, sources.config, resource, sources.template)


def _digest(placeholder: re.Match[str]) -> str:
    """The digest of the sub-command: its sources and click 8.1.8 give the same bytes everywhere."""
    if placeholder[1] != COMMAND:
        raise PackageError(f"{RESOURCE}: {placeholder[0]} is unknown; there is {{{{sha256:{COMMAND}}}}}")
    return sha256(command_bytes())


def packages(sources: PackageSources) -> list[dict[str, Any]]:
    """What a repository document lists, from filled sources."""
    return [package_sources.repository_entry(sources, RELEASE)]


def universe_files(sources: PackageSources) -> dict[str, bytes]:
    """Path in universe/ -> content, from filled sources; the same input gives the same bytes."""
    name = sources.package["name"]
    home = f"repo/packages/{name[0].upper()}/{name}/{RELEASE}"
    found = {
        f"{home}/{PACKAGE}": _json(sources.package),
        f"{home}/{CONFIG}": _json(sources.config),
        f"{home}/{RESOURCE}": _json(sources.resource),
        f"{home}/{TEMPLATE}": sources.template.encode(),
    }
    listed = packages(sources)
    return found | {
        f"universe-{v}.json": _json(package_sources.repository_document(listed, v)) for v in package_sources.VERSIONS
    }


def build_universe(sources: PackageSources, folder: Path, url: str = PLACEHOLDER_URL) -> list[str]:
    """Write universe/ to `folder`; the names of the files that changed. Raise PackageError, BundleError."""
    return _write_changed(universe_files(check_and_fill(sources, url)), folder)


def generate_sources(folder: Path) -> list[str]:
    """Write what of the sources is generated from the options' schema; the names of the files that changed."""
    from tf_scheduler.options.generate import config_schema  # who renders the package needs no schema

    from . import sources as package_sources

    template = (folder / TEMPLATE).read_text()
    return _write_changed(
        {CONFIG: _json(config_schema()), TEMPLATE: package_sources.with_options_block(template).encode()}, folder
    )


def _write_changed(wanted: Mapping[str, bytes], folder: Path) -> list[str]:
    changed = [name for name, content in wanted.items() if not _is_current(folder / name, content)]
    for name in changed:
        write(wanted[name], folder / name, "the package's file", 0o644)
    return changed


def _is_current(path: Path, content: bytes) -> bool:
    return path.is_file() and path.read_bytes() == content


def build_files(folder: Path, home: Path) -> list[Artefact]:
    """Write the artefacts and their digests below `folder`; `home`: the folder of the sources."""
    target = folder / ARTEFACTS
    found = build_artefacts(target, home)
    sums = "".join(f"{artefact.sha256}  {artefact.path.name}\n" for artefact in found)
    write(sums.encode(), target / SUMS, "the digests", 0o644)
    return found


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise PackageError("\n".join(str(problem) for problem in problems))


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
