"""scripts/audit and scripts/release: missing data is a failure."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import shutil
import subprocess
import sys
import zipfile
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tf_scheduler
from kit.commands import run_program

HOME = Path(__file__).parents[1]
LATER = "9999"
URL = "https://files.example.com/dcos-tensorflow"


def load_audit() -> ModuleType:
    loader = importlib.machinery.SourceFileLoader("audit_script", str(HOME / "scripts" / "audit"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def pinned(name: str) -> str:
    """Return the version of a package in the lock."""
    return next(str(v) for n, v in load_audit().read_pins(HOME / "requirements" / "scheduler.txt") if n == name)


def an_advisory(name: str = "h11", age: int = 0, **affected: Any) -> dict[str, Any]:
    """Return an advisory in the OSV format."""
    modified = datetime.now(timezone.utc) - timedelta(days=age)
    package = {"name": name, "ecosystem": "PyPI", "purl": f"pkg:pypi/{name}"}
    return {
        "id": "PYSEC-2999-1",
        "modified": modified.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "affected": [{"package": package, **affected}],
    }


def a_range(*events: tuple[str, str], kind: str = "ECOSYSTEM") -> list[dict[str, Any]]:
    return [{"type": kind, "events": [{name: version} for name, version in events]}]


def a_snapshot(folder: Path, *advisories: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for number, advisory in enumerate(advisories):
        (folder / f"PYSEC-{number}.json").write_text(json.dumps(advisory))
    return folder


def audit(snapshot: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [HOME / "scripts" / "audit", "--snapshot", snapshot, "--min-advisories", "1"]
    return run_program(sys.executable, *command, *options)


def harmless() -> dict[str, Any]:
    """Return an advisory of a package that is not in the lock."""
    return an_advisory("not-in-the-lock", ranges=a_range(("introduced", "0")))


def test_hole_in_pinned_version_is_reported(tmp_path: Path) -> None:
    """With package, version, advisory and remedy."""
    hole = an_advisory(ranges=a_range(("introduced", "0"), ("fixed", LATER)))

    result = audit(a_snapshot(tmp_path / "snapshot", harmless(), hole))

    assert 1 == result.returncode
    assert f"h11 {pinned('h11')}: PYSEC-2999-1, fixed in {LATER}\n" in result.stdout


@pytest.mark.parametrize(
    "affected",
    [
        {"versions": ["0.1", "PINNED"]},
        {"versions": ["not a version", "PINNED"]},
        {"ranges": a_range(("introduced", "0"), ("last_affected", "PINNED"))},
        {"ranges": a_range(("introduced", "PINNED"))},
        {"ranges": a_range(("introduced", "PINNED"), ("introduced", "0"), ("fixed", "0.1"))},
        {"ranges": a_range(("introduced", "0"), kind="SEMVER")},
    ],
    ids=["listed", "beside-invalid", "last-affected", "introduced", "introduced-again", "semver"],
)
def test_each_form_of_affected_is_understood(tmp_path: Path, affected: dict[str, Any]) -> None:
    """The forms of the OSV specification."""
    text = json.dumps(an_advisory(**affected)).replace("PINNED", pinned("h11"))
    assert 1 == audit(a_snapshot(tmp_path / "snapshot", json.loads(text))).returncode


@pytest.mark.parametrize(
    "advisory",
    [
        harmless(),
        an_advisory(ranges=a_range(("introduced", "0"), ("fixed", "PINNED"))),
        an_advisory(ranges=a_range(("introduced", "0"), ("last_affected", "0.1"))),
        an_advisory(ranges=a_range(("introduced", "0"), kind="GIT")),
        an_advisory(versions=["0.1", "not a version"]),
        an_advisory(ranges=a_range(("introduced", "0"))) | {"withdrawn": "2026-01-01T00:00:00Z"},
    ],
    ids=["other-package", "fixed", "last-affected", "commits", "listed", "withdrawn"],
)
def test_unaffected_pins_pass(tmp_path: Path, advisory: dict[str, Any]) -> None:
    """A false alarm would be ignored the next time."""
    text = json.dumps(advisory).replace("PINNED", pinned("h11"))
    result = audit(a_snapshot(tmp_path / "snapshot", json.loads(text)))
    assert (0, "") == (result.returncode, result.stderr)


@pytest.mark.parametrize("withdrawn", [None, "null"], ids=["json", "yaml"])
def test_withdrawn_without_time_hides_nothing(tmp_path: Path, withdrawn: str | None) -> None:
    """The `null` of YAML arrives as text."""
    hole = an_advisory(versions=[pinned("h11")]) | {"withdrawn": withdrawn}
    assert 1 == audit(a_snapshot(tmp_path / "snapshot", hole)).returncode


def test_versions_in_yaml_stay_text(tmp_path: Path) -> None:
    """In pypa/advisory-database 1.10 is not 1.1. Its other YAML files are ignored."""
    lock, snapshot = tmp_path / "lock", tmp_path / "snapshot" / "vulns" / "Some_Package"
    lock.mkdir()
    snapshot.mkdir(parents=True)
    (lock / "scheduler.txt").write_text("some-package==1.10 \\\n    --hash=sha256:00\n")
    (tmp_path / "snapshot" / "workflow.yml").write_text("on: push\n")
    advisory = {**an_advisory("Some_Package", versions=["VERSION"])}
    text = json.dumps(advisory).replace('"VERSION"', "1.10")

    (snapshot / "PYSEC-1.yaml").write_text(text)
    hole = audit(tmp_path / "snapshot", "--requirements", str(lock))
    (snapshot / "PYSEC-1.yaml").write_text(text.replace("[1.10]", "[1.1]"))
    none = audit(tmp_path / "snapshot", "--requirements", str(lock))

    assert (1, 0) == (hole.returncode, none.returncode)


def test_snapshot_can_be_an_archive(tmp_path: Path) -> None:
    """As OSV publishes it: all.zip."""
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("PYSEC-1.json", json.dumps(an_advisory(versions=[pinned("h11")])))
    assert 1 == audit(tmp_path / "all.zip").returncode


def no_data(folder: Path, case: str) -> Path:
    """Return a snapshot from which nothing follows."""
    path = a_snapshot(folder / case)
    if case == "missing":
        path.rmdir()
    elif case == "old":
        a_snapshot(path, an_advisory("not-in-the-lock", age=31, versions=["1"]))
    elif case == "future":
        a_snapshot(path, an_advisory("not-in-the-lock", age=-2, versions=["1"]))
    elif case == "other-ecosystem":
        advisory = harmless()
        advisory["affected"][0]["package"]["ecosystem"] = "npm"
        a_snapshot(path, advisory)
    elif case == "damaged":
        a_snapshot(path, harmless())
        (path / "PYSEC-9.json").write_text("{")
    elif case == "damaged-archive":
        path.rmdir()
        path.write_bytes(b"PK")
    elif case == "invalid-range":
        a_snapshot(path, an_advisory(ranges=a_range(("introduced", "not a version"))))
    return path


@pytest.mark.parametrize(
    "case", ["missing", "empty", "old", "future", "other-ecosystem", "damaged", "damaged-archive", "invalid-range"]
)
def test_audit_without_data_fails(tmp_path: Path, case: str) -> None:
    """Exit code 3, and a sentence that cannot be taken for a good result."""
    result = audit(no_data(tmp_path, case))

    assert 3 == result.returncode
    assert result.stderr.startswith("no data: ")
    assert "The packages are NOT audited." in result.stderr


@pytest.mark.parametrize(
    "change",
    [
        {"affected": None},
        {"affected": ["h11"]},
        {"affected": [{"package": None}]},
        {"affected": [{"package": {"ecosystem": "PyPI"}}]},
        an_advisory(versions="PINNED"),
        an_advisory(ranges=None),
        an_advisory(ranges=[{"type": "ECOSYSTEM", "events": [None]}]),
        an_advisory(ranges=[{"type": "ECOSYSTEM", "events": [{"introduced": 0}]}]),
        {"withdrawn": "yes"},
    ],
    ids=["null", "text", "package", "no-name", "versions", "ranges", "events", "introduced", "withdrawn"],
)
def test_malformed_advisory_is_named(tmp_path: Path, change: dict[str, Any]) -> None:
    """It may be about any package; exit code 1 would mean that one is vulnerable."""
    advisory = json.dumps(an_advisory() | change).replace("PINNED", pinned("h11"))

    result = audit(a_snapshot(tmp_path / "snapshot", harmless(), json.loads(advisory)))

    assert 3 == result.returncode
    assert result.stderr.startswith("no data: PYSEC-2999-1")


def test_part_of_a_snapshot_is_not_enough(tmp_path: Path) -> None:
    """One advisory would pass for the whole database."""
    snapshot = a_snapshot(tmp_path / "snapshot", harmless())
    result = run_program(sys.executable, HOME / "scripts" / "audit", "--snapshot", snapshot)
    assert (3, "no data: the snapshot has 1 advisories") == (result.returncode, result.stderr[:38])


def test_age_limit_can_be_changed(tmp_path: Path) -> None:
    assert 0 == audit(no_data(tmp_path, "old"), "--max-age", "40").returncode


def test_index_without_data_for_one_package_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The others do not make up for it."""
    module = load_audit()
    pins = [("h11", "0.16.0"), ("idna", "3.20"), ("idna", "3.21")]
    unknown: dict[str, Any] = {"name": "idna", "skip_reason": "not on the index"}

    def ask(part: list[tuple[str, str]], _: Path) -> list[dict[str, Any]]:
        assert len(part) == len(dict(part)), "pip-audit refuses two versions of a package"
        return [
            unknown if name == "idna" else {"name": name, "version": version, "vulns": []} for name, version in part
        ]

    monkeypatch.setattr(module, "ask_index", ask)
    with pytest.raises(module.NoDataError, match="idna: not on the index"):
        module.audit_by_index(pins)
    unknown = {"name": "idna", "version": "3.20", "vulns": [{"id": "PYSEC-1", "fix_versions": []}]}
    assert module.VULNERABLE == module.audit_by_index(pins)
    unknown = {"name": "idna", "version": "3.20", "vulns": []}
    assert 0 == module.audit_by_index(pins)


