"""The stored queue and the stores of its schedulers: one store, one version."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from kit.cluster_model import make_job
from kit.memory_store import MemoryDisk, MemoryStore
from tf_executor.contract.states import Verdict
from tf_scheduler.queue.job import Happening, Job, JobId
from tf_scheduler.queue_service.job_store import QueueStore, framework_of
from tf_scheduler.store.interface import Delete, Put, StateStore, StoreConflictError, StoreCorruptError
from tf_scheduler.store.records import encode_value
from tf_scheduler.store.sqlite import SqliteStore

Open = Callable[[], StateStore]


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """Return a function that opens the same state again."""
    disk = MemoryDisk()

    def open_it() -> StateStore:
        return MemoryStore("ml", disk) if request.param == "memory" else SqliteStore(tmp_path / "state.db", "ml")

    return open_it


def test_jobs_and_files_survive(open_store: Open) -> None:
    job = replace(make_job("one", after=(JobId("zero"),)), verdict=Verdict.SUCCEEDED)
    QueueStore(open_store()).put([job], {"job": {"id": "one"}}, {"a": 1.5})

    again = QueueStore(open_store())

    assert {job.id: job} == again.jobs
    assert {"job": {"id": "one"}} == again.file(job.id)
    assert {"a": 1.5} == again.served


def test_schedulers_have_separate_stores(open_store: Open) -> None:
    queue = QueueStore(open_store())
    one, two = (queue.store_of(JobId(name)) for name in ("one", "two"))
    one.apply([Put("tasks/worker-0", b"1"), Put("result", b"2")])
    two.apply([Put("tasks/worker-0", b"3")])
    one.apply([Delete("result")])

    again = QueueStore(open_store())

    assert {"tasks/worker-0": b"1"} == again.store_of(JobId("one")).load()
    assert {"tasks/worker-0": b"3"} == again.store_of(JobId("two")).load()
    two.remove()
    assert {} == QueueStore(open_store()).store_of(JobId("two")).load()


def test_requeue_changes_job_and_scheduler_at_once(open_store: Open) -> None:
    """A crash leaves both or none; else a preempted job would count as ended."""
    queue, job = QueueStore(open_store()), make_job("one")
    queue.put([job], {})
    queue.store_of(job.id).apply([Put("result", b"stopped")])
    moved = job.after_event(Happening.ADMITTED, 5.0)

    queue.requeue(moved, [Delete("result")])

    again = QueueStore(open_store())
    assert ({job.id: moved}, {}) == (again.jobs, again.store_of(job.id).load())


def test_dropped_jobs_leave_nothing(open_store: Open) -> None:
    queue, job = QueueStore(open_store()), make_job("one")
    queue.put([job], {})
    queue.store_of(job.id).apply([Put("result", b"x")])

    queue.drop(job.id)

    assert {} == open_store().load()


def test_second_service_is_noticed(open_store: Open) -> None:
    """Two processes of a service never both write, not even for different jobs."""
    first, second = QueueStore(open_store()), QueueStore(open_store())
    first.put([make_job("one")], {})

    with pytest.raises(StoreConflictError):
        second.store_of(JobId("two")).apply([Put("result", b"x")])


def test_failed_write_changes_nothing(open_store: Open) -> None:
    first, second = QueueStore(open_store()), QueueStore(open_store())
    first.put([make_job("one")], {})

    with pytest.raises(StoreConflictError):
        second.put([make_job("two")], {})
    assert {} == second.jobs


def test_damaged_job_is_named(open_store: Open) -> None:
    store = open_store()
    store.load()
    store.apply([Put("queue/jobs/one", b'{"schema": 1, "id": "one"}')])

    with pytest.raises(StoreCorruptError, match="'queue/jobs/one'"):
        QueueStore(open_store())


@pytest.mark.parametrize(("removed", "expected"), [(False, "id-1"), (True, "")])
def test_framework_of_a_scheduler(removed: bool, expected: str) -> None:
    put = encode_value("framework", {"id": "id-1", "removed": removed})

    assert expected == framework_of({put.key: put.value})
    assert "" == framework_of({})


def test_large_queue_loads(open_store: Open) -> None:
    queue = QueueStore(open_store())
    jobs: list[Job] = [make_job(f"job-{number}") for number in range(500)]
    for job in jobs:
        queue.put([job], {})

    assert {job.id for job in jobs} == QueueStore(open_store()).jobs.keys()
