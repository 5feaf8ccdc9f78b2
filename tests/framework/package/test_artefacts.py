"""The package's artefacts."""

import importlib.metadata
import json
import os
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest
from click.testing import CliRunner

from kit.commands import run_program
from kit.interpreters import interpreters, library_path
from tf_scheduler import __version__
from tf_scheduler.cli.commands.package import package
from tf_scheduler.errors import PackageError
from tf_scheduler.package import artefacts, universe
from tf_scheduler.package.render import render_app
from tf_scheduler.package.sources import PACKAGE_FOLDER, read_sources


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory):
    target = tmp_path_factory.mktemp("universe")
    universe.build_files(target, PACKAGE_FOLDER)
    return target / universe.ARTEFACTS


def run_alone(program, *arguments, **environment):
    """Alone: no site-packages, nothing of this project in the environment."""
    command = [sys.executable, "-I", "-S", program, *arguments]
    return run_program(*command, env={"PATH": os.environ["PATH"], **environment})


def test_digests_match_the_files(folder) -> None:
    """As `sha256sum --check` reads them."""
    result = run_program("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=folder)

    assert (0, "") == (result.returncode, result.stderr)
    listed = {line.split()[1] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    assert {path.name for path in folder.iterdir()} - {"SHA256SUMS"} == listed


def test_scheduler_file_runs_alone(folder) -> None:
    result = run_alone(folder / artefacts.SCHEDULER, "run", SERVICE_COMMAND="true", HOST="127.0.0.1")

    assert (1, "") == (result.returncode, result.stdout)
    assert "PORT_API: must be the port of the HTTP API, 1 to 65535, not ''" in result.stderr
    assert "Traceback" not in result.stderr


def test_scheduler_file_reports_all_invalid_options(folder) -> None:
    """The command line of the Marathon app redirects them to the sandbox's stdout."""
    result = run_alone(folder / artefacts.SCHEDULER, "run", WORKER_COUNT="many", WORKER_CPUS="-1")

    assert 1 == result.returncode
    assert "worker.count: " in result.stderr
    assert "worker.cpus: " in result.stderr


def test_scheduler_file_has_no_compiled_module(folder) -> None:
    """It contains the licences of its dependencies."""
    with zipfile.ZipFile(folder / artefacts.SCHEDULER) as archive:
        names = archive.namelist()
        assert not [name for name in names if archive.read(name).startswith((b"\x7fELF", b"MZ"))]
    licensed = {name.split("/")[1] for name in names if name.startswith("licenses/")}
    assert {
        "click",
        "kazoo",
        "marshmallow",
        "pymesos",
        "requests",
        "starlette",
        "uvicorn",
        "urllib3",
        "h11",
    } <= licensed


def test_second_build_writes_nothing(folder) -> None:
    before = {path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.iterdir()}
    del before["SHA256SUMS"]

    artefacts.build_artefacts(folder, PACKAGE_FOLDER)

    assert before == {name: ((folder / name).stat().st_mtime_ns, (folder / name).read_bytes()) for name in before}


@pytest.mark.parametrize("python", interpreters(10, 14), ids=lambda path: path.name)
def test_every_python_builds_same_bytes(folder, tmp_path: Path, python: Path) -> None:
    """They read the libraries of this environment."""
    program = (
        "from pathlib import Path; from tf_scheduler.package.artefacts import build_artefacts;"
        f"build_artefacts(Path({str(tmp_path)!r}), Path({str(PACKAGE_FOLDER)!r}))"
    )
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": library_path()}
    subprocess.run([python, "-S", "-c", program], env=environment, check=True)

    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.name != universe.SUMS} == built


@pytest.mark.parametrize("python", interpreters(8, 14), ids=lambda path: path.name)
def test_scheduler_file_runs_or_refuses_on_each_python(folder, python: Path) -> None:
    """The installed libraries decide which one is the oldest that it runs on."""
    minimum, version = artefacts.scheduler_python(), tuple(map(int, python.name.removeprefix("python").split(".")))
    command = [python, "-I", "-S", folder / artefacts.SCHEDULER, "--version"]
    result = run_program(*command, env={"PATH": os.environ["PATH"]})

    if version >= minimum:
        assert (0, f"tensorflow-scheduler, version {__version__}\n", "") == (
            result.returncode,
            result.stdout,
            result.stderr,
        )
    else:
        text = (
            f"tensorflow-scheduler needs Python {minimum[0]}.{minimum[1]} or later, this is {version[0]}.{version[1]}."
        )
        assert (1, "", True) == (result.returncode, result.stdout, result.stderr.startswith(text))


def test_scheduler_file_names_oldest_python(monkeypatch: pytest.MonkeyPatch) -> None:
    """It contains no library that needs a newer one, and all that older ones require."""

    metadata = {
        "new": "Requires-Python: >=3.12",
        "user": "Requires-Python: >=3.8,!=3.9.0",
        "old": "Requires-Python: >=3.9",
        "optional": "",
    }
    required = {
        "user": 'absent>=1; python_full_version < "3.11"',
        "old": 'colorama; platform_system == "Windows"',
        "optional": 'backports.datetime-fromisoformat; python_version < "3.11"',
    }
    monkeypatch.setattr(importlib.metadata, "metadata", lambda name: message_from_string(metadata[name]))
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: [required[name]] if name in required else None)

    minima = {name: artefacts._minimum_python({name}) for name in metadata}

    assert {"new": (3, 12), "user": (3, 11), "old": (3, 10), "optional": (3, 10)} == minima
    assert (3, 12) == artefacts._minimum_python(set(metadata))


