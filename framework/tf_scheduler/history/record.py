"""Record the decisions of a scheduler in a file, and read recordings back."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from tf_executor.contract.reports import Progress, drop_other_count
from tf_executor.contract.text import downsample
from tf_scheduler.errors import JobError
from tf_scheduler.model.effects import (
    Change,
    Decision,
    FrameworkRegistered,
    RecoveryDecided,
    StatusStored,
    TaskLaunched,
)
from tf_scheduler.model.events import Event, ProgressReported, Tick
from tf_scheduler.model.ids import TaskName
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.model.task import TrainingCurve

from . import model

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
        self._held: dict[str, model.Line] = {}
        self._failed = False
        #: Whether the file may end with an incomplete line.
        self._torn = False

    def __call__(self, event: Event, decision: Decision) -> None:
        lines = list(self._due(model.recording_lines(event, decision, self._clock()), decision.state))
        for is_progress in (True, False):
            text = "".join(model.encode_line(_short(line)) for line in lines if ("progress" in line) == is_progress)
            if text:
                self._append(text)

    def resume(self, state: SchedulerState, curves: Mapping[TaskName, TrainingCurve] | None = None) -> None:
        """Record changes that the previous scheduler stored but did not record.

        In a new sandbox, the recording is new, and begins with the stored `curves`.
        """
        written = self._written()
        self._torn = bool(written) and not written.endswith("\n")
        recorded = {_key(line) for line in map(model.decode_line, written.splitlines()) if line is not None}
        lines = model.recording_lines(Tick(), Decision(state, tuple(_stored(state))), self._clock())
        if text := "".join(model.encode_line(_short(line)) for line in lines if _key(line) not in recorded):
            self._append(text)
        if '"progress"' not in written and (
            text := "".join(map(model.encode_line, _stored_progress(state, curves or {})))
        ):
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

    def _due(self, lines: Iterable[model.Line], state: SchedulerState) -> Iterator[model.Line]:
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


def _stored_progress(state: SchedulerState, curves: Mapping[TaskName, TrainingCurve]) -> Iterator[model.Line]:
    """Yield recording lines for stored curves, with the times of the reports."""
    for name, curve in curves.items():
        record = state.stored.tasks.get(name)
        if record is not None:
            for point in curve.points:
                yield from model.recording_lines(ProgressReported(record.id, point), Decision(state), point.time)


def _key(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(line.get(name) for name in ("launched", "status", "state", "healthy", "replaced", "framework"))


def _short(line: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value[:_MAX_TEXT] if isinstance(value, str) else value for name, value in line.items()}


#: Maximum points of a curve and maximum warnings of a run.
MAX_POINTS = 400
MAX_WARNINGS = 200


#: The run of a recording alone.
_NO_RUN = model.Run("", "", model.RUNNING, "", 0.0, 0.0)


def read_recording(path: Path, run: model.Run = _NO_RUN) -> model.Run:
    """Add a recording to a run. A missing file adds nothing.

    An incomplete last line is ignored.
    """
    try:
        text = path.read_text(errors="replace")
    except FileNotFoundError:
        return run
    return fold_lines((line for line in map(model.decode_line, text.splitlines()) if line is not None), run)


def fold_lines(lines: Iterable[Mapping[str, Any]], run: model.Run = _NO_RUN) -> model.Run:
    """Return the run with the content of a recording's lines."""
    launches: dict[str, model.RecordedLaunch] = {}
    curves: dict[str, list[Progress]] = {}
    warnings: list[model.RunWarning] = []
    for line in lines:
        kind = next((name for name in _OF_LAUNCHES if name in line), "")
        if kind == "launched":
            launches[line["launched"]] = _launch(line)
        elif kind and line[kind] in launches:
            launches[line[kind]] = _OF_LAUNCHES[kind](launches[line[kind]], line)
        elif "progress" in line:
            point, curve = Progress.from_json({**line, "time": line["t"]}), curves.setdefault(line["progress"], [])
            drop_other_count(curve, point)
            curve.append(point)
        elif "warning" in line:
            warnings.append(model.RunWarning(line["t"], line["warning"]))
    thinned = {task: tuple(downsample(points, MAX_POINTS)) for task, points in curves.items()}
    first = model.leading_task(thinned)
    for task in thinned.keys() - {first}:
        thinned[task] = tuple(replace(point, metrics={}) for point in thinned[task])
    return replace(
        run,
        launches=tuple(launches.values()),
        curves=thinned,
        best=model.best_values(curves.get(first or "", ())),
        warnings=tuple(warnings[-MAX_WARNINGS:]),
    )


def _launch(line: Mapping[str, Any]) -> model.RecordedLaunch:
    amounts = dict.fromkeys(("cpus", "gpus", "mem"), 0.0)
    values = {**amounts, **model.known_fields(model.RecordedLaunch, line)}
    return model.RecordedLaunch(**{**values, "id": line["launched"], "launched": line.get("at") or line["t"]})


def _status(launch: model.RecordedLaunch, line: Mapping[str, Any]) -> model.RecordedLaunch:
    running = line["t"] if line["state"] == "running" and launch.running is None else launch.running
    ended = line["t"] if line.get("ended") and launch.ended is None else launch.ended
    return replace(
        launch,
        running=running,
        ended=ended,
        state=line["state"],
        message=line.get("message", ""),
        exit_code=line.get("exit_code"),
    )


_OF_LAUNCHES: Mapping[str, Callable[[model.RecordedLaunch, Mapping[str, Any]], model.RecordedLaunch]] = {
    "launched": lambda launch, _: launch,
    "status": _status,
    "replaced": lambda launch, line: replace(launch, replaced=line["why"]),
}


def service_run(path: Path, name: str, options: Mapping[str, Any]) -> model.Run:
    """Return a recording's run. `options`: without secrets. Raises JobError.

    The id depends on the framework and its start, so a longer copy of a recording replaces a shorter one.
    """
    try:
        text = path.read_text(errors="replace")
    except OSError as error:
        raise JobError(f"{path}: {error.strerror}") from error
    try:
        lines = [
            line
            for line in map(model.decode_line, text.splitlines())
            if line and isinstance(line.get("t"), int | float)
        ]
        return _identified(fold_lines(lines), lines, name, options)
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:  # JSON, but not a scheduler's
        raise JobError(f"{path}: not a recording of a run, such as a scheduler's recording.jsonl") from error


def _identified(run: model.Run, lines: Sequence[Mapping[str, Any]], name: str, options: Mapping[str, Any]) -> model.Run:
    first = run.launches[0]
    # Restarted schedulers of a service have other recordings, but the same framework.
    framework: Mapping[str, Any] = next((line for line in lines if "framework" in line), {})
    identity = str(framework.get("framework") or first.id)
    begun, ended = framework.get("since") or lines[0]["t"], max(line["t"] for line in lines)
    result: Mapping[str, Any] = next((line for line in reversed(lines) if "result" in line), {})
    stamp = datetime.fromtimestamp(begun, timezone.utc).strftime("%Y%m%d-%H%M%S")
    digest = hashlib.sha256(identity.encode()).hexdigest()[:6]
    return replace(
        run,
        id=f"{name.strip('/').replace('/', '-')}-{stamp}-{digest}",
        service=name,
        state=result.get("result", model.RUNNING),
        reason=result.get("reason", ""),
        submitted=begun,
        seconds=round(ended - begun, 3),
        options=options,
    )
