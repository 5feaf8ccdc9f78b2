"""The queue: admit jobs, watch their schedulers; store, then act.

    submit, cancel, move (threads of the API)  -> stored -> wake
    wake, or a second while jobs wait          -> read ends of jobs -> admit, time out, preempt -> view

All decisions are functions of `tf_scheduler.queue`. One lock protects the jobs; a job's own state belongs to its
scheduler (`job_run`). `kill -9` at any point: the next process composes the scheduler of each job that may have a
framework, and continues from the stored state of the job.
"""

from __future__ import annotations

import logging
import os
import random
import threading
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from functools import lru_cache, partial
from http import HTTPStatus
from pathlib import Path
from statistics import median
from typing import Any

from mesos_client.backoff import Backoff
from mesos_client.master_calls import MasterCalls
from mesos_client.results import Rejected, Sent
from tf_executor.contract.states import Verdict
from tf_scheduler.errors import JobError, OptionsError, SchedulerError
from tf_scheduler.logging_setup import redact_in_log
from tf_scheduler.mesos.capacity import Capacity, read_capacity
from tf_scheduler.model.ids import UnixTime
from tf_scheduler.model.resources import Needs
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import Result
from tf_scheduler.queue.admission import Admission, QueueFacts, next_admission
from tf_scheduler.queue.estimates import estimates, expected_end
from tf_scheduler.queue.job import Happening, Job, JobId, JobState
from tf_scheduler.queue.preemption import Preemption, victims
from tf_scheduler.queue.shares import UNKNOWN_SECONDS, QueueSpec, QueueUsage, ordered, serve
from tf_scheduler.service.build import credentials_for
from tf_scheduler.service.options import ServiceSettings
from tf_scheduler.store.interface import Leadership, StoreCorruptError, StoreError

from .job_file import CheckedFile, job_settings, masked, read_job_file, unmasked
from .job_run import JobRun
from .job_store import QueueStore, framework_of
from .places import Places, held
from .settings import QueueSettings
from .views import QueueView, UsageLog

log = logging.getLogger(__name__)

#: Seconds between two looks at the cluster while jobs wait; and between two views of running jobs.
INTERVAL, _SLOW_INTERVAL = 1.0, 10.0
#: Seconds for which a cycle waits for further requests: it costs up to 50 ms with 10,000 jobs.
_GATHERING = 0.1
#: Seconds before a job that got no place is admitted again: longer after each miss.
_MISS_PAUSE = Backoff(first=10.0, maximum=600.0)
#: Schedulers of ended jobs whose API stays in memory; compiled files of waiting jobs.
_SHOWN, _SPECS = 16, 512
#: First waiting jobs for which others may have to stop.
_URGENT = 20
#: Characters of a traceback in the reason of a job.
_MAX_TRACE = 2000


class QueueError(SchedulerError):
    """A request about a job that cannot be done. `http_status` says why."""

    def __init__(self, message: str, status: int, kind: str = "job_refused") -> None:
        super().__init__(message)
        self.http_status, self.kind = status, kind


