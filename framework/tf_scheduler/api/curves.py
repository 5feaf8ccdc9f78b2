"""The way of each task's training, as far as this scheduler has heard of it: for loss curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event, ProgressReported
from tf_scheduler.model.ids import TaskName, name_of
from tf_scheduler.model.progress import Progress

#: Points of a task at most; then every second one goes, and as many steps lie between two new ones.
POINTS = 512


class Curves:
    """An observer of the loop, whose lists are read by the API's thread: they are replaced, or appended to."""

    def __init__(self) -> None:
        self._curves: dict[TaskName, list[Progress]] = {}
        self._strides: dict[TaskName, int] = {}
        self._skipped: dict[TaskName, int] = {}

    def __call__(self, event: Event, _decision: Decision) -> None:
        if isinstance(event, ProgressReported):
            self._add(name_of(event.task_id), event.progress)

    def _add(self, name: TaskName, point: Progress) -> None:
        skipped = self._skipped.get(name, 0) + 1
        if skipped < self._strides.get(name, 1):
            self._skipped[name] = skipped
            return
        self._skipped[name] = 0
        curve = self._curves.setdefault(name, [])
        curve.append(point)
        if len(curve) >= POINTS:
            self._curves[name] = curve[::2]
            self._strides[name] = 2 * self._strides.get(name, 1)

    def shown(self) -> Mapping[TaskName, Sequence[Progress]]:
        """Task -> its points, oldest first."""
        return {name: tuple(curve) for name, curve in tuple(self._curves.items())}
