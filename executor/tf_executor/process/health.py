"""Readiness, liveness, stall and freeze checks of the running program, in threads."""

from __future__ import annotations

import logging
import socket
import threading
import time
from typing import Callable, Sequence, Union

from tf_executor.contract.settings import Liveness
from tf_executor.contract.text import format_duration
from tf_executor.lifecycle.events import FreezeChanged, Ready, Unhealthy
from tf_executor.process.freezing import FreezeDetector, ProcessSample

# Readiness: a gRPC server is an HTTP/2 server, which sends a SETTINGS frame (RFC 9113, 3.4 and 4.1).

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEADER = 9
_SETTINGS, _GOAWAY = 4, 7
_EMPTY_SETTINGS = bytes([0, 0, 0, _SETTINGS, 0, 0, 0, 0, 0])
_SETTINGS_ACK = bytes([0, 0, 0, _SETTINGS, 1, 0, 0, 0, 0])
#: Last stream 0, NO_ERROR.
_GOAWAY_FRAME = bytes([0, 0, 8, _GOAWAY, 0, 0, 0, 0, 0]) + bytes(8)
_CLOSE_TIMEOUT = 1.0


def grpc_server_answers(address: str, timeout: float) -> bool:
    """Return whether HTTP/2 is served at host:port; `timeout`: seconds for each step."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout) as connection:
            return _sends_settings(connection)
    except (OSError, ValueError):
        return False


def _sends_settings(connection: socket.socket) -> bool:
    connection.sendall(_PREFACE + _EMPTY_SETTINGS)
    header = b""
    while len(header) < _HEADER:
        received = connection.recv(_HEADER - len(header))
        if not received:
            return False
        header += received
    is_settings = header[3] == _SETTINGS and header[4] & 1 == 0 and header[5:9] == bytes(4)
    if is_settings:
        _close(connection)
    return is_settings


def _close(connection: socket.socket) -> None:
    """Close gracefully, because servers may log a reset connection as an error."""
    try:
        connection.sendall(_SETTINGS_ACK + _GOAWAY_FRAME)
        connection.shutdown(socket.SHUT_WR)
        connection.settimeout(_CLOSE_TIMEOUT)
        while connection.recv(4096):
            pass
    except OSError:
        return


# Checks.

#: Seconds between two readiness probes: the first and the maximum. Most servers start within seconds.
FIRST_DELAY, MAX_DELAY = 0.1, 5.0
PROBE_TIMEOUT = 5.0
#: Seconds between two searches for a connection to a peer: the first and the maximum; and searches after which a
#: program trains alone.
MEETING_INTERVAL, _MAX_MEETING_INTERVAL, MEETING_SEARCHES = 0.25, 2.0, 12
#: Seconds after which a program should have loaded its library: searches count from then, or from the load on.
LIBRARY_AFTER = 10.0
#: Seconds between two samples of the task's processes, and after which a frozen task is reported: the report is due
#: within 60 s. Shorter waits for a disk are normal.
SAMPLE_INTERVAL, FREEZE_REPORTED_AFTER = 15.0, 30.0
#: Seconds between the two samples that decide whether a program that fails its check is frozen.
_CHECK_INTERVAL = 1.0

OnEvent = Callable[[Union[Ready, Unhealthy, FreezeChanged]], None]
#: Return why the program is not alive, or an empty string.
Probe = Callable[[], str]

log = logging.getLogger(__name__)


class HealthChecks:
    """Checks of a program, each in a thread that reports to `on_event`.

    A check reports at most one event. Only the check of `watch_freezing` reports each change.
    """

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._sample: Callable[[], Sequence[ProcessSample]] = tuple
        self._stopped = threading.Event()
        #: Whether the program has had time to train, but no connection to a peer.
        self.is_alone = False

    def stop(self) -> None:
        """Stop all checks; an event may still be on its way."""
        self._stopped.set()

    def await_server(self, address: str, is_own: Callable[[], bool]) -> None:
        """Report Ready when a TensorFlow server answers and `is_own` returns True."""
        self._start("readiness", lambda: self._await_server(address, is_own))

    def watch_meeting(self, meets: Callable[[], bool], uses_library: Callable[[], bool]) -> None:
        """Note in `is_alone` whether a program never meets a peer."""
        late = time.monotonic() + LIBRARY_AFTER

        def watch() -> None:
            searches = 0
            pause = MEETING_INTERVAL
            while not meets() and not self._stopped.wait(pause):
                searches += searches > 0 or uses_library() or time.monotonic() > late
                self.is_alone = searches >= MEETING_SEARCHES
                pause = min(MEETING_INTERVAL * max(1, searches / MEETING_SEARCHES), _MAX_MEETING_INTERVAL)
            self.is_alone &= self._stopped.is_set()

        self._start("meeting", watch)

    def watch(self, liveness: Liveness, probe: Probe) -> None:
        """Report Unhealthy after `liveness.failures` consecutive failures of `probe`."""
        self._start("liveness", lambda: self._watch(liveness, probe))

    def watch_silence(self, limit: float, silent_for: Callable[[], float]) -> None:
        """Report Unhealthy when the program has been silent for `limit` seconds."""
        self._start("silence", lambda: self._watch_silence(limit, silent_for))

    def watch_freezing(
        self, limit: float, sample: Callable[[], Sequence[ProcessSample]], silent_for: Callable[[], float]
    ) -> None:
        """Report when processes freeze and continue; Unhealthy after `limit` seconds.

        `limit` 0: never. Unhealthy also needs `limit` seconds of silence: a program that prints or reports works,
        although one of its processes is frozen.
        """
        self._sample = sample
        self._start("freezing", lambda: self._watch_freezing(limit, silent_for))

    def _start(self, name: str, run: Callable[[], None]) -> None:
        threading.Thread(target=run, name=name, daemon=True).start()

    def _await_server(self, address: str, is_own: Callable[[], bool]) -> None:
        started, delay = time.monotonic(), FIRST_DELAY
        while not (grpc_server_answers(address, PROBE_TIMEOUT) and is_own()):
            if self._stopped.wait(delay):
                return
            delay = min(MAX_DELAY, delay * 1.2)
        seconds = time.monotonic() - started
        self._on_event(Ready(f"TensorFlow server ready at {address} after {seconds:.1f} s"))

    def _watch(self, liveness: Liveness, probe: Probe) -> None:
        counts_from = time.monotonic() + liveness.grace
        failures = 0
        while not self._stopped.wait(liveness.interval):
            problem = probe()
            if not problem:
                failures = 0
                continue
            log.info("liveness check failed: %s", problem)
            if time.monotonic() >= counts_from:
                failures += 1
            if failures >= liveness.failures:
                repeated = f" ({failures} consecutive failures)" if failures > 1 else ""
                self._on_event(self._failure(f"not alive: {problem}{repeated}"))
                return

    def _watch_silence(self, limit: float, silent_for: Callable[[], float]) -> None:
        while (silent := silent_for()) < limit:
            # A program that reports progress in its grace period is silent from then on.
            if self._stopped.wait(min(limit, limit - silent)):
                return
        self._on_event(self._failure(f"stalled: no progress and no output for {format_duration(round(silent))}"))

    def _failure(self, reason: str) -> Unhealthy:
        """Return the event of a failed check, and whether processes are frozen."""
        detector = FreezeDetector()
        detector.add(self._sample(), 0.0)
        self._stopped.wait(_CHECK_INTERVAL)
        if detector.add(self._sample(), _CHECK_INTERVAL):
            return Unhealthy(f"{reason}; {detector.describe()}", is_frozen=True)
        return Unhealthy(reason)

    def _watch_freezing(self, limit: float, silent_for: Callable[[], float]) -> None:
        interval, reported_after = SAMPLE_INTERVAL, FREEZE_REPORTED_AFTER
        if limit:
            interval, reported_after = min(interval, limit / 4), min(reported_after, limit / 2)
        detector, reported = FreezeDetector(), 0.0
        while not self._stopped.wait(interval):
            seconds = detector.add(self._sample(), time.monotonic())
            if seconds >= reported_after and not reported:
                self._on_event(FreezeChanged(detector.describe(), is_frozen=True))
            elif reported and not seconds:
                text = f"continues after it was frozen for {format_duration(round(reported))}"
                self._on_event(FreezeChanged(text, is_frozen=False))
            if limit and min(seconds, silent_for()) >= limit:
                reason = f"frozen for {format_duration(round(seconds))}: {detector.describe()}"
                self._on_event(Unhealthy(reason, is_frozen=True))
                return
            reported = seconds if seconds >= reported_after else 0.0


def http_problem(url: str, timeout: float) -> str:
    """Return why a GET without proxy failed; empty for a status from 200 to 399."""
    from urllib.request import HTTPRedirectHandler  # imported only if needed, to save memory

    from tf_executor.contract.http import HttpClient

    try:
        reply = HttpClient(timeout, timeout, redirects=HTTPRedirectHandler, max_bytes=0).fetch(url)
    except (OSError, ValueError) as error:
        return f"{url}: {error}"
    return "" if 200 <= reply.status < 400 else f"{url} returned status {reply.status}"
