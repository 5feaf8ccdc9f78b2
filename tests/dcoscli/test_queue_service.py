"""A queue service as a package of DC/OS, with the real dcos command."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import requests

from kit.waiting import wait_until
from mesos_local.cluster import LocalCluster
from mesos_local.master_api import read_status
from tf_scheduler.store.sqlite import SqliteStore

pytestmark = pytest.mark.timeout(600)

SMALL = {"count": 1, "cpus": 0.1, "mem": 64}
OPTIONS = {
    "service": {"name": "ml", "kind": "queue"},
    "queue": {"queues": [{"name": "a", "max_jobs": 1}, {"name": "b"}]},
}
JOB = {"service": {"strategy": "independent", "command": "exec sleep 1000"}, "worker": SMALL}


class Team:
    """Commands of a user."""

    def __init__(self, dcos: Callable[..., Any], folder: Path) -> None:
        self.dcos, self.folder = dcos, folder

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

    def tasks(self, job: str) -> dict[str, str]:
        return {task["name"]: task["id"] for task in self.ask("tasks", f"--name=ml/{job}")["tasks"]}


@pytest.fixture
def team(dcos: Callable[..., Any], tmp_path: Path) -> Iterator[Team]:
    team = Team(dcos, tmp_path)
    team.run("package", "install", "tensorflow", f"--options={team.file('queue.json', OPTIONS)}", "--yes")
    wait_until(lambda: dcos("tensorflow", "--name=ml", "plan", "status", "deploy").stdout.startswith("deploy"))
    yield team
    dcos("package", "uninstall", "tensorflow", "--app-id=/ml", "--yes")
    wait_until(lambda: "/ml" not in team.run("marathon", "app", "list"))


def test_jobs_of_a_package_run_move_and_end(team: Team, local_cluster: LocalCluster) -> None:
    """Slow: installs the package, and a second version of its options."""
    file = team.file("job.json", JOB)
    for name in ("first", "second"):
        team.run("tensorflow", "submit", file, "--to", "ml", "--id", name, "--detach")
    wait_until(lambda: team.jobs()["first"]["state"] == "running")
    wait_until(lambda: "max_jobs" in team.jobs()["second"]["reason"])

    assert "(COMPLETE)" in team.run("tensorflow", "--name=ml", "plan", "status", "deploy")
    assert "QUEUED  position 1 in queue a" in team.run("tensorflow", "status", "ml/second")
    team.run("tensorflow", "queue", "move", "second", "--queue", "b", "--name=ml")
    wait_until(lambda: team.jobs()["second"]["state"] == "running")
    team.run("tensorflow", "scale", "worker", "2", "--yes", "--name=ml/first")
    wait_until(lambda: {"worker-0", "worker-1"} == set(filter(None, team.tasks("first"))))
    wait_until(lambda: all(team.tasks("first").values()))
    master = local_cluster.master.address
    frameworks = requests.get(f"http://{master}/frameworks", timeout=60).json()["frameworks"]
    own = [each for each in frameworks if each["name"].startswith("ml")]
    assert {"ml/first", "ml/second"} == {each["name"] for each in own}
    assert 1 == len({(*each["roles"], each.get("principal")) for each in own})

    before = team.tasks("first"), team.tasks("second")
    queues = [{"name": "a", "max_jobs": 1}, {"name": "c"}]
    changed = team.file("changed.json", {**OPTIONS, "queue": {"queues": queues}})
    team.run("tensorflow", "update", "start", f"--options={changed}", "--replace", "--yes", "--name=ml")
    wait_until(lambda: {"a", "c"} == {each["name"] for each in team.ask("queue", "show", "--name=ml")["queues"]})
    wait_until(lambda: all(job["state"] == "running" for job in team.jobs().values()))
    assert before == (team.tasks("first"), team.tasks("second"))
    refused = team.dcos("tensorflow", "submit", file, "--to", "ml", "--queue", "b")
    assert (1, True) == (refused.returncode, "expected one of a, c" in refused.stderr)

    team.run("package", "uninstall", "tensorflow", "--app-id=/ml", "--yes")
    wait_until(lambda: "/ml" not in team.run("marathon", "app", "list"))
    assert not [each.name for each in read_status(master).frameworks if each.name.startswith("ml")]
    with closing(SqliteStore(local_cluster.directory / "dcos" / "state.db", "ml")) as store:
        assert {} == store.load()
