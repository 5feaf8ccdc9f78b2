"""Metrics to a StatsD server, as the DC/OS SDK sends them: all as gauges, so that a lost packet loses nothing.

Each container of DC/OS has a server of its own, which the variables STATSD_UDP_HOST and STATSD_UDP_PORT name.
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

#: What surely fits into one packet of an Ethernet (StatsD documentation, "multi-metric packets").
PACKET = 1432
#: Values at one time; the rest is left out.
MOST = 5_000
#: Seconds; the SDK's STATSD_POLL_INTERVAL_S.
EVERY = 10.0
#: Those that mean something to a server.
_SPECIAL = re.compile(r"[^A-Za-z0-9_.-]")


@dataclass(frozen=True, slots=True)
class Target:
    """Where to, how often, and what names begin with."""

    host: str
    port: int
    every: float = EVERY
    prefix: str = ""


def target(option: str, service: str, environment: Mapping[str, str]) -> Target | None:
    """What the option names (host:port), else DC/OS' variables; None: nobody wants any.

    A server of one's own may serve many: names begin with that of the service then.
    """
    every = _seconds(environment.get("STATSD_POLL_INTERVAL_S", ""))
    if option:
        host, _, port = option.rpartition(":")
        return Target(host.strip("[]"), int(port), every, f"{_clean(service.strip('/').replace('/', '.'))}.")
    host, port = environment.get("STATSD_UDP_HOST", ""), environment.get("STATSD_UDP_PORT", "")
    return Target(host, int(port), every) if host and port.isdecimal() and 0 < int(port) < 65_536 else None


def _seconds(text: str) -> float:
    return max(1.0, float(text)) if text.isdecimal() and int(text) else EVERY


def packets(values: Iterable[tuple[str, float]], prefix: str = "") -> Iterator[bytes]:
    """Lines of `name:value|g`, as many in one packet as fit."""
    packet = b""
    finite = ((name, value) for name, value in values if math.isfinite(value))
    for name, value in islice(finite, MOST):
        lines = _lines(f"{prefix}{_clean(name)}"[: PACKET // 4], value)
        if packet and len(packet) + 1 + len(lines) > PACKET:
            yield packet
            packet = b""
        packet = packet + b"\n" + lines if packet else lines
    if packet:
        yield packet


def _lines(name: str, value: float) -> bytes:
    # A sign means: add it to what is there (StatsD documentation, "gauges"). So it is set to 0 before.
    text = f"{name}:{value:.15g}|g"
    return (f"{name}:0|g\n{text}" if value < 0 else text).encode()


def _clean(name: str) -> str:
    return _SPECIAL.sub("_", name)


class Statsd:
    """Sends over UDP, and never waits for an answer. The name is looked up anew each time."""

    def __init__(self, to: Target) -> None:
        self.to = to
        self._trouble = ""

    def send(self, values: Iterable[tuple[str, float]]) -> None:
        """What cannot be sent is lost: the next time tells all anew. Logged once per reason."""
        try:
            family, _, _, _, address = socket.getaddrinfo(self.to.host, self.to.port, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as sender:
                sender.setblocking(False)
                for packet in packets(values, self.to.prefix):
                    sender.sendto(packet, address)
        except BlockingIOError:
            return  # a full buffer
        except OSError as error:
            self._told(f"{error.strerror or error}")
        else:
            self._trouble = ""

    def _told(self, trouble: str) -> None:
        if trouble != self._trouble:
            log.warning("metrics cannot be sent to %s:%s: %s", self.to.host, self.to.port, trouble)
        self._trouble = trouble
