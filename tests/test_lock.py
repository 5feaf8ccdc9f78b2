"""requirements/ has what setup.cfg needs, and pip installs nothing else."""

from __future__ import annotations

import hashlib
import os
import re
import runpy
import shutil
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kit.commands import run_program

HOME = Path(__file__).parents[1]
LOCK = HOME / "requirements"
_SCRIPT = runpy.run_path(str(HOME / "scripts" / "lock"))
DIRECT: dict[str, list[str]] = _SCRIPT["requirements"]()
EXCLUDED = set(_SCRIPT["EXCLUDED"].split())
GROUPS: tuple[str, ...] = _SCRIPT["GROUPS"]
PYTHONS = ("3.10", "3.11", "3.12", "3.13")
RUNNING = ".".join(map(str, sys.version_info[:3]))
_HASH = re.compile(r"    --hash=sha256:[0-9a-f]{64}( \\)?")


def environment(python: str) -> dict[str, str]:
    """Values of markers for a version of Python, by default a late patch release."""
    series = ".".join(python.split(".")[:2])
    return {"python_version": series, "python_full_version": f"{series}.20" if python == series else python}


def locked(group: str) -> Iterator[Requirement]:
    for line in (LOCK / f"{group}.txt").read_text().splitlines():
        if line[:1].isalnum():
            yield Requirement(line.rstrip("\\ "))


def pins(group: str, python: str) -> dict[str, str]:
    """Return name -> version of a group on a version of Python."""
    wanted = [one for one in locked(group) if one.marker is None or one.marker.evaluate(environment(python))]
    return {canonicalize_name(one.name): next(iter(one.specifier)).version for one in wanted}


@pytest.mark.parametrize("path", sorted(LOCK.glob("*.txt")), ids=lambda path: path.stem)
def test_every_pin_has_a_digest(path: Path) -> None:
    """Without a digest, pip takes any file of that name. The file names no index."""
    lines = path.read_text().splitlines()
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if line[:1].isalnum():
            assert re.fullmatch(r"[a-z0-9-]+==\S+( ; [^\\]+)? \\", line)
            assert _HASH.fullmatch(following)
        else:
            assert line.startswith("#") or _HASH.fullmatch(line)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("group", DIRECT)
def test_lock_satisfies_setup_cfg(group: str, python: str) -> None:
    """After a change of setup.cfg: scripts/lock."""
    pinned = pins(group, python)
    for line in DIRECT[group]:
        wanted = Requirement(line)
        name = canonicalize_name(wanted.name)
        if name not in EXCLUDED and (wanted.marker is None or wanted.marker.evaluate(environment(python))):
            assert wanted.specifier.contains(pinned[name], prereleases=True), f"{line}: run scripts/lock"


@pytest.mark.parametrize("python", PYTHONS)
def test_groups_share_one_version(python: str) -> None:
    """All groups fit into one environment."""
    versions = defaultdict(set)
    for group in GROUPS:
        for name, version in pins(group, python).items():
            versions[name].add(version)
    assert {} == {name: several for name, several in versions.items() if len(several) > 1}


def test_bundled_libraries_do_not_depend_on_python() -> None:
    """Else each Python would build another one-file scheduler."""
    packed = {python: pins("scheduler", python) for python in PYTHONS}
    for versions in packed.values():
        # Compiled, so never bundled.
        versions.pop("backports-datetime-fromisoformat", None)
    assert [packed[PYTHONS[0]]] * len(PYTHONS) == list(packed.values())


def is_installed(group: str) -> bool:
    """Whether this environment has the group. An unpacked sdist has no TensorFlow."""
    return group != "tensorflow" or find_spec("tensorflow") is not None


def closure(group: str) -> set[str]:
    """Return what the group requires on this Python, by the installed metadata."""
    todo = [Requirement(line) for line in [*DIRECT[group], *(["tf-keras"] if group == "tensorflow" else [])]]
    visited: set[tuple[str, frozenset[str]]] = set()
    while todo:
        wanted = todo.pop()
        name = canonicalize_name(wanted.name)
        extras = frozenset(wanted.extras or {""})
        if name in EXCLUDED or (name, extras) in visited:
            continue
        visited.add((name, extras))
        for line in distribution(name).requires or ():
            needed = Requirement(line)
            if needed.marker is None or any(needed.marker.evaluate({"extra": extra}) for extra in extras | {""}):
                todo.append(needed)
    return {name for name, _ in visited}


@pytest.mark.parametrize("group", ["scheduler", "tensorflow", "test"])
def test_lock_has_everything_that_is_needed(group: str) -> None:
    """pip resolves nothing. A superfluous package would be a risk without a use."""
    if not is_installed(group):
        pytest.skip("TensorFlow is not installed: scripts/setup --examples")
    assert closure(group) == pins(group, RUNNING).keys()


def test_tests_run_with_locked_versions() -> None:
    """Else they say nothing about what is shipped. pip and setuptools are not shipped."""
    groups = filter(is_installed, GROUPS[1:])
    pinned = {name: version for group in groups for name, version in pins(group, RUNNING).items()}
    for tool in pins("build", RUNNING):
        pinned.pop(tool, None)
    assert pinned == {name: distribution(name).version for name in pinned}


