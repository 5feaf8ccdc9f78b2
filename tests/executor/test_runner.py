"""The executor with real processes and a simulated agent."""

from __future__ import annotations

import base64
import os
import re
import select
import signal
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from kit.waiting import wait_until
from tf_executor.contract.reports import TaskEnd
from tf_executor.process.tree import descendants

#: A daemon: a grandchild in a session of its own that ignores SIGTERM.
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


def ending(status: dict[str, Any]) -> TaskEnd:
    return TaskEnd.decode(base64.b64decode(status["data"]))


def test_successful_program_is_reported(executor: Any) -> None:
    executor.launch('echo "$TASK_NAME in $(pwd)"')
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert ("exit code 0", TaskEnd(exit_code=0)) == (status["message"], ending(status))
    assert f"worker-0 in {executor.sandbox}\n" == executor.output()
    executor.acknowledge("TASK_FINISHED")
    assert executor.process.wait() == 0


@pytest.mark.parametrize(
    ("command", "message", "expected"),
    [
        ("exit 3", "exit code 3", TaskEnd(exit_code=3, error="no output")),
        ("echo no data in 7; exit 3", "exit code 3; stdout: ", TaskEnd(exit_code=3, error="no data in 7")),
        ("kill -9 $$", "killed by signal 9 (SIGKILL)", TaskEnd(signal=9)),
        ("kill -SEGV $$", "killed by signal 11 (SIGSEGV)", TaskEnd(signal=11)),
        (
            "no-such-program 2> /dev/null",
            "exit code 127 (command not found)",
            TaskEnd(exit_code=127, error="no output", cannot_start=True),
        ),
        ("echo usage >&2; exit 2", "exit code 2; stderr: usage", TaskEnd(exit_code=2, error="usage")),
    ],
)
def test_failed_program_is_reported(executor: Any, command: str, message: str, expected: TaskEnd) -> None:
    executor.launch(command)
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
    assert (True, expected) == (status["message"].startswith(message), ending(status))


def test_exception_and_its_line_are_reported(executor: Any) -> None:
    executor.launch(write(executor, "import os\n\nimport nope\n"))
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
    error = "ModuleNotFoundError: No module named 'nope' (program.py:3)"
    assert TaskEnd(1, error=error, cannot_start=True) == ending(status)
    assert f"{error}, exit code 1" == status["message"]


@pytest.mark.parametrize("log", ["", "for n in range(9000): print('line', n, file=sys.stderr)\n"])
def test_long_exception_keeps_its_begin_and_its_end(executor: Any, log: str) -> None:
    """Tensors make exceptions long."""
    text = "raise ValueError('wrong shape\\n' + 'x' * 99 + '\\n' * 3 + '12345 ' * 50_000 + '\\nuse fewer')"
    executor.launch(write(executor, f"import sys\n{log}{text}\n"))
    status = executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")
    line = 3 if log else 2
    assert f"ValueError: wrong shape ... use fewer (program.py:{line}), exit code 1" == status["message"]


def test_leftover_processes_are_gone_before_last_update(executor: Any) -> None:
    """A daemon in another session that ignores SIGTERM does not outlive its task."""
    executor.launch_running(write(executor, DAEMON + 'open("ready").close()\n'))
    executor.states("TASK_FINISHED")
    assert [] == executor.processes()


def test_stubborn_tree_is_killed_after_grace(executor: Any) -> None:
    executor.launch_running("exec " + write(executor, STUBBORN))
    assert executor.await_file("ready") == "ready"
    executor.kill(grace=0.2)
    status = executor.states("TASK_KILLING", "TASK_KILLED")
    assert re.fullmatch(r"stopped on request; it was killed after 0\.\d s \(kill_grace\)", status["message"])
    assert [] == executor.processes()


