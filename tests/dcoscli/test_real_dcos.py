"""The commands of a DC/OS user, with the real dcos command."""

from __future__ import annotations

import getpass
import json
import os
import re
import shlex
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from click.testing import CliRunner

from kit.commands import ENVIRONMENT, run_program
from kit.waiting import PATIENCE, wait_until
from mesos_local.master_api import read_status
from tf_scheduler.cli.main import cli
from tf_scheduler.package.artefacts import sha256
from tf_scheduler.package.sources import read_sources
from tf_scheduler.package.universe import check_and_fill
from tf_scheduler.store.sqlite import SqliteStore

pytestmark = pytest.mark.timeout(600)

PAGE, HISTORY = (
    (Path(__file__).parents[2] / "docs" / name).read_text()
    for name in ("tutorials/on-a-cluster.md", "how-to/history.md")
)
SMALL = {"cpus": 0.1, "mem": 64, "disk": 0}
#: Longer than any of these tests: programs that wait to be killed, as parameter servers do.
JOB: dict[str, Any] = {
    "service": {"name": "dev/mnist", "command": "echo hello from $TASK_NAME; exec sleep 1000"},
    "parameter_server": {"count": 1, **SMALL},
    "worker": {"count": 2, **SMALL},
}


def succeeded(result):
    assert 0 == result.returncode, result.stdout + result.stderr
    return result.stdout


@pytest.fixture
def options(tmp_path: Path):
    def write(document):
        path = tmp_path / "options.json"
        path.write_text(json.dumps(document))
        return path

    return write


@pytest.fixture(scope="module")
def service(dcos, tmp_path_factory: pytest.TempPathFactory):
    """The job, installed and deployed; uninstalled afterwards."""
    path = tmp_path_factory.mktemp("options") / "options.json"
    path.write_text(json.dumps(JOB))
    output = succeeded(dcos("package", "install", "tensorflow", f"--options={path}", "--yes"))
    wait_until(
        lambda: "(COMPLETE)" in dcos("tensorflow", "--name=dev/mnist", "plan", "status", "deploy").stdout.split("\n")[0]
    )
    yield output
    dcos("package", "uninstall", "tensorflow", "--app-id=/dev/mnist", "--yes")
    wait_until(lambda: "dev/mnist" not in dcos("marathon", "app", "list").stdout)


def test_repositories_are_added_listed_and_removed(dcos, url, local_cluster) -> None:
    where = [sys.executable, "-m", "dcos.serve", "--dir", local_cluster.directory, "--where"]
    assert url == subprocess.run(where, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True).stdout.strip()
    own, other = f"{url}/universe/universe-v4.json", f"{url}/universe/universe-v5.json"

    assert f"Universe: {own}\n" == succeeded(dcos("package", "repo", "list"))
    succeeded(dcos("package", "repo", "add", "other", other, "--index=0"))
    assert f"other: {other}\nUniverse: {own}\n" == succeeded(dcos("package", "repo", "list"))
    succeeded(dcos("package", "repo", "remove", "other"))
    assert f"Universe: {own}\n" == succeeded(dcos("package", "repo", "list"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("add", "x", "ftp://example.com"), "unsupported scheme"),
        (("add", "Universe", "http://127.0.0.1:9/"), "Repository name [Universe] is already present"),
        (("add", "x", "http://127.0.0.1:9/"), "Could not access data at URI for repository [x]"),
        (("add", "x", "http://127.0.0.1:9/", "--index=7"), "Index (7) is out of range"),
        (("remove", "x"), "Repository name [x] is not present"),
    ],
)
def test_invalid_repository_has_cosmos_message(dcos, arguments, message) -> None:
    result = dcos("package", "repo", *arguments)

    assert 1 == result.returncode
    assert message in result.stderr


def test_search_finds_the_package(dcos) -> None:
    """By name, tag and description."""
    for query in ("tensor", "machine-learning", "gang", "tensor*", ""):
        assert "tensorflow  0.1.0" in succeeded(dcos("package", "search", query))
    assert "No packages found" in dcos("package", "search", "mnist").stderr


def test_describe_shows_the_files_of_the_package(dcos) -> None:
    """config.json with local defaults, the template, the sub-command, the versions."""
    config = json.loads(succeeded(dcos("package", "describe", "tensorflow", "--config")))
    template = succeeded(dcos("package", "describe", "tensorflow", "--app"))
    package = json.loads(succeeded(dcos("package", "describe", "tensorflow")))["package"]

    assert read_sources().config["properties"].keys() == config["properties"].keys()
    artefacts = package["resource"]["assets"]["uris"].values()
    digests = {address.rpartition("/")[2]: sha256(requests.get(address, timeout=60).content) for address in artefacts}
    filled = check_and_fill(read_sources(), digests=digests)
    assert (filled.template, filled.package["preInstallNotes"]) == (template, package["preInstallNotes"])
    assert {"linux", "darwin"} == package["resource"]["cli"]["binaries"].keys()
    assert '[\n  "0.1.0"\n]\n' == succeeded(dcos("package", "describe", "tensorflow", "--package-versions"))


