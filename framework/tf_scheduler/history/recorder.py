"""Record the decisions of a scheduler in a file, see `history.record`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from tf_scheduler.model.effects import (
    Change,
    Decision,
    FrameworkRegistered,
    RecoveryDecided,
    ResultDecided,
    StatusStored,
    TaskLaunched,
)
from tf_scheduler.model.events import Event, ProgressReported, Tick
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.resources import Resource
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TrainingCurve

from .model import point_json
from .record import Line, decode_line, encode_line

log = logging.getLogger(__name__)

#: Maximum size of a recording in bytes; progress may use half of it.
MAX_BYTES = 8_000_000
#: Minimum seconds between two progress points of a task.
INTERVAL = 0.5
#: The same as a share of the time since the first progress, for one task.
_SHARE = 0.001
#: Tasks whose curves have the same resolution in runs of many tasks.
_LEADERS = ("chief-0", "worker-0")
#: Maximum characters of a message.
_MAX_TEXT = 2_000


class Recorder:
    """Observer that writes the recording. Called in the runner's thread.

    A write error is logged once and never stops the scheduler; later lines are written when the file is writable again.
    """

    def __init__(self, path: Path, clock: Callable[[], float], most_bytes: int = MAX_BYTES) -> None:
        self._path, self._clock, self._most = path, clock, most_bytes
        #: Task -> time of its first progress, and from which the next one is due; and the progress that was not due.
        self._begun: dict[str, float] = {}
        self._next: dict[str, float] = {}
        self._held: dict[str, Line] = {}
        self._failed = False
        #: Whether the file may end with an incomplete line.
        self._torn = False

    def __call__(self, event: Event, decision: Decision) -> None:
        lines = list(self._due(recording_lines(event, decision, self._clock()), decision.state))
        for is_progress in (True, False):
            text = "".join(encode_line(_short(line)) for line in lines if ("progress" in line) == is_progress)
            if text:
                self._append(text)

    def resume(self, state: SchedulerState, curves: Mapping[TaskName, TrainingCurve] | None = None) -> None:
        """Record changes that the previous scheduler stored but did not record.

        In a new sandbox, the recording is new, and begins with the stored `curves`.
        """
        written = self._written()
        self._torn = bool(written) and not written.endswith("\n")
        recorded = {_key(line) for line in map(decode_line, written.splitlines()) if line is not None}
        lines = recording_lines(Tick(), Decision(state, tuple(_stored(state))), self._clock())
        if text := "".join(encode_line(_short(line)) for line in lines if _key(line) not in recorded):
            self._append(text)
        if '"progress"' not in written and (text := "".join(map(encode_line, _stored_progress(state, curves or {})))):
            self._append(text)

    def _written(self) -> str:
        try:
            return self._path.read_text(errors="replace")
        except OSError:
            return ""  # the next write reports an error

    def _append(self, text: str) -> None:
        try:
            with self._path.open("a") as file:
                size = file.tell()
                if size + len(text) <= (self._most // 2 if '"progress"' in text else self._most):
                    file.write(f"\n{text}" if self._torn else text)
            self._failed = self._torn = False
        except OSError as error:
            if not self._failed:
                log.warning("the history of this run is not recorded: %s: %s", self._path, error.strerror)
            self._failed = self._torn = True

    def _due(self, lines: Iterable[Line], state: SchedulerState) -> Iterator[Line]:
        """Yield the lines to write: progress at a limited rate, but always the last one."""
        for line in lines:
            if "progress" in line:
                task, now = line["progress"], line["t"]
                status = state.status(task)
                # The message and the status of the end may arrive in any order.
                if now < self._next.get(task, 0.0) and not (status is not None and status.state.has_ended):
                    self._held[task] = line
                    continue
                self._held.pop(task, None)
                # The progress of many days and of many tasks fits into the file.
                elapsed, tasks = now - self._begun.setdefault(task, now), len(self._begun)
                self._next[task] = now + max(INTERVAL, elapsed * _SHARE * (1 if task in _LEADERS else tasks))
            elif line.get("ended") or "result" in line:
                yield from self._held.values()
                self._held.clear()
            yield line


def _stored(state: SchedulerState) -> Iterator[Change]:
    """Yield the changes that produce the stored state."""
    if state.stored.framework_id is not None:
        yield FrameworkRegistered(state.stored.framework_id)
    yield from map(TaskLaunched, state.stored.tasks.values())
    yield from map(StatusStored, state.stored.statuses.values())
    yield from map(RecoveryDecided, state.stored.recoveries.values())


def _stored_progress(state: SchedulerState, curves: Mapping[TaskName, TrainingCurve]) -> Iterator[Line]:
    """Yield recording lines for stored curves, with the times of the reports."""
    for name, curve in curves.items():
        record = state.stored.tasks.get(name)
        if record is not None:
            for point in curve.points:
                yield from recording_lines(ProgressReported(record.id, point), Decision(state), point.time)


def _key(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("launched", "status", "state", "healthy", "replaced", "framework"))


def _short(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[:_MAX_TEXT] if isinstance(value, str) else value for name, value in line.items()}


def recording_lines(event: Event, decision: Decision, now: float) -> Iterator[Line]:
    """Return the lines that a decision adds to the recording, in order.

    Lines are only appended, so that a restarted scheduler neither loses nor repeats a line.
    """
    for change in decision.changes:
        yield from ({"t": now, **line} for line in _change(change))
        if isinstance(change, FrameworkRegistered) and not change.removed:
            begun = min((item.at for item in decision.state.stored.configurations.values()), default=now)
            yield {"t": now, "framework": change.framework_id, "since": begun}
    if isinstance(event, ProgressReported) and event.progress.is_of_training:
        yield from _progress(event, decision.state, now)
    for outcome in decision.outcomes:
        if outcome.warning:
            yield {"t": now, "warning": outcome.message}


def _change(change: Change) -> Iterator[Line]:
    if isinstance(change, TaskLaunched):
        record = change.record
        yield {
            "launched": record.id,
            "task": record.name,
            "generation": record.generation,
            "agent": record.hostname,
            "address": record.address,
            "at": record.launched_at,
            **{name: _total(record.resources, name) for name in ("cpus", "mem", "gpus")},
        }
    elif isinstance(change, StatusStored):
        status = change.status
        yield {
            "status": status.id,
            "state": status.state.label,
            "ended": status.state.has_ended,
            "message": status.message,
            "exit_code": status.end.exit_code,
            # Time of the status and readiness; 0 and None if unknown.
            "said": status.timestamp,
            "healthy": status.healthy,
        }
    elif isinstance(change, RecoveryDecided):
        yield {"replaced": change.recovery.launch, "why": change.recovery.why}
    elif isinstance(change, ResultDecided):
        yield {"result": change.result.verdict.value, "reason": change.result.sentence}


def _progress(event: ProgressReported, state: SchedulerState, now: float) -> Iterator[Line]:
    task = next((record.name for record in state.stored.tasks.values() if record.id == event.task_id), None)
    if task is None:
        return
    yield {"t": now, "progress": task, **point_json(event.progress)}


def _total(resources: tuple[Resource, ...], name: str) -> float:
    """Return the total of a resource, whose values are stored in thousandths."""
    return sum(entry.value for entry in resources if entry.name == name and isinstance(entry.value, int)) / 1000
