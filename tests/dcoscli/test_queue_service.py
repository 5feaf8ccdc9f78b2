"""A queue service as a package of DC/OS, with the real dcos command."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests
from kazoo.client import KazooClient

from kit.shared import SharedServers
from kit.waiting import wait_until
from mesos_local.cluster import LocalCluster
from mesos_local.master_api import call

pytestmark = [pytest.mark.timeout(600), pytest.mark.usefixtures("real_zookeeper")]

SMALL = {"count": 1, "cpus": 0.1, "mem": 64}
OPTIONS = {
    "service": {"name": "ml", "kind": "queue", "role": "team", "principal": "team-principal"},
    "queue": {"queues": [{"name": "a", "max_jobs": 1}, {"name": "b"}]},
}
JOB = {"service": {"strategy": "independent", "command": "exec sleep 1000"}, "worker": SMALL}


class Team:
    """Commands of a user."""

    def __init__(self, dcos: Callable[..., Any], folder: Path, state: str) -> None:
        self.dcos, self.folder = dcos, folder
        self.options = {**OPTIONS, "scheduler": {"state": state}}

    def run(self, *arguments: object) -> str:
        result = self.dcos(*arguments)
        assert 0 == result.returncode, (arguments, result.stdout, result.stderr)
        return str(result.stdout)

    def file(self, name: str, document: Any) -> Path:
        path = self.folder / name
        path.write_text(json.dumps(document))
        return path

    def ask(self, *arguments: object) -> Any:
        return json.loads(self.run("tensorflow", *arguments, "--json"))

    def jobs(self) -> dict[str, Any]:
        return {job["id"]: job for job in self.ask("queue", "show", "--name=ml")["jobs"]}

    def queues(self) -> set[str]:
        """Return the queues of the service; none while it restarts (exit status 3)."""
        done = self.dcos("tensorflow", "queue", "show", "--name=ml", "--json")
        return set() if done.returncode == 3 else {each["name"] for each in json.loads(done.stdout)["queues"]}

    def submit(self, job: str, *options: object) -> None:
        file = self.file("job.json", JOB)
        self.run("tensorflow", "submit", file, "--to", "ml", "--id", job, "--detach", *options)

    def wait_running(self, job: str) -> None:
        wait_until(lambda: self.jobs()[job]["state"] == "running")

    def tasks(self, job: str) -> dict[str, str]:
        return {task["name"]: task["id"] for task in self.ask("tasks", f"--name=ml/{job}")["tasks"]}


@pytest.fixture
def zookeeper(module_servers: SharedServers) -> Iterator[KazooClient]:
    """A client of a real ZooKeeper, which is empty."""
    with closing(KazooClient(module_servers.ensemble().addresses)) as client:
        client.start()
        assert ["zookeeper"] == client.get_children("/")
        yield client
        client.stop()


@pytest.fixture
def team(
    dcos: Callable[..., Any], tmp_path: Path, zookeeper: KazooClient, module_servers: SharedServers
) -> Iterator[Team]:
    team = Team(dcos, tmp_path, f"zk://{module_servers.ensemble().addresses}")
    team.run("package", "install", "tensorflow", f"--options={team.file('queue.json', team.options)}", "--yes")
    wait_until(lambda: dcos("tensorflow", "--name=ml", "plan", "status", "deploy").stdout.startswith("deploy"))
    yield team
    dcos("package", "uninstall", "tensorflow", "--app-id=/ml", "--yes")
    wait_until(lambda: "/ml" not in team.run("marathon", "app", "list"))


def frameworks(cluster: LocalCluster) -> dict[str, tuple[str, tuple[str, ...], str]]:
    """Return name -> id, roles and principal of the jobs' frameworks on the master."""
    listed = call(cluster.master.address, "GET_FRAMEWORKS").get("frameworks", ())
    own = [info for each in listed if (info := each["framework_info"])["name"].startswith("ml")]
    return {info["name"]: (info["id"]["value"], tuple(info["roles"]), info.get("principal", "")) for info in own}


