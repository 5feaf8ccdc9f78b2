"""A queue service that is killed at its writes to the store, on a real Mesos."""

from __future__ import annotations

import getpass
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import requests

from kit.commands import request, scheduler_environment
from kit.queue_runs import whole_agents
from kit.waiting import wait_until
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_local.cluster import LocalCluster
from mesos_local.host import free_ports
from mesos_local.master_api import read_status
from tf_scheduler.store.interface import Put
from tf_scheduler.store.sqlite import SqliteStore

#: `scheduler run`, which kills itself at a write, before or after it. Arguments: file, number of the write, "before".
PROGRAM = """\
import os, signal, sys
from tf_scheduler.cli.main import main
from tf_scheduler.queue_service import build
from tf_scheduler.store.retrying import StoreWrapper

class KillingStore(StoreWrapper):
    writes = 0

    def _change(self, call):
        self.writes += 1
        if self.writes == int(sys.argv[2]) and sys.argv[3] == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super()._change(call)
        if self.writes == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

real = build.QueueStore
build.QueueStore = lambda store: real(KillingStore(store))
sys.exit(main(["scheduler", "run", "--options", sys.argv[1]]))
"""
#: The program of a job ends when the test has written its file.
COMMAND = "trap 'exit 143' TERM; until [ -e {end} ]; do sleep 0.1; done"
NEVER = 0


class MortalQueue:
    """A queue service whose processes die one after the other, each at another write.

    Args:
        writes: Number of the write at which each process dies; after the last, none does.
        moment: "before" or "after" the write.
    """

    def __init__(self, cluster: LocalCluster, folder: Path, state: str, writes: Sequence[int], moment: str) -> None:
        self.cluster, self.folder, self.moment = cluster, folder, moment
        self.name = f"mortal-{os.getpid()}-{folder.name.replace('_', '-')}"[:60].lower()
        self._writes = iter(writes)
        (self.port,) = free_ports(1)
        self.process: subprocess.Popen[bytes] | None = None
        self.deaths, self._uninstalls = 0, False
        options = {
            "service": {"name": self.name, "kind": "queue", "user": getpass.getuser(), "python": sys.executable},
            "queue": {"preemption": "priority", "min_runtime": 0.0},
            "mesos": {"master": cluster.master.address},
            "executor": {"python": sys.executable},
            "api": {"authentication": "none"},
            "scheduler": {"state": state},
        }
        (folder / "queue.json").write_text(json.dumps(options))

    def _revive(self) -> None:
        if self.process is not None and self.process.poll() is None:
            return
        self.deaths += self.process is not None
        number = next(self._writes, NEVER)
        variables = {"MESOS_SANDBOX": str(self.folder), **({"SDK_UNINSTALL": "true"} if self._uninstalls else {})}
        words = [str(self.folder / "queue.json"), str(number), self.moment]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", PROGRAM, *words],
                env=scheduler_environment(self.port, **variables),
                stdout=log,
                stderr=log,
            )

    def until(self, condition: Callable[[], object]) -> None:
        """Wait for a condition; start the next process whenever one has died."""

        def holds() -> object:
            self._revive()
            return condition()

        wait_until(holds, f"see {self.folder / 'log'}")

    def submit(self, name: str, priority: int = 0, worker: dict[str, Any] | None = None) -> None:
        """Submit a job, by default of the whole cluster, again until there is an answer."""
        service = {"strategy": "independent", "command": COMMAND.format(end=self.folder / f"end-{name}")}
        job = {"id": name, "priority": priority}
        file = {"service": service, "worker": worker or whole_agents(self.cluster), "job": job}
        body = json.dumps(file).encode()
        self.until(lambda: request(self.port, "/v1/jobs", "POST", body=body).status in (200, 201))

    def jobs(self) -> dict[str, Any]:
        answer = request(self.port, "/v1/jobs")
        return {job["id"]: job for job in answer.json["jobs"]} if answer.status == 200 else {}

    def until_state(self, name: str, state: str) -> None:
        def has_state() -> bool:
            job = self.jobs().get(name, {"state": "unknown"})
            assert job["state"] in (state, "unknown") or not job["verdict"], job
            return bool(job["state"] == state)

        self.until(has_state)

    def until_order(self, *names: str) -> None:
        def order() -> list[str]:
            waiting = [job for job in self.jobs().values() if job["position"]]
            return [job["id"] for job in sorted(waiting, key=lambda job: job["position"])]

        self.until(lambda: order() == list(names))

    def uninstall(self) -> None:
        assert self.process is not None
        self.process.terminate()
        self.process.wait()
        self.process, self._uninstalls = None, True
        self.until(lambda: request(self.port, "/v1/plans/deploy").status == 200)
        frameworks = read_status(self.cluster.master.address).frameworks
        assert not [each.name for each in frameworks if each.name.startswith(self.name)]

    def launches(self) -> Counter[tuple[str, str]]:
        """Return how often Mesos has launched each task of each job."""
        url = f"http://{self.cluster.master.address}/master/state"
        state = requests.get(url, timeout=60).json()
        return Counter(
            (framework["name"].removeprefix(f"{self.name}/"), task["name"])
            for framework in (*state["frameworks"], *state["completed_frameworks"])
            if framework["name"].startswith(f"{self.name}/")
            for task in (*framework["tasks"], *framework["completed_tasks"])
        )