@pytest.mark.skipif(not (HOME / ".git").exists(), reason="scripts/release builds from a commit")
@pytest.mark.parametrize(("case", "code"), [("empty", 3), ("vulnerable", 1)])
def test_release_needs_a_clean_audit(tmp_path: Path, case: str, code: int) -> None:
    """Nothing is written."""
    snapshot = no_data(tmp_path, "empty")
    if case == "vulnerable":
        a_snapshot(snapshot, an_advisory(versions=[pinned("h11")]))
    home = tmp_path / "home"
    subprocess.run(["git", "clone", "-q", "--shared", HOME, home], check=True)
    (home / ".venv").symlink_to(HOME / ".venv")
    changelog = (home / "CHANGELOG.md").read_text()
    (home / "CHANGELOG.md").write_text(f"## {tf_scheduler.__version__} (2026-01-01)\n{changelog}")
    commit(home)

    result = run_program(home / "scripts" / "release", tmp_path / "out", URL, "--snapshot", snapshot)

    assert code == result.returncode
    assert f"no release: exit code {code} of scripts/audit" in result.stderr
    assert not (tmp_path / "out").exists()


def commit(home: Path) -> None:
    """Commit all files of a folder, which may be a repository already."""
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "a commit"]):
        identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
        subprocess.run(["git", *identity, *arguments], cwd=home, check=True)


