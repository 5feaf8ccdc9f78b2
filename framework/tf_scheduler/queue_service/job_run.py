"""One admitted job: its complete scheduler, in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

from starlette.types import ASGIApp

from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.api.views.overview import TaskRow, overview
from tf_scheduler.api.views.reasons import reasons
from tf_scheduler.core.framework import reset_framework
from tf_scheduler.logging_setup import JOB_THREAD
from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event, Tick
from tf_scheduler.model.spec import TaskSpec
from tf_scheduler.model.state import Result, SchedulerState
from tf_scheduler.queue.job import JobId
from tf_scheduler.service.build import compose
from tf_scheduler.service.options import ServiceSettings
from tf_scheduler.store.interface import Leadership, StateStore, Write
from tf_scheduler.store.records import writes


class JobRun:
    """A job's scheduler. `wake` is called from its thread when the queue should look.

    Raises what `compose` raises.
    """

    def __init__(
        self,
        name: JobId,
        settings: ServiceSettings,
        store: StateStore,
        leadership: Leadership,
        wake: Callable[[], None],
    ) -> None:
        self.app: ASGIApp | None = None
        self.process = compose(settings, store, leadership, self._serve)
        self._name, self._wake = name, wake
        self._seen = (False, False)
        #: What its scheduler raised.
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"{JOB_THREAD}{name}", daemon=True)
        self.process.runner.attach(self._observe)

    def start(self) -> None:
        """Start its scheduler."""
        self._thread.start()

    def show(self) -> None:
        """Handle one event instead, so that the API of an ended job shows its end."""
        self.process.runner.step(self.process.connection.driver, Tick())

    def stop(self) -> None:
        """Stop its scheduler, and wait for that; its tasks keep running."""
        self.process.stop()
        self._thread.join()

    @property
    def has_ended(self) -> bool:
        """Whether its thread has ended, with the job or by an error."""
        return not self._thread.is_alive()

    @property
    def state(self) -> SchedulerState:
        return self.process.runner.state

    @property
    def result(self) -> Result | None:
        return self.state.stored.result

    def reset(self) -> list[Write]:
        """Return the writes after which the ended job starts again from its checkpoint."""
        return [write for change in reset_framework(self.state).changes for write in writes(change, self.state)]

    @property
    def is_launched(self) -> bool:
        """Whether the tasks that need each other have been launched."""
        return is_launched(self.state)

    @property
    def pending(self) -> tuple[TaskSpec, ...]:
        """The tasks for which it wants resources, now or after a pause."""
        state = self.state
        launches = {record.id: record.name for record in state.stored.tasks.values()}
        again = {launches.get(item.launch) for item in state.stored.recoveries.values()}
        return tuple(task for task in state.spec.tasks() if task.name in state.session.requested_tasks | again)

    @property
    def is_settled(self) -> bool:
        """Whether Mesos has answered about its launches since the last subscription."""
        session = self.state.session
        return session.connected and session.reconciliation.unanswered <= session.reconciliation.answered

    @property
    def trainer(self) -> TaskRow | None:
        """The task whose progress counts."""
        return overview(self._snapshot()).trainer

    @property
    def reasons(self) -> list[str]:
        """Why its tasks wait, for people."""
        return [reason.text for reason in reasons(self._snapshot())]

    def _snapshot(self) -> Snapshot:
        return self.process.services.backend.snapshot()

    def _observe(self, event: Event, decision: Decision) -> None:
        del event
        seen = is_launched(decision.state), decision.state.process.finished
        if seen[1]:
            self.process.stop()
        if seen != self._seen:
            self._seen = seen
            self._wake()

    def _run(self) -> None:
        try:
            self.process.run()
        except BaseException as error:  # the queue decides what it means
            self.error = error
        self._wake()

    def _serve(self, app: ASGIApp) -> AbstractContextManager[object]:
        """Let the API of the queue find the job's API."""
        self.app = app
        return nullcontext()


def is_launched(state: SchedulerState) -> bool:
    """Return whether the tasks that need each other have been launched.

    An elastic job may start with fewer tasks.
    """
    if not state.stored.tasks:
        return False
    waits = state.session.requested_tasks - state.stored.tasks.keys()
    return not waits or not state.spec.strategy.traits.has_peers or state.stored.resized.count is not None
