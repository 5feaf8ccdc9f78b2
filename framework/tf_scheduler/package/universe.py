"""Build universe/ from package/: Universe files and repository documents.

    DIR/repo/packages/T/tensorflow/0/   the four files, addresses and digests filled in
    DIR/universe-v4.json, -v5.json      repository documents, see sources.py
    DIR/artefacts/                      the files they refer to, with SHA256SUMS; only where artefacts are built

resource.json has the placeholders `{{artefacts-url}}`, and `{{sha256:FILE}}` for the digest of the sub-command.
preInstallNotes in package.json has `{{image}}`, the scheduler's image, and `{{python}}`, the oldest Python that runs
the scheduler. marathon.json.mustache has the comments `{{! sha256 FILE }}` for the digest of an artefact, and
`{{! check FILE }}` for shell commands that check the digest. If the artefacts are not built, these comments stay,
because the digests depend on the installed libraries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tf_scheduler.errors import PackageError
from tf_scheduler.model.digests import DIGEST_EXPECTED, DIGEST_PATTERN, digest_check
from tf_scheduler.zipapp_builder import write, write_changed

from . import sources as package_sources
from .artefacts import COMMAND, MINIMUM_PYTHON, SCHEDULER, Artefact, build_artefacts, command_bytes, sha256
from .sources import CONFIG, PACKAGE, RESOURCE, TEMPLATE, PackageSources
from .validate import validate

#: Default of --artefacts-url: a reserved name (RFC 2606).
PLACEHOLDER_URL = "https://example.com/dcos-tensorflow"
ARTEFACTS, SUMS = "artefacts", "SHA256SUMS"
_DIGEST = re.compile(r"\{\{sha256:([^{}]+)\}\}")
#: A version of Python in the name of an image; other images are not checked.
_IMAGE_PYTHON = re.compile(r"\bpython:(\d+)\.(\d+)")
_COMMENT = re.compile(r"\{\{! (sha256|check) ([^ {}]+) \}\}")


def check_and_fill(
    sources: PackageSources,
    url: str = PLACEHOLDER_URL,
    digests: Mapping[str, str] = MappingProxyType({}),
    python: tuple[int, int] = MINIMUM_PYTHON,
) -> PackageSources:
    """Check the sources, fill in addresses and digests. Raises PackageError.

    `python`: the oldest Python that runs the scheduler.
    """
    if problems := validate(sources):
        raise PackageError("\n".join(map(str, problems)))
    home = f"{url.rstrip('/')}/{sources.package['version']}"
    text = json.dumps(sources.resource).replace("{{artefacts-url}}", home)
    resource = json.loads(_DIGEST.sub(_digest, text))
    template = _COMMENT.sub(lambda comment: _filled(comment, digests), sources.template)
    return PackageSources(_with_notes(sources, python), sources.config, resource, template)


def _with_notes(sources: PackageSources, python: tuple[int, int]) -> dict[str, Any]:
    """Fill in the notes. Raises PackageError for an image with an older Python."""
    image = sources.resource["assets"]["container"]["docker"]["scheduler"]
    needed = ".".join(map(str, python))
    match = _IMAGE_PYTHON.search(image)
    if match is not None and (int(match[1]), int(match[2])) < python:
        raise PackageError(
            f"{RESOURCE}: assets.container.docker.scheduler: `{image}`: {SCHEDULER} with the installed libraries needs "
            f"Python {needed}; install the versions of the lock (docs/how-to/install.md), or name a newer image"
        )
    notes = sources.package["preInstallNotes"]
    filled = notes.replace("{{image}}", image.partition("@")[0]).replace("{{python}}", needed)
    return {**sources.package, "preInstallNotes": filled}


def _filled(comment: re.Match[str], digests: Mapping[str, str]) -> str:
    """Replace a comment by the file's digest or check; keep it if that is unknown."""
    kind, file = comment.groups()
    if file not in digests:
        return comment[0]
    return json.dumps(digests[file] if kind == "sha256" else digest_check(file, digests[file]))[1:-1]


def _digest(placeholder: re.Match[str]) -> str:
    """Return the sub-command's digest, which is reproducible only with click 8.1.8."""
    if placeholder[1] != COMMAND:
        raise PackageError(f"{RESOURCE}: {placeholder[0]}: unknown; use {{{{sha256:{COMMAND}}}}}")
    return sha256(command_bytes())


def universe_files(sources: PackageSources) -> dict[str, bytes]:
    """Return path in universe/ -> content for sources from `check_and_fill`."""
    name = sources.package["name"]
    home = f"repo/packages/{name[0].upper()}/{name}/{package_sources.RELEASE}"
    files = {
        f"{home}/{PACKAGE}": _json(sources.package),
        f"{home}/{CONFIG}": _json(sources.config),
        f"{home}/{RESOURCE}": _json(sources.resource),
        f"{home}/{TEMPLATE}": sources.template.encode(),
    }
    document = _json({"packages": [package_sources.repository_entry(sources)]})
    return files | {f"universe-{version}.json": document for version in package_sources.VERSIONS}


def build_universe(
    sources: PackageSources,
    folder: Path,
    url: str = PLACEHOLDER_URL,
    digests: Mapping[str, str] = MappingProxyType({}),
    python: tuple[int, int] = MINIMUM_PYTHON,
) -> list[str]:
    """Write universe/; return the changed files. Raises PackageError, BundleError."""
    return _write_changed(universe_files(check_and_fill(sources, url, digests, python)), folder)


def generate_sources(folder: Path) -> list[str]:
    """Write the generated parts of the sources; return the changed files."""
    from tf_scheduler.options.generate import config_schema  # rendering the package needs no schema

    template = (folder / TEMPLATE).read_text()
    return _write_changed(
        {CONFIG: _json(config_schema()), TEMPLATE: package_sources.with_options_block(template).encode()}, folder
    )


def _write_changed(wanted: Mapping[str, bytes], folder: Path) -> list[str]:
    what = "the package's file"
    return [name for name, content in wanted.items() if write_changed(content, folder / name, what)]


def build_files(folder: Path, home: Path) -> list[Artefact]:
    """Write artefacts and their digests below `folder`; `home`: folder of the sources."""
    target = folder / ARTEFACTS
    built = build_artefacts(target, home)
    sums = "".join(f"{artefact.sha256}  {artefact.path.name}\n" for artefact in built)
    write(sums.encode(), target / SUMS, "the digests", 0o644)
    return built


def read_digests(sums: Path) -> dict[str, str]:
    """Return the digest of each artefact from SHA256SUMS. Raises PackageError."""
    try:
        lines = [line.partition("  ") for line in sums.read_text().splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise PackageError(f"{sums}: cannot read the digests: {error}") from error
    if wrong := [digest for digest, _, _ in lines if not re.fullmatch(DIGEST_PATTERN, digest)]:
        raise PackageError(f"{sums}: `{wrong[0][:80]}`: must be {DIGEST_EXPECTED}")
    return {file: digest.lower() for digest, _, file in lines}


def _json(document: Mapping[str, Any]) -> bytes:
    return (json.dumps(document, indent=2) + "\n").encode()
