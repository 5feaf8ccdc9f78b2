from __future__ import annotations

import os
import pwd
import resource
import select
from pathlib import Path
from typing import Any

import pytest

from tf_executor.limits import LimitsError, resolve

SYSTEM_SAYS = "user, nice or ulimits cannot be set: "
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")


def test_no_core_files_by_default(executor: Any) -> None:
    """The soft limit is 0, the hard one is the agent's, so that the program may raise it again."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    executor.launch("ulimit -Sc; ulimit -Hc")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert f"0\n{'unlimited' if hard == -1 else hard}\n" == executor.output()


def test_limits_and_niceness_hold_for_every_stage(executor: Any) -> None:
    """As the options say."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    line = "ulimit -Sn; ulimit -Hn; nice"
    executor.launch(line, pre=line, ulimits={"nofile": [100, 200], "core": [0, 0]}, nice=3)
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert f"100\n200\n{before + 3}\n" * 2 == executor.output()


def open_folders(sandbox: Path) -> None:
    """pytest's folders are for their owner only; an agent's are open."""
    for folder in (sandbox, *sandbox.parents):
        if "pytest" in str(folder):
            folder.chmod(folder.stat().st_mode | 0o011)


@is_root
def test_the_program_runs_as_its_user(executor: Any) -> None:
    """With that user's groups, in a folder that is the user's; what it starts can be killed all the same."""
    entry = pwd.getpwnam("nobody")
    open_folders(executor.sandbox)
    program = """
        id -u; id -g; id -G; touch mine; echo '{"step": 1}' > $TF_EXECUTOR_PROGRESS
        trap '' TERM; echo ready > ready; sleep 3600 & wait
    """
    (executor.sandbox / "ready").chmod(0o666)
    executor.launch(program, user="nobody")
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    executor.kill(grace=0.1)
    executor.states("TASK_KILLING", "TASK_KILLED")
    groups = " ".join(map(str, os.getgrouplist("nobody", entry.pw_gid)))
    assert f"{entry.pw_uid}\n{entry.pw_gid}\n{groups}\n" == executor.output()
    assert (executor.sandbox / "mine").owner() == "nobody"
    assert [1] == [message["step"] for message in executor.messages]
    assert [] == executor.processes()


@is_root
def test_the_program_of_another_user_dies_with_the_executor(executor: Any) -> None:
    """The kernel forgets the death signal when the user changes, so it is set afterwards."""
    open_folders(executor.sandbox)
    (executor.sandbox / "ready").chmod(0o666)
    executor.launch("echo ready > ready; exec sleep 3600", user="nobody")
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    (program,) = executor.processes()
    pidfd = os.pidfd_open(program)
    executor.process.kill()
    try:
        assert select.select([pidfd], [], [], 30)[0], "the program outlives its executor"
    finally:
        os.close(pidfd)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"ulimits": {"files": [1, 1]}}, "there is no resource limit 'files'; there are as, core,"),
        ({"ulimits": {"nofile": [10, 5]}}, "ulimit nofile: the soft limit 10 is above the hard limit 5"),
        ({"ulimits": {"nofile": [-1, -1]}}, SYSTEM_SAYS if os.geteuid() == 0 else "ulimit nofile: -1 is above what"),
        pytest.param({"user": "no-such-user"}, "there is no user 'no-such-user' on this agent", marks=is_root),
    ],
)
def test_what_cannot_be_had_fails_with_the_reason(executor: Any, fields: dict[str, Any], reason: str) -> None:
    """Ours where we know it before, else the system's."""
    executor.launch("true", **fields)
    message = executor.states("TASK_STARTING", "TASK_FAILED")["message"]
    assert message.startswith(f"the program could not be started: {reason}"), message


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("", -1, {}), "nice is -1: only an executor that runs as root may lower the niceness"),
        (("", 0, {"core": (0, -1)}), "ulimit core: -1 is above what this agent allows, 1000"),
    ],
)
def test_without_rights(arguments: Any, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known before anything is started."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(resource, "getrlimit", lambda _: (0, 1000))
    with pytest.raises(LimitsError, match=reason):
        resolve(*arguments)


def test_an_executor_that_is_not_root_leaves_the_user_to_the_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Mesos documents for agents that do not switch users."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert resolve("nobody", 0, {}).identity is None
