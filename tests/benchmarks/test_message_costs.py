"""Processor time of messages, from the master's bytes to the stored state.

Run with `-s` to see the numbers. The scheduler is complete, with its store, API and connection; only the master is not.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from benchmarks.message_sender import a_master
from benchmarks.services import a_service, launched
from kit.scheduler_process import RunningScheduler
from kit.waiting import PATIENCE, wait_until
from tf_executor.contract.reports import Progress
from tf_executor.contract.states import TaskState
from tf_scheduler.core.launch.launch import MAX_MESSAGES
from tf_scheduler.model.effects import Change, Decision, FrameworkRegistered, StatusStored, TaskLaunched
from tf_scheduler.model.events import Event, ProgressReported, StatusUpdated
from tf_scheduler.model.ids import FrameworkId, executor_of
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskRecord
from tf_scheduler.service.store import open_store
from tf_scheduler.store.records import writes

#: Messages of one measurement, sent at the rate of a very large service.
MESSAGES = 1_000

Make = Callable[[TaskRecord, int], dict[str, Any]]


def progress(record: TaskRecord, number: int) -> dict[str, Any]:
    metrics = {"accuracy": 0.9, "val_loss": 0.4}
    report = Progress(number, time.time(), step=number, total=10_000, loss=0.5, metrics=metrics, source="report")
    sender = {"agent_id": {"value": record.agent_id}, "executor_id": {"value": executor_of(record.id)}}
    return {"type": "MESSAGE", "message": {**sender, "data": base64.b64encode(report.encode(record.id)).decode()}}


def status(record: TaskRecord, number: int) -> dict[str, Any]:
    content = {
        "task_id": {"value": record.id},
        "agent_id": {"value": record.agent_id},
        "state": "TASK_RUNNING",
        "healthy": number % 2 == 0,
        "source": "SOURCE_EXECUTOR",
        "timestamp": time.time(),
        "uuid": base64.b64encode(number.to_bytes(16, "big")).decode(),
    }
    return {"type": "UPDATE", "update": {"status": content}}


def store(state: SchedulerState, path: Path) -> None:
    """Store a service of running tasks."""
    changes: list[Change] = [FrameworkRegistered(FrameworkId("framework-1"))]
    changes += [*map(TaskLaunched, state.stored.tasks.values()), *map(StatusStored, state.stored.statuses.values())]
    opened = open_store(path, state.spec.name)
    opened.load()
    opened.apply([write for change in changes for write in writes(change, state)])
    opened.close()


def measure(count: int, make: Make, kind: type[Event], folder: Path) -> tuple[float, SchedulerState]:
    """Return the CPU milliseconds per message, and the state after all messages."""
    folder.mkdir()
    state = launched(a_service(count), TaskState.RUNNING)
    store(state, folder / "state.db")
    records = list(state.stored.tasks.values())
    events = [make(records[number * 7 % count], number + 1) for number in range(MESSAGES)]
    (folder / "events").write_text("\n".join(map(json.dumps, events)))
    arrived, before_last = threading.Event(), iter(range(MESSAGES - 1))

    def observe(event: Event, decision: Decision) -> None:
        if isinstance(event, kind) and next(before_last, None) is None:
            arrived.set()

    with (
        a_master(folder / "events", MAX_MESSAGES) as (address, send),
        RunningScheduler(state.spec, address, folder / "state.db", observers=[observe]) as scheduler,
    ):
        process = scheduler.process
        wait_until(lambda: scheduler.state.session.connected and not process.connection.driver.queued_calls)
        begun = time.process_time()
        send()
        assert arrived.wait(PATIENCE)
        seconds = time.process_time() - begun
        process.stop()
    return seconds / MESSAGES * 1000, scheduler.state


def has_progress(state: SchedulerState) -> bool:
    return MESSAGES == max(report.step or 0 for report in state.process.progress.values())


def has_statuses(state: SchedulerState) -> bool:
    statuses = state.stored.statuses.values()
    return min(MESSAGES, len(statuses)) == sum(status.healthy is not None for status in statuses)


@pytest.mark.parametrize(
    ("make", "kind", "arrived"),
    [(progress, ProgressReported, has_progress), (status, StatusUpdated, has_statuses)],
    ids=["progress", "status"],
)
def test_cost_of_a_message_grows_little_with_the_service(make, kind, arrived, tmp_path: Path, record_property) -> None:
    """Ten times as many tasks: up to twice the cost."""
    costs = {}
    for count in (1_000, 10_000):
        costs[count], state = measure(count, make, kind, tmp_path / str(count))
        assert arrived(state)
        record_property(f"{count} tasks", costs[count])
        share = costs[count] * MAX_MESSAGES / 10
        print(f"{make.__name__} of {count} tasks: {costs[count]:.3f} ms, at this rate {share:.0f} % of a core")
    assert costs[10_000] <= 2 * costs[1_000]
