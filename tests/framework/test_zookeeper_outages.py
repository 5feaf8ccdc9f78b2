"""A scheduler on a real Mesos, while ZooKeeper servers are killed or frozen."""

from __future__ import annotations

import getpass
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from jobs import PATIENCE, options
from kit.commands import request, scheduler_environment, start_scheduler
from kit.freezing import freeze, thaw
from kit.zookeeper_ensemble import ZooKeeperEnsemble
from mesos_local.cluster import LocalCluster
from mesos_local.host import free_ports
from mesos_local.master_api import read_status

pytestmark = pytest.mark.usefixtures("real_zookeeper")

NAME = "zookeeper-outages"
#: Each start of a task writes a line. A file `end` ends worker 0, and so the job; a file `fail` kills worker 1.
COMMAND = (
    'echo "$TASK_NAME" >> $CHECKPOINT_DIR/starts; case "$TASK_NAME" in '
    "worker-0) until [ -e $CHECKPOINT_DIR/end ]; do sleep 0.1; done;; "
    "worker-1) until [ -e $CHECKPOINT_DIR/fail ]; do sleep 0.1; done; rm $CHECKPOINT_DIR/fail; kill -KILL $$;; "
    "*) exec sleep 1000;; esac"
)
#: Seconds; long enough to observe a scheduler that waits for ZooKeeper.
LONG, SHORT = 120, 6
CANNOT_STORE = 319  # docs/reference/api.md, /v1/health
LOST_ZOOKEEPER = 3  # exit code


class Host:
    """A machine that runs schedulers of one service, one after the other."""

    def __init__(self, folder: Path, master: str, stack: ExitStack) -> None:
        self.folder, self.master, self._stack = folder, master, stack
        self.checkpoints, self.log = folder / "checkpoints", folder / "scheduler.log"
        self.checkpoints.mkdir()
        self.port = free_ports(1)[0]
        self.ensemble = stack.enter_context(ZooKeeperEnsemble(3, settings=[f"maxSessionTimeout={LONG}000"]))

    def start(self, session_timeout: int, request_timeout: int = 5) -> subprocess.Popen[bytes]:
        """Start the next scheduler; it stops with the test."""
        place = f"zk://{self.ensemble.addresses}/frameworks"
        state = f"{place}?session_timeout={session_timeout}&request_timeout={request_timeout}"
        user = {"name": NAME, "user": getpass.getuser(), "python": sys.executable, "failover_timeout": 600}
        path = options(
            self.folder,
            COMMAND,
            service={"checkpoint_dir": str(self.checkpoints), **user},
            executor={"python": sys.executable},
            mesos={"master": self.master},
            restart={"backoff": 1},
            scheduler={"state": state},
        )
        process = start_scheduler(path, scheduler_environment(self.port), self.log)
        self._stack.enter_context(process)
        self._stack.callback(process.kill)
        self._process, self._again = process, lambda: self.start(session_timeout, request_timeout)
        return process

    def until(self, holds: Callable[[], object]) -> None:
        """Poll until the condition holds."""
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, self.log.read_text()[-4000:]
            if self._process.poll() == LOST_ZOOKEEPER:
                self._again()
            threading.Event().wait(0.05)

    def health(self) -> int:
        """Return the status of /v1/health; 0 without an answer."""
        return request(self.port, "/v1/health").status

    def until_health(self, *wanted: int) -> None:
        self.until(lambda: self.health() in wanted)

    def running(self) -> dict[str, str]:
        """Return task -> id of the framework's running tasks."""
        shown = read_status(self.master)
        ours = {framework.framework_id for framework in shown.frameworks if framework.name == NAME}
        assert len(ours) <= 1
        running = [task for task in shown.tasks if task.framework_id in ours and task.state == "TASK_RUNNING"]
        return {task.name: task.task_id for task in running}

    def fail(self) -> dict[str, str]:
        """Let worker 1 fail; return the other running tasks."""
        others = {name: task_id for name, task_id in self.running().items() if name != "worker-1"}
        (self.checkpoints / "fail").touch()
        self.until(lambda: not (self.checkpoints / "fail").exists())
        return others

    def until_replaced(self, before: dict[str, str]) -> None:
        """Wait until worker 1 runs in another launch and all other tasks in the same one."""
        self.until(lambda: self.running().get("worker-1", before["worker-1"]) != before["worker-1"])
        after = self.running()
        assert {**before, "worker-1": after["worker-1"]} == after, self.log.read_text()[-4000:]

    def starts(self) -> list[str]:
        return sorted((self.checkpoints / "starts").read_text().split())


@pytest.fixture
def host(local_cluster: LocalCluster, tmp_path: Path) -> Iterator[Host]:
    with ExitStack() as stack:
        yield Host(tmp_path, local_cluster.master.address, stack)


def test_job_survives_zookeeper_outages(host) -> None:
    """Two servers suffice; without a majority the scheduler waits; frozen, it exits."""
    ensemble = host.ensemble
    first = host.start(session_timeout=LONG)
    host.until_health(200)
    before = host.running()
    assert {"ps-0", "worker-0", "worker-1"} == set(before)

    # The leader is killed: the other two store everything.
    leader = ensemble.leader()
    leader.kill()
    ensemble.wait_serving()
    host.fail()
    host.until_replaced(before)
    leader.launch()
    ensemble.wait_serving()

    # Two are killed: the last one rejects everything.
    before = host.running()
    killed, last = ensemble.servers[:2], ensemble.servers[2]
    for server in killed:
        server.kill()
    host.until(lambda: last.mode() is None)
    others = host.fail()
    host.until_health(CANNOT_STORE)
    assert others == {name: task_id for name, task_id in host.running().items() if name != "worker-1"}
    assert 2 == host.starts().count("worker-1"), "what cannot be stored is not done"
    for server in killed:
        server.launch()
    ensemble.wait_serving()
    host.until_replaced(before)
    host.until_health(200)
    assert first.poll() is None, "it went on by itself"
    first.send_signal(signal.SIGTERM)
    assert 0 == first.wait(PATIENCE)

    # All are frozen for longer than a session lasts: the leader exits before ZooKeeper could elect another one.
    second = host.start(session_timeout=SHORT)
    host.until_health(200)
    before = host.running()
    frozen_at = time.monotonic()
    for server in ensemble.servers:
        freeze(server)
    assert LOST_ZOOKEEPER == second.wait(PATIENCE)
    assert "this scheduler is no longer the leader" in host.log.read_text()
    # The next schedulers get no answer and exit.
    others = host.fail()
    host.until(lambda: time.monotonic() > frozen_at + SHORT)
    for server in ensemble.servers:
        thaw(server)
    ensemble.wait_serving()
    assert others == {name: task_id for name, task_id in host.running().items() if name != "worker-1"}
    host.until_replaced(before)
    (host.checkpoints / "end").touch()
    host.until(lambda: "job ended: succeeded" in host.log.read_text())

    assert ["ps-0", "worker-0", *["worker-1"] * 4] == host.starts()
    host.until(lambda: not host.running())
