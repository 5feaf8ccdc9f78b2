"""How the API reaches the scheduler: commands, curves, and interfaces of stores."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tf_executor.contract.reports import Progress, drop_other_count
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.errors import SchedulerError
from tf_scheduler.interfaces import TaskFiles
from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import (
    AcknowledgeExposures,
    Event,
    ExecRequested,
    PlanCommand,
    PodCommand,
    ProgressReported,
    ReloadSecrets,
    ScaleRequested,
)
from tf_scheduler.model.ids import TaskName, name_of
from tf_scheduler.model.plan import Answer
from tf_scheduler.model.state import JournalEntry
from tf_scheduler.model.task import TrainingCurve

#: Seconds to wait for the answer of the scheduler loop.
TIMEOUT = 10.0

PutEvent = Callable[[Callable[[], Event | None]], None]
Command = PlanCommand | PodCommand | ScaleRequested | ExecRequested | ReloadSecrets | AcknowledgeExposures


class SchedulerTimeoutError(SchedulerError):
    """The loop did not answer in time; the command may still be executed."""

    kind = "scheduler_timeout"
    http_status = 503


class CommandBus:
    """Send commands to the scheduler loop and await their answers.

    `send` runs in the API's thread. The instance observes the loop, and assigns answers to commands by request id.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, Future[Answer | None]] = {}

    def __call__(self, event: Event, decision: Decision) -> None:  # noqa: ARG002 - an Observer
        future = self._waiting.pop(decision.request_id, None)
        if future is not None and not future.done():
            future.set_result(decision.answer)

    async def send(self, put: PutEvent, command: Command) -> Answer | None:
        """Send a command; return the loop's answer or None. Raises SchedulerTimeoutError."""
        future: Future[Answer | None] = Future()
        self._waiting[command.request_id] = future
        try:
            put(lambda: command)
            return await asyncio.wait_for(asyncio.wrap_future(future), TIMEOUT)
        except asyncio.TimeoutError as error:
            raise SchedulerTimeoutError(
                f"the scheduler has not answered within {TIMEOUT:g} s; the command may still be executed"
            ) from error
        finally:
            self._waiting.pop(command.request_id, None)


#: Maximum number of points of a task's curve. At this number every second point is dropped.
MAX_POINTS = 512
#: Maximum number of tasks whose curves include metrics.
MAX_METRIC_CURVES = 16


@dataclass(slots=True)
class _Curve:
    points: list[Progress]
    #: Number of reports per point, and of reports since the last point.
    stride: int = 1
    skipped: int = 0
    newest: Progress | None = None

    def add(self, point: Progress) -> None:
        self.newest, self.skipped = point, self.skipped + 1
        if self.skipped >= self.stride:
            self.points.append(point)
            self.skipped = 0
        if len(self.points) >= MAX_POINTS:
            self.points, self.stride = self.points[::2], 2 * self.stride


class CurveRecorder:
    """Observer that records the training curve of each task, readable by any thread.

    `before`: curves stored by earlier schedulers.
    """

    def __init__(self, before: Mapping[TaskName, TrainingCurve] | None = None) -> None:
        self._curves = {name: _Curve(list(curve.points), curve.stride) for name, curve in (before or {}).items()}
        self._with_metrics: set[TaskName] = set()

    def __call__(self, event: Event, decision: Decision) -> None:
        if isinstance(event, ProgressReported) and event.progress.is_of_training:
            name, point = name_of(event.task_id), event.progress
            curve = self._curves.setdefault(name, _Curve([]))
            drop_other_count(curve.points, point)
            if point.metrics and not self._has_metrics(name):
                point = replace(point, metrics={})
            record = decision.state.stored.tasks.get(name)
            if record is not None and decision.state.spec.is_leader(record.job, record.index):
                point = replace(point, workers=decision.state.count_workers())
            curve.add(point)

    def _has_metrics(self, name: TaskName) -> bool:
        """Whether a curve includes metrics: to save memory, only MAX_METRIC_CURVES do."""
        if len(self._with_metrics) < MAX_METRIC_CURVES:
            self._with_metrics.add(name)
        return name in self._with_metrics

    def current(self) -> Mapping[TaskName, TrainingCurve]:
        """Return the curve of each task, oldest point first, including the newest point."""
        curves = {}
        for name, curve in tuple(self._curves.items()):
            points, newest = tuple(curve.points), curve.newest
            last = () if newest is None or (points and points[-1] is newest) else (newest,)
            curves[name] = TrainingCurve((*points, *last), curve.stride)
        return curves


class JournalReader(Protocol):
    """Numbered journal of events. Thread-safe."""

    @property
    def id(self) -> str:
        """Id of the journal. Each journal numbers its entries independently."""

    @property
    def first(self) -> int:
        """Number of the oldest stored entry; `last` + 1 if the journal is empty."""

    @property
    def last(self) -> int:
        """Number of the newest entry, 0 before the first. Numbers are never reused."""

    def after(self, number: int) -> Sequence[JournalEntry]:
        """Return the entries with greater numbers, oldest first."""

    def listen(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call `callback` in any thread for new entries; return a function to end this.

        The callback must not block.
        """


class OperatorFileStore(Protocol):
    """Small files stored with the state of the service. Thread-safe."""

    def names(self) -> Sequence[str]:
        """Return the sorted file names."""

    def content(self, name: str) -> bytes | None:
        """Return the content, or None if the file does not exist."""

    def keep(self, name: str, content: bytes) -> None:
        """Store a file; may block. Raises FileError."""


#: Maps new options, or the environment of a Marathon app, to the effects of an update.
PreviewUpdate = Callable[[Mapping[str, Any]], Mapping[str, Any]]


class RunReader(Protocol):
    """Records of this run and of earlier runs; the methods block. Thread-safe."""

    def current(self) -> Mapping[str, Any]:
        """Return the record of this run. Raises JobError if it is not recorded."""

    def list(self) -> Mapping[str, Any]:
        """Return summaries of this run and of earlier runs. Raises JobError."""

    def get(self, name: str, points: int) -> Mapping[str, Any] | None:
        """Return one run with its options and curve; None if unknown. Raises JobError."""


@dataclass(frozen=True, slots=True)
class Backend:
    """Parts of the scheduler process that the API uses. Only `snapshot` is required.

    `snapshot` returns the current state; `put` adds an event to the loop's inbox (None: no loop).
    """

    snapshot: Callable[[], Snapshot]
    put: PutEvent | None = None
    bus: CommandBus = field(default_factory=CommandBus)
    journal: JournalReader | None = None
    curves: CurveRecorder = field(default_factory=CurveRecorder)
    files: TaskFiles | None = None
    operator_files: OperatorFileStore | None = None
    #: Raises SchedulerError if the options are invalid.
    preview_update: PreviewUpdate | None = None
    runs: RunReader | None = None

    async def ask(self, command: Command) -> Answer | None:
        """Send a command; None if the loop has finished. Raises SchedulerTimeoutError."""
        if self.put is None or self.snapshot().state.process.finished:
            return None
        return await self.bus.send(self.put, command)

    def observe(self, event: Event, decision: Decision) -> None:
        """Record the answer and the curves of a decision; called after every decision."""
        self.bus(event, decision)
        self.curves(event, decision)
