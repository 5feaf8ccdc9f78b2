"""Many programs are killed at the same moment."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

from tf_scheduler.errors import JobError

from .arena import Arena
from .people import kill, members
from .strikes.common import signal_scheduler

#: Tasks, and how many programs are killed together with the scheduler.
TASKS, KILLED = 100, 40
#: Seconds for the start of all tasks, and for all launches after the kills.
_START, _AGAIN = 150.0, 100.0
#: Seconds of a period, of which the slow scheduler runs this share.
_PERIOD, _SHARE = 0.1, 0.05


def many_kills(found: Arena) -> str:
    """Kill some programs and the scheduler, then all programs with a slow scheduler."""
    found.until(f"{TASKS} tasks run", lambda: _again(found, {}, ()), _START)
    some = sorted(found.witness.record().tasks)[:: TASKS // KILLED][:KILLED]
    first = _kill(found, some, lambda: signal_scheduler(found, signal.SIGKILL))
    with _slow(found):
        second = _kill(found, found.witness.record().tasks)
    return (
        f"{KILLED} programs and the scheduler killed: all run again after {first:.0f} s. "
        f"All {TASKS} programs killed, the scheduler with {_SHARE:.0%} of a processor: after {second:.0f} s"
    )


def _kill(found: Arena, tasks: Collection[str], also: Callable[[], None] = lambda: None) -> float:
    """Kill the programs; return the seconds until each runs again, as one more launch."""
    before, began = _launches(found), time.monotonic()
    victims = [each for each in members(found.cluster.directory) if each.program and each.task in tasks]
    also()
    kill(each.process for each in victims)
    found.until("each task runs again", lambda: _again(found, before, tasks), _AGAIN, unseen=True)
    found.app.poll()
    return time.monotonic() - began


def _launches(found: Arena) -> Counter[str]:
    return Counter(launch.task for launch in found.witness.record().launched)


def _again(found: Arena, before: Counter[str] | dict[str, int], hit: Collection[str]) -> bool:
    """Whether all tasks run, each with the expected number of launches."""
    found.app.poll()
    record = found.witness.record()
    counts = Counter(launch.task for launch in record.launched)
    expected = {task: before.get(task, 1) + (task in hit) for task in counts}
    if twice := [task for task, count in counts.items() if count > expected[task]]:
        raise JobError(f"launched more often than its program was killed: {', '.join(sorted(twice))}")
    lasts = {launch.task: launch for launch in record.launched}
    states = {heard.id: heard.state for heard in record.heard}
    return counts == expected and [states.get(launch.id) for launch in lasts.values()] == ["running"] * TASKS


@contextmanager
def _slow(found: Arena) -> Iterator[None]:
    """Stop the scheduler for most of the time."""
    end = threading.Event()

    def slow_down() -> None:
        while not end.wait(_PERIOD * _SHARE):
            signal_scheduler(found, signal.SIGSTOP)
            end.wait(_PERIOD * (1 - _SHARE))
            signal_scheduler(found, signal.SIGCONT)

    thread = threading.Thread(target=slow_down, name="slow", daemon=True)
    thread.start()
    try:
        yield
    finally:
        end.set()
        thread.join()
