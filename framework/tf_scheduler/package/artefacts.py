"""Build the files that the DC/OS package downloads, and a bill of materials.

Each artefact is one file. Builds are reproducible: the same sources and the same versions of the libraries give the
same bytes, whichever Python builds.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_scheduler.zipapp_builder import (
    VENDORED,
    build_bundle,
    distribution,
    licences,
    pack,
    package_files,
    write_changed,
)

SCHEDULER, EXECUTOR = "tensorflow-scheduler.pyz", "tensorflow-executor.pyz"
COMMAND, EXAMPLES = "dcos-tensorflow", "tensorflow-examples.zip"
SBOM = "dcos-tensorflow.cdx.json"
ICONS = ("icon-small.png", "icon-medium.png", "icon-large.png")
#: Packages of this project that the scheduler imports, and the distributions that they need.
_PACKAGES = ("tf_scheduler", "tf_executor", "mesos_client")
_DISTRIBUTIONS = (
    "click",
    "hvac",
    "kazoo",
    "marshmallow",
    "prometheus-client",
    "requests",
    "starlette",
    "uvicorn",
)
#: Compiled, so that a file for each Python cannot contain it; marshmallow does without it, below Python 3.11.
_EXTENSIONS = ("backports-datetime-fromisoformat",)
#: Oldest Python of this project; patterns of the oldest one of a distribution, and of the first without a requirement.
MINIMUM_PYTHON = (3, 10)
_OLDEST_PYTHON = re.compile(r">= *(\d+)\.(\d+)")
_OLDER_PYTHONS = re.compile(r"; *python_(?:full_)?version *< *['\"](\d+)\.(\d+)['\"]$")
#: Files besides Python: the certificates that requests trusts, the files of the web page.
_DATA_SUFFIXES = (".pem",)
_SOURCE_SUFFIXES = (".py", ".css", ".html", ".js", ".svg")
#: Parts of distributions that a scheduler never imports.
_EXCLUDED = ("kazoo/tests/", "kazoo/testing/")
_DESCRIPTION = "the scheduler's bundle"
_MAIN = """\
import sys

if sys.version_info < {minimum}:
    sys.exit("tensorflow-scheduler needs Python {text} or later, this is " + sys.version.split()[0])
from tf_scheduler.cli.commands.scheduler import main

main()
"""
_COMMAND_MAIN = b"""\
import sys

if sys.version_info < (3, 8):
    sys.exit("dcos tensorflow needs Python 3.8 or later, this is " + sys.version.split()[0])
from dcos_command.main import main

sys.exit(main())
"""


@dataclass(frozen=True, slots=True)
class Artefact:
    path: Path
    sha256: str


def build_artefacts(folder: Path, sources_folder: Path) -> list[Artefact]:
    """Build all artefacts in `folder`; keep unchanged files. Raises BundleError."""
    build_scheduler(folder / SCHEDULER)
    build_bundle(folder / EXECUTOR)
    write_changed(command_bytes(), folder / COMMAND, "the sub-command", 0o755)
    write_changed(examples_bytes(sources_folder.parent / "examples"), folder / EXAMPLES, "the examples")
    for name in ICONS:
        write_changed((sources_folder / name).read_bytes(), folder / name, "the icon")
    paths = [folder / name for name in (SCHEDULER, EXECUTOR, COMMAND, EXAMPLES, *ICONS)]
    built = [Artefact(path, sha256(path.read_bytes())) for path in paths]
    version = json.loads((sources_folder / "package.json").read_text())["version"]
    write_changed(sbom_bytes(built, version), folder / SBOM, "the bill of materials")
    return [*built, Artefact(folder / SBOM, sha256((folder / SBOM).read_bytes()))]


def sha256(content: bytes) -> str:
    """Return the digest in hex, as `sha256sum` prints it."""
    return hashlib.sha256(content).hexdigest()


def build_scheduler(target: Path) -> Path:
    """Build the scheduler with its imports, uncompiled: `python3 FILE run`."""
    names, minimum = _closure(_DISTRIBUTIONS), scheduler_python()
    main = _MAIN.format(minimum=minimum, text=".".join(map(str, minimum)))
    files = {"__main__.py": main.encode(), **dict(_scheduler_files(names))}
    write_changed(pack(files), target, _DESCRIPTION, 0o755)
    return target


def scheduler_python() -> tuple[int, int]:
    """Return the oldest Python that runs a scheduler built here."""
    return _minimum_python(_closure(_DISTRIBUTIONS))


def can_read_vault() -> bool:
    """Whether the scheduler's file contains hvac, the extra `vault`."""
    return "hvac" in _closure(_DISTRIBUTIONS)


def _minimum_python(names: set[str]) -> tuple[int, int]:
    """Return the oldest Python on which all these distributions run.

    On an older Python, a distribution does not run, or requires another distribution that is not installed here.
    """
    lines = [line for name in names for line in importlib.metadata.requires(name) or ()]
    absent = [line for line in lines if _name(line) not in {*names, *_EXTENSIONS}]
    bounds = [_field(importlib.metadata.metadata(name), "Requires-Python") for name in names]
    matches = [*map(_OLDER_PYTHONS.search, absent), *map(_OLDEST_PYTHON.search, bounds)]
    return max([MINIMUM_PYTHON, *((int(match[1]), int(match[2])) for match in matches if match)])


