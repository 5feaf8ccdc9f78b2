"""Updates of a running service by `update start`, on a real Mesos with tests/dcos."""

from __future__ import annotations

import json
import urllib.request
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dcos_command.client import ServiceClient
from dcos_command.errors import CommandError
from dcos_command.transport import ClusterConnection
from kit.commands import SMALL, run_command, serving_dcos
from kit.waiting import PATIENCE, wait_until
from mesos_local.master_api import read_status

NAME = "updated"
#: A parameter-server cluster whose programs wait to be killed.
OPTIONS: dict[str, Any] = {
    "service": {"name": NAME, "strategy": "parameter_server", "command": "exec sleep 1000"},
    "chief": {"count": 1, **SMALL},
    "parameter_server": {"count": 1, **SMALL},
    "worker": {"count": 2, "environment": [{"name": "A_TOKEN", "value": "hidden"}], **SMALL},
}


class Installed:
    """A service that Cosmos of tests/dcos has installed."""

    def __init__(self, cluster, folder, more=()) -> None:
        self.cluster, self.folder = cluster, folder
        sections = {name: {**OPTIONS.get(name, {}), **section} for name, section in dict(more).items()}
        self._stack = ExitStack()
        url = self._stack.enter_context(serving_dcos(cluster, errors=folder / "serve"))
        self.url = f"{url}/service/{NAME}"
        self.service = ServiceClient(ClusterConnection(url), NAME, timeout=PATIENCE)
        body = {"packageName": "tensorflow", "options": {**OPTIONS, **sections}}
        self.service.cosmos("package.install", "package/install", body, "v2")

    def write(self, name, document):
        path = self.folder / f"{name}.json"
        path.write_text(json.dumps(document))
        return path

    def run(self, *arguments):
        return run_command("--url", self.url, *arguments)

    def get(self, path):
        """Return the JSON at a path, whatever the status; None without an answer."""
        try:
            return self.service.get(path, (417, 500))
        except CommandError:
            return None

    def is_up(self, names, plan, number):
        """Whether these tasks run, and the scheduler has this number of configurations."""
        configurations = self.get("v1/configurations")
        done = self.get(f"v1/plans/{plan}")
        decommission = self.get("v1/plans/decommission")
        complete = all(plan and plan["status"] == "COMPLETE" for plan in (done, decommission))
        return configurations and len(configurations) == number and complete and set(names) == set(self.tasks())

    def tasks(self):
        """Return the Mesos task ids by name."""
        return {task.name: task.task_id for task in read_status(self.cluster.master.address).tasks}

    def frameworks(self):
        """Return the names of registered frameworks."""
        return [framework.name for framework in read_status(self.cluster.master.address).frameworks]

    def status(self, plan):
        """Return the status of a plan, or None."""
        return (self.get(f"v1/plans/{plan}") or {}).get("status")

    def put(self, **variables) -> None:
        """Change variables of the app in Marathon."""
        url = f"{self.service.cluster.url}/service/marathon/v2/apps//{NAME}"
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            environment = json.load(answer)["app"]["env"]
        body = json.dumps({"env": {**environment, **variables}}).encode()
        headers = {"Content-Type": "application/json"}
        urllib.request.urlopen(urllib.request.Request(url, body, headers, method="PUT"), timeout=PATIENCE).close()

    def uninstall(self):
        """Uninstall the service and stop the server of DC/OS."""
        with self._stack:
            return self.run("uninstall", "--yes")


@pytest.fixture
def installed(local_cluster, tmp_path: Path):
    """An installed service, uninstalled afterwards."""
    service = Installed(local_cluster, tmp_path)
    yield service
    service.uninstall()


@pytest.mark.timeout(600)
def test_service_is_scaled_and_rolled_back(installed) -> None:
    """Only tasks that need all addresses restart. Forbidden changes are refused."""
    two = ("chief-0", "ps-0", "worker-0", "worker-1")
    wait_until(lambda: installed.is_up(two, "deploy", 1))
    first = installed.tasks()
    more = installed.write("more", {"worker": {"count": 3}})

    asked = installed.run("update", "start", "--options", more)
    assert (2, True) == (asked.returncode, "--yes" in asked.stderr)
    assert first == installed.tasks()
    for words in ("worker.count", "worker-2 is added", "chief-0 restarts: the size of the cluster"):
        assert words in asked.stderr

    # Up: only the chief, which needs every address, restarts.
    started = installed.run("update", "start", "--options", more, "--yes")
    assert 0 == started.returncode, started.stderr
    wait_until(lambda: installed.is_up((*two, "worker-2"), "update", 2))
    second = installed.tasks()
    assert {"chief-0"} == {name for name in two if first[name] != second[name]}
    assert (
        "the service has these options already" in installed.run("update", "start", "--options", more, "--yes").stderr
    )
    new, old = installed.get("v1/configurations")
    assert [new] == installed.get("v1/configurations/targetId")
    workers = [installed.get(f"v1/configurations/{key}")["options"]["worker"] for key in (new, old)]
    assert [None, 2] == [options.get("count") for options in workers]  # 3 is the default
    assert "hidden" not in json.dumps(installed.get(f"v1/configurations/{old}"))

    # A forbidden change, with and without the preview.
    wrong = {"service": {"strategy": "between_graph"}, "chief": {"count": 0}}
    refused = installed.run("update", "start", "--options", installed.write("wrong", wrong), "--yes")
    assert 1 == refused.returncode
    assert 'service.strategy: cannot change from "parameter_server" to' in refused.stderr
    body = {"appId": f"/{NAME}", "replace": False, "options": wrong}
    installed.service.cosmos("service.update", "cosmos/service/update", body)
    wait_until(lambda: (installed.get("v1/plans/deploy") or {}).get("errors"))
    plan = installed.get("v1/plans/deploy")
    assert "ERROR" == plan["status"]
    assert 'service.strategy: cannot change from "parameter_server" to' in plan["errors"][0]
    assert [new] == installed.get("v1/configurations/targetId")
    assert 500 == installed.get("v1/health")["value"]
    assert second == installed.tasks()

    # Down, to the previous options, secrets included.
    back = installed.run("update", "rollback", old, "--yes")
    assert 0 == back.returncode, back.stderr
    assert "worker-2 is removed" in back.stderr
    wait_until(lambda: installed.is_up(two, "update", 2))
    third = installed.tasks()
    assert {"chief-0"} == {name for name in two if second[name] != third[name]}
    assert [old, new] == installed.get("v1/configurations")
    assert 200 == installed.get("v1/health")["value"]

    ended = installed.uninstall()
    assert (0, True) == (ended.returncode, "nothing is left behind" in ended.stdout), ended.stderr
    assert {} == installed.tasks()


