"""The sdist and the wheel of the last commit, and packages built with them."""

from __future__ import annotations

import os
import re
import sys
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from kit.commands import run_program
from kit.interpreters import interpreters, output_of
from test_release import CONFIG, HOME, RAW, SOURCE, file_of

pytestmark = [
    pytest.mark.usefixtures("real_release"),
    pytest.mark.timeout(600),
    pytest.mark.skipif(not (HOME / ".git").exists(), reason="scripts/distributions builds from a commit"),
]
#: The sdist's own tests that run here; all pure ones take ten minutes. They read files of many folders.
OWN_TESTS = ("tests/test_documents.py", "tests/test_release.py", "tests/framework/package")
PYTHONS = interpreters(10, 13)
NO_INDEX = re.compile(r"No matching distribution found|Could not find a version")


def output_with_index(*command: str | Path, folder: Path = HOME) -> str:
    """Return the output of a successful command; skip without a package index."""
    # An installation must not find this project's folders.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    environment |= {"PYTHON": sys.executable, "PIP_NO_COMPILE": "1"}
    result = run_program(*command, cwd=folder, env=environment)
    if result.returncode != 0 and NO_INDEX.search(result.stderr):
        pytest.skip(f"no package index: {result.stderr.strip()[-300:]}")
    assert 0 == result.returncode, result.stdout[-5000:] + result.stderr[-5000:]
    return result.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder with the checked sdist and wheel."""
    out = tmp_path_factory.mktemp("distributions")
    print(output_with_index(HOME / "scripts" / "distributions", out, *OWN_TESTS))
    return out


def test_wheel_contains_only_the_product(built: Path) -> None:
    """Slow: the sdist is installed, and some of its tests run."""
    (wheel,) = built.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]

    assert set(CONFIG["tool:check-wheel-contents"]["toplevel"].split(", ")) == {name.split("/")[0] for name in names}
    assert [] == [name for name in names if re.search(r"(^|/)(tests?|test_\w+|conftest)(/|\.py)", name)]
    assert {"py.typed"} <= {Path(name).name for name in names}


def test_sdist_has_every_file(built: Path) -> None:
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if archive.getmember(name).isfile()}

    tracked = set(output_with_index("git", "ls-tree", "-r", "--name-only", "HEAD").splitlines())
    # The build adds pymesos.
    made = re.compile(r"PKG-INFO$|\w+\.egg-info/|framework/mesos_client/_vendor/pymesos/")
    assert set() == tracked - names
    assert set() == {name for name in names - tracked if not made.match(name)}


def test_index_shows_readme_with_live_links(built: Path) -> None:
    """As the index renders the description."""
    page = (built / "README.html").read_text()
    links = set(re.findall(r'<a\b[^>]*\bhref="([^"]*)"', page))
    images = set(re.findall(r'<img\b[^>]*\bsrc="([^"]*)"', page))

    assert f"{SOURCE}/blob/main/docs/how-to/install.md" in links
    assert f"{RAW}/main/docs/reference/training.png" in images
    sections = {f"#{name}" for name in re.findall(r'\bid="([^"]*)"', page)}
    assert [] == [url for url in (links | images) - sections if (file := file_of(url)) is None or not file.exists()]


def files(folder: Path) -> Mapping[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def packages(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """Return python -> folder of its package; the oldest and the newest Python."""
    (wheel,) = built.glob("*.whl")
    result = {}
    for python in dict.fromkeys((PYTHONS[0], PYTHONS[-1])):
        home = tmp_path_factory.mktemp(python.name)
        output_with_index(python, "-m", "venv", home / "venv")
        output_with_index(HOME / "scripts" / "install-locked", home / "venv/bin/python", "scheduler", "--", wheel)
        output_with_index(home / "venv/bin/dcos-tensorflow", "package", "build", "--out", home / "out", folder=home)
        result[python.name] = home / "out"
    return result


@pytest.mark.skipif(len(PYTHONS) < 2, reason="one Python only")
def test_every_python_builds_same_package(packages: Mapping[str, Path]) -> None:
    """All artefacts, repository documents and SHA256SUMS.

    Slow: two Pythons install and build the package.
    """
    oldest, newest = (files(folder) for folder in packages.values())

    assert "artefacts/SHA256SUMS" in oldest
    assert oldest.keys() == newest.keys()
    assert [] == [name for name in oldest if oldest[name] != newest[name]]


def test_scheduler_file_runs_on_every_python(packages: Mapping[str, Path], tmp_path: Path) -> None:
    """The Python that built it does not matter."""
    program = packages[PYTHONS[-1].name] / "artefacts" / "tensorflow-scheduler.pyz"
    for python in PYTHONS:
        assert "Usage" in output_of([python, "-I", "-S", program, "--help"], tmp_path)
