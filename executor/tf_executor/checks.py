"""Watches the running program from threads of its own: is it ready, is it still alive?"""

from __future__ import annotations

import logging
import threading
import time
from typing import Callable, Union

from tf_executor import readiness
from tf_executor.events import Ready, Unhealthy
from tf_executor.payload import Liveness

#: Seconds between two looks at a server that does not answer yet: short at first, as most start within seconds.
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
PROBE_TIMEOUT = 5.0

OnEvent = Callable[[Union[Ready, Unhealthy]], None]
#: One look: empty when the program is alive, else what is wrong.
Look = Callable[[], str]

log = logging.getLogger(__name__)


class Checks:
    """Threads that end with `stop`, or by themselves when they have nothing more to say."""

    def __init__(self, on_event: OnEvent) -> None:
        self._on_event = on_event
        self._stopped = threading.Event()

    def stop(self) -> None:
        """Nothing is reported from now on, but for what is on its way."""
        self._stopped.set()

    def await_server(self, address: str, is_ours: Callable[[], bool]) -> None:
        """Report Ready, once, when a TensorFlow server answers at `address` and `is_ours`."""
        self._start("readiness", lambda: self._await_server(address, is_ours))

    def watch(self, liveness: Liveness, look: Look) -> None:
        """Report Unhealthy, once, when `look` has failed often enough."""
        self._start("liveness", lambda: self._watch(liveness, look))

    def watch_silence(self, limit: float, silent_for: Callable[[], float]) -> None:
        """Report Unhealthy, once, when the program has been silent for `limit` seconds."""
        self._start("silence", lambda: self._watch_silence(limit, silent_for))

    def _start(self, name: str, run: Callable[[], None]) -> None:
        threading.Thread(target=run, name=name, daemon=True).start()

    def _await_server(self, address: str, is_ours: Callable[[], bool]) -> None:
        started, pause = time.monotonic(), FIRST_PAUSE
        while not (readiness.answers(address, PROBE_TIMEOUT) and is_ours()):
            if self._stopped.wait(pause):
                return
            pause = min(LONGEST_PAUSE, pause * 1.2)
        seconds = time.monotonic() - started
        self._on_event(Ready(f"its TensorFlow server answers at {address} after {seconds:.1f} s"))

    def _watch(self, liveness: Liveness, look: Look) -> None:
        counts_from = time.monotonic() + liveness.grace
        failures = 0
        while not self._stopped.wait(liveness.interval):
            problem = look()
            if not problem:
                failures = 0
                continue
            log.info("liveness: %s", problem)
            if time.monotonic() >= counts_from:
                failures += 1
            if failures >= liveness.failures:
                often = f" ({failures} times in a row)" if failures > 1 else ""
                self._on_event(Unhealthy(f"not alive: {problem}{often}"))
                return

    def _watch_silence(self, limit: float, silent_for: Callable[[], float]) -> None:
        while (silent := silent_for()) < limit:
            if self._stopped.wait(limit - silent):
                return
        self._on_event(Unhealthy(f"stalled: no progress and no output for {silent:.0f} s"))


def http_problem(url: str, timeout: float) -> str:
    """Empty when a GET of `url` gives a status from 200 to 399. No proxy: the program is on this machine."""
    import urllib.error  # costs every task memory, few use it
    import urllib.request

    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=timeout):
            return ""
    except urllib.error.HTTPError as error:
        error.close()
        return f"{url} answers with status {error.code}"
    except (OSError, ValueError) as error:
        return f"{url}: {getattr(error, 'reason', error)}"
