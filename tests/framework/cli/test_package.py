"""`dcos-tensorflow package`."""

import json

import pytest
from click.testing import CliRunner

from tf_scheduler.cli.main import cli
from tf_scheduler.errors import OptionsMismatchError, PackageError
from tf_scheduler.package.sources import FILES, PACKAGE_FOLDER


@pytest.fixture
def run():
    def finish(*arguments):
        return CliRunner().invoke(cli, ["package", *map(str, arguments)])

    return finish


@pytest.fixture
def broken(tmp_path):
    """A copy of the sources with a bad version."""
    for name in FILES:
        (tmp_path / name).write_bytes((PACKAGE_FOLDER / name).read_bytes())
    package = json.loads((tmp_path / "package.json").read_text())
    (tmp_path / "package.json").write_text(json.dumps({**package, "version": "0_1"}))
    return tmp_path


def test_render_prints_marathon_app(run, tmp_path):
    """With the options of a file, and the id of --app-id."""
    options = tmp_path / "options.json"
    options.write_text('{"service": {"name": "dev/mnist"}, "worker": {"count": 7}}')

    result = run("render", "--options", options, "--app-id", "other/id", "--artifacts-url", "https://files.example.com")

    app = json.loads(result.stdout)
    assert ("/other/id", "7", "dev/mnist") == (app["id"], app["env"]["WORKER_COUNT"], app["env"]["FRAMEWORK_NAME"])
    assert app["fetch"][0]["uri"].startswith("https://files.example.com/0.1.0/")


def test_render_reports_wrong_options_as_cosmos(run, tmp_path):
    options = tmp_path / "options.json"
    options.write_text('{"worker": {"count": "7", "cpu": 1}}')

    result = run("render", "--options", options)

    assert isinstance(result.exception, OptionsMismatchError)
    assert "worker.count: instance type (string)" in str(result.exception)
    assert '["cpu"]' in str(result.exception)


def test_validate_prints_problems(run, broken):
    """As lines or as JSON; exit code 0 or 1."""
    good, bad, listed = (
        run("validate"),
        run("validate", "--sources", broken),
        run("validate", "--sources", broken, "--json"),
    )

    assert (0, 1, 1) == (good.exit_code, bad.exit_code, listed.exit_code)
    assert "is a valid package" in good.stdout
    assert bad.stdout.startswith("package.json: version: ")
    assert ["package.json: version"] == [problem["path"] for problem in json.loads(listed.stdout)]


def test_build_writes_repository(run, tmp_path):
    """Without artefacts, no digests are printed."""
    result = run("build", "--out", tmp_path / "out", "--no-artefacts")

    assert (0, f"built {tmp_path / 'out'}\n") == (result.exit_code, result.output)
    assert {"repo", "universe-v3.json", "universe-v4.json", "universe-v5.json"} == {
        path.name for path in (tmp_path / "out").iterdir()
    }


def test_build_rejects_invalid_package(run, tmp_path, broken):
    result = run("build", "--out", tmp_path / "out", "--sources", broken)

    assert isinstance(result.exception, PackageError)
    assert not (tmp_path / "out").exists()


def test_generate_names_written_files(run, broken):
    (broken / "config.json").write_text("{}")

    first, second = run("generate", "--sources", broken), run("generate", "--sources", broken)

    assert f"wrote {broken / 'config.json'}\n" == first.stdout
    assert f"{broken} is current\n" == second.stdout
