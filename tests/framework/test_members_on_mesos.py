"""Workers that join and leave a running training: `scale`, on a real Mesos."""

from __future__ import annotations

import importlib
import json
import os
import random
import re
import shutil
import signal
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from chaos.people import kill, members, of_task
from kit.commands import find_scheduler, kill_scheduler, request, run_command
from kit.waiting import wait_until
from mesos_local.cluster import LocalCluster
from mesos_local.master_api import read_status
from tf_scheduler.cli.local_run.installed import InstalledService

EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
NAME = "elastic"
SMALL = {"cpus": 0.2, "mem": 700}
#: Number and seed of the random changes: 50 of them take a quarter of an hour.
CHANGES, SEED = (
    int(os.environ.get(f"TEST_MEMBERS_{name}", default)) for name, default in (("CHANGES", 2), ("SEED", 1))
)
pytestmark = [pytest.mark.usefixtures("real_tensorflow"), pytest.mark.timeout(900 + 30 * CHANGES)]
#: Training steps of an epoch.
EPOCH = 44


class Service:
    """examples/digits with live workers, installed on the local cluster."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster, self.enough = cluster, folder / "enough"
        self.installed = InstalledService(cluster.directory, NAME)
        # Checkpoints survive a service: one of another test may count the step of a lost worker twice.
        shutil.rmtree(cluster.directory / "checkpoints" / NAME, ignore_errors=True)
        options: dict[str, Any] = json.loads((EXAMPLE / "options.json").read_text())
        options["service"] |= {
            "name": NAME,
            "job_url": (EXAMPLE / "train.py").as_uri(),
            "command": f"{options['service']['command']} --epochs 1 --until {self.enough}",
        }
        options["worker"] |= {**SMALL, "elastic": {"mode": "live", "min": 1, "max": 4}}
        options["chief"] |= SMALL
        options["parameter_server"] |= SMALL
        options["health"] = {"frozen_after": 15}
        options["restart"] = {"backoff": 1, "max_backoff": 4, "max_uncounted": 0}
        # Otherwise agents with several kills are avoided, and a lost worker on another agent restarts the chief.
        options["recovery"] = {"avoid_after": 0}
        path = folder / "options.json"
        path.write_text(json.dumps(options))
        done = run_command("local", "install", "--options", path, "--dir", cluster.directory)
        assert 0 == done.returncode, done.stderr

    def ask(self, path: str) -> Any:
        return request(urlsplit(self.installed.url).port or 0, path, token=self.installed.token)

    def scale(self, count: int) -> None:
        """Change the number of workers, and wait until the chief uses them."""
        self.order(count)
        self.await_workers(count)

    def order(self, count: int) -> None:
        done = run_command("--name", NAME, "scale", "worker", count, "--yes")
        assert 0 == done.returncode, done.stderr

    def await_workers(self, count: int) -> None:
        workers = {f"worker-{index}" for index in range(count)}
        wait_until(lambda: self.members() == workers and self.tasks().keys() == {"chief-0", "ps-0", *workers})

    def members(self) -> set[str]:
        """Return the workers that the chief uses."""
        answer = self.ask("/v1/tf/cluster")
        members = answer.json["members"] if answer.status == 200 else None
        return set(members["workers"]) if members and members["confirmed"] else set()

    def counts(self) -> list[int | None]:
        """Return the number of workers at each point of the chief's curve."""
        answer = self.ask("/v1/tf/progress?points=512&tasks=chief-0")
        return [point["workers"] for point in answer.json["tasks"][0]["points"]]

    def tasks(self) -> dict[str, str]:
        """Name -> launch of the running tasks."""
        running = read_status(self.cluster.master.address).tasks
        return {task.name: task.task_id for task in running}

    def kill_scheduler(self) -> None:
        wait_until(lambda: find_scheduler(self.installed.folder))  # it may have just been ended for a change
        kill_scheduler(self.installed.folder)

    def processes(self, task: str, *, program: bool = False) -> list[Any]:
        """Return the program or the executor of a task."""
        wanted = of_task(task, program=program)
        return [each.process for each in members(self.cluster.directory) if wanted(each)]

    def kill(self, task: str, *, program: bool = False) -> None:
        """Kill the program or the executor of a task, also of one that is starting."""
        wait_until(lambda: self.processes(task, program=program) or task not in self.tasks())
        kill(self.processes(task, program=program))

    def kill_agent(self, name: str) -> None:
        """Kill an agent, whose executors go on, and start it again."""
        self.cluster.agents[name].kill()
        self.cluster.agents[name].start()

    def output(self) -> str:
        return str(run_command("--name", NAME, "logs", "chief-0").stdout)

    def show(self) -> None:
        """Print what happened; pytest shows it if the test fails."""
        print(*self.installed.log.read_text().splitlines()[-300:], sep="\n")
        print(run_command("--name", NAME, "logs", "chief-0", "--stderr", "--tail", 300).stdout)


