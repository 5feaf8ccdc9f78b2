"""The way of each task's training, as far as this scheduler and those before it have heard of it: for loss curves."""

from __future__ import annotations

from collections.abc import Mapping

from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event, ProgressReported
from tf_scheduler.model.ids import TaskName, name_of
from tf_scheduler.model.progress import Curve, Progress

#: Points of a task at most; then every second one goes, and as many steps lie between two new ones.
POINTS = 512


class Curves:
    """An observer of the loop, whose lists are read by other threads: they are replaced, or appended to.

    `before`: what was heard of each task already.
    """

    def __init__(self, before: Mapping[TaskName, Curve] | None = None) -> None:
        known = before or {}
        self._curves = {name: list(curve.points) for name, curve in known.items()}
        self._strides = {name: curve.stride for name, curve in known.items()}
        self._skipped: dict[TaskName, int] = {}
        self._newest: dict[TaskName, Progress] = {}

    def __call__(self, event: Event, _decision: Decision) -> None:
        if isinstance(event, ProgressReported):
            self._add(name_of(event.task_id), event.progress)

    def _add(self, name: TaskName, point: Progress) -> None:
        self._newest[name] = point
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

    def shown(self) -> Mapping[TaskName, Curve]:
        """Task -> its points, oldest first; the newest is always among them."""
        found = {}
        for name, points in tuple(self._curves.items()):
            curve, newest = tuple(points), self._newest.get(name)
            last = () if newest is None or (curve and curve[-1] is newest) else (newest,)
            found[name] = Curve((*curve, *last), self._strides.get(name, 1))
        return found
