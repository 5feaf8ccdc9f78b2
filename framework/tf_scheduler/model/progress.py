"""How far the program of a task is, as its executor told us last."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """Best effort: a scheduler that starts anew hears the next one. None: the program does not say."""

    #: Grows with every message of a launch.
    sequence: int
    #: Seconds since the epoch, by the agent's clock.
    time: float
    step: int | None = None
    #: Steps at the end of the training.
    total: int | None = None
    #: Infinite or no number where the training diverges.
    loss: float | None = None
    #: Since the start of the training.
    examples: int | None = None
    steps_per_second: float | None = None
    examples_per_second: float | None = None
    #: When the first step was made, as `time` is, where that is known better than by the first message.
    begun: float | None = None

    @property
    def seconds_left(self) -> float | None:
        """At the present speed; None: that cannot be said."""
        if self.step is None or self.total is None or not self.steps_per_second:
            return None
        left = (self.total - self.step) / self.steps_per_second
        return left if left >= 0 and math.isfinite(left) else None


@dataclass(frozen=True, slots=True)
class Curve:
    """What a task has told of its training, oldest first, thinned out as it grew."""

    points: tuple[Progress, ...]
    #: A point for each so many messages.
    stride: int = 1
