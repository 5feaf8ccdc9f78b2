"""Jobs of a queue service and the states of their schedulers, in one store.

queue/jobs/<id>     Job: its place in the queue, its state and its result
queue/files/<id>    job file, as submitted
queue/served        what the queues have used (tf_scheduler.queue.shares)
jobs/<id>/<key>     key of the job's own scheduler (tf_scheduler.store.records)

All of them are changed under one version of one store, so that a job and its place in the queue change together.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from tf_executor.contract.states import Verdict
from tf_scheduler.model.resources import Needs
from tf_scheduler.queue.job import Job, JobId, JobState
from tf_scheduler.store import records
from tf_scheduler.store.interface import Delete, Put, StateStore, Write

_JOBS, _FILES, _SERVED, _OWN = "queue/jobs/", "queue/files/", "queue/served", "jobs/"


class QueueStore:
    """The stored queue. Thread-safe; every method that changes it raises as `apply`."""

    def __init__(self, store: StateStore) -> None:
        self._store, self._lock = store, threading.Lock()
        values = store.load()
        self.jobs: dict[JobId, Job] = {}
        self._files: dict[JobId, bytes] = {}
        #: Job -> keys and values of its scheduler.
        self._own: dict[JobId, dict[str, bytes]] = {}
        for key, data in values.items():
            if key.startswith(_JOBS):
                job = records.decode_value(key, data, _job, store.place)
                self.jobs[job.id] = job
            elif key.startswith(_FILES):
                self._files[JobId(key.removeprefix(_FILES))] = data
            elif key.startswith(_OWN):
                name, _, rest = key.removeprefix(_OWN).partition("/")
                self._own.setdefault(JobId(name), {})[rest] = data
        self.served: Mapping[str, float] = json.loads(values.get(_SERVED, b"{}"))

    @property
    def place(self) -> str:
        return self._store.place

    def put(
        self, jobs: Iterable[Job], file: Mapping[str, Any] | None = None, served: Mapping[str, float] | None = None
    ) -> None:
        """Store jobs in one transaction, with the file of a new one."""
        changed = {job.id: job for job in jobs}
        content = b"" if file is None else json.dumps(file).encode()
        writes: list[Write] = [_put(job) for job in changed.values()]
        if file is not None:
            writes += [Put(f"{_FILES}{name}", content) for name in changed]
        if served is not None:
            writes.append(Put(_SERVED, json.dumps(served).encode()))
        with self._lock:
            self._store.apply(writes)
            self.jobs |= changed
            if file is not None:
                self._files |= dict.fromkeys(changed, content)
            self.served = self.served if served is None else served

    def requeue(self, job: Job, own: Sequence[Write]) -> None:
        """Store a job that is queued again, and the changes of its scheduler's state."""
        self.apply_own(job.id, own, _put(job))
        self.jobs[job.id] = job

    def drop(self, name: JobId) -> None:
        """Delete an ended job with all that is stored of it."""
        with self._lock:
            own = [Delete(f"{_OWN}{name}/{key}") for key in self._own.get(name, {})]
            self._store.apply([Delete(f"{_JOBS}{name}"), Delete(f"{_FILES}{name}"), *own])
            del self.jobs[name], self._files[name]
            self._own.pop(name, None)

    def file(self, name: JobId) -> Any:
        """Return the job file, as submitted."""
        return json.loads(self._files[name])

    def store_of(self, name: JobId) -> JobStore:
        """Return the store of the job's scheduler."""
        return JobStore(self, name)

    def remove(self) -> None:
        """Erase the service permanently."""
        with self._lock:
            self._store.remove()

    def close(self) -> None:
        self._store.close()

    def own_values(self, name: JobId) -> Mapping[str, bytes]:
        """Return all keys and values of a job's scheduler."""
        with self._lock:
            return MappingProxyType(dict(self._own.get(name, {})))

    def apply_own(self, name: JobId, writes: Sequence[Write], *others: Write) -> None:
        """Store writes of a job's scheduler, with others."""
        prefix = f"{_OWN}{name}/"
        with self._lock:
            self._store.apply(
                [
                    *others,
                    *(
                        Put(prefix + write.key, write.value) if isinstance(write, Put) else Delete(prefix + write.key)
                        for write in writes
                    ),
                ]
            )
            own = self._own.setdefault(name, {})
            for write in writes:
                if isinstance(write, Put):
                    own[write.key] = write.value
                else:
                    own.pop(write.key, None)


class JobStore:
    """StateStore of one job's scheduler: a part of the queue's store."""

    def __init__(self, queue: QueueStore, name: JobId) -> None:
        self._queue, self._name = queue, name

    @property
    def place(self) -> str:
        return f"{self._queue.place}, job {self._name}"

    def load(self) -> Mapping[str, bytes]:
        return self._queue.own_values(self._name)

    def apply(self, writes: Sequence[Write]) -> None:
        self._queue.apply_own(self._name, writes)

    def erase(self) -> None:
        self.apply([Delete(key) for key in self.load()])

    def remove(self) -> None:
        self.erase()

    def close(self) -> None:
        """Do nothing: the queue's store stays open."""


def _put(job: Job) -> Put:
    return records.encode_value(f"{_JOBS}{job.id}", records.fields_of(job))


def _job(fields: dict[str, Any]) -> Job:
    typed = {
        "needs": Needs(**fields["needs"]),
        "tasks": tuple(Needs(**each) for each in fields["tasks"]),
        "after": tuple(fields["after"]),
        "state": JobState(fields["state"]),
        "verdict": fields["verdict"] and Verdict(fields["verdict"]),
    }
    return Job(**{**fields, **typed})


def framework_of(values: Mapping[str, bytes]) -> str:
    """Return the id of the framework in the state of a scheduler; empty: it has none."""
    data = values.get(records.FRAMEWORK)
    framework = {} if data is None else records.decode_value(records.FRAMEWORK, data, dict, "the state of a job")
    return "" if framework.get("removed") else str(framework.get("id", ""))
