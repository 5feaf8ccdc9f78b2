"""Offers are handled as fast with 200 clients that poll the API as without any.

Run with `-s` to see the numbers. Both are measured in turns, in one run, in one process: the machine's speed, and what
else it does, is in both.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from builders import a_spec, a_status, an_offer
from tf_scheduler.api.app import create_app
from tf_scheduler.api.backend import Backend
from tf_scheduler.api.courtesy import SHARE, Courtesy
from tf_scheduler.api.server import ApiServer
from tf_scheduler.api.views import Snapshot
from tf_scheduler.core import plans
from tf_scheduler.core.scheduler import handle
from tf_scheduler.journal import Journal
from tf_scheduler.model.events import OffersReceived
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord

CLIENTS = 200
TASKS = 100
SECONDS = 3


def a_state() -> SchedulerState:
    """Most of the tasks run; those that are left do not fit on what is offered."""
    spec = a_spec(workers=TASKS)
    tasks = {}
    for task in list(spec.tasks())[:-20]:
        record = TaskRecord(task.name, f"{task.name}__1", task.job.kind, task.index, "S", "a", "10.0.0.1:1", 1, (), 0.0)
        tasks[task.name] = replace(record, config=plans.config_of(spec, task.name), group=task.job.group)
    statuses = {record.id: a_status(record.id) for record in tasks.values()}
    return SchedulerState(spec, framework_id="f", tasks=tasks, statuses=statuses, connected=True)


class Loop:
    """The scheduler's loop, as far as it is ours: decide, swap the state, tell the observers."""

    def __init__(self) -> None:
        self.state, self.journal = a_state(), Journal()
        self.backend = Backend(lambda: Snapshot(self.state), journal=self.journal)
        self.offers = tuple(an_offer(f"o-{n}", f"a-{n}", cpus=0.2) for n in range(50))

    def round(self) -> float:
        """Seconds that a batch of offers takes."""
        start = self.state
        begin = time.perf_counter()
        for _ in range(5):
            event = OffersReceived(self.offers)
            decision = handle(start, event, 9.0, lambda: "id")
            self.state = decision.state
            self.backend.observe(event, decision)
            self.journal(event, decision)
        self.state = start
        return time.perf_counter() - begin


@contextmanager
def clients(port: int, pause: float) -> Iterator[list[int]]:
    """Afterwards the list holds the number of answers, and of connections that failed."""
    command = [sys.executable, str(Path(__file__).with_name("api_clients.py")), str(port), str(CLIENTS), str(pause)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    numbers: list[int] = []
    with subprocess.Popen(command, **pipes) as process:
        try:
            assert "ready\n" == process.stdout.readline()
            yield numbers
            told, _ = process.communicate(timeout=60)
            numbers += map(int, told.split())
        finally:
            process.kill()


@pytest.mark.parametrize("pause", [1.0, 0.0], ids=["each a second after its last answer", "each at once again"])
def test_offers_are_handled_as_fast_with_200_polling_clients(pause):
    """The API keeps to its share of the processor. What a machine does besides may make the loop slower by as much."""
    loop = Loop()
    with ApiServer(Courtesy(create_app(loop.backend)), "127.0.0.1", 0) as api:
        alone, _ = _measured(loop)
        with clients(api.port, pause) as numbers:
            crowded, share = _measured(loop)
        alone = min(alone, _measured(loop)[0])
    answers, failures = numbers
    print(f"\n{CLIENTS} clients, pause {pause:g} s: {answers} answers, {failures} failures; ", end="")
    print(f"the API had {share:.0%} of a processor; ", end="")
    print(f"a round takes {alone * 1e3:.2f} ms alone, {crowded * 1e3:.2f} ms with them: {crowded / alone:.2f} times")

    assert answers >= CLIENTS
    assert failures == 0
    assert share < 1.5 * SHARE
    assert crowded / alone < 2 / (1 - SHARE)


def _measured(loop: Loop) -> tuple[float, float]:
    """The lower quartile of the rounds of some seconds, for others only make them longer; and the API's share of them.

    Those of the first second do not count: the API may use its burst in it.
    """
    _until(loop, time.monotonic() + 1)
    begin, used = time.monotonic(), _used_by_api()
    rounds = _until(loop, begin + SECONDS)
    share = (_used_by_api() - used) / (time.monotonic() - begin)
    return statistics.quantiles(rounds, n=4)[0], share


def _until(loop: Loop, end: float) -> list[float]:
    rounds = []
    while time.monotonic() < end:
        rounds.append(loop.round())
    return rounds


def _used_by_api() -> float:
    """Seconds of processor time."""
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "api")
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
