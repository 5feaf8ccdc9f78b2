"""Frozen tasks: processes that are stopped, or blocked in the kernel."""

from __future__ import annotations

import base64
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event
from typing import Any

import pytest

from kit.waiting import wait_until
from tf_executor.contract.reports import TaskEnd
from tf_executor.contract.settings import Liveness
from tf_executor.lifecycle.events import FreezeChanged, Unhealthy
from tf_executor.process import health
from tf_executor.process.freezing import FreezeDetector, ProcessSample, sample_processes
from tf_executor.process.health import HealthChecks

STOPPED = "is stopped by a signal (SIGSTOP) and uses no CPU time"


def process(state: str, cpu: int = 5, pid: int = 1, start_time: int = 0) -> ProcessSample:
    return ProcessSample(pid, start_time, state, cpu)


def frozen_for(*samples: Sequence[ProcessSample]) -> float:
    """Return the result for the last of these samples, which are 10 s apart."""
    detector = FreezeDetector()
    return [detector.add(sample, 10.0 * at) for at, sample in enumerate(samples)][-1]


@pytest.mark.parametrize(
    ("seconds", "samples"),
    [
        (0.0, [[process("T")]]),
        (20.0, [[process("T")]] * 3),
        (20.0, [[process("D")]] * 3),
        (10.0, [[process("S")], [process("D")], [process("T")]]),
        # Healthy and silent; a debugger; starved of CPU.
        (0.0, [[process("S")]] * 3),
        (0.0, [[process("t")]] * 3),
        (0.0, [[process("D"), process("R", pid=2)]] * 3),
        # Its parent polls it, or another rank waits for it busily.
        (20.0, [[process("T"), process("R", at, pid=2)] for at in range(3)]),
        # A program for CPU limits stops and continues it.
        (0.0, [[process("T", 5)], [process("T", 6)], [process("T", 7)]]),
        # It works: it uses CPU time, or is not always in D.
        (0.0, [[process("D", 5)], [process("D", 6)], [process("D", 7)]]),
        (0.0, [[process("D")], [process("D")], [process("S")]]),
        (10.0, [[process("D", 5)], [process("D", 6)], [process("D", 6)]]),
        (0.0, [[process("D"), process("S", 5, 2)], [process("D"), process("S", 6, 2)]]),
        # The shell waits for it, a data loader waits for work, and a health check comes and goes.
        (20.0, [[process("S"), process("T", 9, 2), process("S", 9, 3)]] * 3),
        (20.0, [[process("T")], [process("T"), process("S", 1, 2)], [process("T")]]),
        # Another process with the same id.
        (0.0, [[process("T")], [process("T", start_time=7)]]),
        (0.0, [[process("T")], []]),
    ],
)
def test_freeze_needs_state_and_no_cpu_time(seconds: float, samples: list[list[ProcessSample]]) -> None:
    assert seconds == frozen_for(*samples)


def test_description_names_processes_and_states() -> None:
    detector = FreezeDetector()
    detector.add([process("T"), process("D", pid=7)], 0.0)

    assert detector.describe().startswith("2 processes, such as 1, are blocked by a disk")
    assert detector.describe().endswith("or stopped by a signal (SIGSTOP) and use no CPU time")