def test_kill_in_the_middle_of_a_save_names_the_file(executor: Any) -> None:
    """The grace period is too short for the checkpoint."""
    program = """import os, signal
log = open(os.environ["CHECKPOINT_DIR"] + "/train.csv", "w")
def save(number, frame):
    with open(os.environ["CHECKPOINT_DIR"] + "/model-7.tmp", "wb") as file:
        file.write(b"x" * 100_000)
        while True: log.write("5"), log.flush(), signal.sigtimedwait([], 0.05)
signal.signal(signal.SIGTERM, save)
open("started", "w").write("yes")
signal.pause()
"""
    folder = executor.sandbox / "checkpoints"
    folder.mkdir()
    os.mkfifo(executor.sandbox / "started")
    executor.launch_running(f"exec {write(executor, program)}", environment={"CHECKPOINT_DIR": str(folder)})
    assert "yes" == executor.await_file("started")
    executor.kill(grace=1.0)
    message = executor.states("TASK_KILLING", "TASK_KILLED")["message"]
    killed = r"it was killed after [12](\.\d)? s while it wrote model-7\.tmp; kill_grace is too short"
    assert re.fullmatch(f"stopped on request; {killed}", message), message


@pytest.mark.parametrize("trap", ["exit 3", ""], ids=["obeys", "is killed"])
def test_files_of_a_stopped_program_are_kept(executor: Any, trap: str) -> None:
    folder = executor.sandbox / "checkpoints"
    folder.mkdir()
    command = f"trap '{trap}' TERM; echo 12345 > model; printf ready > ready; while :; do sleep 0.1; done"
    executor.launch_running(command, environment={"CHECKPOINT_DIR": str(folder)}, keep_files=1000)
    assert executor.await_file("ready") == "ready"
    executor.kill(grace=0.5)
    executor.states("TASK_KILLING", "TASK_KILLED")
    assert ["model"] == sorted(path.name for path in folder.glob("kept-files/*/*"))


def test_second_kill_shortens_grace(executor: Any) -> None:
    """The first kill would wait an hour."""
    executor.launch_running(write(executor, STUBBORN), kill_grace=3600.0)
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


def test_checkpoint_is_saved_after_shell_exit(executor: Any) -> None:
    """The shell dies of SIGTERM immediately; the program keeps its grace period."""
    executor.launch_running("true && " + write(executor, CHECKPOINT) + "; true", kill_grace=3600.0)
    assert executor.await_file("ready") == "ready"
    executor.kill()
    executor.states("TASK_KILLING", "TASK_KILLED")
    assert (executor.sandbox / "checkpoint").read_text() == "saved"


def test_shutdown_ends_task_and_executor(executor: Any) -> None:
    executor.launch_ready("echo ready > ready; sleep 3600")
    executor.say("SHUTDOWN")
    status = executor.states("TASK_KILLING", "TASK_KILLED")
    assert "the executor was shut down" == status["message"]
    executor.acknowledge("TASK_KILLED")
    assert executor.process.wait() == 0


def test_lost_agent_ends_task_and_executor(executor: Any) -> None:
    executor.launch_ready("echo ready > ready; sleep 3600")
    executor.say("GONE", reason="no agent for 15 minutes")
    assert executor.process.wait() == 1
    assert [] == executor.processes()


def test_program_dies_with_killed_executor(executor: Any) -> None:
    executor.launch_ready("echo ready > ready; exec sleep 3600")
    # A process has no environment for a moment of exec(2).
    (program,) = wait_until(executor.processes, "the program runs")
    pidfd = os.pidfd_open(program)
    executor.process.kill()
    wait_for_end(pidfd)
    assert [] == executor.processes()


def wait_for_end(pidfd: int) -> None:
    try:
        assert select.select([pidfd], [], [], 30)[0], "the program outlives its executor"
    finally:
        os.close(pidfd)


def test_program_inherits_no_descriptors(executor: Any) -> None:
    """The executor itself has inherited two pipes of its agent."""
    executor.launch("ls /proc/$$/fd; true")
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")
    assert "0\n1\n2\n" == executor.output()


def test_duplicate_launch_is_ignored(executor: Any) -> None:
    """A recovering agent may send LAUNCH again."""
    executor.launch("echo once; echo ready > ready; read line < go; exit 0")
    os.mkfifo(executor.sandbox / "go")
    executor.states("TASK_STARTING", "TASK_RUNNING")
    executor.await_file("ready")
    executor.launch("echo twice")
    executor.launch("echo other", task_id="t2")
    status = executor.states("TASK_FAILED")
    assert ({"value": "t2"}, "executor already used by task t1") == (status["task_id"], status["message"])
    (executor.sandbox / "go").write_text("go\n")
    executor.states("TASK_FINISHED")
    assert executor.output() == "once\n"


