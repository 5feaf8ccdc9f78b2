"""The executor with real processes; only the wire is played by the test."""

from __future__ import annotations

import base64
import os
import select
import signal
from typing import Any

import pytest

from tf_executor.reports import Ending

#: Ends up as a grandchild in a session of its own, as a daemon does, and ignores SIGTERM.
DAEMON = """
import os, signal, sys, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        open("ready", "w").write("ready")
        signal.pause()
    os._exit(0)
os.wait()
"""
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + DAEMON + "while True: signal.pause()\n"


def write(executor: Any, program: str) -> str:
    (executor.sandbox / "program.py").write_text(program)
    return "python program.py"


def ending(status: dict[str, Any]) -> Ending:
    return Ending.decode(base64.b64decode(status["data"]))


def test_a_program_that_succeeds(executor: Any) -> None:
    """Updates in order, its output in the sandbox's stdout, and exit 0 of the executor after the acknowledgement."""
    executor.launch('echo "$TASK_NAME in $(pwd)"')
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert ("exit code 0", Ending(exit_code=0)) == (status["message"], ending(status))
    assert f"worker-0 in {executor.sandbox}\n" == executor.output()
    executor.acknowledge("TASK_FINISHED")
    assert executor.process.wait() == 0


@pytest.mark.parametrize(
    ("command", "message", "expected"),
    [
        ("exit 3", "exit code 3", Ending(exit_code=3)),
        ("kill -9 $$", "killed by signal 9 (SIGKILL)", Ending(signal=9)),
        ("kill -SEGV $$", "killed by signal 11 (SIGSEGV)", Ending(signal=11)),
        ("no-such-program", "exit code 127 (the shell did not find the command); stderr: ", Ending(exit_code=127)),
    ],
)
def test_a_program_that_fails(executor: Any, command: str, message: str, expected: Ending) -> None:
    """Exit code or signal, for people and for machines."""
    executor.launch(command)
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
    assert (True, expected) == (status["message"].startswith(message), ending(status))


def test_what_a_finished_program_leaves_behind_is_gone_before_its_last_update(executor: Any) -> None:
    """A double-forked daemon in another session that ignores SIGTERM does not outlive its task."""
    executor.launch(write(executor, DAEMON + 'open("ready").close()\n'))
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.states("TASK_FINISHED")
    assert [] == executor.processes()


def test_a_tree_that_will_not_stop_is_killed_after_the_grace(executor: Any) -> None:
    """Parent and daemon ignore SIGTERM: both are gone when TASK_KILLED comes."""
    executor.launch("exec " + write(executor, STUBBORN))
    executor.states("TASK_STARTING", "TASK_RUNNING")
    assert executor.await_file("ready") == "ready"
    executor.kill(grace=0.2)
    status = executor.states("TASK_KILLING", "TASK_KILLED")
    assert "killed on request; killed by signal 9 (SIGKILL)" == status["message"]
    assert [] == executor.processes()


def test_a_second_kill_shortens_the_payloads_grace(executor: Any) -> None:
    """The first would wait an hour."""
    executor.launch(write(executor, STUBBORN), kill_grace=3600.0)
    executor.states("TASK_STARTING", "TASK_RUNNING")
    assert executor.await_file("ready") == "ready"
    executor.kill()
    executor.states("TASK_KILLING")
    executor.kill(grace=0.0)
    executor.states("TASK_KILLED")
    assert [] == executor.processes()


CHECKPOINT = """
import signal, sys
def save(*_):
    open("checkpoint", "w").write("saved")
    sys.exit(143)
signal.signal(signal.SIGTERM, save)
open("ready", "w").write("ready")
while True: signal.pause()
"""


def test_a_checkpoint_is_saved_although_the_shell_dies_first(executor: Any) -> None:
    """The shell around a compound command dies of SIGTERM at once; the program below it has its grace."""
    executor.launch("true && " + write(executor, CHECKPOINT) + "; true", kill_grace=3600.0)
    executor.states("TASK_STARTING", "TASK_RUNNING")
    assert executor.await_file("ready") == "ready"
    executor.kill()
    executor.states("TASK_KILLING", "TASK_KILLED")
    assert (executor.sandbox / "checkpoint").read_text() == "saved"