class QueueService:
    """A service that runs many jobs. `run` blocks until `stop`.

    Args:
        settings: Settings of the service.
        store: Its store, which `run` closes.
        leadership: The right to act, which all jobs share.
        folder: Folder for records of runs.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        store: QueueStore,
        leadership: Leadership,
        folder: Path,
        clock: Callable[[], float] = time.time,
    ) -> None:
        assert settings.options is not None, "a queue service has options"
        self.settings, self.store, self._leadership, self._folder = settings, store, leadership, folder
        self.options = QueueSettings.of(settings.options.options["queue"])
        self._clock = clock
        self._lock = threading.RLock()
        self._wakeup, self._stopping = threading.Event(), threading.Event()
        self._runs: dict[JobId, JobRun] = {}
        #: Schedulers of ended jobs, for their API.
        self._shown: dict[JobId, JobRun] = {}
        self._master = MasterCalls(settings.master, credentials_for(settings, settings.spec), settings.tls)
        self._capacity, self._places, self._problem, self._read_at = Capacity(), Places(), "", 0.0
        #: Whether no job was launched since the capacity was read.
        self._is_current = False
        self._usage_log = UsageLog(clock())
        self._served, self._served_at = store.served, clock()
        self._estimated_at = 0.0
        self._spec = lru_cache(_SPECS)(self._compiled)
        self.view = QueueView(QueueUsage.of((), self._capacity.total))
        self._removed = False
        #: Error that ends the process.
        self._fatal: BaseException | None = None

    @property
    def name(self) -> str:
        return self.settings.spec.name

    @property
    def unfinished(self) -> int | None:
        """Number of jobs that have not ended; None: the service is removed."""
        return None if self._removed else len(self._unfinished())

    def used_seconds(self) -> Mapping[tuple[str, str], float]:
        """Return ("queue" or "owner", its name) -> CPU-seconds in the last hour."""
        return self._usage_log.totals()

    def masked_file(self, name: JobId) -> Mapping[str, Any]:
        """Return the job file without secrets."""
        return masked(self.store.file(name))

    # --- requests, from threads of the API

    def submit(self, file: Mapping[str, Any], owner: str, *, is_operator: bool) -> tuple[Job, bool]:
        """Store a new job; return it, and whether it is new.

        Raises OptionsError with all problems, QueueError, StoreUnavailableError.
        """
        if self.settings.uninstalling:
            raise QueueError(f"{self.name} is being uninstalled", 409)
        checked = read_job_file(self.settings, file, owner)
        wanted = checked.fields.owner or owner
        if wanted != owner and not is_operator:
            raise QueueError(f"job.owner: {wanted}: only {owner} or the operator may submit this job", 403)
        queue = self._queue_of(checked)
        with self._lock:
            name = JobId(checked.fields.id) or self._new_id(checked)
            if before := self.store.jobs.get(name):
                if before.digest == checked.digest and before.owner == wanted:
                    return before, False
                raise QueueError(
                    f"job.id: {name}: another job has this id; it is {before.state.value}", 409, "conflict"
                )
            if unknown := [each for each in checked.fields.after if each not in self.store.jobs]:
                raise QueueError(f"job.after: {', '.join(unknown)}: unknown job", 400)
            job = checked.job(name, wanted, queue, self._clock())
            self.store.put([job], file=file)
        log.info("job %s of %s is queued in %s", name, wanted, queue)
        self._wakeup.set()
        return job, True

    def cancel(self, name: JobId, who: str) -> Job:
        """Cancel a job that has not ended."""
        with self._lock:
            job = self.job(name)
            if not job.state.has_ended and job.state is not JobState.CANCELLING:
                verdict = Verdict.STOPPED if job.state is JobState.QUEUED else None
                job = self._change(job, Happening.CANCELLED, f"cancelled by {who}", verdict)
                self._act(job)
        self._wakeup.set()
        return job

    def move(self, name: JobId, queue: str | None, priority: int | None) -> Job:
        """Change the queue and the priority of a job that has not ended."""
        with self._lock:
            job = self.job(name)
            if job.state.has_ended:
                raise QueueError(f"job {name} has ended: {job.reason}", 409, "conflict")
            if queue is not None and queue not in self.options.queues:
                raise QueueError(f"queue: {queue}: expected one of {', '.join(self.options.queues)}", 400)
            job = replace(job, queue=queue or job.queue, priority=job.priority if priority is None else priority)
            self.store.put([job])
        self._wakeup.set()
        return job

    def update(self, name: JobId, file: Mapping[str, Any], owner: str) -> Job:
        """Replace the options of a job; its running scheduler restarts with them.

        Masked values keep what is stored.
        """
        self.job(name)
        read_job_file(self.settings, file, owner)
        file = unmasked(file, self.store.file(name))
        checked = read_job_file(self.settings, file, owner)
        with self._lock:
            job = self.job(name)
            if job.state.has_ended:
                raise QueueError(f"job {name} has ended: {job.reason}", 409, "conflict")
            new = checked.job(name, job.owner, job.queue, job.submitted)
            job = replace(job, needs=new.needs, tasks=new.tasks, digest=new.digest, program=new.program)
            self.store.put([job], file=file)
            run = self._runs.pop(name, None)
        if run is not None:
            run.stop()
            with self._lock:
                self._start(self.store.jobs[name])  # it may have been cancelled meanwhile
        self._wakeup.set()
        return job

    def job(self, name: JobId) -> Job:
        """Return a job. Raises QueueError if it is unknown."""
        job = self.store.jobs.get(name)
        if job is None:
            raise QueueError(f"job {name} does not exist", 404, "not_found")
        return job

    def run_of(self, name: JobId) -> JobRun:
        """Return the scheduler of a job, also of an ended one. Raises QueueError."""
        with self._lock:
            job = self.job(name)
            if (run := self._runs.get(name)) is not None:
                return run
            if not job.state.has_ended or not self.store.own_values(name):
                turn = "its scheduler restarts" if job.state.has_scheduler else "its turn has not come"
                why = self.view.reason(job) or turn
                raise QueueError(f"job {name} has not started: {why}", 409, "not_started")
            if name not in self._shown:
                if len(self._shown) >= _SHOWN:
                    del self._shown[next(iter(self._shown))]
                self._shown[name] = self._composed(job)
                self._shown[name].show()
            return self._shown[name]

    def _queue_of(self, file: CheckedFile) -> str:
        names = list(self.options.queues)
        queue = file.fields.queue or names[0]
        if queue not in names:
            raise QueueError(f"job.queue: {queue}: expected one of {', '.join(names)}", 400)
        return queue

    def _new_id(self, file: CheckedFile) -> JobId:
        base = str(file.document.get("service", {}).get("name", "job")).strip("/").rpartition("/")[2]
        taken = (name.removeprefix(f"{base}-") for name in self.store.jobs if name.startswith(f"{base}-"))
        return JobId(f"{base}-{1 + max((int(each) for each in taken if each.isdecimal()), default=0)}")

    # --- the loop

    def run(self, server: AbstractContextManager[object]) -> None:
        """Run until `stop`; jobs keep running for the next process.

        Raises errors of the state store, and LeadershipLostError.
        """
        self._leadership.on_lost(lambda _: self._wakeup.set())
        with closing(self.store), closing(self._master), server:
            log.info("queue service %s accepts jobs at %s/v1/jobs", self.name, self.settings.spec.secret_delivery.url)
            self._adopt()
            while not self._stopping.is_set():
                self._leadership.check()
                self._cycle()
                self._wakeup.wait(INTERVAL if self._has_unsettled else _SLOW_INTERVAL if self._runs else None)
                self._stopping.wait(_GATHERING)
                self._wakeup.clear()
            for run in tuple(self._runs.values()):
                run.stop()

    def stop(self) -> None:
        """Make `run` return, from any thread."""
        self._stopping.set()
        self._wakeup.set()

    def _unfinished(self) -> list[Job]:
        return [job for job in tuple(self.store.jobs.values()) if not job.state.has_ended]

    @property
    def _has_unsettled(self) -> bool:
        """Whether a job waits for more than the end of its program."""
        return any(job.state is not JobState.RUNNING for job in self._unfinished())

    def _adopt(self) -> None:
        """Continue the jobs that may have a framework."""
        with self._lock:
            for job in [each for each in self._unfinished() if each.state.has_scheduler]:
                is_quarantined = job.state is JobState.QUARANTINED
                self._start(self._change(job, Happening.ADOPTED, job.reason) if is_quarantined else job)

    def _cycle(self) -> None:
        """Store what has happened, then decide what to do next."""
        now = self._clock()
        self._usage_log.advance(now, [job for job in self._unfinished() if job.state.has_scheduler])
        for name, run in tuple(self._runs.items()):
            self._observe(name, run)
        if self._fatal is not None:
            raise self._fatal
        self._end_lost_frameworks()
        if self.settings.uninstalling:
            self._uninstall()
            return
        if self._has_unsettled and now - self._read_at >= INTERVAL:
            self._look(now)
        self._decide(now)
        self._trim()

    def _observe(self, name: JobId, run: JobRun) -> None:
        """Store what a job's scheduler has done."""
        with self._lock:
            job = self.store.jobs[name]
            if job.state is JobState.STARTING and run.is_launched:
                job, self._is_current = self._change(replace(job, misses=0), Happening.LAUNCHED, ""), False
            if run.has_ended and self._runs.get(name) is run:
                del self._runs[name]
                if run.error is not None:
                    self._failed(job, run.error)
                elif run.result is not None:
                    self._ended(job, run, run.result)

    def _failed(self, job: Job, error: BaseException) -> None:
        if isinstance(error, StoreError) and not isinstance(error, StoreCorruptError):  # it concerns all jobs
            self._fatal = error
        elif isinstance(error, JobError):
            self._change(job, Happening.ENDED, str(error), Verdict.FAILED)
        else:
            log.error("the scheduler of job %s raised an error", job.id, exc_info=error)
            self._change(job, Happening.RAISED, "".join(traceback.format_exception(error))[-_MAX_TRACE:].strip())

    def _ended(self, job: Job, run: JobRun, result: Result) -> None:
        has_stopped = result.verdict is Verdict.STOPPED
        if job.state is JobState.REQUEUING and has_stopped:
            self.store.requeue(job.after_event(Happening.STOPPED, self._clock(), job.reason), run.reset())
            log.info("job %s is queued again: %s", job.id, job.reason)
        elif job.state is JobState.CANCELLING and has_stopped:
            self._change(job, Happening.STOPPED, job.reason, result.verdict)
        else:
            self._change(job, Happening.ENDED, result.sentence, result.verdict)

    def _end_lost_frameworks(self) -> None:
        """End the frameworks of cancelled jobs whose scheduler does not work."""
        for job in [job for job in self._unfinished() if job.state is JobState.CANCELLING and job.id not in self._runs]:
            framework = framework_of(self.store.own_values(job.id))
            call = {"type": "TEARDOWN", "teardown": {"framework_id": {"value": framework}}}
            reply = self._master.ask(call) if framework else Sent()
            # Mesos answers 400 for a framework that it does not know.
            if isinstance(reply, Sent) or (isinstance(reply, Rejected) and reply.status == HTTPStatus.BAD_REQUEST):
                with self._lock:
                    self._change(job, Happening.STOPPED, job.reason, Verdict.STOPPED)
            else:
                log.warning("framework %s of job %s cannot be ended: %s", framework, job.id, reply)

    def _uninstall(self) -> None:
        """Cancel all jobs; when they have ended, forget them."""
        for job in self._unfinished():
            self.cancel(job.id, "the uninstall of the service")
        if not self._unfinished() and not self._removed:
            self.store.remove()
            self._removed = True
            log.info("service uninstalled")

    # --- decisions

    def _look(self, now: UnixTime) -> None:
        """Read what is free, without the places of the tasks that running jobs wait for."""
        runs = [
            (name, run) for name, run in tuple(self._runs.items()) if self.store.jobs[name].state is JobState.RUNNING
        ]
        # A launch may be lost, and want its room again.
        unknown = sorted(name for name, run in runs if not run.is_settled)
        # Before the read: what is launched meanwhile counts twice, not never.
        pending = [(run.state.spec, run.pending) for _, run in runs]
        self._capacity, self._read_at = read_capacity(self._master.ask, self.settings.spec.role), now
        self._places, self._is_current = Places.after(self._capacity, pending), True
        answer = f"Mesos has not answered yet about the tasks of {', '.join(unknown[:3])}" if unknown else ""
        self._problem = self._capacity.problem or answer

    def _decide(self, now: UnixTime) -> None:
        """Admit a job, preempt others, send back those without a place, explain waits."""
        jobs = dict(self.store.jobs)
        places, problem = self._places, self._problem
        facts = self._facts(jobs, places, now)
        admission, chosen = next_admission(facts), tuple[Job, ...]()
        if problem or not self._is_current:
            admission = replace(admission, job=None)
        elif admission.job is None:
            admission, chosen = self._preemption(facts, places, admission)
        with self._lock:
            if admission.job is not None and all(
                self.store.jobs.get(job.id) is job for job in (admission.job, *chosen)
            ):
                self._admit(admission.job, chosen)
            for job in [job for job in self._unfinished() if job.state is JobState.STARTING]:
                if now - job.since > self.options.start_timeout:
                    self._send_back(job)
        self.view = QueueView(facts.usage, facts.order, admission.waits, facts.estimates, facts.ends, problem)

    def _facts(self, jobs: Mapping[JobId, Job], places: Places, now: UnixTime) -> QueueFacts:
        """Return what the next admission depends on."""
        usage, ends = QueueUsage.of(jobs.values(), self._capacity.total), self._ends(jobs, now)
        # A queue that is no longer in the options keeps its jobs.
        queues = {**{job.queue: QueueSpec(job.queue) for job in jobs.values()}, **self.options.queues}
        durations = self._durations(jobs)

        def seconds_of(job: Job) -> float:
            return job.expected_seconds or durations.get(job.program, 0.0)

        waiting = {job.queue for job in jobs.values() if job.state is JobState.QUEUED}
        self._served = serve(self._served, usage, queues, waiting, now - self._served_at)
        self._served_at = now
        rest = {name: end - now for name, end in ends.items()}
        known = lambda job: seconds_of(job) or UNKNOWN_SECONDS  # noqa: E731
        order = ordered(jobs.values(), queues, usage, self.options.order, self._served, rest, known)
        free, holds = places.room(), held({name: run.state for name, run in tuple(self._runs.items())})
        expected, fits = self.view.estimates, partial(self._fits, places)
        if now - self._estimated_at >= INTERVAL:  # they cost more than a decision
            expected = estimates(order, jobs, ends, free, holds, now, queues, seconds_of)
            self._estimated_at = now
        return QueueFacts(now, jobs, order, queues, usage, fits, seconds_of, ends, expected, free, holds)

    def _fits(self, places: Places, job: Job) -> str:
        """Return why the job does not find its places now; empty: it does."""
        return places.shortage(sum(job.tasks, Needs())) or self._mismatch(places, job)

    def _mismatch(self, places: Places, job: Job) -> str:
        try:
            return places.mismatch(self._spec(job.id, job.digest))
        except OptionsError as error:  # of an earlier version of the service
            return f"its options have become invalid: {error}"

    def _compiled(self, name: JobId, _digest: str) -> ServiceSpec:
        return read_job_file(self.settings, self.store.file(name), self.store.jobs[name].owner).spec

    def _ends(self, jobs: Mapping[JobId, Job], now: UnixTime) -> Mapping[JobId, UnixTime]:
        """Return the expected ends of running jobs: by progress, else by their durations."""
        durations = self._durations(jobs)
        ends = {}
        for job in (each for each in jobs.values() if each.state is JobState.RUNNING):
            run = self._runs.get(job.id)
            trainer = run.trainer if run is not None else None
            end = expected_end(job.started, job.expected_seconds or durations.get(job.program, 0.0), now)
            if trainer is not None and trainer.expected_end is not None:
                ends[job.id] = trainer.expected_end
            elif end is not None:
                ends[job.id] = end
        return ends

    def _durations(self, jobs: Mapping[JobId, Job]) -> Mapping[str, float]:
        """Return program -> median duration of its jobs that have succeeded."""
        seconds: dict[str, list[float]] = {}
        for job in jobs.values():
            if job.verdict is Verdict.SUCCEEDED and job.started:
                seconds.setdefault(job.program, []).append(job.since - job.started)
        return {program: median(each) for program, each in seconds.items()}

    def _preemption(self, facts: QueueFacts, places: Places, waiting: Admission) -> tuple[Admission, tuple[Job, ...]]:
        """Return the first waiting job for which others stop, with these; else `waiting`."""
        running = [job for job in facts.jobs.values() if job.state is JobState.RUNNING and job.id in self._runs]
        is_starting = any(job.state is JobState.STARTING for job in facts.jobs.values())
        trainers = {job.id: self._runs[job.id].trainer for job in running}
        unsaved = ((name, row.unsaved_seconds) for name, row in trainers.items() if row is not None)
        lost = {name: seconds for name, seconds in unsaved if seconds is not None}
        for job in () if is_starting or self.options.preemption is Preemption.NEVER else waiting.lack_room[:_URGENT]:

            def fits_without(stopped: tuple[Job, ...], job: Job = job) -> bool:
                freed = places.without(self._runs[each.id].state for each in stopped)
                return not self._fits(freed, job)

            chosen = victims(
                job,
                running,
                facts.usage,
                facts.queues,
                self.options.preemption,
                fits_without,
                lost,
                facts.now,
                self.options.min_runtime,
            )
            if chosen:
                return Admission(job, waiting.waits), chosen
        return waiting, ()

    def _admit(self, job: Job, stopped: Sequence[Job]) -> None:
        """Store that a job starts and that others make room, then act."""
        now = self._clock()
        started = job.after_event(Happening.ADMITTED, now, "its scheduler waits for its resources")
        why = f"preempted by {job.id} of {job.owner}"
        victims = [
            replace(each.after_event(Happening.PREEMPTED, now, why), preemptions=each.preemptions + 1)
            for each in stopped
        ]
        self.store.put([started, *victims], served=self._served)
        log.info("job %s is admitted%s", job.id, f"; {', '.join(each.id for each in stopped)} stop" if stopped else "")
        self._start(started)
        for each in victims:
            self._act(each)

    def _send_back(self, job: Job) -> None:
        """Queue a job again that got no place, with a pause that grows."""
        run = self._runs.get(job.id)
        why = "; ".join(run.reasons) if run is not None else ""
        pause = _MISS_PAUSE.delay(job.misses + 1, random.uniform)
        missed = job.after_event(Happening.NO_PLACE, self._clock(), f"got no place: {why or 'no offers'}")
        missed = replace(missed, misses=job.misses + 1, not_before=self._clock() + pause)
        self.store.put([missed])
        self._act(missed)

    def _trim(self) -> None:
        """Forget the oldest results."""
        with self._lock:
            ended = [job for job in self.store.jobs.values() if job.state.has_ended]
            surplus = max(0, len(ended) - self.options.keep_results)
            for job in sorted(ended, key=lambda job: job.since)[:surplus] if surplus else ():
                self.store.drop(job.id)
                self._shown.pop(job.id, None)
                redact_in_log(job.id, ())

    # --- schedulers of jobs

    def _start(self, job: Job) -> None:
        """Start the scheduler of a job, and ask it to stop if the job is to stop."""
        try:
            self._runs[job.id] = run = self._composed(job)
        except SchedulerError as error:
            self._failed(job, error)
            return
        self._act(job)
        run.start()

    def _act(self, job: Job) -> None:
        run = self._runs.get(job.id)
        if run is not None and job.state in (JobState.REQUEUING, JobState.CANCELLING):
            run.process.runner.request_stop(job.reason)

    def _composed(self, job: Job) -> JobRun:
        settings = job_settings(self.settings, job, self.store.file(job.id), self._folder)
        (self._folder / job.id).mkdir(parents=True, exist_ok=True)
        _make_like_parent(Path(settings.spec.checkpoint_dir))
        return JobRun(job.id, settings, self.store.store_of(job.id), self._leadership, self._wakeup.set)

    def _change(self, job: Job, happening: Happening, reason: str, verdict: Verdict | None = None) -> Job:
        """Store the job in its next state."""
        changed = replace(job.after_event(happening, self._clock(), reason), verdict=verdict)
        self.store.put([changed])
        log.info("job %s: %s%s", job.id, changed.state.value, f": {reason}" if reason else "")
        return changed


def _make_like_parent(folder: Path) -> None:
    """Create a job's folder in the checkpoint folder of a service on this machine."""
    if folder.is_absolute() and folder.parent.is_dir() and not folder.exists():
        parent = folder.parent.stat()
        folder.mkdir(mode=parent.st_mode & 0o777)
        if os.geteuid() == 0:
            os.chown(folder, parent.st_uid, parent.st_gid)
