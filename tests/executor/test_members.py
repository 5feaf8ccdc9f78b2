"""Workers that join and leave a running chief: real servers, a real executor."""

from __future__ import annotations

import base64
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from kit.waiting import wait_until
from mesos_local.host import free_ports
from own_runtimes import python_with_tensorflow
from tf_executor.contract.payload import PayloadError, WantedMembers

KEY, LAUNCH = "key-of-the-launch", "t1"
PROGRAM = Path(__file__).with_name("members_program.py")


class Cluster:
    """A parameter server, workers, and the lists that the chief's executor gets."""

    def __init__(self, tensorflow: str, executor: Any) -> None:
        self.tensorflow, self.executor = tensorflow, executor
        self.python = python_with_tensorflow(tensorflow)
        line = [self.python, str(PROGRAM), "serve"]
        self._starter = subprocess.Popen(line, stdin=PIPE, stdout=PIPE, stderr=subprocess.DEVNULL, text=True)
        #: Process of each server by its address.
        self.servers: dict[str, int] = {}
        self.workers: dict[str, str] = {}
        self.version = 0

    def start(self, job: str, index: int) -> str:
        """Start a server; return its address."""
        assert self._starter.stdin is not None
        assert self._starter.stdout is not None
        print(job, index, file=self._starter.stdin, flush=True)
        _, number, address = next(text for text in self._starter.stdout if text.startswith("server ")).split()
        self.servers[address] = int(number)
        return address

    def join(self, *indexes: int) -> None:
        before = dict(self.workers)
        self.workers |= {str(index): self.start("worker", index) for index in indexes}
        assert "members_error" not in self.order()
        self._end(before)

    def leave(self, *indexes: int) -> None:
        before = dict(self.workers)
        for index in indexes:
            del self.workers[str(index)]
        assert "members_error" not in self.order()
        self._end(before)

    def order(self) -> dict[str, Any]:
        """Tell the chief of the present workers, and return its answer."""
        self.version += 1
        message = WantedMembers(LAUNCH, self.version, self.workers).encode(KEY)
        self.executor.say("MESSAGE", data=base64.b64encode(message).decode())
        while (report := self.executor.await_message()).get("members") != self.version:
            pass
        return dict(report)

    def _end(self, before: dict[str, str]) -> None:
        """End servers that the chief no longer uses."""
        for address in set(before.values()) - set(self.workers.values()):
            os.kill(self.servers.pop(address), signal.SIGKILL)

    def close(self) -> None:
        for process in self.servers.values():
            os.kill(process, signal.SIGKILL)
        self._starter.kill()
        self._starter.communicate()


