"""The real dcos command (package index) with `scripts/local-dcos` on Mesos."""

from __future__ import annotations

import fcntl
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.commands import run_program, serving_dcos
from kit.shared import Shared
from mesos_local.cluster import LocalCluster
from spotless import no_framework_left

#: Of the dcos command; the newest first.
VERSIONS = ("0.6.1", "0.5.7", "0.4.17")
VERSION = VERSIONS[0]
#: Versions whose own requirements cannot be installed any more.
_UNPINNED = ("0.4.17",)
#: The newest pip that Python 3.6 has; its own is too old for some of what the command requires.
_PIP = "pip==21.3.1"
#: What it requires, without the versions that only Python 3.6 can install.
_LOOSE = (
    *("jsonschema<3", "pager<4", "prettytable<1", "PyJWT==1.4.2", "pygments<3", "requests<3", "six<2", "toml<1"),
    *("sseclient==0.0.19", "retrying==1.3.3", "docopt<1", "pkginfo==1.2.1", "cryptography", "virtualenv<16"),
    "setuptools<81",
)
#: Pythons that can run it, the one it was made for first. From 3.10 on it imports names that are gone.
_PYTHONS = ("python3.6", "python3.9", "python3.8", "python3.7")
_PATIENCE = 120

Dcos = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def dcos_program(real_dcos: None) -> Path:
    """Path of the command, or DCOS_PROGRAM. Skips if it cannot be installed."""
    given = os.environ.get("DCOS_PROGRAM")
    return Path(given) if given else installed(VERSION)


def installed(version: str) -> Path:
    """Path of the command in this version. Skips if it cannot be installed."""
    python = _python()
    if python is None:
        pytest.skip(f"dcoscli {version} runs on none of the Pythons here; it needs one of {', '.join(_PYTHONS)}")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "dcos-tensorflow" / "tests"
    home = cache / f"dcoscli-{version}-{python.name}"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / f"{home.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (home / "complete").exists():
            _install(python, home, version)
    return home / "bin" / "dcos"


def _python() -> Path | None:
    folders = [*Path.home().glob(".pyenv/versions/3.*/bin"), *map(Path, os.get_exec_path())]
    found = (folder / name for name in _PYTHONS for folder in folders if "shims" not in folder.parts)
    return next((path for path in found if path.is_file()), None)


def _install(python: Path, home: Path, version: str) -> None:
    pip = [home / "bin" / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    newest_pip = [[*pip, _PIP]] if python.name == "python3.6" else []
    plain = [[*pip, f"dcoscli=={version}"]]
    loose = [[*pip, "--no-deps", f"dcoscli=={version}", f"dcos=={version}"], [*pip, *_LOOSE]]
    packages = plain if python.name == "python3.6" and version not in _UNPINNED else loose
    for command in [[python, "-m", "venv", "--clear", home], *newest_pip, *packages]:
        result = run_program(*command)
        if result.returncode != 0:
            pytest.skip(f"dcoscli {version} cannot be installed: {result.stderr.strip()[-300:]}")
    (home / "complete").touch()


@pytest.fixture(scope="module", autouse=True)
def _no_framework_left(shared_cluster: Shared[LocalCluster], request: pytest.FixtureRequest) -> Iterator[None]:
    """Of the whole file: its tests share a service."""
    with no_framework_left(shared_cluster.take(), request.node):
        yield


@pytest.fixture(scope="module")
def url(shared_cluster: Shared[LocalCluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Where `scripts/local-dcos` answers, as long as the module's tests run."""
    with serving_dcos(shared_cluster.take(), errors=tmp_path_factory.mktemp("serve") / "stderr") as url:
        yield url


@pytest.fixture(scope="module")
def dcos(dcos_program: Path, url: str, tmp_path_factory: pytest.TempPathFactory) -> Dcos:
    """Run `dcos ARGUMENTS` with the file `_input` as input and extra variables."""
    return runner(dcos_program, url, tmp_path_factory.mktemp("dcos"))


def runner(program: Path, url: str, home: Path) -> Dcos:
    """Function that runs the program, whose settings are in the folder `home`."""

    def run_dcos(*arguments: object, _input: Path | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C.UTF-8", "DCOS_URL": url}
        return run_program(
            program,
            *arguments,
            env={**environment, "PYTHONWARNINGS": "ignore", **variables},
            input=None if _input is None else _input.read_text(),
            timeout=_PATIENCE,
        )

    return run_dcos
