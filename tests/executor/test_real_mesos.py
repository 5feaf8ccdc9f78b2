"""The bundle on a real Mesos master and agent; the test is the scheduler."""

from __future__ import annotations

import base64
import shlex
from pathlib import Path

import pytest

from jobs import gone
from task_launcher import TaskLauncher, processes, subscribed
from tf_executor.contract.reports import EndReport

pytestmark = pytest.mark.usefixtures("real_mesos")


def test_successful_program_finishes(scheduler: TaskLauncher) -> None:
    scheduler.launch("ok", 'echo "hello from $TASK_NAME"; echo trouble >&2; env > environment')
    status = scheduler.statuses("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert ("exit code 0", EndReport(exit_code=0)) == (
        status["message"],
        EndReport.decode(base64.b64decode(status["data"])),
    )
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
        ("exits-3", "exit 3", "exit code 3", EndReport(exit_code=3, error="no output")),
        ("kill-9", "kill -9 $$", "killed by signal 9 (SIGKILL)", EndReport(signal=9)),
    ],
)
def test_failed_program_is_reported(
    scheduler: TaskLauncher, name: str, command: str, message: str, ending: EndReport
) -> None:
    scheduler.launch(name, command)
    status = scheduler.statuses("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
    assert (message, ending) == (status["message"], EndReport.decode(base64.b64decode(status["data"])))
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


def stubborn(ready: Path) -> str:
    return f"READY={ready} exec python -c {shlex.quote(STUBBORN)}"


def test_kill_reaches_stubborn_tree(scheduler: TaskLauncher, ready: Path) -> None:
    scheduler.launch("stubborn", stubborn(ready), kill_grace=3600.0)
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
    assert "ready" == ready.read_text()
    policy = {"grace_period": {"nanoseconds": int(0.2e9)}}
    agent_id = {"value": scheduler.agent_id}
    scheduler.call("KILL", task_id={"value": "stubborn"}, agent_id=agent_id, kill_policy=policy)
    status = scheduler.statuses("TASK_KILLING", "TASK_KILLED")
    assert "stopped on request; it did not stop in time and was killed" == status["message"]
    assert [] == processes("stubborn")
    assert 0 == scheduler.executor_exit()


def test_executor_shutdown_ends_task(scheduler: TaskLauncher, ready: Path) -> None:
    scheduler.launch("shut", stubborn(ready), kill_grace=3600.0)
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
    assert "ready" == ready.read_text()
    scheduler.call("SHUTDOWN", executor_id={"value": "shut"}, agent_id={"value": scheduler.agent_id})
    status = scheduler.statuses("TASK_KILLING", "TASK_KILLED")
    assert "the executor was shut down; it did not stop in time and was killed" == status["message"]
    assert [] == processes("shut")
    assert 0 == scheduler.executor_exit()


def test_restarted_agent_recovers_task(bundle: Path, ready: Path) -> None:
    """The program outlives a SIGKILLed agent; its updates arrive later."""
    with subscribed(bundle) as scheduler:
        restart_the_agent(scheduler, ready)


def restart_the_agent(scheduler: TaskLauncher, ready: Path) -> None:
    scheduler.launch("survivor", f"echo ready > {ready}; read line < {ready}; exit 3")
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
    assert "ready\n" == ready.read_text()
    agent = scheduler.cluster.agents["agent-1"]
    agent.kill()
    ready.write_text("go\n")
    agent.restart()
    assert "exit code 3" == scheduler.statuses("TASK_FAILED")["message"]