def test_describe_renders_the_app(dcos, options) -> None:
    path = options({"service": {"name": "other"}, "worker": {"count": 7}})

    app = json.loads(succeeded(dcos("package", "describe", "tensorflow", "--app", "--render", f"--options={path}")))

    assert ("other", "7") == (app["id"], app["env"]["WORKER_COUNT"])
    assert "tensorflow" == app["labels"]["DCOS_PACKAGE_NAME"]


def test_invalid_options_are_reported_and_not_installed(dcos, options) -> None:
    """In the format of the command on DC/OS."""
    path = options({"worker": {"count": "three", "cpu": 1}, "service": {"strategy": "sync"}})

    result = dcos("package", "install", "tensorflow", f"--options={path}", "--yes")

    assert 1 == result.returncode
    for line in (
        "Error: Options JSON failed validation",
        "Found: string",
        "Expected: integer",
        "Path: worker.count",
        "Unexpected properties: ['cpu']",
        "Path: worker",
        "Path: service.strategy",
    ):
        assert line in result.stderr.splitlines()
    assert "/tensorflow" not in dcos("package", "list").stdout


def test_unknown_package_is_reported(dcos) -> None:
    assert "Package [nothing] not found" in dcos("package", "install", "nothing", "--yes").stderr
    assert "Version [9] of package [tensorflow] not found" in (
        dcos("package", "describe", "tensorflow", "--package-version=9").stderr
    )
    assert 1 == dcos("package", "uninstall", "tensorflow", "--app-id=/none", "--yes").returncode


def test_install_starts_the_service_and_adds_its_command(service, dcos) -> None:
    assert "Installing Marathon app for package [tensorflow] version [0.1.0]" in service
    assert "New command available: dcos tensorflow" in service
    assert read_sources().package["postInstallNotes"] in service
    assert ["tensorflow", "0.1.0", "/dev/mnist"] == succeeded(dcos("package", "list")).splitlines()[1].split()[:3]


def test_second_install_of_a_service_is_refused(service, dcos, options) -> None:
    result = dcos("package", "install", "tensorflow", f"--options={options(JOB)}", "--yes", "--app")

    assert (1, "Package is already installed\n") == (result.returncode, result.stderr)


def test_submitted_job_is_followed_to_its_result(service, dcos, options) -> None:
    """As by `package install`; a second one is refused; `wait` knows it."""
    job = {"name": "once", "strategy": "independent", "command": "true"}
    path = options({"service": job, "worker": {"count": 3, **SMALL}, "parameter_server": {"count": 0}})
    try:
        result = dcos("tensorflow", "submit", path, "--set", "worker.count=1")
        assert (0, True) == (result.returncode, result.stdout.startswith("succeeded: ")), result.stderr
        assert "submitted once" in result.stderr
        assert 1 == dcos("tensorflow", "submit", path, "--detach").returncode
        assert succeeded(dcos("tensorflow", "--name=once", "wait")).startswith("succeeded: ")
        assert ["worker-0"] == [
            task["name"]
            for task in json.loads(succeeded(dcos("tensorflow", "--name=once", "tasks", "--json")))["tasks"]
        ]
    finally:
        dcos("tensorflow", "--name=once", "uninstall", "--yes")


@pytest.fixture
def enter(dcos_program: Path, url: str, tmp_path: Path):
    """Type a line of a page until it succeeds, and answer yes; return its output."""
    programs = {"dcos": (dcos_program,), "dcos-tensorflow": (sys.executable, "-m", "tf_scheduler")}
    for name, words in programs.items():
        path = "" if name == "dcos" else ENVIRONMENT["PYTHONPATH"]
        (tmp_path / name).write_text(f'#!/bin/sh\nPYTHONPATH={path} exec {shlex.join(map(str, words))} "$@"\n')
        (tmp_path / name).chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "DCOS_URL": url,
        "PYTHONWARNINGS": "ignore",
    }
    public = {"https://files.example.com": f"{url}/universe", "https://dcos.example.com": url, "build/bin/": "./"}

    def enter_line(line: str) -> str:
        for text, local in public.items():
            line = line.replace(text, local)

        command = ["bash", "-c", line]
        deadline = time.monotonic() + PATIENCE
        while True:
            done = run_program(*command, cwd=tmp_path, env=environment, input="yes\n")
            if done.returncode == 0:
                return done.stdout
            assert time.monotonic() < deadline, f"{line}: {done.stdout}{done.stderr}"

    return enter_line