def test_examples_can_be_extracted(folder, tmp_path: Path) -> None:
    """By the tool that the Mesos fetcher uses."""
    subprocess.run([sys.executable, "-m", "zipfile", "-e", folder / artefacts.EXAMPLES, tmp_path], check=True)

    assert (folder / artefacts.EXAMPLES).read_bytes().startswith(b"PK")
    assert (tmp_path / "examples" / "digits" / "train.py").is_file()


def test_artefacts_stay_small(folder) -> None:
    sizes = {path.name: path.stat().st_size for path in folder.iterdir()}

    assert sizes[artefacts.SCHEDULER] < 13_000_000
    assert sizes[artefacts.COMMAND] < 680_000  # more than half of it is click


def test_scheduler_file_ignores_list_of_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an installation by pip before 23.1 without wheel, files are missing."""
    info = tmp_path / "oldstyle-1.0.egg-info"
    (tmp_path / "oldstyle").mkdir()
    info.mkdir()
    (tmp_path / "oldstyle" / "__init__.py").write_text("VALUE = 1\n")
    (info / "PKG-INFO").write_text("Metadata-Version: 1.1\nName: oldstyle\nVersion: 1.0\n")
    (info / "SOURCES.txt").write_text("LICENSE\nsetup.py\noldstyle/__init__.py\n")
    (info / "top_level.txt").write_text("oldstyle\n")
    monkeypatch.syspath_prepend(tmp_path)

    files = dict(artefacts._scheduler_files(["oldstyle"]))

    assert b"VALUE = 1\n" == files["oldstyle/__init__.py"]
    assert b"Name: oldstyle" in files["licenses/oldstyle/METADATA"]
    assert not {"setup.py", "LICENSE", "licenses/oldstyle/LICENSE"} & files.keys()


def test_scheduler_file_without_hvac_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that cannot read secrets of Vault is not a surprise on the cluster."""
    monkeypatch.setattr(artefacts, "_DISTRIBUTIONS", ("click",))
    bare = CliRunner().invoke(package, ["build", "--out", str(tmp_path / "bare")])
    monkeypatch.setattr(artefacts, "_DISTRIBUTIONS", ("click", "hvac"))
    complete = CliRunner().invoke(package, ["build", "--out", str(tmp_path / "complete")])

    assert (0, 0) == (bare.exit_code, complete.exit_code)
    assert "built without hvac; secrets of Vault need the extra `vault`: pip install" in bare.output
    assert "without hvac" not in complete.output


