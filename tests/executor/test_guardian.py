"""Who is killed with the executor: everything that the task has started, and nobody else."""

import os
import select
import subprocess
import sys

from jobs import PATIENCE

#: Starts a guardian, then a shell with two children, one of which has left its session; tells their ids.
EXECUTOR = """
import os, subprocess, sys
from tf_executor.guardian import start_guardian
alive = start_guardian(os.environ)
program = "sleep 1000 & echo $!; setsid sh -c 'echo $$; exec sleep 1000' & wait"
subprocess.run(["/bin/sh", "-c", program], start_new_session=True)
"""


def environment(executor_id, sandbox):
    marks = {"MESOS_EXECUTOR_ID": executor_id, "MESOS_SANDBOX": str(sandbox)}
    return {**os.environ, **marks, "PYTHONPATH": os.pathsep.join(sys.path)}


def executor(executor_id, sandbox):
    """Its process, and descriptors of the two processes of its program."""
    process = subprocess.Popen(
        [sys.executable, "-c", EXECUTOR], env=environment(executor_id, sandbox), stdout=subprocess.PIPE, text=True
    )
    return process, [os.pidfd_open(int(process.stdout.readline())) for _ in range(2)]


def ended(descriptor):
    """Whether the process ends in time."""
    with os.fdopen(descriptor):
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(PATIENCE * 1000))


def test_what_a_killed_executor_has_started_ends_with_it(tmp_path):
    """Children of a shell, too, which the kernel does not kill, and such that have left its session."""
    process, programs = executor("worker-0__1", tmp_path)
    with process:
        process.kill()

    assert [True, True] == [ended(program) for program in programs]


def test_the_programs_of_other_launches_go_on(tmp_path):
    process, programs = executor("worker-0__1", tmp_path)
    other, others = executor("worker-0__2", tmp_path)
    with process, other:
        process.kill()
        assert [True, True] == [ended(program) for program in programs]

        assert [] == select.select(others, [], [], 0)[0]
        other.kill()
        assert [True, True] == [ended(program) for program in others]