def test_on_a_cluster_installs_updates_and_ends(enter, tmp_path: Path) -> None:
    """An operator copies the commands of the page."""
    blocks = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    install = [line for line in lines if line.startswith("dcos package ")]
    update = [line for line in lines if " update " in line]
    end = lines[lines.index("dcos tensorflow --name mnist result") :]
    look = re.findall(r"`(dcos package install tensorflow --cli|dcos tensorflow --name mnist (?:status|why))`", PAGE)
    (output,) = re.findall(r"`(dcos tensorflow --name mnist logs .*?)`", PAGE)
    command = f"echo ready; until [ -e {tmp_path}/end ]; do sleep 0.1; done"
    job = {"name": "mnist", "strategy": "independent", "command": command}
    options = {"service": job, "parameter_server": {"count": 0}, "worker": {"count": 1, **SMALL}}
    (tmp_path / "mnist.json").write_text(json.dumps(options))
    (tmp_path / "changes.json").write_text('{"worker": {"count": 2}}')

    for line in [*install, *look, f"{update[0]} --yes", update[1]]:
        enter(line)
    (tmp_path / "end").touch()

    assert enter(output).startswith("ready\n")
    for line in re.findall(r"^    (dcos task log .*|dcos-tensorflow history add .*)$", HISTORY, re.MULTILINE):
        # A pattern, because `mnist` is also a part of the ids of /dev/mnist, which other tests install.
        enter(line.replace(" tensorflow ", " 'mnist.*' ").replace("options.json", "mnist.json"))
    result, uninstall, history = end
    assert "succeeded" in enter(result)
    assert "/mnist is uninstalled" in enter(f"{uninstall} --yes")
    assert "mnist-" in enter(history)
    (run,) = (each for each in json.loads(enter(f"{history} --json")) if each["state"] == "succeeded")
    assert "worker-1" in enter(f"build/bin/dcos-tensorflow history show {run['id']}")
    enter("dcos package repo remove tensorflow")


def test_marathon_shows_the_app(service, dcos) -> None:
    """One task, healthy by its health check; its environment is that of the options."""

    def show() -> Any:
        return json.loads(succeeded(dcos("marathon", "app", "show", "/dev/mnist")))

    wait_until(lambda: show()["tasksHealthy"])
    shown = show()

    assert ("2", 1, 1) == (shown["env"]["WORKER_COUNT"], shown["tasksRunning"], shown["tasksHealthy"])
    assert "/dev/mnist" in succeeded(dcos("marathon", "task", "list"))
    assert "no deployments" in wait_until(lambda: dcos("marathon", "deployment", "list").stderr)


def test_tasks_are_listed_with_their_output(service, dcos) -> None:
    """The scheduler's, and those of the job."""
    rows = [line.split() for line in succeeded(dcos("task")).splitlines()[1:]]

    assert {"dev.mnist", "ps-0", "worker-0", "worker-1"} <= {row[0] for row in rows}
    assert "R" == next(row[3] for row in rows if row[0] == "worker-1")
    assert "hello from worker-1\n" == wait_until(lambda: dcos("task", "log", "worker-1").stdout)
    assert "subscribed as framework" in succeeded(dcos("task", "log", "--lines=1000", "dev_mnist"))
    assert 1 == dcos("task", "log", "worker-1", "no-such-file").returncode
    assert 1 == dcos("task", "log", "worker-1", "../../../../../../../../etc/passwd").returncode


def test_service_is_listed(service, dcos) -> None:
    """The framework is there under the service's name, active, with its three tasks."""
    rows = {line.split()[0]: line.split() for line in succeeded(dcos("service")).splitlines()[1:]}

    assert "True" in rows["dev/mnist"]
    assert "3" in rows["dev/mnist"]
    assert "marathon" in rows


def test_installed_command_asks_the_scheduler(service, dcos) -> None:
    """The service's name from the command line, the settings or the environment."""
    tree = succeeded(dcos("tensorflow", "--name=dev/mnist", "plan", "status", "deploy")).splitlines()

    assert "deploy (parallel strategy) (COMPLETE)" == tree[0]
    assert "   └─ worker-1 (COMPLETE)" == tree[-1]
    named = dcos("tensorflow", "plan", "list", DCOS_TENSORFLOW_SERVICE_NAME="dev/mnist")
    assert "deploy" in json.loads(succeeded(named))
    assert "service `tensorflow` does not exist" in dcos("tensorflow", "plan", "list").stderr
    assert "TensorFlow" in succeeded(dcos("tensorflow", "--info"))


