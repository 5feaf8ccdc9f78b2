"""A queue service on a real Mesos, used through the command."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kit.commands import find_scheduler, run_command
from kit.queue_runs import whole_agents
from kit.waiting import wait_until
from mesos_local.cluster import LocalCluster
from mesos_local.master_api import read_status
from tf_scheduler.cli.local_run.installed import InstalledService

#: Counts tenths of a second from its last save; saves its count when it is stopped.
COUNTER = """\
import os, signal, sys, time
place = os.path.join(os.environ["CHECKPOINT_DIR"], "count")
count = int(open(place).read()) if os.path.exists(place) else 0
print("begins at", count, flush=True)
def stop(*_):
    open(place, "w").write(str(count))
    sys.exit(143)
signal.signal(signal.SIGTERM, stop)
while count < int(sys.argv[1]):
    time.sleep(0.1)
    count += 1
print("ends at", count, flush=True)
"""


class Queue:
    """An installed queue service, and a folder for job files."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.name = f"queue-{os.getpid()}"
        (folder / "counter.py").write_text(COUNTER)

    def install(self, **queue: Any) -> None:
        path = self.folder / "queue.json"
        path.write_text(json.dumps({"service": {"name": self.name, "kind": "queue"}, "queue": queue}))
        installed = run_command("local", "install", "--options", path, "--dir", self.cluster.directory)
        assert 0 == installed.returncode, installed.stderr

    @property
    def service(self) -> InstalledService:
        return InstalledService(self.cluster.directory, self.name)

    def submit(self, name: str, count: int, *options: object, workers: dict[str, Any] | None = None) -> Any:
        file = self.folder / f"{name}.json"
        service = {
            "strategy": "multi_worker_mirrored",
            "job_url": "counter.py",
            "command": f"python counter.py {count}",
        }
        file.write_text(json.dumps({"service": service, "worker": workers or whole_agents(self.cluster)}))
        return self.run("submit", file, "--to", self.name, "--id", name, "--detach", "--json", *options)

    def run(self, *arguments: object) -> Any:
        done = run_command(*arguments)
        assert 0 == done.returncode, (arguments, done.stdout, done.stderr)
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    def jobs(self) -> dict[str, Any]:
        return {job["id"]: job for job in self.run("queue", "--name", self.name, "--json")["jobs"]}

    def kill(self) -> None:
        """Kill the scheduler; its supervisor starts it again."""
        before = find_scheduler(self.service.folder)
        assert before is not None
        before.signal(signal.SIGKILL)
        wait_until(lambda: find_scheduler(self.service.folder) not in (None, before))
        wait_until(lambda: run_command("queue", "--name", self.name).returncode == 0)

    def output(self, job: str) -> str:
        return str(self.run("logs", "--name", f"{self.name}/{job}", "worker-0"))


@pytest.fixture
def queue(local_cluster: LocalCluster, tmp_path: Path) -> Iterator[Queue]:
    queue = Queue(local_cluster, tmp_path)
    yield queue
    run_command("local", "uninstall", queue.name, "--dir", local_cluster.directory)
    names = {framework.name for framework in read_status(local_cluster.master.address).frameworks}
    assert not {name for name in names if name.startswith(queue.name)}, "a framework is left"
    assert not queue.service.folder.exists()


def test_urgent_job_preempts_and_victim_resumes(queue: Queue) -> None:
    """The victim continues from its checkpoint, also after kill -9 of the service."""
    queue.install(preemption="priority", min_runtime=0.0)
    queue.submit("low", 100_000)
    wait_until(lambda: queue.jobs()["low"]["state"] == "running" and "begins at 0" in queue.output("low"))
    queue.submit("next", 1)
    wait_until(lambda: queue.jobs()["next"]["reason"])
    assert "needs cpus" in queue.jobs()["next"]["reason"]

    queue.submit("urgent", 10_000, "--priority", 90)
    wait_until(lambda: queue.jobs()["urgent"]["state"] == "running")
    queue.kill()
    wait_until(lambda: queue.jobs()["low"]["state"] == "queued")

    assert "running" == queue.jobs()["urgent"]["state"], "the service adopts the running job"
    assert 1 == queue.jobs()["low"]["preemptions"]
    queue.run("cancel", f"{queue.name}/urgent", "--yes")
    wait_until(lambda: queue.jobs()["low"]["state"] == "running" and "begins at" in queue.output("low"))
    assert "begins at 0" not in queue.output("low"), "the victim has lost its work"
    queue.run("cancel", f"{queue.name}/low", "--yes")
    assert "succeeded" in queue.run("wait", f"{queue.name}/next")
    assert {} == queue.jobs()


def test_job_is_submitted_once_moved_and_cancelled(queue: Queue) -> None:
    queue.install(queues=[{"name": "a", "max_jobs": 1}, {"name": "b"}])
    small = {"count": 1, "cpus": 0.1, "mem": 64}
    first = queue.submit("first", 1000, workers=small)
    again = queue.submit("first", 1000, workers=small)
    assert first["submitted"] == again["submitted"]
    other = run_command("submit", queue.folder / "first.json", "--to", queue.name, "--id", "first", "--priority", 3)
    assert (1, True) == (other.returncode, "another job has this id" in other.stderr)
    queue.submit("second", 1000, workers=small)
    wait_until(lambda: "max_jobs" in queue.jobs()["second"]["reason"])
    status = queue.run("status", f"{queue.name}/second")
    assert "QUEUED  position 1 in queue a" in status

    queue.run("queue", "move", "second", "--queue", "b", "--priority", 50, "--name", queue.name)
    wait_until(lambda: queue.jobs()["second"]["state"] == "running")
    queue.run("cancel", f"{queue.name}/first", "--yes")

    result = run_command("result", "--name", f"{queue.name}/first")
    assert (4, True) == (result.returncode, "cancelled by operator" in result.stdout)
    assert "running" == queue.jobs()["second"]["state"]
    assert f"{queue.name}/second" in queue.run("list")
    assert f"/{queue.name} is uninstalled" in queue.run("cancel", queue.name, "--yes")


def test_bad_job_files_are_refused_with_all_problems(queue: Queue) -> None:
    queue.install()
    file = queue.folder / "bad.json"
    document = {"mesos": {"master": "other:5050"}, "service": {"user": "root2"}, "job": {"priority": 101, "queue": "x"}}
    file.write_text(json.dumps(document))
    refused = run_command("submit", file, "--to", queue.name)

    assert 1 == refused.returncode
    assert "priority" in refused.stderr
    file.write_text(json.dumps({**document, "job": {"queue": "x"}}))
    refused = run_command("submit", file, "--to", queue.name)
    for part in ("mesos.master", "service.user", "service.command"):
        assert part in refused.stderr
    assert {} == queue.jobs()
