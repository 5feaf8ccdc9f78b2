"""Continue a framework that the state store does not know: the decision alone."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from builders import a_job, a_record, a_spec, a_status
from tf_executor.contract.states import TaskState, Verdict
from tf_executor.contract.strategies import Strategy
from tf_scheduler.core.scheduler import handle
from tf_scheduler.model.events import FoundTask, FrameworkAdopted, SubscriptionRefused
from tf_scheduler.model.ids import FrameworkId
from tf_scheduler.model.spec import JobKind
from tf_scheduler.model.state import SchedulerState

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


def test_live_launch_counts_instead_of_ended_one_of_the_same_time() -> None:
    launches = (found("worker-0", "new"), found("worker-0", "old", TaskState.KILLED))

    for tasks in (launches, launches[::-1]):
        records = send(FrameworkAdopted(FRAMEWORK, tasks)).state.stored.tasks
        assert ["worker-0__new"] == [record.id for record in records.values()]


@pytest.mark.parametrize(("reset", "expected"), [(True, Verdict.STOPPED), (False, None)])
def test_reset_stops_the_job_of_the_found_framework(reset: bool, expected: Verdict | None) -> None:
    result = send(FrameworkAdopted(FRAMEWORK, (found("worker-0"),), reset=reset)).state.stored.result

    assert expected is (result and result.verdict)


@pytest.mark.parametrize(
    ("live", "ended", "expected"),
    [
        ((0, 1), (), 2),
        ((0, 1, 2), (), 3),
        ((0, 1), ((2, 5),), 3),
        ((0, 1), ((2, 4),), 2),
        ((0, 1, 2, 3), (), 4),
        ((0, 2), (), 4),
        ((0,), (), 4),
    ],
    ids=["smaller", "one less", "one has ended", "ended before", "full", "a worker is missing", "below the minimum"],
)
def test_smaller_elastic_cluster_keeps_its_size(live: Any, ended: Any, expected: int) -> None:
    """An evaluator, launched before, says nothing about the size."""
    jobs = (a_job(JobKind.WORKER, 4, min_count=2), a_job(JobKind.EVALUATOR))
    spec = a_spec(strategy=Strategy.MULTI_WORKER_MIRRORED, jobs=jobs)

    def launch(name: str, serial: int, state: TaskState = TaskState.RUNNING) -> FoundTask:
        record = a_record(spec, name, serial=serial)
        return FoundTask(a_status(record.id, state), record)

    workers = [launch(f"worker-{index}", 5) for index in live]
    failed = [launch(f"worker-{index}", serial, TaskState.FAILED) for index, serial in ended]
    tasks = (launch("evaluator-0", 1), *workers, *failed)
    after = handle(SchedulerState(spec), FrameworkAdopted(FRAMEWORK, tasks), 1000.0, lambda: "id").state

    assert expected == after.spec.jobs[0].count


def test_failed_launch_is_not_restored() -> None:
    decision = send(FrameworkAdopted(FRAMEWORK, (found("worker-0", state=TaskState.FAILED),)))

    assert {} == decision.state.stored.tasks
    assert messages(decision)[0].startswith("adopted framework framework-1 with 0 tasks;")


def test_further_frameworks_and_partial_records_are_reported() -> None:
    finished = found("ps-0", state=TaskState.FINISHED, config="")
    tasks = (found("worker-0", config=""), found("worker-1"), finished)
    decision = send(FrameworkAdopted(FRAMEWORK, tasks, others=(OTHER,)))

    adopted, partial, others = messages(decision)
    assert all(item.warning for item in decision.outcomes if item.kind == "FrameworkAdopted")
    assert {"worker-0", "worker-1", "ps-0"} == set(decision.state.stored.tasks)
    assert "adopted framework framework-1 with 3 tasks;" in adopted
    assert partial.endswith("without a readable label `record`: worker-0")
    assert "framework-2" in others


def test_own_refusal_is_reported_in_its_own_words() -> None:
    """Mesos has not refused anything."""
    decision = send(SubscriptionRefused("framework-1 is live", by_master=False))

    assert ("framework-1 is live", True) == (decision.state.process.refused, decision.state.process.finished)
    assert ["framework-1 is live"] == [item.message for item in decision.outcomes]
