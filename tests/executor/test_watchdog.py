"""The watchdog kills all processes of a killed executor's task, and no others."""

import os
import select
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from jobs import PATIENCE
from kit.commands import ENVIRONMENT
from kit.waiting import wait_until
from tf_executor.process.freezing import sample_processes
from tf_executor.process.watchdog import WatchedProcesses

#: Start a watchdog, then a shell with two children, one in another session; print their ids.
EXECUTOR = """
import os, subprocess, sys
from tf_executor.process.watchdog import start_watchdog
alive = start_watchdog(os.environ)
program = "sleep 1000 & echo $!; setsid sh -c 'echo $$; exec sleep 1000' & wait"
subprocess.run(["/bin/sh", "-c", program], start_new_session=True)
"""


def environment(executor_id, sandbox):
    return ENVIRONMENT | {"MESOS_EXECUTOR_ID": executor_id, "MESOS_SANDBOX": str(sandbox)}


def executor(executor_id, sandbox):
    """Start the executor; return its process and two descriptors of the program."""
    process = subprocess.Popen(
        [sys.executable, "-c", EXECUTOR], env=environment(executor_id, sandbox), stdout=subprocess.PIPE, text=True
    )
    return process, [os.pidfd_open(int(process.stdout.readline())) for _ in range(2)]


def ended(descriptor):
    """Return whether the process exits in time."""
    with os.fdopen(descriptor):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(PATIENCE * 1000))


def test_killed_executor_ends_detached_processes(tmp_path: Path) -> None:
    """The kernel does not kill children of a shell or processes of another session."""
    process, programs = executor("worker-0__1", tmp_path)
    with process:
        process.kill()

    assert [True, True] == [ended(program) for program in programs]


def test_watchdog_spares_other_launches(tmp_path: Path) -> None:
    process, programs = executor("worker-0__1", tmp_path)
    other, others = executor("worker-0__2", tmp_path)
    with process, other:
        process.kill()
        assert [True, True] == [ended(program) for program in programs]

        assert [] == select.select(others, [], [], 0)[0]
        other.kill()
        assert [True, True] == [ended(program) for program in others]


#: Start two stages, whose leaders exit, and print their children. The executor would name the first one by its id.
STAGES = """
import os, subprocess, sys
from tf_executor.process.watchdog import start_watchdog
from tf_executor.process.watchdog_process import session_entry
watch = start_watchdog(os.environ)
watch(sys.argv[1])
for _ in range(2):
    with subprocess.Popen(
        ["/bin/sh", "-c", "read line; env -i sleep 1000 >&2 & echo $!"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True, text=True,
    ) as leader:
        watch(session_entry(leader.pid))
        child, _ = leader.communicate("go\\n")
    print(child, end="", flush=True)
sys.stdin.read()
"""


def test_session_of_an_earlier_stage_is_forgotten(tmp_path: Path) -> None:
    """Another process may lead a session with its id by now, and exit."""
    folder = tmp_path / "removed"
    folder.mkdir()
    process = subprocess.Popen(
        [sys.executable, "-c", STAGES, str(folder)],
        env=environment("worker-0__1", tmp_path),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process, ExitStack() as stack:
        children = [int(process.stdout.readline()) for _ in range(2)]
        descriptors = [os.pidfd_open(pid) for pid in children]
        stack.callback(signal.pidfd_send_signal, os.dup(descriptors[0]), signal.SIGKILL)
        process.kill()
        assert ended(descriptors[1])
        wait_until(lambda: not folder.exists(), "the watchdog has killed all processes")
        assert [] == select.select([descriptors[0]], [], [], 0)[0]
        os.close(descriptors[0])


def test_watchdog_hears_of_each_lasting_process_once() -> None:
    """A program may start a short-lived process in a session of its own every second."""
    entries: list[str] = []
    watched = WatchedProcesses(entries.append)
    pids = set()

    def sample(with_new: bool = False) -> None:
        own = [item for item in sample_processes(os.getpid()) if item.pid in pids]
        watched.add(own, os.getsid(0), with_new=with_new)

    def sleeping(new_session: bool = True) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(["sleep", "1000"], start_new_session=new_session)
        pids.add(process.pid)
        return process

    with ExitStack() as stack:
        lasting, same_session = sleeping(), sleeping(new_session=False)
        for process in (lasting, same_session):
            stack.callback(process.wait)
            stack.callback(process.kill)
        for _ in range(3):
            with sleeping() as short:
                sample()
                short.kill()
        assert [f"+{lasting.pid}"] == [entry.split()[0] for entry in entries]

        with sleeping() as last:
            sample(with_new=True)
            last.kill()
        assert f"+{last.pid}" == entries[-1].split()[0]
