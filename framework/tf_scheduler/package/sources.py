"""Read the four files of package/; make their entry in a repository document."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_scheduler.errors import OptionsError, PackageError, Problem
from tf_scheduler.options.environment import template_lines
from tf_scheduler.options.load import parse

PACKAGE, CONFIG, RESOURCE, TEMPLATE = "package.json", "config.json", "resource.json", "marathon.json.mustache"
FILES = (PACKAGE, CONFIG, RESOURCE, TEMPLATE)


def package_folder(installed: Path, checkout: Path) -> Path:
    """Return the folder of the package's sources; a wheel has it below `installed`."""
    carried = installed / "dcos_sources" / "package"
    return carried if carried.is_dir() else checkout / "package"


#: The folder of this installation.
PACKAGE_FOLDER = package_folder(*Path(__file__).resolve().parents[2:4])


@dataclass(frozen=True, slots=True)
class PackageSources:
    """Content and problems of the four files; an invalid JSON file is an empty object."""

    package: dict[str, Any]
    config: dict[str, Any]
    resource: dict[str, Any]
    template: str
    problems: tuple[Problem, ...] = ()


def read_sources(folder: Path = PACKAGE_FOLDER) -> PackageSources:
    """Read the files; report a missing or broken file as one of the problems."""
    problems: list[Problem] = []
    texts = {name: _text(folder / name, problems) for name in FILES}
    package, config, resource = (_document(name, texts[name], problems) for name in (PACKAGE, CONFIG, RESOURCE))
    if (folder / "command.json").exists():
        problems.append(Problem("command.json", "not allowed since packaging version 4.0; use `cli` in resource.json"))
    return PackageSources(package, config, resource, texts[TEMPLATE], tuple(problems))


def _text(path: Path, problems: list[Problem]) -> str:
    try:
        return path.read_bytes().decode("ascii")
    except OSError as error:
        problems.append(Problem(path.name, f"cannot be read: {error.strerror}"))
    except UnicodeDecodeError as error:
        line = path.read_bytes().count(b"\n", 0, error.start) + 1
        problems.append(Problem(path.name, f"line {line}: only ASCII is allowed in a Universe package"))
    return ""


def _document(name: str, text: str, problems: list[Problem]) -> dict[str, Any]:
    try:
        document = parse(text.encode() or b"{}", "the file")
    except OptionsError as error:
        problems += [Problem(name, str(problem).removeprefix("the file:")) for problem in error.problems]
        return {}
    if "\\u" in json.dumps(document):
        problems.append(Problem(name, "a Universe package must not contain non-ASCII characters or their \\u escapes"))
    return document


# --- repository
# Repository documents, which Cosmos fetches after `dcos package repo add`: one object per package with its four files.
# Versions of the media type: v4 (DC/OS 1.10 and 1.11) has packaging version 4.0, v5 (from 1.12) also 5.0. Older DC/OS
# reads v3 only, with packaging version 3.0; minDcosReleaseVersion of package.json excludes it.


VERSIONS = ("v4", "v5")
#: The first and only version of the package so far.
RELEASE = 0


def content_type(version: str) -> str:
    """Return the media type of a repository document."""
    return f"application/vnd.dcos.universe.repo+json;charset=utf-8;version={version}"


def repository_entry(sources: PackageSources) -> dict[str, Any]:
    """Return the package as an object of a repository document (packaging 4.0)."""
    template = base64.b64encode(sources.template.encode()).decode()
    return {
        **sources.package,
        "releaseVersion": RELEASE,
        "config": sources.config,
        "resource": sources.resource,
        "marathon": {"v2AppMustacheTemplate": template},
    }


# --- options_block
# The generated block of marathon.json.mustache that passes the options to the scheduler, between two comments.


BEGIN = "{{! options: this block is generated from the options' schema }}"
END = "{{! options: end }}"
_BLOCK = re.compile(rf"(?m)^(?P<indent>[ ]*){re.escape(BEGIN)}\n.*?^[ ]*{re.escape(END)}$", re.DOTALL | re.MULTILINE)


def with_options_block(template: str) -> str:
    """Return the template with a new options block. Raises PackageError without one."""
    match = _BLOCK.search(template)
    if match is None:
        raise PackageError(f"missing lines {BEGIN} and {END}")
    lines = [BEGIN, *(f"{line}," for line in template_lines()), END]
    block = "\n".join(match["indent"] + line for line in lines)
    return template[: match.start()] + block + template[match.end() :]
