"""Installed packages are as docs/develop/dependencies.md promises."""

from __future__ import annotations

import configparser
import re
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

HOME = Path(__file__).parents[1]
#: As packages write them.
_PERMISSIVE = "MIT|BSD|Apache|PSFL?|Python Software Foundation|MPL-2\\.0|Mozilla Public License 2|public domain"
ALLOWED = re.compile(rf"\b({_PERMISSIVE})\b", re.IGNORECASE)
_ROW = re.compile(r"^\| `([\w.-]+)` \| (.+?) \| (.+?) \| (.+) \|$", re.MULTILINE)


def base() -> list[Requirement]:
    """Return what the installation without extras requires."""
    config = configparser.ConfigParser()
    config.read(HOME / "setup.cfg")
    return [Requirement(line) for line in config["options"]["install_requires"].split("\n") if line]


def required() -> list[Requirement]:
    """Return what the installation with the extras of the scheduler requires."""
    config = configparser.ConfigParser()
    config.read(HOME / "setup.cfg")
    lines = "\n".join(config["options.extras_require"][extra] for extra in ("dcos", "vault")).split("\n")
    return [*base(), *(Requirement(line) for line in lines if line)]


def test_base_installation_stays_small() -> None:
    """Each dependency can break an installation. Logins of DC/OS and Vault are extras."""
    names = {one.name for one in base()}

    assert len(names) <= 12
    assert not names & {"cryptography", "pyjwt", "hvac", "requests", "pymesos", "http-parser"}


def licence(name: str) -> str:
    """Return the licence expression, else the classifiers, else the text."""
    about = distribution(name).metadata
    classifiers = [one for one in about.get_all("Classifier") or () if one.startswith("License")]
    texts = [*(about.get_all("License-Expression") or ()), " ".join(classifiers), *(about.get_all("License") or ())]
    return next(filter(None, texts), "")


def brought_along() -> set[str]:
    """Return the names of all packages installed with this one on this Python."""
    todo, found = required(), set()
    while todo:
        one = todo.pop()
        if one.name not in found and (one.marker is None or one.marker.evaluate({"extra": ""})):
            found.add(one.name)
            todo += [Requirement(line) for line in distribution(one.name).requires or ()]
    return found


def test_each_has_a_lower_bound() -> None:
    """Older versions are untested, or have fixed vulnerabilities."""
    assert [] == [str(one) for one in required() if not {">=", "=="} & {part.operator for part in one.specifier}]


def test_each_dependency_has_a_licence_and_a_reason() -> None:
    """docs/develop/dependencies.md has a row for it."""
    rows = {
        name: (licence, why)
        for name, _, licence, why in _ROW.findall((HOME / "docs" / "develop" / "dependencies.md").read_text())
    }
    wanted = {one.name for one in required()}
    assert wanted == wanted & rows.keys()
    assert [] == [name for name, (licence, why) in rows.items() if not ALLOWED.search(licence) or len(why) < 20]


def test_all_installed_licences_are_allowed() -> None:
    """Including indirect dependencies."""
    assert {} == {name: licence(name) for name in brought_along() if not ALLOWED.search(licence(name))}
