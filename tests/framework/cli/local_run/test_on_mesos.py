"""Commands that ask a local run, without options."""

import json
import signal
from pathlib import Path

import pytest

from jobs import PATIENCE, options, wait_for

#: Writes to both outputs, and waits to be killed.
PROGRAM = 'echo "hello from $TASK_NAME"; echo oops >&2; touch {marker}.$TASK_NAME; exec sleep 1000'


@pytest.fixture
def asked(succeed, home, tmp_path: Path):
    """Run a command without DC/OS, which must succeed; return its output."""
    home["DCOS_DIR"] = str(tmp_path / "no-dcos")
    return succeed


@pytest.mark.mesos
def test_commands_find_local_run_without_options(start, run, asked, tmp_path: Path) -> None:
    """After the run has ended: exit code 3."""
    marker = tmp_path / "up"
    process = start("local", "run", options(tmp_path, PROGRAM.format(marker=marker)))
    wait_for(*(Path(f"{marker}.{task}") for task in ("ps-0", "worker-0", "worker-1")))
    log = iter(process.stderr.readline, "")
    assert any("plan deploy is complete" in line for line in log)

    assert asked("plan", "status", "deploy").startswith("deploy (parallel strategy) (COMPLETE)")
    tasks = {task["name"]: task for task in json.loads(asked("tasks", "--json"))["tasks"]}
    assert {"RUNNING"} == {task["status"] for task in tasks.values()}
    assert "hello from worker-1\n" == asked("logs", "worker-1")
    assert asked("logs", "worker-1", "--stderr").endswith("oops\n")
    assert tasks["ps-0"]["address"] in asked("endpoints", "ps")
    assert {"type": "ps", "index": 0} == json.loads(asked("cluster", "ps-0"))["task"]
    assert "worker-1 on agent-" in asked("events", "--task", "worker-1")
    assert "is not pending: it is RUNNING" in asked("why", "worker-0")
    assert "pass" in asked("debug", "offers")

    Path(f"{marker}.worker-1").unlink()
    assert "worker-1 is restarted" in asked("pod", "restart", "worker-1")
    wait_for(Path(f"{marker}.worker-1"))
    again = json.loads(asked("tasks", "--json"))["tasks"]
    assert tasks["worker-1"]["id"] not in [task["id"] for task in again]

    process.send_signal(signal.SIGINT)
    process.communicate(timeout=PATIENCE)
    code, _, err = run("plan", "list")
    assert 3 == code
    assert "local run OPTIONS.json" in err
