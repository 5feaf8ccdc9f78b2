"""Commands of a DC/OS user in three versions of the real dcos command."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from dcoscli.conftest import VERSIONS, Dcos, installed, runner
from kit.waiting import wait_until

pytestmark = pytest.mark.timeout(600)

NAME, TOKEN = "dev/job", "not-guessed"
SMALL = {"cpus": 0.1, "mem": 32, "disk": 0}


class Service(NamedTuple):
    """The service, whose API requires a token, and the command that installed it."""

    installer: Dcos
    folder: Path


@pytest.fixture(scope="module")
def service(dcos: Dcos, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("options")
    (folder / "api-token").write_text(f"{TOKEN}\n")
    document = {
        "service": {"name": NAME, "command": "echo hello from $TASK_NAME; exec sleep 1000"},
        "parameter_server": {"count": 1, **SMALL},
        "worker": {"count": 1, **SMALL},
        "api": {"write_token": "file:api-token"},
        "secret_delivery": {"directory": str(folder)},
    }
    (folder / "options.json").write_text(json.dumps(document))
    (folder / "invalid.json").write_text(json.dumps({"worker": {"count": "three"}}))
    done = dcos("package", "install", "tensorflow", f"--options={folder / 'options.json'}", "--yes")
    assert 0 == done.returncode, done.stderr
    status = ("tensorflow", f"--name={NAME}", f"--token={TOKEN}", "plan", "status", "deploy")
    wait_until(lambda: "(COMPLETE)" in dcos(*status).stdout.split("\n")[0])
    yield Service(dcos, folder)
    dcos("package", "uninstall", "tensorflow", f"--app-id=/{NAME}", "--yes")
    wait_until(lambda: NAME not in dcos("marathon", "app", "list").stdout)


#: Also with the older versions; the other tests need only the newest.
EACH_VERSION = pytest.mark.parametrize("version", VERSIONS, indirect=True, scope="module")


@pytest.fixture(scope="module")
def version(request: pytest.FixtureRequest) -> str:
    return str(getattr(request, "param", VERSIONS[0]))


@pytest.fixture(scope="module")
def command(version: str, service: Service, url: str, tmp_path_factory: pytest.TempPathFactory) -> Dcos:
    """The command in that version, with the sub-command installed."""
    run = runner(installed(version), url, tmp_path_factory.mktemp("home"))
    done = run("package", "install", "tensorflow", "--cli", "--yes")
    assert (0, True) == (done.returncode, "New command available: dcos tensorflow" in done.stdout), done.stderr
    return run


def output(command: Dcos, *arguments: object) -> str:
    done = command(*arguments)
    assert 0 == done.returncode, done.stdout + done.stderr
    return done.stdout


def refusal(command: Dcos, *arguments: object, **variables: str) -> str:
    done = command(*arguments, **variables)
    assert 1 == done.returncode, done.stdout
    return done.stderr


@EACH_VERSION
def test_log_of_the_scheduler_needs_no_file_name(command: Dcos) -> None:
    for words in (("service", "log", "--lines=100", NAME), ("task", "log", "--lines=100", "dev_job")):
        assert "subscribed as framework" in output(command, *words)
    assert "No marathon apps found for service" in refusal(command, "service", "log", "none")


@EACH_VERSION
def test_files_of_tasks_are_listed_and_read(command: Dcos) -> None:
    """Of tasks of Mesos and of Marathon."""
    assert {"stdout", "stderr", "executor.log"} <= set(output(command, "task", "ls", "worker-0").split())
    assert {"stdout", "stderr", "tensorflow-scheduler.pyz"} <= set(output(command, "task", "ls", "dev_job").split())
    assert "hello from worker-0\n" == output(command, "task", "log", "worker-0")
    assert "No such file or directory" in refusal(command, "task", "ls", "worker-0", "none")
    assert "No files exist" in refusal(command, "task", "log", "worker-0", "none")
    assert "No matching tasks" in refusal(command, "task", "log", "none")


def test_failed_task_of_marathon_keeps_its_log(command: Dcos, version: str, service: Service) -> None:
    name = f"fails-{version.replace('.', '-')}"
    path = service.folder / f"{name}.json"
    path.write_text(json.dumps({"id": name, "cmd": "echo why; exit 3", "backoffSeconds": 1000}))
    output(command, "marathon", "app", "add", path)
    try:
        wait_until(lambda: name in command("task", "--completed").stdout)
        assert "why\n" == output(command, "task", "log", "--completed", name)
    finally:
        output(command, "marathon", "app", "remove", name)


@EACH_VERSION
def test_nodes_are_listed(command: Dcos, version: str) -> None:
    """Until 0.4.17 without masters."""
    nodes = output(command, "node")

    assert "marathon-agent" in nodes
    assert version == "0.4.17" or "master (leader)" in nodes


def test_marathon_commands(command: Dcos) -> None:
    assert ["/dev", "1"] == output(command, "marathon", "group", "list").splitlines()[1].split()
    versions = json.loads(output(command, "marathon", "app", "version", "list", NAME))
    assert json.loads(output(command, "marathon", "app", "show", NAME))["version"] == versions[0]
    assert NAME in output(command, "marathon", "task", "list")
    assert "App '/none' does not exist" in refusal(command, "marathon", "app", "kill", "none")


def test_killed_scheduler_is_replaced(command: Dcos) -> None:
    """The tasks of the job run on."""
    scheduler, job = (output(command, "marathon", "task", "list"), output(command, "task", "worker-0"))

    assert "Killed tasks: " in output(command, "marathon", "app", "kill", NAME)

    wait_until(lambda: NAME in (now := command("marathon", "task", "list").stdout) and now != scheduler)
    status = ("tensorflow", f"--name={NAME}", f"--token={TOKEN}", "plan", "status", "deploy")
    wait_until(lambda: "(COMPLETE)" in command(*status).stdout.split("\n")[0])
    assert job == output(command, "task", "worker-0")


@pytest.mark.parametrize("words", ["task exec worker-0 ls", "task metrics summary worker-0", "marathon pod list"])
def test_missing_parts_of_dcos_are_reported(command: Dcos, words: str) -> None:
    """docs/reference/cli.md lists them."""
    assert "HTTP 501: " in refusal(command, *words.split())


def test_missing_parts_of_marathon_are_named(command: Dcos) -> None:
    message = refusal(command, "marathon", "deployment", "rollback", "none")

    assert "Error: the local DC/OS does not have DELETE /v2/deployments/none" in message


@EACH_VERSION
def test_errors_of_cosmos_are_shown(command: Dcos, version: str, service: Service) -> None:
    """0.4.17 repeats a refused `describe` in a form that Cosmos no longer has."""
    expected = "Package [none] not found" if version != "0.4.17" else "Item header 'Accept' deemed invalid by rule: "
    assert expected in refusal(command, "package", "describe", "none")
    options = f"--options={service.folder / 'invalid.json'}"
    assert "Path: worker.count" in refusal(command, "package", "install", "tensorflow", options, "--yes")


def test_installed_command_has_help(command: Dcos) -> None:
    for words in ((), ("plan",), ("debug", "pod", "pause")):
        assert output(command, "tensorflow", *words, "--help") == output(command, "tensorflow", "help", *words)


@EACH_VERSION
def test_api_token_from_option_variable_and_settings(command: Dcos) -> None:
    """For reads and writes. The option wins over the variable, and that over settings."""
    named, write = ("tensorflow", f"--name={NAME}"), ("plan", "pause", "deploy")
    for words in (("tasks",), write):
        message = refusal(command, *named, *words)
        assert "requires a token; pass an API token with --token or DCOS_TENSORFLOW_TOKEN" in message
        assert "dcos auth login" not in message
        output(command, *named, f"--token={TOKEN}", *words)
    assert "rejected the token" in refusal(command, *named, "--token=wrong", *write)

    assert 0 == command(*named, "plan", "resume", "deploy", DCOS_TENSORFLOW_TOKEN=TOKEN).returncode
    assert 0 == command("config", "set", "tensorflow.token", TOKEN).returncode
    try:
        assert "worker-0" in output(command, *named, "tasks")
        output(command, *named, "plan", "resume", "deploy")
        assert "rejected the token" in refusal(command, *named, "tasks", DCOS_TENSORFLOW_TOKEN="wrong")
    finally:
        command("config", "unset", "tensorflow.token")
