"""Commands of users in a running task: who may send them, what they leave."""

from __future__ import annotations

import base64
import http.client
import json
import os
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kit.payloads import a_payload
from kit.waiting import PATIENCE, wait_until
from task_launcher import TaskLauncher, processes
from tf_executor.contract.payload import EXEC, EXEC_FOLDER, ExecRequest, PayloadError
from tf_executor.contract.reports import MAX_EXEC_OUTPUT, ExecReport
from tf_executor.process import user_commands as commands

KEY, LAUNCH = "key-of-the-launch", "t1"


def a_request(*command: str, number: int = 1, launch: str = LAUNCH, timeout: float = 60.0) -> ExecRequest:
    return ExecRequest(f"{number:032x}", launch, command, timeout)


def send(executor: Any, message: bytes) -> None:
    executor.say("MESSAGE", data=base64.b64encode(message).decode())


def result(executor: Any, number: int = 1) -> ExecReport:
    path = executor.sandbox / EXEC_FOLDER / f"{number:032x}"
    wait_until(path.exists)
    report = ExecReport.decode(path.read_bytes())
    assert report is not None
    return report


def run_in_task(executor: Any, *command: str, **more: Any) -> ExecReport:
    request = a_request(*command, **more)
    send(executor, request.encode(KEY))
    return result(executor, int(request.id, 16))


@pytest.fixture
def task(executor: Any) -> Any:
    executor.launch_running("exec sleep 3600", exec_key=KEY, environment={"COLOUR": "blue"}, nice=3)
    return executor


# --- Who may send a command


@pytest.mark.parametrize(
    "message",
    [
        a_request("true").encode("another-key"),
        a_request("true").encode(KEY).replace(b"true", b"fals"),
        a_request("true", launch="t0").encode(KEY),
        a_request("true", launch="t0").encode(KEY).replace(b"t0", b"t1"),
        EXEC,
        EXEC + b"{}",
        EXEC + b"0" * 64 + b" {}",
        EXEC + b"\xff" * 64 + b" " + b"[" * 10_000,
    ],
)
def test_message_without_code_of_launch_is_refused(message: bytes) -> None:
    """Agents deliver the messages of any sender."""
    with pytest.raises(PayloadError, match=r"wrong|another launch"):
        ExecRequest.decode(message, KEY, LAUNCH)


def test_empty_key_refuses_every_message() -> None:
    """A launch that runs no commands has no key, and an empty one can be guessed."""
    with pytest.raises(PayloadError, match="code is wrong"):
        ExecRequest.decode(a_request("true").encode(""), "", LAUNCH)


@pytest.mark.parametrize("name", ["../escape", "f" * 31, "F" * 32, "g" * 32, "f" * 32 + "\n"])
def test_id_is_a_plain_file_name(name: str) -> None:
    with pytest.raises(PayloadError, match="invalid id"):
        ExecRequest.decode(ExecRequest(name, LAUNCH, ("true",), 1.0).encode(KEY), KEY, LAUNCH)


def test_codes_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[bytes, bytes]] = []
    monkeypatch.setattr("hmac.compare_digest", lambda *pair: bool(seen.append(pair)))
    with pytest.raises(PayloadError):
        ExecRequest.decode(a_request("true").encode(KEY), KEY, LAUNCH)
    assert 1 == len(seen)


def test_request_survives_its_encoding() -> None:
    request = a_request("echo", "ä\n'", timeout=1.5)
    decoded = ExecRequest.decode(request.encode(KEY), KEY, LAUNCH)
    assert ("echo", "ä\n'") == tuple(decoded.command)
    assert (request.id, 1.5) == (decoded.id, decoded.timeout)


def test_key_is_hidden_from_program(task: Any) -> None:
    assert "key" not in repr(a_payload(exec_key=KEY))
    report = run_in_task(task, "env")
    assert KEY not in (report.stdout or "")


def test_replayed_and_forged_messages_run_nothing(task: Any) -> None:
    """The executor has read all messages when the last command ends."""
    message = a_request("sh", "-c", "echo ran >> log").encode(KEY)
    forged = a_request("sh", "-c", "echo forged >> log", number=2).encode("another-key")
    send(task, message)
    result(task)
    send(task, message)
    send(task, forged)
    run_in_task(task, "true", number=3)

    assert "ran\n" == task.output("log")
    assert not (task.sandbox / EXEC_FOLDER / f"{2:032x}").exists()