@pytest.fixture
def cluster(executor: Any, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(getattr(request, "param", "2.21"), executor)
    try:
        yield made
    finally:
        made.close()


def launch(cluster: Cluster, train: str, **environment: str) -> None:
    """Launch a chief with a ps and two workers, and wait for its first steps."""
    parameter_server = cluster.start("ps", 0)
    cluster.workers = {str(index): cluster.start("worker", index) for index in range(2)}
    addresses = {"ps": [parameter_server], "worker": list(cluster.workers.values())}
    addresses["chief"] = [f"127.0.0.1:{free_ports(1)[0]}"]
    legacy = {} if cluster.tensorflow == "2.15" else {"TF_USE_LEGACY_KERAS": "1"}
    cluster.executor.launch_running(
        f"exec python {PROGRAM} {train}",
        python=cluster.python,
        members_key=KEY,
        tf_config={"cluster": addresses, "task": {"type": "chief", "index": 0}},
        environment={"TF_CPP_MIN_LOG_LEVEL": "3", **legacy, **environment},
    )
    wait_until(lambda: "step " in cluster.executor.output())


def result(cluster: Cluster) -> dict[str, int]:
    """End the training; return its counts."""
    (cluster.executor.sandbox / "enough").touch()
    assert "TASK_FINISHED" == cluster.executor.update()["state"]
    counts: dict[str, int] = json.loads(cluster.executor.output().splitlines()[-1])
    return counts


def threads(cluster: Cluster) -> tuple[int, int]:
    """Return the fewest Python and native threads of the last looks: some end late."""
    lines = [line.split() for line in cluster.executor.output().splitlines() if line.startswith("step ")]
    return min(int(line[3]) for line in lines[-5:]), min(int(line[5]) for line in lines[-5:])


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("cluster", "train"), [("2.15", "fit"), ("2.21", "loop")], indirect=["cluster"])
def test_workers_join_leave_and_move(cluster: Cluster, train: str) -> None:
    """2 -> 4 -> 1 -> 3 workers, and moves: no step is lost or done twice.

    Slow: each change starts or ends servers of TensorFlow, and waits for steps.
    """
    launch(cluster, train)
    before, native = threads(cluster)

    assert "members_error" not in cluster.order()
    cluster.join(2, 3)
    cluster.leave(1, 2, 3)
    cluster.join(1, 2)
    chosen = random.Random(1)
    for _ in range(2):
        cluster.join(chosen.randrange(3))
    counts = result(cluster)

    assert counts["scheduled"] == counts["counted"] > 0
    after, native_after = threads(cluster)
    assert after <= before + 1, "one for each worker"
    # TensorFlow leaves four of each update: one for a list, and two for a move.
    assert native_after <= native + 4 * (cluster.version + 4) + 4


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.timeout(600)
def test_leaving_worker_may_close_its_context_late(cluster: Cluster) -> None:
    """TensorFlow waits for it, for up to a minute: its task can be stopped before."""
    launch(cluster, "loop")
    hold = cluster.executor.sandbox / "hold"
    hold.touch()
    wait_until((cluster.executor.sandbox / "held").exists)
    os.kill(cluster.servers[cluster.workers["1"]], signal.SIGSTOP)

    cluster.leave(1)
    hold.unlink()
    cluster.join(1)
    counts = result(cluster)

    assert counts["scheduled"] == counts["counted"] > 0


@pytest.mark.usefixtures("real_tensorflow")
@pytest.mark.timeout(600)
def test_chief_asks_for_a_restart_before_it_has_too_many_threads(cluster: Cluster) -> None:
    """And trains on until then."""
    launch(cluster, "loop", MOST_UPDATES="2")
    cluster.join(2)
    cluster.leave(2)
    cluster.workers["2"] = cluster.start("worker", 2)

    answer = cluster.order()
    counts = result(cluster)

    assert "2 changes left 8 threads of TensorFlow, which a restart ends" == answer["members_error"]
    assert counts["scheduled"] == counts["counted"] > 0


def test_list_of_another_sender_is_ignored(executor: Any) -> None:
    """It could make the chief connect to anybody's server."""
    executor.launch_running("exec sleep 3600", members_key=KEY)
    wanted = executor.sandbox / ".tf_executor/members/wanted.json"
    for key, launch_id in ((KEY, "t2"), ("another-key", LAUNCH), ("", LAUNCH)):
        message = WantedMembers(launch_id, 9, {"0": "evil:1"}).encode(key)
        executor.say("MESSAGE", data=base64.b64encode(message).decode())
    executor.say("MESSAGE", data=base64.b64encode(WantedMembers(LAUNCH, 1, {"0": "a:1"}).encode(KEY)).decode())
    wait_until(wanted.exists)

    assert {"version": 1, "workers": {"0": "a:1"}} == json.loads(wanted.read_text())
    with pytest.raises(PayloadError):
        WantedMembers.decode(WantedMembers(LAUNCH, 1, {}).encode(""), "", LAUNCH)


def test_hook_keeps_the_users_sitecustomize(executor: Any, tmp_path: Path) -> None:
    """And is not there without a key: no other Python is changed."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "sitecustomize.py").write_text("print('of the user', flush=True)\n")
    command = 'python -c \'import sys; print("hook:", "tf_executor.members" in sys.modules, flush=True)\''

    executor.launch(command, members_key=KEY, environment={"PYTHONPATH": str(own)})
    executor.end("TASK_STARTING", "TASK_RUNNING")

    assert ["of the user", "hook: True"] == executor.output().splitlines()