def test_installed_command_has_the_sdks_commands(service, dcos) -> None:
    def ask(*arguments):
        return succeeded(dcos("tensorflow", "--name=dev/mnist", *arguments))

    assert ["ps-0", "worker-0", "worker-1"] == json.loads(ask("pod", "list"))
    before = json.loads(ask("pod", "status", "worker-1", "--json"))["tasks"][0]["id"]
    assert "worker-1 is restarted" in ask("pod", "restart", "worker-1")
    wait_until(lambda: json.loads(ask("pod", "status", "worker-1", "--json"))["tasks"][0]["id"] != before)
    wait_until(lambda: "(COMPLETE)" in ask("plan", "status", "recovery").splitlines()[0])
    assert {"dns", "address"} == set(json.loads(ask("endpoints", "worker")))
    assert 2 == json.loads(ask("describe"))["worker"]["count"]
    assert "RUNNING" in ask("tasks")
    assert "hello from worker-0" in ask("logs", "worker-0")


def test_cluster_setup_replaces_the_variables(dcos, url, tmp_path: Path) -> None:
    alone = {"DCOS_DIR": str(tmp_path), "DCOS_URL": ""}

    succeeded(dcos("cluster", "setup", url, "--no-check", **alone))

    assert url in succeeded(dcos("cluster", "list", **alone))
    assert "tensorflow" in succeeded(dcos("package", "search", "tensorflow", **alone))


def test_uninstall_removes_tasks_framework_and_state(dcos, options, local_cluster) -> None:
    path = options({**JOB, "service": {**JOB["service"], "name": "short"}})
    succeeded(dcos("package", "install", "tensorflow", f"--options={path}", "--yes", "--app"))
    wait_until(lambda: "(COMPLETE)" in plan(dcos, "short"))

    message = dcos("package", "uninstall", "tensorflow", "--app-id=/short", "--yes").stderr

    assert [
        "Uninstalled package [tensorflow] version [0.1.0]",
        read_sources().package["postUninstallNotes"],
    ] == message.splitlines()
    wait_until(lambda: "/short" not in dcos("marathon", "app", "list").stdout)
    status = read_status(local_cluster.master.address)
    assert "short" not in [framework.name for framework in status.frameworks]
    assert "/short" not in dcos("package", "list").stdout
    with closing(SqliteStore(local_cluster.directory / "dcos" / "state.db", "short")) as store:
        assert {} == store.load()


def test_rendered_app_runs_on_marathon_without_dcos(dcos, url, local_cluster, tmp_path: Path) -> None:
    options, app = tmp_path / "options.json", tmp_path / "app.json"
    service = {"name": "posted", "user": getpass.getuser(), "command": "exec sleep 1000", "python": sys.executable}
    document = {
        **JOB,
        "service": service,
        "executor": {"python": sys.executable},
        "mesos": {"master": local_cluster.master.address},
        "scheduler": {
            "state": (tmp_path / "state.db").as_uri(),
            "containerized": False,
            "python": sys.executable,
        },
    }
    options.write_text(json.dumps(document))
    rendered = CliRunner().invoke(
        cli, ["package", "render", "--options", str(options), "--artefacts-url", f"{url}/universe/artefacts"]
    )
    app.write_text(rendered.stdout)

    succeeded(dcos("marathon", "app", "add", app))

    wait_until(lambda: "(COMPLETE)" in plan(dcos, "posted"))
    definition = json.loads(app.read_text())
    changed = {"env": {**definition["env"], "SDK_UNINSTALL": "true"}}
    app.write_text(json.dumps(changed))
    succeeded(dcos("marathon", "app", "update", "posted", _input=app))
    wait_until(lambda: "posted" not in [found.name for found in read_status(local_cluster.master.address).frameworks])
    wait_until(lambda: "(COMPLETE)" in plan(dcos, "posted"))
    succeeded(dcos("marathon", "app", "remove", "posted"))
    wait_until(lambda: "/posted" not in dcos("marathon", "app", "list").stdout)


def plan(dcos, name):
    """The first line of the deploy plan, as long as there is one."""
    succeeded(dcos("package", "install", "tensorflow", "--cli", "--yes"))
    return dcos("tensorflow", f"--name={name}", "plan", "status", "deploy").stdout.split("\n")[0]