def test_launch_without_key_ignores_commands(executor: Any) -> None:
    executor.launch_running("exec sleep 3600", exec_key="")
    send(executor, a_request("touch", "ran").encode(KEY))
    executor.kill(grace=1)
    executor.states("TASK_KILLING", "TASK_KILLED")
    assert not (executor.sandbox / EXEC_FOLDER).exists()
    assert not (executor.sandbox / "ran").exists()


# --- What a command gets and answers


def test_command_has_surroundings_of_program(task: Any) -> None:
    program = "import os; print(os.getcwd(), os.environ['COLOUR'], 'TF_CONFIG' in os.environ, os.nice(0))"
    nice = os.getpriority(os.PRIO_PROCESS, 0) + 3
    report = run_in_task(task, "python", "-c", program)
    assert ExecReport(0, stdout=f"{task.sandbox.resolve()} blue True {nice}\n", stderr="") == report


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (("sh", "-c", "echo out; echo err >&2; exit 7"), ExecReport(7, stdout="out\n", stderr="err\n")),
        (("sh", "-c", "kill -9 $$"), ExecReport(signal=9, stdout="", stderr="")),
        (("printf", "%s|", "a b", "$HOME", "'"), ExecReport(0, stdout="a b|$HOME|'|", stderr="")),
        (("cat",), ExecReport(0, stdout="", stderr="")),
    ],
)
def test_output_and_exit_status_are_kept(task: Any, command: tuple[str, ...], expected: ExecReport) -> None:
    assert expected == run_in_task(task, *command)


def test_long_output_is_cut(task: Any) -> None:
    report = run_in_task(task, sys.executable, "-c", f"print('x' * {2 * MAX_EXEC_OUTPUT}); import sys; sys.exit(3)")
    assert (True, 3, MAX_EXEC_OUTPUT) == (report.cut, report.exit_code, len(report.stdout or ""))


def test_secrets_are_hidden_in_output(executor: Any) -> None:
    executor.launch_running("exec sleep 3600", exec_key=KEY, environment={"PIN": "swordfish"}, secrets=("PIN",))
    assert "*** " in (run_in_task(executor, "sh", "-c", 'echo "$PIN $PIN"').stdout or "")


def test_results_are_bounded(task: Any) -> None:
    for number in range(1, commands.MAX_KEPT + 4):
        run_in_task(task, "true", number=number)
    left = sorted(path.name for path in (task.sandbox / EXEC_FOLDER).iterdir())
    assert [f"{number:032x}" for number in range(4, commands.MAX_KEPT + 4)] == left


def test_too_many_commands_at_once_are_refused(task: Any) -> None:
    for number in range(1, commands.MAX_RUNNING + 1):
        send(task, a_request("sleep", "3600", number=number).encode(KEY))
    report = run_in_task(task, "true", number=99)
    assert ExecReport(error="4 commands run in this task already") == report


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_result_is_not_written_through_a_link(executor: Any, tmp_path: Path) -> None:
    """The executor may be root, and its sandbox belongs to the program's user."""
    victim = tmp_path / "victim"
    victim.mkdir(mode=0o777)
    victim.chmod(0o777)
    executor.launch_running("exec sleep 3600", exec_key=KEY)
    (executor.sandbox / EXEC_FOLDER).rmdir()
    (executor.sandbox / EXEC_FOLDER).symlink_to(victim)
    send(executor, a_request("true").encode(KEY))
    executor.kill(grace=1)
    executor.states("TASK_KILLING", "TASK_KILLED")
    assert [] == list(victim.iterdir())


# --- What is left


FAMILY = "sleep 3600 & sh -c 'trap \"\" TERM; echo $$ > child; sleep 3600' & echo out; "


def child_of(executor: Any) -> int:
    path = executor.sandbox / "child"
    wait_until(lambda: path.exists() and path.read_text())
    return int(path.read_text())


def test_timeout_kills_the_whole_group(task: Any) -> None:
    report = run_in_task(task, "sh", "-c", f"{FAMILY} wait", timeout=1.0)
    assert ExecReport(timed_out=True, stdout="out\n", stderr="") == report
    wait_until(lambda: 1 == len(task.processes()))  # the program


def test_background_processes_end_with_the_command(task: Any) -> None:
    assert 0 == run_in_task(task, "sh", "-c", f"{FAMILY} until [ -s child ]; do sleep 0.01; done").exit_code
    wait_until(lambda: 1 == len(task.processes()))