def test_shutdown_ends_the_task_and_the_executor(executor: Any) -> None:
    """TASK_KILLED goes out, and its acknowledgement ends the process."""
    executor.launch("echo ready > ready; sleep 3600")
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    executor.say("SHUTDOWN")
    status = executor.states("TASK_KILLING", "TASK_KILLED")
    assert status["message"].startswith("the executor was shut down; ")
    executor.acknowledge("TASK_KILLED")
    assert executor.process.wait() == 0


def test_a_lost_agent_ends_the_task_and_the_executor(executor: Any) -> None:
    """Nothing runs on where nobody can stop it, and the exit code says that it was no success."""
    executor.launch("echo ready > ready; sleep 3600")
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    executor.say("GONE", reason="no agent for 15 minutes")
    assert executor.process.wait() == 1
    assert [] == executor.processes()


def test_the_program_dies_with_a_killed_executor(executor: Any) -> None:
    """SIGKILL to the executor leaves no program behind."""
    executor.launch("echo ready > ready; exec sleep 3600")
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    (program,) = executor.processes()
    pidfd = os.pidfd_open(program)
    executor.process.kill()
    wait_for_end(pidfd)
    assert [] == executor.processes()


def wait_for_end(pidfd: int) -> None:
    try:
        assert select.select([pidfd], [], [], 30)[0], "the program outlives its executor"
    finally:
        os.close(pidfd)


def test_a_launch_that_comes_twice_runs_once(executor: Any) -> None:
    """An agent that recovers may send LAUNCH again."""
    executor.launch("echo once; echo ready > ready; read line < go; exit 0")
    os.mkfifo(executor.sandbox / "go")
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    executor.launch("echo twice")
    executor.launch("echo other", task_id="t2")
    status = executor.states("TASK_FAILED")
    assert ({"value": "t2"}, "this executor runs one task and has t1 already") == (status["task_id"], status["message"])
    (executor.sandbox / "go").write_text("go\n")
    executor.states("TASK_FINISHED")
    assert executor.output() == "once\n"


def test_a_kill_for_another_task_is_none_of_ours(executor: Any) -> None:
    """The program goes on and finishes."""
    os.mkfifo(executor.sandbox / "go")
    executor.launch("read line < go; exit 0")
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.kill(task_id="another")
    (executor.sandbox / "go").write_text("go\n")
    executor.states("TASK_FINISHED")


def test_a_broken_payload_fails_with_its_sentence(executor: Any) -> None:
    """The user sees what is wrong, not a stack."""
    executor.launch_raw(b'{"version": 99}')
    assert "version 99" in executor.states("TASK_FAILED")["message"]


@pytest.mark.parametrize(
    ("command", "fields", "reason"),
    [
        ("true", {"python": "/nowhere/python"}, "Python '/nowhere/python' is no executable file"),
        ("true\0", {}, "embedded null byte"),
        ("#" * 200_000, {}, "Argument list too long"),
    ],
)
def test_what_cannot_be_spawned_fails_with_the_reason(
    executor: Any, command: str, fields: dict[str, Any], reason: str
) -> None:
    """Also what the operating system refuses."""
    executor.launch(command, **fields)
    status = executor.states("TASK_STARTING", "TASK_FAILED")
    assert status["message"].startswith("the program could not be started: ")
    assert reason in status["message"]


def test_a_program_has_the_usual_signals_whoever_started_the_agent(start: Any) -> None:
    """As by nohup: what is ignored or blocked there is neither here, and every child is heard of."""
    odd = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in odd}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, odd)
    try:
        executor = start("odd")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in before.items():
            signal.signal(number, handler)
    executor.launch("trap 'echo heard' HUP; kill -HUP $$; grep -E 'Sig(Blk|Ign)' /proc/self/status; exit 3")

    assert Ending(exit_code=3) == ending(executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED"))

    assert ["heard", "SigBlk:", "0" * 16, "SigIgn:", "0" * 16] == executor.output().split()
    executor.acknowledge("TASK_FAILED")
    assert executor.process.wait() == 0


def test_sigterm_to_the_executor_stops_like_a_kill(executor: Any) -> None:
    """An operator who ends the process by hand gets an orderly end."""
    executor.launch("echo ready > ready; sleep 3600")
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    executor.process.send_signal(signal.SIGTERM)
    status = executor.states("TASK_KILLING", "TASK_KILLED")
    assert status["message"].startswith("the executor got SIGTERM; ")
