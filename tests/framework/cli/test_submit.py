"""`submit` on this machine, and `--set`, on a real Mesos."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from jobs import PATIENCE, options, wait_for
from kit.waiting import wait_until

#: Waits until a file exists, then exits with the code in it: the first task that fails ends the others.
PROGRAM = "echo step 3/10; touch {go}.$TASK_NAME; until [ -s {go} ]; do sleep 0.1; done; exit $(cat {go})"
SETTINGS = ("worker.cont=4", "foo", "service.name=5")


@pytest.fixture
def go(without_dcos, tmp_path: Path) -> Path:
    return tmp_path / "go"


@pytest.fixture
def job(go: Path, tmp_path: Path):
    """Options of a job that ends when the test writes `go`."""
    return options(tmp_path, PROGRAM.format(go=go), restart={"max_failures": 0})


@pytest.fixture
def submitted(job: Path, run_process):
    """The job, which is cancelled at the end of the test."""
    yield job
    if "small" in run_process("list")[1]:
        run_process("cancel", "small", "--yes")


@pytest.mark.usefixtures("real_mesos")
def test_detached_job_is_commanded_by_its_name(run_process, submitted: Path, go: Path) -> None:
    """As a job that another terminal shows."""
    code, out, err = run_process("submit", submitted, "--detach", "--set", "worker.count=1")

    assert 0 == code, err
    name, page = out.splitlines()
    assert "submitted small" == name
    wait_for(Path(f"{go}.worker-0"))
    assert not Path(f"{go}.worker-1").exists()
    assert page == "page: " + run_process("open", "small", "--print")[1].strip()
    assert "small" == run_process("list")[1].splitlines()[1].split()[0]
    assert run_process("status", "small")[1].startswith("small  ")
    assert 124 == run_process("wait", "small", "--timeout", "0")[0]
    go.write_text("3")
    assert 1 == run_process("wait", "small")[0]
    assert "worker-0 | step 3/10" in run_process("logs", "--run", "last")[1]
    assert 1 == run_process("result", "--name", "small")[0]


@pytest.mark.usefixtures("real_mesos")
def test_submit_refuses_the_name_of_a_running_job(run_process, submitted: Path, go: Path) -> None:
    """Commands find a detached job by its name only."""
    assert 0 == run_process("submit", submitted, "--detach")[0]

    code, out, err = run_process("submit", submitted, "--detach", "--json")

    assert (1, 1) == (code, len(err.splitlines())), err
    assert "service.name: `small`: already in use by http://" in json.loads(out)["error"]["message"]
    assert "--name, or stop the service: `dcos-tensorflow cancel small`" in err
    assert 0 == run_process("submit", submitted, "--detach", "--name", "other")[0]
    go.write_text("0")
    assert (0, 0) == (run_process("wait", "small")[0], run_process("wait", "other")[0])


@pytest.mark.usefixtures("real_mesos")
def test_detached_job_survives_its_terminal(
    start_process, run_process, state_folder, submitted: Path, go: Path
) -> None:
    """All processes of the terminal get the signal, while `submit` still waits."""
    runs = state_folder / "runs"
    submitting = start_process("submit", submitted, "--detach")
    wait_until(lambda: any(runs.glob("small-*")), "the job has not started")
    os.killpg(submitting.pid, signal.SIGKILL)
    submitting.communicate(timeout=PATIENCE)
    wait_for(Path(f"{go}.worker-0"), Path(f"{go}.worker-1"))

    assert (0, "small: stopped: SIGINT received\n") == run_process("cancel", "small", "--yes")[:2]
    assert 4 == run_process("wait", "small")[0]


@pytest.mark.usefixtures("real_mesos")
def test_submit_follows_as_local_run(run_process, job: Path, go: Path) -> None:
    """With the exit code of the job; without a DC/OS."""
    go.write_text("1")

    code, out, err = run_process("submit", job, "--json")

    assert (1, "small") == (code, json.loads(out)["service"]), err


@pytest.mark.parametrize("command", [("submit", "--detach"), ("submit",), ("local", "run")])
def test_wrong_settings_are_reported_together(invoke, job: Path, command: tuple[str, ...]) -> None:
    """With those of the file; nothing starts."""
    code, out, err = invoke(*command, job, *(f"--set={each}" for each in SETTINGS), "--json")

    assert 1 == code
    for problem in ("worker.cont: unknown option", "--set foo: expected SECTION.OPTION", "service.name: must be text"):
        assert problem in err
        assert problem in json.loads(out)["error"]["message"]


def test_missing_file_is_refused(invoke, go: Path) -> None:
    for flags in ((), ("--detach",)):
        code, out, err = invoke("submit", go, *flags)
        assert (1, "", f"{go}: No such file or directory\n") == (code, out, err)
