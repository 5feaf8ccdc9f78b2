"""Wheel, sdist and scripts/setup install this project from a package index."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from examples.test_first_job import Account, check_first_job
from examples.test_first_job import install as install_page
from kit.commands import run_program
from kit.interpreters import interpreters

HOME = Path(__file__).parents[1]
pytestmark = [
    pytest.mark.usefixtures("real_release"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(not (HOME / ".git").exists(), reason="git lists the files of the repository"),
]
#: pip's configuration; no compiler, and nothing of this project.
ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))},
    "CC": "false",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_COMPILE": "1",
    "NO_COLOR": "1",
}
PYTHONS = {path.name.removeprefix("python"): path for path in interpreters(10, 13)}
#: As in Debian 12: an old pip that installs sdists without `wheel` in another way.
OLD_PIP = "pip==23.0.1"
JOB = {"service": {"name": "own", "job_url": "job.py", "command": "python3 job.py"}}
TASK = {"cpus": 0.1, "mem": 64, "disk": 0}


def run_apart(*command: str | Path, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return run_program(*command, cwd=folder, env=ENVIRONMENT | variables, timeout=240)


def succeed(*command: str | Path, folder: Path, **variables: str) -> str:
    result = run_apart(*command, folder=folder, **variables)
    assert 0 == result.returncode, result.stdout[-3000:] + result.stderr[-3000:]
    return result.stdout


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the repository, none of them built. Skips without an index."""
    folder = tmp_path_factory.mktemp("checkout")
    asked = run_apart(
        sys.executable, "-m", "pip", "download", "--no-deps", "--dest", folder.parent, "pip", folder=folder
    )
    if asked.returncode != 0:
        pytest.skip(f"no package index: {asked.stderr.strip()[-300:]}")
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = run_program(*command, cwd=HOME, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (HOME / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(HOME / name, folder / name)
    return folder


@pytest.fixture(scope="module")
def dist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, and the wheel that pip builds from it, without a compiler."""
    folder = tmp_path_factory.mktemp("dist")
    program = f"import build_backend; build_backend.build_sdist({str(folder)!r})"
    succeed(sys.executable, "-c", program, folder=checkout, PYTHONPATH=str(checkout / "scripts"))
    (sdist,) = folder.iterdir()
    succeed(sys.executable, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", folder, sdist, folder=folder)
    return folder


def environment(folder: Path, python: Path, pip: str = "") -> Path:
    """Make a virtual environment, and return its folder of programs."""
    succeed(python, "-m", "venv", folder / "venv", folder=folder)
    programs = folder / "venv" / "bin"
    if pip:
        succeed(programs / "pip", "install", "--quiet", "--upgrade", pip, folder=folder)
    if pip == OLD_PIP:
        run_apart(programs / "pip", "uninstall", "--quiet", "--yes", "wheel", "setuptools", folder=folder)
    return programs


def install(programs: Path, dist: Path) -> None:
    options = ["--quiet", "--only-binary=:all:", f"--find-links={dist}"]
    succeed(programs / "pip", "install", *options, "dcos-tensorflow", folder=programs)
    succeed(programs / "pip", "check", folder=programs)


def options_file(folder: Path) -> Path:
    (folder / "job.py").write_text("print('hello from the job')\n")
    path = folder / "options.json"
    path.write_text(json.dumps({**JOB, "worker": {"count": 1, **TASK}, "parameter_server": {"count": 0}}))
    return path


def check_starts(programs: Path, folder: Path) -> None:
    """Validate options, which imports most of what is installed."""
    program = programs / "dcos-tensorflow"
    assert "0.1.0" in succeed(program, "--version", folder=folder)
    assert "is valid" in succeed(program, "options", "validate", options_file(folder), folder=folder)


def check_builds(programs: Path, folder: Path) -> None:
    """Build executor and package, and start the executor on Python 3.8."""
    program = programs / "dcos-tensorflow"
    succeed(program, "executor", "build", "--output", "executor.pyz", folder=folder)
    for python in interpreters(8, 8):
        assert " on Python 3.8." in succeed(python, "-I", "-S", "executor.pyz", "--version", folder=folder)
    succeed(program, "package", "build", "--out", "package", folder=folder)
    assert (folder / "package" / "artefacts" / "tensorflow-scheduler.pyz").stat().st_size > 1_000_000


def check_local_run(programs: Path, folder: Path) -> None:
    state = str(folder / "state")
    output = succeed(
        programs / "dcos-tensorflow", "local", "run", options_file(folder), folder=folder, XDG_STATE_HOME=state
    )
    assert "own succeeded" in output


def test_wheel_contains_pymesos_and_no_test(dist: Path) -> None:
    """The licence has to accompany the code."""
    (wheel,) = dist.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()

    assert "mesos_client/_vendor/pymesos/process.py" in names
    assert "mesos_client/_vendor/pymesos/LICENSE" in names
    assert [] == [name for name in names if name.startswith("tests") or "/subprocess/" in name]


@pytest.mark.parametrize("python", [*interpreters(8, 8), *interpreters(13, 13)], ids=lambda path: path.name)
def test_program_with_reports_runs_without_dependencies(python: Path, dist: Path, tmp_path: Path) -> None:
    """A program that imports tf_executor also runs elsewhere, as tasks.md says."""
    programs = environment(tmp_path, python)
    options = ["--quiet", "--no-index", f"--find-links={dist}", "--no-deps", "--ignore-requires-python"]
    succeed(programs / "pip", "install", *options, "dcos-tensorflow", folder=tmp_path)
    (tmp_path / "train.py").write_text("from tf_executor import report\nreport(step=1, loss=0.5)\n")
    (tmp_path / "fit.py").write_text("from tf_executor.keras import ProgressCallback\n")

    succeed(programs / "python", "train.py", folder=tmp_path)
    assert "ProgressCallback requires Keras" in run_apart(programs / "python", "fit.py", folder=tmp_path).stderr


@pytest.mark.parametrize("version", sorted({"3.10", "3.12"} & PYTHONS.keys()))
def test_wheel_starts_with_pip_of_venv(version: str, dist: Path, tmp_path: Path) -> None:
    """No compiler, no checkout, only wheels. The next tests use the other Pythons."""
    programs = environment(tmp_path, PYTHONS[version])

    install(programs, dist)

    check_starts(programs, tmp_path)


@pytest.mark.usefixtures("real_mesos")
def test_wheel_runs_job_after_newest_pip(dist: Path, tmp_path: Path) -> None:
    """On the newest Python."""
    programs = environment(tmp_path, [*PYTHONS.values()][-1], "pip")

    install(programs, dist)

    check_builds(programs, tmp_path)
    check_local_run(programs, tmp_path)


@pytest.mark.usefixtures("real_mesos")
def test_wheel_runs_job_on_debian(dist: Path, tmp_path: Path) -> None:
    """Its pip is old, and its environments have neither wheel nor setuptools."""
    debian = Path("/usr/bin/python3")
    if not debian.exists() or run_apart(debian, "-m", "ensurepip", "--version", folder=tmp_path).returncode != 0:
        pytest.skip("/usr/bin/python3 with python3-venv is not installed")
    programs = environment(tmp_path, debian, OLD_PIP)

    install(programs, dist)

    check_starts(programs, tmp_path)
    check_builds(programs, tmp_path)
    check_local_run(programs, tmp_path)


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.timeout(1200)
def test_first_job_trains_after_its_own_installation(dist: Path, tmp_path: Path) -> None:
    """Every line of docs/tutorials/first-job.md, in an account with an empty home.

    Slow: the page installs TensorFlow, and trains twice.
    """
    python = tmp_path / "python"
    python.mkdir()
    (python / "python3").symlink_to(PYTHONS["3.11"])
    account = Account(tmp_path, python)
    links = os.environ.get("PIP_FIND_LINKS", "")
    account.environment |= {"PIP_FIND_LINKS": f"{links} {dist}", "PIP_NO_COMPILE": "1"}
    try:
        install_page(account)
        check_first_job(account)
    finally:
        account.close()


def test_tools_run_wheel(dist: Path, tmp_path: Path) -> None:
    """pipx and uv make an environment of their own."""
    programs = environment(tmp_path, Path(sys.executable))
    succeed(programs / "pip", "install", "--quiet", "pipx", "uv", folder=tmp_path)
    (wheel,) = map(str, dist.glob("*.whl"))
    index = run_apart(programs / "pip", "config", "get", "global.index-url", folder=tmp_path).stdout.strip()
    index = os.environ.get("PIP_INDEX_URL") or index
    own = {"PIPX_HOME": str(tmp_path / "pipx"), "UV_CACHE_DIR": str(tmp_path / "uv"), "XDG_DATA_HOME": str(tmp_path)}
    own |= {"UV_DEFAULT_INDEX": index} if index else {}
    command = [wheel, "dcos-tensorflow", "options", "validate", str(options_file(tmp_path))]

    pipx = succeed(programs / "pipx", "run", "--spec", *command, folder=tmp_path, **own)
    uv = succeed(programs / "uv", "tool", "run", "--system-certs", "--from", *command, folder=tmp_path, **own)

    assert ["options.json is valid"] * 2 == [re.sub(r"\S+/", "", text.splitlines()[-1]) for text in (pipx, uv)]


def test_setup_shows_progress_and_no_warning(checkout: Path) -> None:
    """The second run only checks. An installation of earlier versions is cleaned."""
    script = checkout / "scripts" / "setup"
    first = run_apart(script, folder=checkout, PYTHON=sys.executable)
    again = succeed(script, folder=checkout, PYTHON=sys.executable)
    site = next(checkout.glob(".venv/lib/python*/site-packages"))
    old = site / "http_parser-0.9.0.post1.dist-info"
    old.mkdir()
    (old / "METADATA").write_text("Metadata-Version: 2.1\nName: http-parser\nVersion: 0.9.0.post1\n")
    (old / "RECORD").write_text(f"{old.name}/METADATA,,\n{old.name}/RECORD,,\n")
    (checkout / ".venv" / "installed").write_text("an-old-digest 0\n")
    repaired = succeed(script, folder=checkout, PYTHON=sys.executable)

    assert 0 == first.returncode, first.stderr
    assert re.search(r"(?m)^  \d+ of \d+: (Downloading|Using cached) .* \([\d.]+ [kM]B\)$", first.stdout)
    assert "Warning" not in first.stdout + first.stderr.replace("WARNING: Location", "")
    assert again.splitlines() == first.stdout.splitlines()[-3:] == repaired.splitlines()[-3:]
    assert ["  source .venv/bin/activate", "  dcos-tensorflow try train.py"] == again.splitlines()[-2:]
    size = re.match(r"needs ([\d.]+) GB of disk in \.venv", first.stdout)
    assert size is not None
    used = sum(path.lstat().st_size for path in (checkout / ".venv").rglob("*"))
    assert 0.5 < used / 1e9 / float(size[1]) < 1.2
    assert not old.exists()
    assert "is valid" in succeed(
        checkout / ".venv/bin/dcos-tensorflow", "options", "validate", options_file(checkout), folder=checkout
    )
