"""64 clients that poll the overview must not halve the decisions per second.

Run with `-s` to see the numbers. Both are measured in turns, in one run, in one process: the machine's speed, and what
else it does, is in both.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from builders import a_spec, a_status, an_offer, with_fields
from kit.memory_store import MemoryStore
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.backend import Backend
from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.core.scheduler import handle
from tf_scheduler.core.state import spec_index
from tf_scheduler.model.events import OffersReceived
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord
from tf_scheduler.store.journal import EventJournal

CLIENTS = 64
TASKS = 100
SECONDS = 3


def a_state() -> SchedulerState:
    """Return a state in which most tasks run and the others do not fit on the offers."""
    spec = a_spec(workers=TASKS)
    tasks = {}
    for task in list(spec.tasks())[:-20]:
        record = TaskRecord(task.name, f"{task.name}__1", task.job.kind, task.index, "S", "a", "10.0.0.1:1", 1, (), 0.0)
        tasks[task.name] = replace(record, config=spec_index.config_digest(spec, task.name), group=task.job.group)
    statuses = {record.id: a_status(record.id) for record in tasks.values()}
    return with_fields(SchedulerState(spec), framework_id="f", tasks=tasks, statuses=statuses, connected=True)


class Loop:
    """The scheduler's loop without Mesos: decide, swap the state, call the observers."""

    def __init__(self) -> None:
        self.state, self.journal, self.store = a_state(), EventJournal(), MemoryStore("service")
        self.backend = Backend(lambda: Snapshot(self.state), journal=self.journal)
        self.offers = tuple(an_offer(f"o-{n}", f"a-{n}", cpus=0.2) for n in range(50))

    def round(self) -> float:
        """Return the seconds for one batch of offers."""
        start = self.state
        begin = time.perf_counter()
        for _ in range(5):
            event = OffersReceived(self.offers)
            decision = handle(start, event, 9.0, lambda: "id")
            self.state = decision.state
            self.backend.observe(event, decision)
            self.journal.commit(self.store, (), [(event, decision)])
        self.state = start
        return time.perf_counter() - begin


@contextmanager
def clients(port: int, pause: float) -> Iterator[list[int]]:
    """Run the clients inside; then the list has counts of answers and failures."""
    command = [sys.executable, str(Path(__file__).with_name("api_clients.py")), str(port), str(CLIENTS), str(pause)]
    numbers: list[int] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert "ready\n" == process.stdout.readline()
            yield numbers
            output, _ = process.communicate(timeout=60)
            numbers += map(int, output.split())
        finally:
            process.kill()


@pytest.mark.parametrize("pause", [1.0, 0.0], ids=["a second after each answer", "immediately after each answer"])
def test_polling_clients_do_not_halve_decisions_per_second(pause) -> None:
    """The API's thread competes for Python's global lock after each system call."""
    loop = Loop()
    with ApiServer(create_app(loop.backend), "127.0.0.1", 0) as api:
        alone = _measured(loop)
        with clients(api.port, pause) as numbers:
            polled = min(_measured(loop), _measured(loop))  # as often as without clients
        alone = min(alone, _measured(loop))
    answers, failures = numbers
    print(f"\n{CLIENTS} clients, pause {pause:g} s: {answers} answers, {failures} failures; ", end="")
    print(f"a round takes {alone * 1e3:.2f} ms alone, {polled * 1e3:.2f} ms with them: {polled / alone:.2f} times")

    assert answers >= CLIENTS
    assert failures == 0
    assert polled / alone < 2


def _measured(loop: Loop) -> float:
    """Return the lower quartile of the rounds: other processes only add time."""
    _until(loop, time.monotonic() + 1)
    return statistics.quantiles(_until(loop, time.monotonic() + SECONDS), n=4)[0]


def _until(loop: Loop, end: float) -> list[float]:
    rounds = []
    while time.monotonic() < end:
        rounds.append(loop.round())
    return rounds