@pytest.mark.parametrize("python", PYTHONS)
def test_keras_2_fits_tensorflow(python: str) -> None:
    """Its requirement of TensorFlow is left out of the resolution."""
    pinned = pins("tensorflow", python)
    assert pinned["tf-keras"].split(".")[:2] == pinned["tensorflow-cpu"].split(".")[:2]


def test_archived_rsa_is_gone() -> None:
    """It has no maintainer; cryptography signs."""
    names = {canonicalize_name(one.name) for path in LOCK.glob("*.txt") for one in locked(path.stem)}
    assert "cryptography" in names
    assert not {"rsa", "python-jose", "oauth2client"} & names


# --- attacks


def make_wheel(folder: Path, name: str, version: str) -> Path:
    """Write a wheel with one module that pip accepts."""
    folder.mkdir(parents=True, exist_ok=True)
    path, info = folder / f"{name}-{version}-py3-none-any.whl", f"{name}-{version}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}/__init__.py", f"__version__ = '{version}'\nORIGIN = 'genuine'\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr(
            f"{info}/RECORD", f"{name}/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n"
        )
    return path


def run_offline(*command: str | Path, folder: Path, wheels: Path) -> subprocess.CompletedProcess[str]:
    """Run with a folder of wheels as the only source of packages."""
    own = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheels), "PIP_CONFIG_FILE": os.devnull, "PYTHON": sys.executable}
    others = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    return run_program(*command, cwd=folder, env=others | own)


def a_checkout(folder: Path) -> Path:
    """Copy what scripts/setup reads."""
    for name in (
        "setup.cfg",
        "pyproject.toml",
        "scripts/build_backend.py",
        "scripts/setup",
        "scripts/install-locked",
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HOME / name, folder / name)
    shutil.copytree(LOCK, folder / LOCK.name)
    return folder


def test_changed_wheel_is_refused(real_release: None, tmp_path: Path) -> None:
    """One byte suffices. The unchanged file is installed."""
    home, wheels = a_checkout(tmp_path / "home"), tmp_path / "wheels"
    wheel = make_wheel(wheels, "victim", "1.0")
    line = f"victim==1.0 \\\n    --hash=sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
    for name in ("build", "scheduler"):
        (home / "requirements" / f"{name}.txt").write_text(line)
    genuine = wheel.read_bytes()
    python = tmp_path / "venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", python.parents[1]], check=True)

    wheel.write_bytes(genuine.replace(b"genuine", b"genuinE"))
    refused = run_offline("scripts/install-locked", python, "scheduler", folder=home, wheels=wheels)
    before = run_offline(python, "-c", "import victim", folder=home, wheels=wheels)
    wheel.write_bytes(genuine)
    accepted = run_offline("scripts/install-locked", python, "scheduler", folder=home, wheels=wheels)
    after = run_offline(python, "-c", "import victim; print(victim.ORIGIN)", folder=home, wheels=wheels)

    assert (1, 1) == (refused.returncode, before.returncode)
    assert "DO NOT MATCH THE HASHES" in refused.stderr
    assert (0, "genuine\n") == (accepted.returncode, after.stdout)


def test_setup_refuses_forged_pip(real_release: None, tmp_path: Path) -> None:
    """Code of pip runs in every installation, with the rights of the user."""
    home, wheels = a_checkout(tmp_path / "home"), tmp_path / "wheels"
    version = pins("build", RUNNING)["pip"]
    make_wheel(wheels, "pip", version)

    result = run_offline("scripts/setup", folder=home, wheels=wheels)

    installed = next((home / ".venv" / "lib").glob("python3.*/site-packages")) / "pip" / "__init__.py"
    assert 0 != result.returncode
    assert "DO NOT MATCH THE HASHES" in result.stderr
    assert "ORIGIN" not in installed.read_text()
    # The forged file is a valid wheel: only its digest gives it away.
    run_offline(home / ".venv/bin/python", "-m", "pip", "install", f"pip=={version}", folder=home, wheels=wheels)
    assert "ORIGIN" in installed.read_text()


def test_setup_makes_half_made_environment_again(real_release: None, tmp_path: Path) -> None:
    """As an interrupted `venv` leaves it.

    The setup ends soon after, because there are no packages.
    """
    home = a_checkout(tmp_path / "home")
    python = home / ".venv" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home / ".venv"], check=True)

    result = run_offline("scripts/setup", folder=home, wheels=tmp_path)

    assert "No matching distribution" in result.stderr
    assert 0 == run_offline(python, "-m", "pip", "--version", folder=home, wheels=tmp_path).returncode


@pytest.mark.parametrize("path", ["Dockerfile", ".ci/run", "scripts/setup", "scripts/release", "scripts/distributions"])
def test_packages_are_installed_from_the_lock_only(path: str) -> None:
    """By scripts/install-locked, which the tests above attack."""
    assert not re.search(r"pip\b.*\b(install|download)\b|easy_install|\buv\b", (HOME / path).read_text())