@pytest.fixture
def training(local_cluster: LocalCluster, tmp_path: Path) -> Iterator[Service]:
    try:
        made = Service(local_cluster, tmp_path)
        try:
            wait_until(lambda: made.members() == {"worker-0", "worker-1"})
            yield made
        finally:
            made.show()
    finally:
        run_command("local", "uninstall", "--all", "--dir", local_cluster.directory)


def test_workers_join_and_leave_without_a_restart(training: Service) -> None:
    """2 -> 4 -> 1 -> 3 workers, and SIGKILL of the scheduler: nobody restarts.

    Slow: eight launches import TensorFlow, and the chief confirms each change before the next one.
    """
    before = training.tasks()

    training.scale(4)
    training.scale(1)
    training.kill_scheduler()
    wait_until(lambda: training.members() == {"worker-0"})
    training.scale(3)
    wait_until(lambda: training.counts()[-1:] == [3])
    after = training.tasks()
    training.enough.touch()
    wait_until(lambda: "job finished" in training.installed.log.read_text())

    kept = {"chief-0", "ps-0", "worker-0"}
    assert {name: before[name] for name in kept} == {name: after[name] for name in kept}
    output = training.output()
    (accuracy,) = re.findall(r"test accuracy (\S+)", output)
    assert float(accuracy) >= 0.95


def strike(training: Service, chosen: random.Random) -> tuple[str, str]:
    """Kill a process, or none; return what, and the task that is hit."""
    what, victim = chosen.choice(["chief", "scheduler", "executor", "agent", ""]), ""
    if what == "chief":
        training.kill(victim := "chief-0", program=True)
    elif what == "scheduler":
        training.kill_scheduler()
    elif what == "executor":
        training.kill(victim := chosen.choice(sorted(training.tasks())))
    elif what == "agent":
        training.kill_agent(chosen.choice(sorted(training.cluster.agents)))
    return what, victim


def iterations(model: str) -> int:
    """Return how many steps the saved optimizer has counted."""
    h5py: Any = importlib.import_module("h5py")  # without annotations
    with zipfile.ZipFile(model) as archive, archive.open("model.weights.h5") as weights, h5py.File(weights) as file:
        return int(file["optimizer/vars/0"][()])


@pytest.mark.timeout(900 + 120 * CHANGES)
def test_random_changes_survive_kills(training: Service) -> None:
    """Each process is killed while workers join or leave: no step is lost.

    A step of a lost worker may be done twice: TensorFlow repeats it, and cannot know whether it was done. The chief may
    restart because of a lost task, also during the next change.

    Slow: each change launches tasks that import TensorFlow, and waits until the chief uses them.
    """
    chosen, count, lost_workers, victim = random.Random(SEED), 2, 0, ""
    for number in range(CHANGES):
        before, last = training.tasks(), victim
        count = chosen.choice([other for other in range(1, 5) if other != count])
        training.order(count)
        if chosen.random() < 0.5:
            wait_until(partial(lambda tasks: training.tasks() != tasks, before))
        running = training.tasks()
        what, victim = strike(training, chosen)
        print(f"{number}: {count} workers, kill -9 {what} {victim}", flush=True)
        restarted = {victim, "chief-0"} if victim == "ps-0" else {victim}
        for name in restarted & {"chief-0", "ps-0", *(f"worker-{index}" for index in range(count))}:
            wait_until(
                partial(lambda name, launch: training.tasks().get(name, launch) != launch, name, running.get(name))
            )
        training.await_workers(count)
        after = training.tasks()
        kept = before.keys() & after.keys() - ({"chief-0", victim} if victim or last else set())
        assert {name: before[name] for name in kept} == {name: after[name] for name in kept}
        lost_workers += victim.startswith("worker")
    training.enough.touch()
    wait_until(lambda: "job finished" in training.installed.log.read_text())
    wait_until(lambda: not members(training.cluster.directory))

    output = training.output()
    *_, epochs = re.findall(r"epoch (\d+):", output)
    ((accuracy, model),) = re.findall(r"test accuracy (\S+) .* model saved in (\S+)", output)
    assert float(accuracy) >= 0.95
    assert iterations(model) - EPOCH * int(epochs) in range(lost_workers + 1)


def test_frozen_worker_delays_others_only(training: Service) -> None:
    """An event names it, and others join when it is replaced.

    Slow: a worker counts as frozen after 15 s, and six launches import TensorFlow.
    """
    before = training.tasks()
    for process in training.processes("worker-0", program=True):
        process.signal(signal.SIGSTOP)

    training.order(3)
    wait_until(lambda: re.search("worker-0 on .* is frozen", training.installed.log.read_text()))
    wait_until(lambda: training.tasks().get("worker-0", before["worker-0"]) != before["worker-0"])
    training.await_workers(3)
    training.enough.touch()
    wait_until(lambda: "job finished" in training.installed.log.read_text())
