"""Workers that join and leave a running training: `scale`, on a real Mesos."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from kit.commands import request, run_command
from kit.waiting import wait_until
from mesos_local.cluster import LocalCluster
from mesos_local.master_api import read_status
from tf_scheduler.cli.local_run.installed import InstalledService

pytestmark = [pytest.mark.mesos, pytest.mark.tensorflow, pytest.mark.timeout(900)]
EXAMPLE = Path(__file__).parents[2] / "examples" / "digits"
NAME = "elastic"
SMALL = {"cpus": 0.2, "mem": 700}


class Service:
    """examples/digits with live workers, installed on the local cluster."""

    def __init__(self, cluster: LocalCluster, folder: Path) -> None:
        self.cluster, self.enough = cluster, folder / "enough"
        self.installed = InstalledService(cluster.directory, NAME)
        options: dict[str, Any] = json.loads((EXAMPLE / "options.json").read_text())
        options["service"] |= {
            "name": NAME,
            "job_url": (EXAMPLE / "train.py").as_uri(),
            "command": f"{options['service']['command']} --epochs 1 --until {self.enough}",
        }
        options["worker"] |= {**SMALL, "elastic": {"mode": "live", "min": 1, "max": 4}}
        options["chief"] |= SMALL
        options["parameter_server"] |= SMALL
        path = folder / "options.json"
        path.write_text(json.dumps(options))
        done = run_command("local", "install", "--options", path, "--dir", cluster.directory)
        assert 0 == done.returncode, done.stderr

    def ask(self, path: str) -> Any:
        return request(urlsplit(self.installed.url).port or 0, path)

    def scale(self, count: int) -> None:
        """Change the number of workers, and wait until the chief uses them."""
        done = run_command("--name", NAME, "scale", "worker", count, "--yes")
        assert 0 == done.returncode, done.stderr
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
        settings = str(self.installed.folder / "scheduler.json").encode()
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if settings in (entry / "cmdline").read_bytes().split(b"\0"):
                    os.kill(int(entry.name), signal.SIGKILL)

    def output(self) -> str:
        return str(run_command("--name", NAME, "logs", "chief-0").stdout)


@pytest.fixture
def training(local_cluster: LocalCluster, tmp_path: Path) -> Iterator[Service]:
    try:
        made = Service(local_cluster, tmp_path)
        wait_until(lambda: made.members() == {"worker-0", "worker-1"})
        yield made
    finally:
        run_command("local", "uninstall", "--all", "--dir", local_cluster.directory)


def test_workers_join_and_leave_without_a_restart(training: Service) -> None:
    """2 -> 4 -> 1 -> 3 workers, and SIGKILL of the scheduler: nobody restarts."""
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