def test_own_tree_is_sampled() -> None:
    pid = os.fork()
    if pid == 0:
        signal.pause()
        os._exit(0)
    try:
        os.kill(pid, signal.SIGSTOP)
        os.waitpid(pid, os.WUNTRACED)
        assert ["T"] == [item.state for item in sample_processes(os.getpid()) if item.pid == pid]
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_each_change_is_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short waits for a disk are not."""
    monkeypatch.setattr(health, "SAMPLE_INTERVAL", 0.001)
    times = iter(range(0, 10_000, 15))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(times)))
    events: SimpleQueue[Any] = SimpleQueue()

    def looks() -> Iterator[list[ProcessSample]]:
        yield from ([process("D")], [process("D")], [process("S")])
        yield from [[process("T")]] * 5
        while True:
            yield [process("S")]

    look = looks()
    checks = HealthChecks(events.put)
    checks.watch_freezing(0.0, lambda: next(look), lambda: 0.0)
    first, second = events.get(timeout=30), events.get(timeout=30)
    checks.stop()

    assert FreezeChanged(f"process 1 {STOPPED}", is_frozen=True) == first
    assert FreezeChanged("continues after it was frozen for 1 min", is_frozen=False) == second


def test_limit_ends_the_watch() -> None:
    """Sampling is as frequent as a small limit needs."""
    events: SimpleQueue[Any] = SimpleQueue()
    HealthChecks(events.put).watch_freezing(0.2, lambda: [process("T")], lambda: 1.0)
    assert isinstance(events.get(timeout=30), FreezeChanged)
    event = events.get(timeout=30)
    assert isinstance(event, Unhealthy)
    assert event.is_frozen


def test_program_that_prints_is_not_ended_for_a_stopped_process() -> None:
    """It works; only the stopped process does not."""
    events: SimpleQueue[Any] = SimpleQueue()
    asked, silence = Event(), [0.1]

    def silent_for() -> float:
        asked.set()
        return silence[0]

    HealthChecks(events.put).watch_freezing(0.2, lambda: [process("T")], silent_for)
    assert isinstance(events.get(timeout=30), FreezeChanged)
    assert asked.wait(30)
    asked.clear()
    assert asked.wait(30)
    assert events.empty()

    silence[0] = 0.3
    event = events.get(timeout=30)
    assert isinstance(event, Unhealthy)
    assert event.is_frozen


@pytest.mark.parametrize("program", ["exec sleep 3600", "sleep 3600; echo unreached"])
def test_stopped_program_is_named_and_replaced(executor: Any, program: str) -> None:
    """Also below a shell, which only waits for it."""
    executor.launch_ready(f"echo yes > ready; {program}", frozen_after=1.0, kill_grace=0.2)
    wait_until(lambda: any(_name(pid) == "sleep" for pid in executor.processes()))
    pid = max(pid for pid in executor.processes() if _name(pid) == "sleep")
    os.kill(pid, signal.SIGSTOP)

    status = executor.states("TASK_RUNNING")
    assert status["healthy"] is False
    assert f"process {pid} {STOPPED}" == status["message"]
    killing, end = executor.update(), executor.update()

    assert ("TASK_KILLING", "TASK_FAILED") == (killing["state"], end["state"])
    assert re.match(rf"frozen for \d+ s: process {pid} {re.escape(STOPPED)}; ", end["message"])
    assert "healthy" not in end, "the program is not to blame"
    assert [] == executor.processes()


def test_continued_program_is_healthy_again(start_executor: Callable[..., Any]) -> None:
    executor = start_executor("t", "process.health.SAMPLE_INTERVAL=0.1", "process.health.FREEZE_REPORTED_AFTER=0.2")
    executor.launch_ready("echo yes > ready; exec sleep 3600", frozen_after=20.0)
    (pid,) = wait_until(executor.processes)
    os.kill(pid, signal.SIGSTOP)
    assert executor.states("TASK_RUNNING")["healthy"] is False
    os.kill(pid, signal.SIGCONT)
    status = executor.states("TASK_RUNNING")

    assert "healthy" not in status
    assert status["message"].startswith("continues after it was frozen for ")
    executor.kill(grace=0.0)
    executor.states("TASK_KILLING", "TASK_KILLED")


def test_idle_program_is_not_frozen(executor: Any) -> None:
    """It sleeps much longer than the limit."""
    executor.launch("sleep 2", frozen_after=0.2)
    executor.states("TASK_STARTING", "TASK_RUNNING", "TASK_FINISHED")


def _name(pid: int) -> str:
    with open(f"/proc/{pid}/comm") as file:  # noqa: PTH123
        return file.read().strip()


#: Like torchrun: the parent polls its children, and exits with 1 after SIGTERM.
PARENT = "trap 'exit 1' TERM; sleep 3600 & echo $! > ready; while :; do sleep 0.01; done"


def ending(status: dict[str, Any]) -> TaskEnd:
    return TaskEnd.decode(base64.b64decode(status["data"]))


def stop(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: any((item.pid, item.state) == (pid, "T") for item in sample_processes(os.getpid())))


def test_stopped_child_of_a_working_parent_is_named(executor: Any) -> None:
    """The exit code of a parent that the executor has stopped is not a failure."""
    executor.launch_running(PARENT, frozen_after=1.0, kill_grace=2.0)
    pid = int(executor.await_file("ready"))
    stop(pid)
    status = executor.states("TASK_RUNNING")
    assert (False, f"process {pid} {STOPPED}") == (status["healthy"], status["message"])
    end = executor.end("TASK_KILLING")
    assert ("TASK_FAILED", 1, True) == (end["state"], ending(end).exit_code, ending(end).was_frozen)


@pytest.mark.parametrize(
    "checks",
    [
        {"liveness": Liveness("command", "false", interval=0.1, grace=0.0, failures=1)},
        {"stalled_after": 1.0, "stall_grace": 0.0},
    ],
)
def test_health_check_names_a_stopped_child(executor: Any, checks: dict[str, Any]) -> None:
    """The check fails before the program counts as frozen; it is not to blame."""
    program = "sleep 3600 & kill -STOP $!; echo $! > pid; wait"
    executor.launch(program, kill_grace=0.2, **checks)
    end = executor.end("TASK_STARTING", "TASK_RUNNING", "TASK_KILLING")
    pid = int((executor.sandbox / "pid").read_text())
    assert f"process {pid} {STOPPED}" in end["message"]
    assert ("TASK_FAILED", None, True) == (end["state"], end.get("healthy"), ending(end).was_frozen)


def test_failure_with_a_stopped_child_is_not_its_own(executor: Any) -> None:
    """For example a parent that gives up its worker process."""
    executor.launch("sleep 3600 & kill -STOP $!; echo $! > pid; exit 1", kill_grace=0.2)
    end = executor.end("TASK_STARTING", "TASK_RUNNING")
    pid = int((executor.sandbox / "pid").read_text())
    assert f"exit code 1; process {pid} is stopped by a signal (SIGSTOP)" in end["message"]
    assert ("TASK_FAILED", TaskEnd(1, was_frozen=True, error="no output")) == (end["state"], ending(end))
