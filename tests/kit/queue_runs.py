"""What users get of a real Mesos: samples of a run, and the model's measures.

The jobs are those of `cluster_model.sixty_jobs`. Their program trains nothing: the measures are about places.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from kit.cluster_model import Measures
from kit.shared import start_cluster
from mesos_local.agents import AgentSpec
from mesos_local.cluster import LocalCluster
from mesos_local.master_api import AgentStatus, read_status
from tf_scheduler.queue.job import Job, JobId

#: A worker works for so many seconds, a parameter server until it is stopped.
PROGRAM = """\
import json, os, socket, sys, time
config = json.loads(os.environ["TF_CONFIG"])
kind, index = config["task"]["type"], config["task"]["index"]
server = socket.create_server(("", int(config["cluster"][kind][index].rpartition(":")[2])))
print("begins", time.time(), flush=True)
time.sleep(1e9 if kind == "ps" else float(sys.argv[1]))
"""
#: Of a task, and of its executor.
WORKER, PS, EXECUTOR = 0.9, 0.05, 0.1
_AGENTS, _SLOTS = 3, 4
_INTERVAL = 0.5  # seconds between two samples


@contextmanager
def twelve_slots() -> Iterator[LocalCluster]:
    """A Mesos with the rates of a production cluster, and room for some ps tasks."""
    cpus = _SLOTS * (WORKER + EXECUTOR + PS + EXECUTOR)
    agents = [AgentSpec(f"agent-{number}", f"cpus:{cpus};mem:8192") for number in range(_AGENTS)]
    with start_cluster(agents) as cluster:
        yield cluster


def whole_agents(cluster: LocalCluster) -> dict[str, Any]:
    """Options of tasks that take the agents without GPUs."""
    plain = [agent for agent in cluster.specs if "gpus" not in agent.resource_pairs()]
    cpus = min(float(agent.resource_pairs()["cpus"]) for agent in plain)
    return {"count": len(plain), "cpus": cpus - EXECUTOR, "mem": 64}


def job_file(job: Job, seconds: float, program: Path) -> dict[str, Any]:
    """Return the options of a job of the model, which works for `seconds`."""
    ps = sum(task.cpus < 500 for task in job.tasks)
    return {
        "service": {
            "strategy": "between_graph" if ps else "multi_worker_mirrored",
            "job_url": program.as_uri(),
            "command": f"python {program.name} {seconds:.1f}",
            "checkpoint_dir": str(program.parent),
        },
        "chief": {"count": 0},
        "worker": {"count": len(job.tasks) - ps, "cpus": WORKER, "mem": 64},
        **({"parameter_server": {"count": ps, "cpus": PS, "mem": 64}} if ps else {}),
    }


@dataclass(frozen=True)
class Waiting:
    """A job that waits, and the sizes of its tasks."""

    name: str
    queue: str
    cpus: Sequence[float]


@dataclass
class Run:
    """Sums over the samples of a run. `shares`: queue -> its part, all together 1."""

    cluster: LocalCluster
    shares: Mapping[str, float]
    #: CPU-seconds of the largest gang.
    largest: float
    #: Seconds before shares are compared: users do not begin at once.
    settling: float = 60.0
    used: dict[str, float] = field(default_factory=dict)
    differences: list[float] = field(default_factory=lambda: [0.0])
    offered: float = 0.0
    idle: float = 0.0
    wasted: float = 0.0
    began: float = field(default_factory=time.time)
    _last: float = field(default_factory=time.time)

    def watch(self, look: Callable[[], tuple[Sequence[Waiting], bool]], queues: Mapping[str, str]) -> None:
        """Take samples until `look` returns True beside the jobs that wait.

        `queues`: name of a framework -> its queue.
        """
        is_done = False
        while not is_done:
            waiting, is_done = look()
            status = read_status(self.cluster.master.address)
            seconds, self._last = time.time() - self._last, time.time()
            for framework in status.frameworks:
                queue = queues[framework.name]
                self.used[queue] = self.used.get(queue, 0.0) + seconds * float(framework.used.get("cpus", 0.0))
            if waiting:
                self._count(status.agents, waiting, seconds)
            time.sleep(_INTERVAL)

    def _count(self, agents: Sequence[AgentStatus], waiting: Sequence[Waiting], seconds: float) -> None:
        free = [float(agent.resources["cpus"]) - float(agent.used.get("cpus", 0.0)) for agent in agents]
        idle = seconds * sum(map(int, (cpus / (WORKER + EXECUTOR) + 1e-6 for cpus in free)))
        self.offered += seconds * _AGENTS * _SLOTS
        self.idle += idle
        self.wasted += idle if any(_has_room(free, job.cpus) for job in waiting) else 0.0
        if self._last > self.began + self.settling and {job.queue for job in waiting} == set(self.shares):
            total = sum(self.used.values())
            self.differences.append(max(abs(self.used[name] - total * part) for name, part in self.shares.items()))

    def measures(self, estimate_error: float) -> Measures:
        return Measures(
            max(self.differences) / self.largest,
            self.differences[-1] / sum(self.used.values()),
            1 - self.idle / self.offered,
            1 - self.wasted / self.offered,
            estimate_error,
            time.time() - self.began,
        )


def _has_room(free: Sequence[float], tasks: Sequence[float]) -> bool:
    rest = list(free)
    for cpus in tasks:
        place = next((index for index, has in enumerate(rest) if has >= cpus - 1e-6), None)
        if place is None:
            return False
        rest[place] -= cpus
    return True


def median_error(estimates: Mapping[JobId, float | None], starts: Mapping[JobId, float], jobs: Sequence[Job]) -> float:
    """Return the median of |estimated - actual wait| / actual wait; unknown: 1.

    Of jobs that waited for at least 30 s, or of all if none did.
    """
    waits = {job.id: (starts[job.id] - job.submitted, estimates.get(job.id), job.submitted) for job in jobs}
    long = [each for each in waits.values() if each[0] >= 30] or list(waits.values())
    return median(1.0 if at is None else abs(at - submitted - wait) / wait for wait, at, submitted in long)
