"""`dcos-tensorflow package`."""

import base64
import json
from pathlib import Path

import pytest

from tf_scheduler.package.sources import FILES, PACKAGE_FOLDER


@pytest.fixture
def run_package(invoke):
    return lambda *arguments: invoke("package", *arguments)


@pytest.fixture
def broken(tmp_path: Path):
    """A copy of the sources with a bad version."""
    for name in FILES:
        (tmp_path / name).write_bytes((PACKAGE_FOLDER / name).read_bytes())
    package = json.loads((tmp_path / "package.json").read_text())
    (tmp_path / "package.json").write_text(json.dumps({**package, "version": "0_1"}))
    return tmp_path


def test_render_prints_marathon_app(run_package, tmp_path: Path) -> None:
    """With the options of a file, and the id of --app-id."""
    options = tmp_path / "options.json"
    options.write_text('{"service": {"name": "dev/mnist"}, "worker": {"count": 7}}')

    url = "https://files.example.com"
    _, out, _ = run_package("render", "--options", options, "--app-id", "other/id", "--artifacts-url", url)

    app = json.loads(out)
    assert ("/other/id", "7", "dev/mnist") == (app["id"], app["env"]["WORKER_COUNT"], app["env"]["FRAMEWORK_NAME"])
    assert app["fetch"][0]["uri"].startswith("https://files.example.com/0.1.0/")


def test_render_reports_wrong_options(run_package, tmp_path: Path) -> None:
    options = tmp_path / "options.json"
    options.write_text('{"worker": {"count": "7", "cpu": 1}}')

    code, _, err = run_package("render", "--options", options)

    assert 1 == code
    assert "worker.count: '7' is not of type 'integer'" in err
    assert "worker: Additional properties are not allowed ('cpu' was unexpected)" in err


def test_validate_prints_problems(run_package, broken: Path) -> None:
    """As lines or as JSON; exit code 0 or 1."""
    good, bad = run_package("validate"), run_package("validate", "--sources", broken)
    code, listed, _ = run_package("validate", "--sources", broken, "--json")

    assert (0, 1, 1) == (good[0], bad[0], code)
    assert "is a valid package" in good[1]
    assert bad[1].startswith("package.json: version: ")
    assert ["package.json: version"] == [problem["path"] for problem in json.loads(listed)]


def test_build_writes_repository(run_package, tmp_path: Path) -> None:
    """Without artefacts, no digests are printed."""
    notice = "notice: without artefacts the package does not check their digests\n"
    arguments = "build", "--out", tmp_path / "out", "--no-artefacts"
    assert (0, "", f"{notice}built {tmp_path / 'out'}\n") == run_package(
        *arguments, "--artefacts-url", "https://x.example.net"
    )
    _, _, err = run_package(*arguments)
    assert err.startswith(
        "warning: without --artefacts-url all addresses in the package are placeholders at https://ex"
    )
    assert {"repo", "universe-v4.json", "universe-v5.json"} == {path.name for path in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize("url", ["notaurl", "ftp://a/b", "https:///x", "file:///x"])
def test_build_refuses_an_invalid_address(run_package, tmp_path: Path, url: str) -> None:
    code, _, err = run_package("build", "--out", tmp_path / "out", "--no-artefacts", "--artefacts-url", url)

    assert 2 == code
    assert f"{url!r} is not an http:// or https:// address with a host" in err
    assert not (tmp_path / "out").exists()


def test_build_and_render_fill_in_digests(run_package, tmp_path: Path) -> None:
    code, printed, _ = run_package("build", "--out", tmp_path / "out")
    digests = dict(reversed(line.split("  ")) for line in printed.splitlines())
    folder = tmp_path / "out" / "artefacts"
    (entry,) = json.loads((tmp_path / "out" / "universe-v5.json").read_text())["packages"]
    _, rendered, _ = run_package("render", "--digests", folder / "SHA256SUMS")

    template = base64.b64decode(entry["marathon"]["v2AppMustacheTemplate"]).decode()
    assert 0 == code
    assert f'"EXECUTOR_URI_SHA256": "{digests[str(folder / "tensorflow-executor.pyz")]}"' in template
    assert f"!= {digests[str(folder / 'tensorflow-scheduler.pyz')]} ]" in json.loads(rendered)["cmd"]


def test_build_rejects_image_with_older_python(run_package, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it writes anything."""
    monkeypatch.setattr("tf_scheduler.cli.commands.package.scheduler_python", lambda: (3, 99))

    code, _, err = run_package("build", "--out", tmp_path / "out")

    assert (1, True) == (code, "needs Python 3.99; install the versions of the lock" in err)
    assert not (tmp_path / "out").exists()


def test_build_rejects_invalid_package(run_package, tmp_path: Path, broken: Path) -> None:
    code, _, err = run_package("build", "--out", tmp_path / "out", "--sources", broken)

    assert (1, True) == (code, "package.json: version: " in err)
    assert not (tmp_path / "out").exists()


def test_generate_names_written_files(run_package, broken: Path) -> None:
    (broken / "config.json").write_text("{}")

    first, second = run_package("generate", "--sources", broken), run_package("generate", "--sources", broken)

    assert f"wrote {broken / 'config.json'}\n" == first[1]
    assert f"{broken} is up to date\n" == second[1]
