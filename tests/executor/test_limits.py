from __future__ import annotations

import base64
import os
import pwd
import resource
import select
import shutil
from pathlib import Path
from typing import Any

import pytest

from kit.waiting import wait_until
from tf_executor.contract.reports import TaskEnd
from tf_executor.contract.settings import RunSettings
from tf_executor.process.supervisor import LimitsError, resolve_limits

SYSTEM_SAYS = "cannot set user, nice or ulimits: "
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


def test_core_files_are_disabled_by_default(executor: Any) -> None:
    """One core file of TensorFlow fills a disk."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    executor.launch("ulimit -Sc; ulimit -Hc")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert f"0\n{'unlimited' if hard == -1 else hard}\n" == executor.output()


def test_limits_and_nice_apply_to_every_stage(executor: Any) -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    line = "ulimit -Sn; ulimit -Hn; nice"
    executor.launch(line, pre_command=line, ulimits={"nofile": [100, 200], "core": [0, 0]}, nice=3)
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert f"100\n200\n{before + 3}\n" * 2 == executor.output()


def open_folders(sandbox: Path) -> None:
    """Make pytest's folders accessible to other users, like an agent's."""
    for folder in (sandbox, *sandbox.parents):
        if "pytest" in str(folder):
            folder.chmod(folder.stat().st_mode | 0o011)


@is_root
def test_program_runs_as_its_user(executor: Any) -> None:
    entry = pwd.getpwnam("nobody")
    open_folders(executor.sandbox)
    program = """
        id -u; id -g; id -G; touch mine; echo '{"step": 1}' > $TF_EXECUTOR_PROGRESS
        trap '' TERM; echo ready > ready; sleep 3600 & wait
    """
    (executor.sandbox / "ready").chmod(0o666)
    executor.launch_ready(program, user="nobody")
    executor.kill(grace=0.1)
    executor.states("TASK_KILLING", "TASK_KILLED")
    groups = " ".join(map(str, os.getgrouplist("nobody", entry.pw_gid)))
    assert f"{entry.pw_uid}\n{entry.pw_gid}\n{groups}\n" == executor.output()
    assert (executor.sandbox / "mine").owner() == "nobody"
    assert [1] == [message["step"] for message in executor.messages]
    assert [] == executor.processes()


@is_root
def test_program_of_other_user_dies_with_executor(executor: Any) -> None:
    open_folders(executor.sandbox)
    (executor.sandbox / "ready").chmod(0o666)
    executor.launch_ready("echo ready > ready; exec sleep 3600", user="nobody")
    (program,) = wait_until(executor.processes)  # during exec, a process has no environment
    pidfd = os.pidfd_open(program)
    executor.process.kill()
    try:
        assert select.select([pidfd], [], [], 30)[0], "the program outlives its executor"
    finally:
        os.close(pidfd)


@is_root
@pytest.mark.parametrize("allowed", [False, True])
def test_set_user_id_program_gains_nothing_by_default(executor: Any, allowed: bool) -> None:
    open_folders(executor.sandbox)
    found = shutil.which("id")
    assert found is not None
    # In a folder, because the executor gives the files of the sandbox itself to the user.
    program = executor.sandbox / "bin" / "id"
    program.parent.mkdir()
    shutil.copyfile(found, program)
    program.chmod(0o4755)
    user = pwd.getpwnam("nobody").pw_uid
    executor.launch("bin/id -u; sh -c 'bin/id -u'", pre_command="bin/id -u", user="nobody", new_privileges=allowed)
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert f"{0 if allowed else user}\n" * 3 == executor.output()


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ulimits": {"files": [1, 1]}}, "option ulimits: `files`: unknown limit; expected one of as, core,"),
        ({"ulimits": {"nofile": [10, 5]}}, "ulimit nofile: soft limit 10 exceeds hard limit 5"),
        ({"ulimits": {"nofile": [-1, -1]}}, SYSTEM_SAYS if os.geteuid() == 0 else "ulimit nofile: -1 exceeds this"),
        pytest.param({"user": "no-such-user"}, "service.user: `no-such-user`: user does not exist", marks=is_root),
    ],
)
def test_unavailable_limits_fail_task(executor: Any, fields: dict[str, Any], reason: str) -> None:
    """Each launch would fail; a loss is relaunched without limit."""
    executor.launch("true", **fields)
    status = executor.states("TASK_STARTING", "TASK_FAILED")
    by_system = reason == SYSTEM_SAYS
    assert status["message"].startswith(f"cannot start the program: {reason}" if by_system else reason)
    end = TaskEnd.decode(base64.b64decode(status.get("data", "")), pytest.fail)
    assert (None if by_system else 127, not by_system) == (end.exit_code, bool(end.cannot_start))


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"nice": -1}, "option nice: `-1`: a negative value requires an executor that runs as root"),
        ({"ulimits": {"core": (0, -1)}}, "ulimit core: -1 exceeds this agent's limit of 1000"),
    ],
)
def test_limits_without_root_are_refused(fields: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (0, 1000))
    with pytest.raises(LimitsError, match=reason):
        resolve_limits("", RunSettings(**fields))


def test_executor_without_root_keeps_agent_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent has already switched users."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert resolve_limits("nobody", RunSettings()).identity is None
