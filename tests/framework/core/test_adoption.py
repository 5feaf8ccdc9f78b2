"""Continue a framework that the state store does not know: the decision alone."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from builders import a_record, a_spec, a_status
from tf_scheduler.core.scheduler import handle
from tf_scheduler.model.events import FoundTask, FrameworkAdopted, FrameworksHidden, SubscriptionRefused
from tf_scheduler.model.ids import FrameworkId
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TaskState

FRAMEWORK, OTHER = FrameworkId("framework-1"), FrameworkId("framework-2")


def send(event: Any) -> Any:
    ids = count()
    return handle(SchedulerState(a_spec()), event, 1000.0, lambda: f"id-{next(ids)}")


def found(name: str, launch: str = "1", state: TaskState = TaskState.RUNNING, **options: Any) -> FoundTask:
    record = a_record(a_spec(), name, launch, **options)
    return FoundTask(a_status(record.id, state), record)


def messages(decision: Any) -> list[str]:
    return [item.message for item in decision.outcomes if item.kind == "FrameworkAdopted"]


def test_framework_without_tasks_is_continued_silently() -> None:
    decision = send(FrameworkAdopted(FRAMEWORK))

    assert FRAMEWORK == decision.state.stored.framework_id
    assert [f"continuing framework {FRAMEWORK}, which has no tasks"] == messages(decision)
    assert not any(item.warning for item in decision.outcomes)


def test_updates_are_not_acknowledged_before_subscription() -> None:
    """Mesos sends them again after it; until then they have no uuid."""
    decision = send(FrameworkAdopted(FRAMEWORK, (found("worker-0"),)))

    assert () == decision.calls
    assert [""] == [status.uuid for status in decision.state.stored.statuses.values()]


def test_last_launch_counts_in_any_order() -> None:
    """By the number of its launch."""
    launches = (found("worker-0", "new", serial=3), found("worker-0", "old", serial=2))

    for tasks in (launches, launches[::-1]):
        records = send(FrameworkAdopted(FRAMEWORK, tasks)).state.stored.tasks
        assert ["worker-0__new"] == [record.id for record in records.values()]


@pytest.mark.parametrize(("launched_at", "expected"), [(0.0, 1000.0), (900.0, 900.0), (5000.0, 1000.0)])
def test_unknown_time_of_launch_does_not_end_the_job(launched_at: float, expected: float) -> None:
    """A task may have none; the clock of another machine may be ahead."""
    decision = send(FrameworkAdopted(FRAMEWORK, (found("worker-0", launched_at=launched_at),)))

    assert expected == decision.state.derived.first_launch_at


def test_launch_without_a_time_is_the_last_one() -> None:
    """It has no status yet; the earlier launch has ended."""
    earlier = found("worker-0", "old", TaskState.KILLED, launched_at=900.0)
    decision = send(FrameworkAdopted(FRAMEWORK, (found("worker-0", "new", launched_at=0.0), earlier)))

    assert ["worker-0__new"] == [record.id for record in decision.state.stored.tasks.values()]


def test_failed_launch_is_not_restored() -> None:
    decision = send(FrameworkAdopted(FRAMEWORK, (found("worker-0", state=TaskState.FAILED),)))

    assert {} == decision.state.stored.tasks


def test_further_frameworks_and_partial_records_are_reported() -> None:
    decision = send(FrameworkAdopted(FRAMEWORK, (found("worker-0", config=""),), others=(OTHER,)))

    adopted, partial, others = messages(decision)
    assert "adopted framework framework-1 with 1 task;" in adopted
    assert partial.endswith("without a readable label `record`: worker-0")
    assert "framework-2" in others


def test_hidden_frameworks_are_a_warning() -> None:
    (outcome,) = send(FrameworksHidden("HTTP 403")).outcomes

    assert outcome.warning
    assert outcome.message.startswith("the master does not show frameworks: HTTP 403; ")


def test_own_refusal_is_reported_in_its_own_words() -> None:
    """Mesos has not refused anything."""
    decision = send(SubscriptionRefused("framework-1 is live", by_master=False))

    assert ("framework-1 is live", True) == (decision.state.process.refused, decision.state.process.finished)
    assert ["framework-1 is live"] == [item.message for item in decision.outcomes]