def states(cluster: LocalCluster, ids: set[str]) -> dict[str, str]:
    """Return task id -> state on the master, of all tasks of these frameworks."""
    kinds = call(cluster.master.address, "GET_TASKS").values()
    tasks = [task for kind in kinds for task in kind if task["framework_id"]["value"] in ids]
    return {task["task_id"]["value"]: task["state"] for task in tasks}


def test_jobs_of_a_package_run_move_and_end(
    team: Team, local_cluster: LocalCluster, zookeeper: KazooClient, url: str
) -> None:
    """Slow: installs the package, and a second version of its options."""
    team.submit("first")
    team.wait_running("first")
    team.submit("second")
    team.submit("urgent", "--priority", 50)
    wait_until(lambda: "max_jobs" in team.jobs()["second"]["reason"])

    plan = requests.get(f"{url}/service/ml/v1/plans/deploy", timeout=60)
    assert (200, "COMPLETE") == (plan.status_code, plan.json()["status"])
    wait_until(lambda: "QUEUED  position 1 in queue a" in team.run("tensorflow", "status", "ml/urgent"))
    assert "QUEUED  position 2 in queue a" in team.run("tensorflow", "status", "ml/second")
    rows = team.run("tensorflow", "queue", "--name=ml")
    assert 0 < rows.index("urgent") < rows.index("second")
    team.run("tensorflow", "queue", "move", "second", "--queue", "b", "--name=ml")
    team.wait_running("second")
    team.run("tensorflow", "scale", "worker", "2", "--yes", "--name=ml/first")
    wait_until(lambda: {"worker-0", "worker-1"} == {name for name, task in team.tasks("first").items() if task})
    assert {"ml/first", "ml/second"} == frameworks(local_cluster).keys()
    adopt_jobs(team, local_cluster)

    own = frameworks(local_cluster)
    assert {(("team",), "team-principal")} == {each[1:] for each in own.values()}
    ids = {each[0] for each in own.values()}
    assert 4 == list(states(local_cluster, ids).values()).count("TASK_RUNNING")
    assert ["dcos-service-ml"] == [name for name in zookeeper.get_children("/") if name != "zookeeper"]
    team.run("package", "uninstall", "tensorflow", "--app-id=/ml", "--yes")
    wait_until(lambda: "/ml" not in team.run("marathon", "app", "list"))
    assert {} == frameworks(local_cluster)
    assert {"TASK_KILLED"} == set(states(local_cluster, ids).values())
    agents = call(local_cluster.master.address, "GET_AGENTS")["agents"]
    assert not [each for agent in agents for each in agent["total_resources"] if each.get("reservations")]
    wait_until(lambda: ["zookeeper"] == zookeeper.get_children("/"))


def adopt_jobs(team: Team, cluster: LocalCluster) -> None:
    """Install other options: the next process continues the jobs, then starts one."""
    before = frameworks(cluster), team.tasks("first"), team.tasks("second")
    queues = [{"name": "a", "max_jobs": 1}, {"name": "c"}]
    changed = team.file("changed.json", {**team.options, "queue": {"queues": queues}})
    team.run("tensorflow", "update", "start", f"--options={changed}", "--replace", "--yes", "--name=ml")
    wait_until(lambda: {"a", "c"} == team.queues())
    refused = team.dcos("tensorflow", "submit", team.folder / "job.json", "--to", "ml", "--queue", "b")
    assert (1, True) == (refused.returncode, "expected one of a, c" in refused.stderr)

    team.run("tensorflow", "queue", "move", "urgent", "--queue", "c", "--name=ml")
    # It starts only after Mesos has confirmed the tasks of the others: lost ones would be replaced by now.
    team.wait_running("urgent")
    running = {name: each for name, each in frameworks(cluster).items() if name != "ml/urgent"}
    assert before == (running, team.tasks("first"), team.tasks("second"))
    tasks = states(cluster, {each[0] for each in running.values()})
    assert {"TASK_RUNNING"} == {tasks[task] for each in before[1:] for task in each.values()}