def _scheduler_files(names: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    for package in _PACKAGES:
        yield from package_files(package, _DESCRIPTION, _SOURCE_SUFFIXES)
    for name in sorted(names):
        yield from licences(name).items()
        for package in _top_level(name):
            files = package_files(package, _DESCRIPTION, (".py", *_DATA_SUFFIXES))
            yield from (entry for entry in files if not entry[0].startswith(_EXCLUDED))
    yield from licences(VENDORED).items()


def _top_level(name: str) -> list[str]:
    """Return the packages and modules of a distribution that are not compiled.

    The distribution's list of files does not suffice. After an installation by pip before 23.1 without `wheel`, the
    list contains the files of the source archive.
    """
    about = importlib.metadata.distribution(name)
    listed = (about.read_text("top_level.txt") or "").split()
    files = {Path(path.parts[0]).stem for path in about.files or () if path.suffix == ".py" and path.parts[0] != ".."}
    specs = {package: importlib.util.find_spec(package) for package in sorted({*listed} or files)}
    return [package for package, spec in specs.items() if spec and spec.origin and spec.origin.endswith(".py")]


def _closure(names: tuple[str, ...]) -> set[str]:
    """Return the distributions with all their installed requirements."""
    closure: set[str] = set()
    left = list(names)
    while left:
        if (name := left.pop()) not in closure and name not in _EXTENSIONS:
            with suppress(importlib.metadata.PackageNotFoundError):
                left += [_name(line) for line in importlib.metadata.requires(name) or () if "extra ==" not in line]
                closure.add(name)
    return closure


def _name(requirement: str) -> str:
    """Return the normalized name of the distribution in a requirement line."""
    name = re.match(r"[\w.-]+", requirement)
    return re.sub(r"[-_.]+", "-", name[0]).lower() if name else ""


def command_bytes() -> bytes:
    """Build the sub-command `dcos tensorflow`, with click and tf_executor.contract."""
    packages = ("dcos_command", "tf_executor.contract", "click")
    files = {name: content for package in packages for name, content in package_files(package, COMMAND)}
    return pack({"__main__.py": _COMMAND_MAIN, "tf_executor/__init__.py": b"", **files, **licences("click")})


def examples_bytes(folder: Path) -> bytes:
    """Build the archive of the example jobs, each in its folder."""
    files: Mapping[str, bytes] = {
        path.relative_to(folder.parent).as_posix(): path.read_bytes() for path in sorted(folder.glob("*/*.*"))
    }
    return pack(files, runnable=False)


def sbom_bytes(artefacts: list[Artefact], version: str) -> bytes:
    """Return the bill of materials: files, and the distributions inside them.

    The format is CycloneDX 1.6. Without a time and a serial number, the same build gives the same bytes.
    """
    libraries = sorted({*_closure(_DISTRIBUTIONS), VENDORED})
    inside = {SCHEDULER: libraries, COMMAND: ["click"]}
    digests = {artefact.path.name: artefact.sha256 for artefact in artefacts}
    files = [
        {"type": "file", "bom-ref": name, "name": name, "hashes": [{"alg": "SHA-256", "content": digest}]}
        for name, digest in digests.items()
    ]
    application = {"type": "application", "bom-ref": "package", "name": "dcos-tensorflow", "version": version}
    needed = {"package": list(digests)} | {name: [*map(_bom_ref, inside.get(name, ()))] for name in digests}
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": application},
        "components": [*files, *map(_component, libraries)],
        "dependencies": [{"ref": name, "dependsOn": refs} for name, refs in needed.items()],
    }
    return (json.dumps(document, indent=2) + "\n").encode()


def _field(about: importlib.metadata.PackageMetadata, name: str) -> str:
    """Return a field of the metadata; empty if missing."""
    return next(iter(about.get_all(name) or ()), "")


def _bom_ref(name: str) -> str:
    return f"{name}=={distribution(name).version}"


def _component(name: str) -> dict[str, Any]:
    """Return an installed distribution as a component."""
    installed = distribution(name)
    version, about = installed.version, installed.metadata
    component = {"type": "library", "bom-ref": _bom_ref(name), "name": name, "version": version}
    # A distribution built from a folder is not the project of that name on the package index.
    if installed.read_text("direct_url.json") is None:
        component["purl"] = f"pkg:pypi/{name}@{version}"
    if expression := _field(about, "License-Expression"):
        return {**component, "licenses": [{"expression": expression}]}
    classifiers = [line.split(" :: ")[-1] for line in about.get_all("Classifier") or () if line.startswith("License")]
    kinds = classifiers or _field(about, "License").splitlines()[:1]
    return {**component, "licenses": [{"license": {"name": kind}} for kind in kinds]}