def release(home: Path, path: str, old: str, new: str) -> subprocess.CompletedProcess[str]:
    """Run scripts/release on a commit in which one file is changed."""
    files = ("CHANGELOG.md", "Dockerfile", "framework/tf_scheduler/__init__.py", "package/resource.json")
    for name in (*files, "scripts/release"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HOME / name, home / name)
    text = (home / path).read_text()
    assert old in text
    (home / path).write_text(text.replace(old, new))
    commit(home)
    return run_program(home / "scripts" / "release", home / "out", URL)


@pytest.mark.parametrize("path", ["Dockerfile", "package/resource.json"])
def test_release_needs_images_with_digests(tmp_path: Path, path: str) -> None:
    """A tag can name another image tomorrow."""
    result = release(tmp_path, path, "@sha256:", "#")

    assert 1 == result.returncode
    assert "no release: an image without a digest" in result.stderr
    assert Path(path).name in result.stdout


def test_release_needs_date_of_version(tmp_path: Path) -> None:
    result = release(tmp_path, "framework/tf_scheduler/__init__.py", f'"{tf_scheduler.__version__}"', '"7.8.9"')

    assert (1, "") == (result.returncode, result.stdout)
    assert "no release: CHANGELOG.md: missing heading `## 7.8.9 (YYYY-MM-DD)`\n" == result.stderr