def test_bill_of_materials_lists_what_is_inside(folder) -> None:
    """Each distribution that is packed is listed, in the packed version."""
    bill = json.loads((folder / artefacts.SBOM).read_text())

    assert ("CycloneDX", "1.6") == (bill["bomFormat"], bill["specVersion"])
    components = {one["bom-ref"]: one for one in bill["components"]}
    assert len(components) == len(bill["components"])
    hashes = {one["name"]: one["hashes"][0]["content"] for one in components.values() if one["type"] == "file"}
    assert {name: artefacts.sha256((folder / name).read_bytes()) for name in hashes} == hashes
    needed = {one["ref"]: one["dependsOn"] for one in bill["dependencies"]}
    assert needed.keys() == {*hashes, "package"}
    for name in (artefacts.SCHEDULER, artefacts.COMMAND):
        with zipfile.ZipFile(folder / name) as archive:
            packed = {path.split("/")[1] for path in archive.namelist() if path.startswith("licenses/")}
            assert packed == {components[ref]["name"] for ref in needed[name]}
            for ref in needed[name]:
                metadata = archive.read(f"licenses/{components[ref]['name']}/METADATA").decode()
                assert f"\nVersion: {components[ref]['version']}\n" in metadata


def test_bill_of_materials_names_sources_and_licences(folder) -> None:
    """pymesos has the address of the unchanged one: what is known of that applies."""
    components = {one["name"]: one for one in json.loads((folder / artefacts.SBOM).read_text())["components"]}
    libraries = {name: one for name, one in components.items() if one["type"] == "library"}

    assert "pkg:pypi/click@8.1.8" == libraries["click"]["purl"]
    assert "pkg:pypi/pymesos@0.3.15" == libraries["pymesos"]["purl"]
    assert [] == [name for name, one in libraries.items() if "purl" not in one]
    assert [] == [name for name, one in libraries.items() if not one["licenses"]]


def test_changed_artefact_does_not_start(folder, tmp_path: Path) -> None:
    """The command line of the Marathon app, with a harmless interpreter."""
    digests = universe.read_digests(folder / universe.SUMS)
    sources = universe.check_and_fill(read_sources(), digests=digests)
    app = render_app(sources, {"scheduler": {"python": "echo"}})
    bundle = tmp_path / artefacts.SCHEDULER
    bundle.write_bytes((folder / artefacts.SCHEDULER).read_bytes())
    command = ["/bin/sh", "-c", app["cmd"]]

    good = run_program(*command, cwd=tmp_path)
    changed = bytearray(bundle.read_bytes())
    changed[len(changed) // 2] ^= 1
    bundle.write_bytes(changed)
    bad = run_program(*command, cwd=tmp_path)

    assert (0, "tensorflow-scheduler.pyz run\n", "") == (good.returncode, good.stdout, good.stderr)
    actual, expected = artefacts.sha256(changed), digests[artefacts.SCHEDULER]
    assert (65, "") == (bad.returncode, bad.stderr)
    assert f"tensorflow-scheduler.pyz: wrong SHA-256 digest {actual}; expected {expected}\n" == bad.stdout
    names = {"EXECUTOR_URI_SHA256": artefacts.EXECUTOR, "EXAMPLES_URI_SHA256": artefacts.EXAMPLES}
    assert {name: digests[file] for name, file in names.items()} == {name: app["env"][name] for name in names}


def test_package_without_artefacts_checks_nothing() -> None:
    sources = universe.check_and_fill(read_sources())
    app = render_app(sources)
    assert "exec 2>&1; exec python3 tensorflow-scheduler.pyz run" == app["cmd"]
    assert "" == app["env"]["EXECUTOR_URI_SHA256"]


@pytest.mark.parametrize("text", ["a  b", "zz"])
def test_unreadable_digests_are_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "sums").write_text(text)
    with pytest.raises(PackageError, match=r"sums: `.*`: must be 64 hexadecimal digits"):
        universe.read_digests(tmp_path / "sums")
    with pytest.raises(PackageError, match="none: cannot read the digests"):
        universe.read_digests(tmp_path / "none")
