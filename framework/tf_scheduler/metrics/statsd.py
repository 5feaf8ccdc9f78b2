"""StatsD client that sends only gauges, like the SDK: a lost packet loses nothing.

DC/OS runs a server for each container and names it in STATSD_UDP_HOST and STATSD_UDP_PORT.
"""

from __future__ import annotations

import logging
import math
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

log = logging.getLogger(__name__)

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

    Option (`host:port`): names start with the service's name, because the server may receive several services' metrics.
    """
    every = _seconds(environment.get("STATSD_POLL_INTERVAL_S", ""))
    if option:
        host, _, port = option.rpartition(":")
        return StatsdTarget(host.strip("[]"), int(port), every, f"{_clean(service.strip('/').replace('/', '.'))}.")
    host, port = environment.get("STATSD_UDP_HOST", ""), environment.get("STATSD_UDP_PORT", "")
    return StatsdTarget(host, int(port), every) if host and port.isdecimal() and 0 < int(port) < 65_536 else None


def _seconds(text: str) -> float:
    return max(1.0, float(text)) if text.isdecimal() and int(text) else DEFAULT_INTERVAL


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
    """UDP sender that does not block. The host name is resolved for each send."""

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