@pytest.mark.timeout(600)
def test_ring_is_scaled_by_paused_update_and_by_marathon(local_cluster, tmp_path: Path) -> None:
    """All tasks restart together, none while paused. A changed app is an update, too.

    Slow: the scheduler starts three times, and each command is a process of its own.
    """
    gate, two = tmp_path / "gate", ("worker-0", "worker-1")
    holds = f'trap "until [ -e {gate} ]; do sleep 0.2; done; exit 143" TERM; sleep 1000 & wait'
    none, ring = {"count": 0}, {"strategy": "multi_worker_mirrored", "command": holds}
    options = {"service": ring, "chief": none, "parameter_server": none, "worker": {"kill_grace": 60}}
    installed = Installed(local_cluster, tmp_path, options)
    try:
        wait_until(lambda: installed.is_up(two, "deploy", 1))
        first = installed.tasks()
        more = installed.write("more", {"worker": {"count": 3}})
        assert 0 == installed.run("update", "start", "--options", more, "--yes").returncode
        wait_until(lambda: installed.status("update") == "IN_PROGRESS")
        paused = installed.run("update", "pause")
        assert 0 == paused.returncode, paused.stderr
        gate.touch()
        wait_until(lambda: not installed.tasks())
        assert "WAITING" == installed.status("update")
        assert 0 == installed.run("update", "resume").returncode
        wait_until(lambda: installed.is_up((*two, "worker-2"), "update", 2))
        second = installed.tasks()
        assert set(first.values()).isdisjoint(second.values())
        target = installed.get("v1/configurations/targetId")

        installed.put(SERVICE_STRATEGY="between_graph")
        wait_until(lambda: installed.status("deploy") == "ERROR")
        assert "service.strategy: cannot change" in installed.get("v1/plans/deploy")["errors"][0]
        assert (target, second) == (installed.get("v1/configurations/targetId"), installed.tasks())

        back = installed.run("update", "rollback", "--yes")
        assert (0, True) == (
            back.returncode,
            "The scheduler refused the options that it was started with" in back.stderr,
        ), back.stderr
        wait_until(lambda: installed.status("deploy") not in ("ERROR", None))
        assert (target, second) == (installed.get("v1/configurations/targetId"), installed.tasks())

        installed.put(SERVICE_STRATEGY="multi_worker_mirrored", WORKER_COUNT="2")
        wait_until(lambda: installed.is_up(two, "update", 2))
        assert set(second.values()).isdisjoint(installed.tasks().values())
        assert target != installed.get("v1/configurations/targetId")

        # DC/OS does not know the change of the app, so replacing all options would undo it unnoticed.
        third = installed.tasks()
        for arguments in (("start", "--replace", "--options", more), ("rollback",)):
            refused = installed.run("update", *arguments, "--yes")
            assert (1, True) == (refused.returncode, "worker.count: DC/OS has 3, scheduler 2" in refused.stderr)
        assert third == installed.tasks()
    finally:
        gate.touch()
        ended = installed.uninstall()
    assert (0, True) == (ended.returncode, "nothing is left behind" in ended.stdout), ended.stderr


def test_idle_service_shows_its_result_until_uninstall(local_cluster, tmp_path: Path) -> None:
    """It stays registered, without tasks, until an operator completes its plan."""
    options = {"finish": {"then": "idle"}, "service": {"command": "true"}}
    installed = Installed(local_cluster, tmp_path, options)
    try:
        wait_until(lambda: (installed.get("v1/tf/result") or {}).get("verdict") == "succeeded")
        wait_until(lambda: NAME in installed.frameworks() and not installed.tasks())
        assert "SUCCEEDED" in installed.run("result").stdout.upper()
        assert 1 == len(installed.get("v1/configurations"))
        assert any("chief-0" in event["message"] for event in installed.get("v1/events")["events"])

        assert "finish.then is idle" in json.dumps(installed.get("v1/plans/uninstall"))
        refused = installed.run("plan", "stop", "uninstall")
        assert (1, True) == (refused.returncode, "stop" in refused.stderr), refused.stderr
        # Completing the plan removes the framework, too.
        assert 0 == installed.run("plan", "force-complete", "uninstall").returncode
        wait_until(lambda: NAME not in installed.frameworks())
    finally:
        ended = installed.uninstall()

    assert (0, True) == (ended.returncode, "nothing is left behind" in ended.stdout), ended.stderr
    assert NAME not in installed.frameworks()
