"""The DC/OS SDK's own metrics, as its `/v1/metrics` shows them (dcos-commons, metrics/Metrics.java; Dropwizard).

Counters and the timer are written in the loop's thread, and read in others.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from tf_scheduler.model.plan import Plan, Status
from tf_scheduler.model.state import SchedulerState

#: Those that are there before anything happens.
_COUNTERS = (
    "declines.long",
    "declines.short",
    "offers.processed",
    "offers.received",
    "revives",
    "revives.throttles",
    "suppresses",
)
#: Of the timer: measurements that are kept, as Dropwizard does.
_KEPT = 1028
#: dcos-commons, metrics/PlanReporter.java; DELAYED it does not know.
_VALUES = {Status.ERROR: -1, Status.COMPLETE: 0, Status.WAITING: 1, Status.PENDING: 1, Status.DELAYED: 1}
_UNDER_WAY = 2
_QUANTILES = {"p50": 0.5, "p75": 0.75, "p95": 0.95, "p98": 0.98, "p99": 0.99, "p999": 0.999}
#: Name of an average over so many seconds.
_AVERAGES = {"m1_rate": 60.0, "m5_rate": 300.0, "m15_rate": 900.0}


class Sdk:
    """`begun`: now, by the clock that `timer` is asked with."""

    def __init__(self, begun: float) -> None:
        self._counts: Counter[str] = Counter(dict.fromkeys(_COUNTERS, 0))
        self._recent: deque[tuple[float, float]] = deque(maxlen=_KEPT)
        self._processed = 0
        self._begun = begun

    def count(self, name: str, by: int = 1) -> None:
        self._counts[name] += by

    def processed(self, seconds: float, now: float) -> None:
        """One round of offers was decided on."""
        self._processed += 1
        self._recent.append((now, seconds))

    @property
    def counters(self) -> Mapping[str, int]:
        return dict(self._counts)

    def timer(self, now: float) -> dict[str, Any]:
        """Dropwizard's keys. The rates are those of the rounds that are kept, not exponentially weighted ones."""
        recent = list(self._recent)
        taken = sorted(seconds for _, seconds in recent)
        mean = sum(taken) / len(taken) if taken else 0.0
        spread = math.sqrt(sum((seconds - mean) ** 2 for seconds in taken) / len(taken)) if taken else 0.0
        rates = {name: self._rate(recent, now, span) for name, span in _AVERAGES.items()}
        return {
            "count": self._processed,
            "max": taken[-1] if taken else 0.0,
            "mean": mean,
            "min": taken[0] if taken else 0.0,
            **{name: quantile(taken, share) for name, share in _QUANTILES.items()},
            "stddev": spread,
            **rates,
            "mean_rate": self._processed / max(now - self._begun, 1.0),
            "duration_units": "seconds",
            "rate_units": "calls/second",
        }

    def _rate(self, recent: list[tuple[float, float]], now: float, span: float) -> float:
        # Of more rounds than are kept, the time that those took.
        first = recent[0][0] if len(recent) == _KEPT else self._begun
        seconds = max(min(span, now - first), 1.0)
        return sum(now - at <= span for at, _ in recent) / seconds


def quantile(ordered: list[float], share: float) -> float:
    """The nearest rank; 0 of nothing."""
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def gauges(state: SchedulerState, plans: Mapping[str, Status]) -> dict[str, int | bool]:
    """What is so now. `plans`: the status of each."""
    found: dict[str, int | bool] = {"is_suppressed": state.suppressed}
    return found | {f"plan_status.{name}": _VALUES.get(status, _UNDER_WAY) for name, status in plans.items()}


def statuses(plans: Mapping[str, Plan]) -> dict[str, Status]:
    """Only that of each plan."""
    return {name: plan.status for name, plan in plans.items()}