@contextmanager
def mortal(
    cluster: LocalCluster, folder: Path, state: str, writes: Sequence[int], moment: str
) -> Iterator[MortalQueue]:
    queue = MortalQueue(cluster, folder, state, writes, moment)
    try:
        yield queue
    finally:
        if queue.process is not None:
            queue.process.kill()
            queue.process.wait()


def preempt_resume_and_end(queue: MortalQueue) -> None:
    """Each job is launched once, the victim twice, in order; nothing is left."""
    queue.submit("low")
    queue.until_state("low", "running")
    queue.submit("next")
    queue.submit("last")
    queue.until_order("next", "last")
    queue.submit("urgent", 90)
    queue.until_state("urgent", "running")
    queue.until_order("low", "next", "last")
    queue.until(lambda: request(queue.port, "/v1/jobs/urgent/cancel", "POST").status == 202)
    queue.until_state("low", "running")
    queue.until_state("urgent", "cancelled")
    for name in ("low", "next", "last"):
        queue.until_state(name, "running")
        (queue.folder / f"end-{name}").touch()
    queue.until_state("last", "finished")

    verdicts = {name: (job["verdict"], job["preemptions"]) for name, job in queue.jobs().items()}
    ended = {name: ("succeeded", int(name == "low")) for name in ("low", "next", "last")}
    assert {**ended, "urgent": ("stopped", 0)} == verdicts
    tasks = [f"worker-{index}" for index in range(whole_agents(queue.cluster)["count"])]
    times = {"low": 2, "next": 1, "last": 1, "urgent": 1}
    assert {(name, task): count for name, count in times.items() for task in tasks} == queue.launches()
    queue.uninstall()


#: The first process dies at its first write, the second at its second one, ...
GROWING = range(1, 15)


@pytest.mark.parametrize("moment", ["before", "after"])
def test_jobs_survive_kills_at_growing_writes(local_cluster: LocalCluster, tmp_path: Path, moment: str) -> None:
    with mortal(local_cluster, tmp_path, (tmp_path / "state.db").as_uri(), GROWING, moment) as queue:
        preempt_resume_and_end(queue)
        assert queue.deaths >= 6


def test_jobs_survive_kills_with_zookeeper(real_zookeeper: None, local_cluster: LocalCluster, tmp_path: Path) -> None:
    with ZooKeeperEnsemble() as servers:
        state = f"zk://{servers.addresses}/queues?session_timeout=3"
        with mortal(local_cluster, tmp_path, state, (2, 7, 11), "before") as queue:
            preempt_resume_and_end(queue)
            assert queue.deaths >= 3


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("real_zookeeper")
@pytest.mark.parametrize("kind", ["SQLite", "ZooKeeper"])
@pytest.mark.parametrize("moment", ["before", "after"])
def test_jobs_survive_a_kill_at_each_write(local_cluster: LocalCluster, tmp_path: Path, moment: str, kind: str) -> None:
    number, deaths = 0, 1
    with ZooKeeperEnsemble() if kind == "ZooKeeper" else nullcontext() as servers:
        while deaths:
            number += 1
            folder = tmp_path / f"write-{number}"
            folder.mkdir()
            state = f"zk://{servers.addresses}/queues?session_timeout=3" if servers else f"file://{folder}/state.db"
            with mortal(local_cluster, folder, state, [number], moment) as queue:
                preempt_resume_and_end(queue)
                deaths = queue.deaths
    print(f"{kind}: killed {moment} each of {number - 1} writes")
    assert number > 20


def test_job_with_damaged_state_is_quarantined_alone(local_cluster: LocalCluster, tmp_path: Path) -> None:
    """Its tasks go on; a restart tries it again, and `cancel` ends it."""
    small = {"count": 1, "cpus": 0.1, "mem": 64}
    with mortal(local_cluster, tmp_path, (tmp_path / "state.db").as_uri(), (), "never") as queue:

        def restart_with(value: bytes) -> bytes:
            """Restart with another value of a task of job `bad`; return the value before."""
            assert queue.process is not None
            queue.process.terminate()
            queue.process.wait()
            with closing(SqliteStore(tmp_path / "state.db", queue.name)) as store:
                (key,) = (key for key in store.load() if key.startswith("jobs/bad/tasks/"))
                before = store.load()[key]
                store.apply([Put(key, value)])
            return before

        for name in ("bad", "good"):
            queue.submit(name, worker=small)
            queue.until_state(name, "running")
        healthy = restart_with(b"damaged")
        queue.until_state("bad", "quarantined")
        assert "damaged" in queue.jobs()["bad"]["reason"]
        queue.submit("new", worker=small)
        queue.until_state("new", "running")
        assert "running" == queue.jobs()["good"]["state"]
        restart_with(healthy)
        queue.until_state("bad", "running")
        restart_with(b"damaged")
        queue.until_state("bad", "quarantined")
        assert dict.fromkeys([(name, "worker-0") for name in ("bad", "good", "new")], 1) == queue.launches()
        queue.until(lambda: request(queue.port, "/v1/jobs/bad/cancel", "POST").status == 202)
        queue.until_state("bad", "cancelled")
        queue.uninstall()
