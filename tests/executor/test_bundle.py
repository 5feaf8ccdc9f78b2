"""The executor bundle, run as an agent does."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from click.testing import CliRunner

import tf_executor
import tf_scheduler
from kit.commands import run_program
from kit.interpreters import interpreters, library_path, output_of
from tf_scheduler.cli.commands.package import executor
from tf_scheduler.zipapp_builder import BundleError, build_bundle

OTHER_PYTHONS = [path for path in interpreters(8, 14) if path.name != f"python3.{sys.version_info.minor}"]


def run_bundle(bundle: Path, *arguments: str, python: Path | str = sys.executable, flags: tuple[str, ...] = ()) -> str:
    """Return the bundle's output, run without the project's packages."""
    return output_of([python, "-I", *flags, bundle, *arguments], bundle.parent)


def test_bundle_runs_without_installation(bundle: Path) -> None:
    """Only with its own content and the standard library (no site-packages)."""
    assert run_bundle(bundle, "--version", flags=("-S",)).startswith(
        f"tf_executor {tf_scheduler.__version__} on Python "
    )


@pytest.mark.parametrize("python", OTHER_PYTHONS, ids=lambda path: path.name)
def test_bundle_runs_on_other_pythons(bundle: Path, python: Path) -> None:
    """The agent's Python need not be the one that built the bundle."""
    assert f"on Python 3.{python.name.rpartition('.')[2]}." in run_bundle(
        bundle, "--version", python=python, flags=("-S",)
    )


def test_agent_without_mesos_variables_is_reported(bundle: Path) -> None:
    result = run_program(sys.executable, bundle, env={})
    assert 2 == result.returncode
    assert "only a Mesos agent can start an executor" in result.stderr


def test_bundle_has_no_native_code(bundle: Path) -> None:
    with zipfile.ZipFile(bundle) as archive:
        names = archive.namelist()
        assert not [name for name in names if archive.read(name).startswith(b"\x7fELF")]
    assert {".py"} == {Path(name).suffix for name in names if not name.startswith("licenses/")}


def test_bundle_contains_third_party_licences(bundle: Path) -> None:
    """Their terms require it."""
    with zipfile.ZipFile(bundle) as archive:
        licensed = {name.split("/")[1] for name in archive.namelist() if name.startswith("licenses/")}
        assert b"Douban" in archive.read("licenses/pymesos/LICENSE")
    assert {"pymesos"} == licensed


@pytest.mark.parametrize("python", interpreters(10, 14), ids=lambda path: path.name)
def test_every_python_builds_same_bytes(python: Path, bundle: Path, tmp_path: Path) -> None:
    """They read the modules of this environment."""
    program = """
import sys
import mesos_client
from pathlib import Path
from tf_scheduler.zipapp_builder import build_bundle
build_bundle(Path(sys.argv[1]))
"""
    environment = {**os.environ, "PYTHONPATH": library_path(), "PYTHONHASHSEED": "7"}
    subprocess.run([python, "-S", "-c", program, str(tmp_path / "again.pyz")], env=environment, check=True)
    assert bundle.read_bytes() == (tmp_path / "again.pyz").read_bytes()


def test_current_bundle_is_not_rewritten(bundle: Path) -> None:
    before = bundle.stat()
    assert bundle == build_bundle(bundle)
    after = bundle.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.parametrize("content", [b"", b"rubbish", None])
def test_other_file_is_replaced(bundle: Path, tmp_path: Path, content: bytes | None) -> None:
    target = tmp_path / "tf_executor.pyz"
    target.write_bytes(bundle.read_bytes()[:1000] if content is None else content)
    build_bundle(target)
    assert bundle.read_bytes() == target.read_bytes()
    assert [target] == list(tmp_path.iterdir())


def test_default_bundle_is_cached_by_digest(bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    digest = hashlib.sha256(bundle.read_bytes()).hexdigest()
    name = f"tf_executor-{digest[:16]}.{sys.implementation.cache_tag}.pyz"
    assert tmp_path / "dcos-tensorflow" / "executor" / name == build_bundle()
    build_bundle().write_bytes(b"damaged")
    assert zipfile.is_zipfile(build_bundle())


@pytest.mark.parametrize("python", interpreters(8, 14), ids=lambda path: path.name)
def test_cached_bundle_has_byte_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = "import sys; sys.path.insert(0, sys.argv[1]); import tf_executor.task as task; print(task.__file__)"
    place = output_of([python, "-I", "-S", "-c", program, build_bundle()], tmp_path).strip()
    is_same = python.name == f"python3.{sys.version_info.minor}"
    assert place.endswith("/tf_executor/task.pyc" if is_same else "/tf_executor/task.py")


def test_unwritable_output_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    target = tmp_path / "file" / "tf_executor.pyz"
    with pytest.raises(BundleError, match=f"cannot write the executor's bundle {target}: File exists"):
        build_bundle(target)


def test_executor_version_matches_scheduler() -> None:
    assert tf_scheduler.__version__ == tf_executor.__version__


def test_bundle_stays_small(bundle: Path) -> None:
    """Every task fetches it."""
    assert bundle.stat().st_size < 5_000_000


def test_bundle_command_prints_path(tmp_path: Path, bundle: Path) -> None:
    target = tmp_path / "here.pyz"
    result = CliRunner().invoke(executor, ["build", "--output", str(target)])
    assert (0, f"{target}\n") == (result.exit_code, result.output)
    assert bundle.read_bytes() == target.read_bytes()
