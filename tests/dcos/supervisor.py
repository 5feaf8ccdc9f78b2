"""Keep an app's task running: health checks, restarts with Marathon's back-off.

    put(app) ──▶ inbox ──▶ one thread:  the task of an older version is killed
    exit     ──▶            │           a task that ended is started again after the delay
    stop     ──▶            │           a health check that is due is done; a fatal one kills the task

The delay grows with every end of a task, and is forgotten when a task has lived, healthy, for longer than it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from . import health
from .app import App
from .health import Health
from .task import HOST, Place, Task


class Signal(Enum):
    """Messages other than an app."""

    KILL = "kill"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of a task that was not requested. `at`: Unix time."""

    place: Place
    #: Of its app.
    version: str
    message: str
    at: float


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of an app's task for display. Times are Unix times."""

    app: App
    task: Task | None = None
    health: tuple[Health, ...] = ()
    #: When the next task starts, if there is none.
    starts_at: float | None = None
    #: Exit code of the last task that ended by itself.
    last_exit: int | None = None
    #: And why.
    last_failure: Failure | None = None

    @property
    def healthy(self) -> bool | None:
        """Whether the task is healthy (None: unknown); without checks, if it runs."""
        if self.task is None or self.task.process is None:
            return None
        known = {check.alive for check in self.health}
        return False if False in known else None if None in known else True


class Supervisor:
    """`place` returns a new place for each task. `snapshot` is thread-safe."""

    def __init__(self, app: App, place: Callable[[App], Place]) -> None:
        self._newest = app
        self._shown = Snapshot(app, starts_at=0.0)
        self._place = place
        self._delay = 0.0
        self._inbox: queue.SimpleQueue[App | tuple[Task, int] | Signal] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=f"app {app.id}", daemon=True)
        self._thread.start()

    @property
    def snapshot(self) -> Snapshot:
        """The state that Marathon shows: the new version, with the old version's task."""
        return replace(self._shown, app=self._newest)

    def put(self, app: App) -> None:
        """Replace the app: stop the old task, then start the new one."""
        self._newest = app
        self._inbox.put(app)

    def kill(self) -> None:
        """Kill the task; another one starts."""
        self._inbox.put(Signal.KILL)

    def stop(self) -> None:
        """Stop the task and wait for its end. Idempotent."""
        self._inbox.put(Signal.STOP)
        self._thread.join()

    def _run(self) -> None:
        while (message := self._next()) is not Signal.STOP:
            if isinstance(message, App):
                self._update(message)
            elif isinstance(message, tuple):
                self._ended(*message)
            elif message is Signal.KILL:
                self._update(self._shown.app)
            else:
                self._act(time.time())
        self._kill()

    def _next(self) -> App | tuple[Task, int] | Signal | None:
        """The next message, or None when a deadline comes first."""
        due = [check.due for check in self._shown.health]
        if self._shown.task is None and self._shown.starts_at is not None:
            due.append(self._shown.starts_at)
        try:
            return self._inbox.get(timeout=max(0.0, min(due) - time.time()) if due else None)
        except queue.Empty:
            return None

    def _update(self, app: App) -> None:
        self._kill()
        self._delay = 0.0
        self._shown = Snapshot(app, starts_at=time.time() if app.definition["instances"] else None)

    def _kill(self) -> None:
        task = self._shown.task
        if task is not None:
            task.kill()
            self._show(task=None, health=())

    def _ended(self, task: Task, code: int) -> None:
        if task is not self._shown.task:  # of an older version, or killed by ourselves
            return
        now, backoff = time.time(), self._shown.app.backoff
        lived = now - task.started_at > self._delay and self._shown.healthy is not False
        self._delay = backoff.after(0.0 if lived else self._delay)
        failure = Failure(task.place, task.app.version, task.last_words(code), now)
        self._show(task=None, health=(), starts_at=now + self._delay, last_exit=code, last_failure=failure)

    def _act(self, now: float) -> None:
        shown = self._shown
        if shown.task is None:
            self._start(now)
            return
        checks = tuple(self._checked(check, shown.task, now) for check in shown.health)
        self._show(health=checks)
        if any(check.fatal for check in checks):
            self._kill()
            self._delay = shown.app.backoff.after(self._delay)
            self._show(starts_at=time.time() + self._delay)

    def _checked(self, check: Health, task: Task, now: float) -> Health:
        if check.due > now:
            return check
        success = task.process is not None and health.probe(check.check, HOST, task.place.ports)
        return check.after(success, time.time())

    def _start(self, now: float) -> None:
        app = self._shown.app
        started: queue.SimpleQueue[Task] = queue.SimpleQueue()
        task = Task(app, self._place(app), now, lambda code: self._inbox.put((started.get(), code)))
        checks = tuple(Health.new(check, now) for check in app.health_checks)
        self._show(task=task, health=checks, starts_at=None)
        started.put(task)

    def _show(self, **changed: Any) -> None:
        self._shown = replace(self._shown, **changed)
