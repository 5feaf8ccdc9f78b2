"""Metrics of the SDK (metrics/Metrics.java), for StatsD and `/v1/metrics`.

Like the SDK, this module sends only gauges to StatsD, so that a lost packet does no harm. DC/OS runs a StatsD server
for each container, and passes its address in STATSD_UDP_HOST and STATSD_UDP_PORT.
"""

from __future__ import annotations

import logging
import math
import re
import socket
import statistics
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from tf_executor.contract.states import Status
from tf_scheduler.model.state import SchedulerState

log = logging.getLogger(__name__)

# StatsD.

#: Maximum packet size for Ethernet (StatsD documentation, "multi-metric packets").
MAX_PACKET = 1432
#: Maximum number of values sent together; further values are dropped.
MAX_VALUES = 5_000
#: Default of STATSD_POLL_INTERVAL_S in seconds.
DEFAULT_INTERVAL = 10.0
#: Characters that StatsD servers interpret or reject.
_SPECIAL = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class StatsdTarget:
    """StatsD server address, seconds between sends, and prefix of metric names."""

    host: str
    port: int
    every: float = DEFAULT_INTERVAL
    prefix: str = ""


def statsd_target(option: str, service: str, environment: Mapping[str, str]) -> StatsdTarget | None:
    """Return the server from the option or DC/OS' variables; None: send nothing.

    With the option (`host:port`), metric names start with the service's name: the server may be used by other services.
    """
    interval = environment.get("STATSD_POLL_INTERVAL_S", "")
    every = max(1.0, float(interval)) if interval.isdecimal() and int(interval) else DEFAULT_INTERVAL
    if option:
        host, _, port = option.rpartition(":")
        return StatsdTarget(host.strip("[]"), int(port), every, f"{_clean(service.strip('/').replace('/', '.'))}.")
    host, port = environment.get("STATSD_UDP_HOST", ""), environment.get("STATSD_UDP_PORT", "")
    return StatsdTarget(host, int(port), every) if host and port.isdecimal() and 0 < int(port) < 65_536 else None


def packets(values: Iterable[tuple[str, float]], prefix: str = "") -> Iterator[bytes]:
    """Yield packets with lines of `name:value|g`."""
    packet = b""
    finite = ((name, value) for name, value in values if math.isfinite(value))
    for name, value in islice(finite, MAX_VALUES):
        lines = _lines(f"{prefix}{_clean(name)}"[: MAX_PACKET // 4], value)
        if packet and len(packet) + 1 + len(lines) > MAX_PACKET:
            yield packet
            packet = b""
        packet = packet + b"\n" + lines if packet else lines
    if packet:
        yield packet


def _lines(name: str, value: float) -> bytes:
    # A signed value would be added to the gauge, so the gauge is set to 0 first (StatsD documentation, "gauges").
    text = f"{name}:{value:.15g}|g"
    return (f"{name}:0|g\n{text}" if value < 0 else text).encode()


def _clean(name: str) -> str:
    return _SPECIAL.sub("_", name)


class StatsdSender:
    """UDP sender that does not block, except to resolve the host name at each send."""

    def __init__(self, to: StatsdTarget) -> None:
        self.to = to
        self._error = ""

    def send(self, values: Iterable[tuple[str, float]]) -> None:
        """Send the values; errors are logged once per reason."""
        try:
            family, _, _, _, address = socket.getaddrinfo(self.to.host, self.to.port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                for packet in packets(values, self.to.prefix):
                    sender.sendto(packet, address)
        except BlockingIOError:
            return  # the send buffer is full
        except OSError as failure:
            error, self._error = self._error, f"{failure.strerror or failure}"
            if error != self._error:
                log.warning("cannot send metrics to %s:%s: %s", self.to.host, self.to.port, self._error)
        else:
            self._error = ""


# `/v1/metrics`.

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
    """The SDK's counters, and its timer of offer evaluations. `start`: monotonic time.

    The loop's thread writes the values; other threads read them.
    """

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
        """Return the timer's values as Dropwizard does, but plain averages as rates."""
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
    """Return the SDK's gauges. `plans`: name of the plan -> status."""
    suppressed: dict[str, int | bool] = {"is_suppressed": state.session.suppressed}
    return suppressed | {f"plan_status.{name}": _VALUES.get(status, _IN_PROGRESS) for name, status in plans.items()}
