"""The bundle on a real Mesos: fetched by a real agent, reporting to a real master. The test is the scheduler."""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs import gone
from task_launcher import Scheduler, processes, subscribed
from tf_executor.reports import Ending
from tf_scheduler.bundle import build_bundle

pytestmark = pytest.mark.mesos


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_bundle(tmp_path_factory.mktemp("bundle") / "tf_executor.pyz")


@pytest.fixture(scope="module")
def scheduler(bundle: Path) -> Iterator[Scheduler]:
    with subscribed(bundle) as scheduler:
        yield scheduler


def test_success(scheduler: Scheduler) -> None:
    """Every state arrives, the output is in the sandbox, the executor ends by itself with exit code 0."""
    scheduler.launch("ok", 'echo "hello from $TASK_NAME"; echo trouble >&2; env > environment')
    status = scheduler.statuses("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert ("exit code 0", Ending(exit_code=0)) == (status["message"], Ending.decode(base64.b64decode(status["data"])))
    assert 0 == scheduler.executor_exit()
    sandbox = scheduler.sandbox("ok")
    assert "hello from worker-0\n" == (sandbox / "stdout").read_text()
    assert (sandbox / "stderr").read_text().endswith("trouble\n")
    assert "TASK_FINISHED" in (sandbox / "executor.log").read_text()
    variables = dict(line.split("=", 1) for line in (sandbox / "environment").read_text().splitlines() if "=" in line)
    assert not {"MESOS_AGENT_ENDPOINT", "LIBPROCESS_PORT"} & set(variables)
    assert (sandbox.resolve(), "") == (Path(variables["HOME"]).resolve(), variables["CUDA_VISIBLE_DEVICES"])
    assert variables["TMPDIR"].startswith("/tmp/tf-task-")
    assert gone(Path(variables["TMPDIR"]))


@pytest.mark.parametrize(
    ("name", "command", "message", "ending"),
    [
        ("exits-3", "exit 3", "exit code 3", Ending(exit_code=3)),
        ("kill-9", "kill -9 $$", "killed by signal 9 (SIGKILL)", Ending(signal=9)),
    ],
)
def test_failure(scheduler: Scheduler, name: str, command: str, message: str, ending: Ending) -> None:
    """The reason reaches the scheduler, for people and for machines, and wins over the agent's own."""
    scheduler.launch(name, command)
    status = scheduler.statuses("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
    assert (message, ending) == (status["message"], Ending.decode(base64.b64decode(status["data"])))
    assert "SOURCE_EXECUTOR" == status["source"]
    assert 0 == scheduler.executor_exit()


STUBBORN = """
import os, signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        print("daemon", flush=True)
        os.mkfifo("never")
        open("never").read()
    os._exit(0)
os.wait()
open(os.environ["READY"], "w").write("ready")
while True: signal.pause()
"""


@pytest.fixture
def ready(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "ready")
    return tmp_path / "ready"


def stubborn(ready: Path) -> str:
    return f"READY={ready} exec python -c {shlex.quote(STUBBORN)}"


def test_kill_of_a_tree_that_will_not_stop(scheduler: Scheduler, ready: Path) -> None:
    """SIGTERM is ignored by a parent and its detached daemon; after the grace of the KILL call nothing is left."""
    scheduler.launch("stubborn", stubborn(ready), kill_grace=3600.0)
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
    assert "ready" == ready.read_text()
    policy = {"grace_period": {"nanoseconds": int(0.2e9)}}
    agent_id = {"value": scheduler.agent_id}
    scheduler.call("KILL", task_id={"value": "stubborn"}, agent_id=agent_id, kill_policy=policy)
    status = scheduler.statuses("TASK_KILLING", "TASK_KILLED")
    assert "killed on request; killed by signal 9 (SIGKILL)" == status["message"]
    assert [] == processes("stubborn")
    assert 0 == scheduler.executor_exit()


def test_shutdown_of_the_executor(scheduler: Scheduler, ready: Path) -> None:
    """Within the agent's grace period the tree is gone, TASK_KILLED is stored, and the executor left by itself."""
    scheduler.launch("shut", stubborn(ready), kill_grace=3600.0)
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
    assert "ready" == ready.read_text()
    scheduler.call("SHUTDOWN", executor_id={"value": "shut"}, agent_id={"value": scheduler.agent_id})
    status = scheduler.statuses("TASK_KILLING", "TASK_KILLED")
    assert "the executor was shut down; killed by signal 9 (SIGKILL)" == status["message"]
    assert [] == processes("shut")
    assert 0 == scheduler.executor_exit()


def test_an_agent_that_restarts_finds_its_task(bundle: Path, ready: Path) -> None:
    """The program outlives a SIGKILLed agent; what it does meanwhile is reported when the agent is back."""
    with subscribed(bundle) as scheduler:
        restart_the_agent(scheduler, ready)


def restart_the_agent(scheduler: Scheduler, ready: Path) -> None:
    scheduler.launch("survivor", f"echo ready > {ready}; read line < {ready}; exit 3")
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
    assert "ready\n" == ready.read_text()
    agent = scheduler.cluster.agents["agent-1"]
    agent.kill()
    ready.write_text("go\n")
    agent.restart()
    assert "exit code 3" == scheduler.statuses("TASK_FAILED")["message"]