@pytest.mark.parametrize("command", ["env -i sleep 1000", "sh -c 'env -i setsid sleep 1000 & wait'"])
def test_program_without_environment_dies_with_killed_executor(executor: Any, command: str) -> None:
    """The watchdog knows it by its session, or by its parent."""
    executor.launch_running(f"{command} & wait")
    wait_until(lambda: below(executor.process.pid), "the program runs")
    with ExitStack() as stack:
        exits = []
        for pid in below(executor.process.pid):
            exits.append(os.pidfd_open(pid))
            stack.callback(os.close, exits[-1])
        executor.process.kill()
        for descriptor in exits:
            assert select.select([descriptor], [], [], 20)[0]


def test_detached_process_dies_with_killed_executor(executor: Any) -> None:
    """Neither environment, session nor parent show its task: the watchdog got its id."""
    detached = "env -i setsid sh -c 'echo $$ > up; exec sleep 1000'"
    executor.launch("sleep 60", pre_command=f"mkfifo up; {detached} & cat up > id")
    executor.states("TASK_STARTING", "TASK_STARTING", "TASK_RUNNING")
    pidfd = os.pidfd_open(int((executor.sandbox / "id").read_text()))
    executor.process.kill()
    try:
        wait_for_end(os.dup(pidfd))
    finally:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)


def below(executor: int) -> list[int]:
    """Return the processes of the program that have executed their command."""
    return [pid for pid in descendants(executor) if b"sleep" in Path(f"/proc/{pid}/cmdline").read_bytes()[:6]]


def test_kill_of_other_task_is_ignored(executor: Any) -> None:
    os.mkfifo(executor.sandbox / "go")
    executor.launch_running("read line < go; exit 0")
    executor.kill(task_id="another")
    (executor.sandbox / "go").write_text("go\n")
    executor.states("TASK_FINISHED")


def test_invalid_payload_fails_task(executor: Any) -> None:
    """The user sees the reason instead of a traceback."""
    executor.launch_raw(b'{"version": 99}')
    assert "version `99`" in executor.states("TASK_FAILED")["message"]


@pytest.mark.parametrize(
    ("command", "fields", "reason"),
    [
        ("true\0", {}, "embedded null byte"),
        ("#" * 200_000, {}, "Argument list too long"),
    ],
)
def test_spawn_error_fails_task(executor: Any, command: str, fields: dict[str, Any], reason: str) -> None:
    executor.launch(command, **fields)
    status = executor.states("TASK_STARTING", "TASK_FAILED")
    assert status["message"].startswith("cannot start the program: ")
    assert reason in status["message"]


def test_missing_interpreter_counts_as_missing_command(executor: Any) -> None:
    """Otherwise the task would be relaunched without limit."""
    executor.launch("true", python="/nowhere/python")
    status = executor.states("TASK_STARTING", "TASK_FAILED")
    assert "option python: `/nowhere/python`: not an executable file on this agent" == status["message"]
    assert TaskEnd(127, error="no interpreter", cannot_start=True) == ending(status)


def test_program_gets_default_signals(start_executor: Any) -> None:
    """As under nohup: ignored and blocked signals would be inherited."""
    odd = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTERM, signal.SIGUSR1, signal.SIGCHLD)
    before = {number: signal.signal(number, signal.SIG_IGN) for number in odd}
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, odd)
    try:
        executor = start_executor("odd")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        for number, handler in before.items():
            signal.signal(number, handler)
    executor.launch("trap 'echo heard' HUP; kill -HUP $$; grep -E 'Sig(Blk|Ign)' /proc/self/status; exit 3")

    assert 3 == ending(executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FAILED")).exit_code

    assert ["heard", "SigBlk:", "0" * 16, "SigIgn:", "0" * 16] == executor.output().split()
    executor.acknowledge("TASK_FAILED")
    assert executor.process.wait() == 0


def test_sigterm_to_executor_stops_task(executor: Any) -> None:
    executor.launch_ready("echo ready > ready; sleep 3600")
    executor.process.send_signal(signal.SIGTERM)
    status = executor.states("TASK_KILLING", "TASK_KILLED")
    assert "the executor received SIGTERM" == status["message"]