def test_end_of_task_ends_commands(executor: Any) -> None:
    """Without the grace period of the program, whose end they would delay."""
    executor.launch_running("exec sleep 3600", exec_key=KEY)
    send(executor, a_request("sh", "-c", f"{FAMILY} wait").encode(KEY))
    child_of(executor)
    executor.kill(grace=3600)
    executor.states("TASK_KILLING", "TASK_KILLED")
    assert [] == executor.processes()
    assert signal.SIGKILL == result(executor).signal


# --- On a real agent


def forge(scheduler: TaskLauncher, name: str, data: bytes) -> int:
    """Send a framework message from a plain socket; return the HTTP status.

    Protobuf FrameworkToExecutorMessage of Mesos: agent id, framework id, executor id, data.
    """

    def part(number: int, content: bytes) -> bytes:
        length = len(content)
        size = bytes([length]) if length < 128 else bytes([length & 127 | 128, length >> 7])
        return bytes([number << 3 | 2]) + size + content

    ids = (scheduler.agent_id, scheduler.id["value"], name)
    body = b"".join(part(number, part(1, text.encode())) for number, text in enumerate(ids, 1)) + part(4, data)
    connection = http.client.HTTPConnection(scheduler.cluster.agents["agent-1"].address, timeout=PATIENCE)
    with closing(connection):
        path = "/slave(1)/mesos.internal.FrameworkToExecutorMessage"
        connection.request("POST", path, body, {"Libprocess-From": "forger@127.0.0.1:1"})
        return connection.getresponse().status


def test_forged_message_is_delivered_but_ignored(scheduler: TaskLauncher) -> None:
    """Mesos 1.11 does not check the sender. A valid message counts once."""
    scheduler.launch("forged", "exec sleep 3600", exec_key=KEY)
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
    sandbox = scheduler.sandbox("forged")
    for data in (EXEC + b'0000 {"command": ["touch", "ran"]}', a_request("touch", "ran").encode("guess")):
        assert forge(scheduler, "forged", data) == 202
    scheduler.await_in_log("forged", "its code is wrong", 2)
    genuine = a_request("sh", "-c", "echo genuine >> log", launch="forged").encode(KEY)
    for _ in range(2):
        ids = {"executor_id": {"value": "forged"}, "agent_id": {"value": scheduler.agent_id}}
        scheduler.call("MESSAGE", **ids, data=base64.b64encode(genuine).decode())
    scheduler.await_in_log("forged", "a repeated message")
    assert forge(scheduler, "forged", genuine) == 202
    scheduler.await_in_log("forged", "a repeated message", 2)
    wait_until((sandbox / EXEC_FOLDER / f"{1:032x}").exists)

    assert not (sandbox / "ran").exists()
    assert "genuine\n" == (sandbox / "log").read_text()
    assert KEY not in (sandbox / "executor.log").read_text()
    scheduler.call("KILL", task_id={"value": "forged"})
    scheduler.statuses("TASK_KILLING", "TASK_KILLED")
    scheduler.executor_exit()


def test_killed_executor_leaves_no_process_of_commands(scheduler: TaskLauncher) -> None:
    scheduler.launch("orphans", "exec sleep 3600", exec_key=KEY)
    scheduler.statuses("TASK_STARTING", "TASK_RUNNING")
    ids = {"executor_id": {"value": "orphans"}, "agent_id": {"value": scheduler.agent_id}}
    command = a_request("sh", "-c", f"{FAMILY} wait", launch="orphans").encode(KEY)
    scheduler.call("MESSAGE", **ids, data=base64.b64encode(command).decode())
    child = scheduler.sandbox("orphans") / "child"
    wait_until(lambda: child.exists() and child.read_text())
    assert len(processes("orphans")) > 3

    os.kill(scheduler.executor_pid("orphans"), signal.SIGKILL)

    wait_until(lambda: not processes("orphans"))
    scheduler.statuses("TASK_FAILED")


# --- Results that the program has overwritten


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"{}", b'{"exit_code": 300}', b'{"stdout": 1}', b'{"exit_code": 0, "cut": 1}', b"[" * 10_000],
)
def test_invalid_result_is_none(content: bytes) -> None:
    assert ExecReport.decode(content) is None


def test_result_with_too_much_output_is_none() -> None:
    assert ExecReport.decode(json.dumps({"stdout": "x" * (MAX_EXEC_OUTPUT + 1)}).encode()) is None
    report = ExecReport(0, stdout="\0" * MAX_EXEC_OUTPUT, stderr="\0" * MAX_EXEC_OUTPUT)
    assert report == ExecReport.decode(report.encode())
