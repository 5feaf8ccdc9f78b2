"""Metrics of the SDK's `/v1/metrics` (dcos-commons, metrics/Metrics.java).

The loop's thread writes counters and the timer, other threads read them.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from tf_scheduler.model.plan import Status
from tf_scheduler.model.state import SchedulerState

#: Counters that exist from the start.
_COUNTERS = (
    "declines.long",
    "declines.short",
    "offers.processed",
    "offers.received",
    "revives",
    "revives.throttles",
    "suppresses",
)
#: Number of stored measurements of the timer, as in Dropwizard.
_KEPT = 1028
#: Values of dcos-commons, metrics/PlanReporter.java, which has no DELAYED.
_VALUES = {Status.ERROR: -1, Status.COMPLETE: 0, Status.WAITING: 1, Status.PENDING: 1, Status.DELAYED: 1}
_IN_PROGRESS = 2
_QUANTILES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
#: Rate name and its period in seconds.
_AVERAGES = {"m1_rate": 60.0, "m5_rate": 300.0, "m15_rate": 900.0}


class SdkMetrics:
    """Counters and the offer timer. `start`: monotonic time."""

    def __init__(self, start: float) -> None:
        self._counts: Counter[str] = Counter(dict.fromkeys(_COUNTERS, 0))
        self._recent: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._processed = 0
        self._start = start

    def count(self, name: str, by: int = 1) -> None:
        self._counts[name] += by

    def processed(self, seconds: float, now: float) -> None:
        """Record the duration of one offer evaluation."""
        self._processed += 1
        self._recent.append((now, seconds))

    @property
    def counters(self) -> Mapping[str, int]:
        return dict(self._counts)

    def timer(self, now: float) -> dict[str, Any]:
        """Return Dropwizard's values, with plain instead of weighted averages as rates."""
        recent = list(self._recent)
        taken = sorted(seconds for _, seconds in recent)
        return {
            "count": self._processed,
            "max": taken[-1] if taken else 0.0,
            "mean": statistics.fmean(taken) if taken else 0.0,
            "min": taken[0] if taken else 0.0,
            **{name: quantile(taken, share) for name, share in _QUANTILES.items()},
            "stddev": statistics.pstdev(taken) if taken else 0.0,
            **{name: self._rate(recent, now, span) for name, span in _AVERAGES.items()},
            "mean_rate": self._processed / max(now - self._start, 1.0),
            "duration_units": "seconds",
            "rate_units": "calls/second",
        }

    def _rate(self, recent: list[tuple[float, float]], now: float, span: float) -> float:
        # With more measurements than stored, the period starts at the oldest one.
        first = recent[0][0] if len(recent) == _KEPT else self._start
        seconds = max(min(span, now - first), 1.0)
        return sum(now - at <= span for at, _ in recent) / seconds


def quantile(ordered: list[float], share: float) -> float:
    """Return the nearest-rank quantile; 0 for an empty list."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def gauges(state: SchedulerState, plans: Mapping[str, Status]) -> dict[str, int | bool]:
    """Return the gauges; `plans` maps names to statuses."""
    suppressed: dict[str, int | bool] = {"is_suppressed": state.session.suppressed}
    return suppressed | {f"plan_status.{name}": _VALUES.get(status, _IN_PROGRESS) for name, status in plans.items()}
