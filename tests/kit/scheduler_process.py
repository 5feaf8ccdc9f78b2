"""`scheduler run` in a thread of the test, for tests on a real Mesos."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from mesos_local.host import free_ports
from tf_scheduler.interfaces import Observer
from tf_scheduler.model.effects import Decision
from tf_scheduler.model.events import Event
from tf_scheduler.model.plan import Reply
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.runner import Checkpoint, no_checkpoint
from tf_scheduler.service.build import SchedulerProcess, build_scheduler
from tf_scheduler.service.options import ServiceSettings
from tf_scheduler.service.secrets import with_api_address

from .waiting import PATIENCE

HOST = "127.0.0.1"


def build_process(
    spec: ServiceSpec, master: str, state: str | Path, checkpoint: Checkpoint = no_checkpoint
) -> SchedulerProcess:
    """Build a service's process with its API on a free port; it stops when done."""
    (port,) = free_ports(1)
    spec = with_api_address(spec, {"HOST": HOST}, port)
    settings = ServiceSettings(spec, master, state, HOST, port, environment=os.environ)
    process = build_scheduler(settings, checkpoint=checkpoint)

    def stop_at_end(event: Event, decision: Decision) -> None:
        if decision.state.process.finished:
            process.stop()

    process.runner.attach(stop_at_end)
    return process


class RunningScheduler:
    """Context manager that runs the process in a thread; an error kills its tasks.

    `on_end` is called from that thread when the process has stopped; `error` then has what it raised.
    """

    def __init__(
        self,
        spec: ServiceSpec,
        master: str,
        state: str | Path,
        *,
        observers: Iterable[Observer] = (),
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self.process = build_process(spec, master, state)
        self.process.runner.attach(*observers)
        self._on_end = on_end
        self._thread = threading.Thread(target=self._run, name="scheduler")
        self.error: BaseException | None = None

    @property
    def state(self) -> SchedulerState:
        return self.process.runner.state

    @property
    def ended(self) -> bool:
        return not self._thread.is_alive()

    def __enter__(self) -> RunningScheduler:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.process.stop(teardown=True)
        self._thread.join()

    def _run(self) -> None:
        try:
            self.process.run()
        except BaseException as error:
            self.error = error
        finally:
            self._on_end()


class WatchedScheduler(RunningScheduler):
    """A scheduler with waits for state and messages; `stack` stops it."""

    def __init__(self, stack: ExitStack, spec: ServiceSpec, master: str, state: Path) -> None:
        self._changed = threading.Condition()
        self.messages: list[str] = []
        self.answers: list[Reply] = []
        super().__init__(spec, master, state, observers=[self._see], on_end=self._wake)
        stack.enter_context(self)
        stack.callback(lambda: None if self.ended else self.stop())

    def _see(self, event: Event, decision: Decision) -> None:
        self.messages += [outcome.message for outcome in decision.outcomes]
        self.answers += [decision.answer.reply] if decision.answer else []
        self._wake()

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def until(self, condition: Callable[[SchedulerState], object]) -> SchedulerState:
        """Wait until the condition is true for the state, and return the state."""
        with self._changed:
            assert self._changed.wait_for(lambda: condition(self.state), PATIENCE), self._explain()
        return self.state

    def until_message(self, words: str) -> str:
        """Wait for a message with these words, and return it."""
        self.until(lambda _: any(words in message for message in self.messages))
        return next(message for message in self.messages if words in message)

    def stop(self) -> None:
        self.process.runner.request_stop("the test is over")
        self.until(lambda state: state.process.finished)

    def _explain(self) -> str:
        pending = {name: list(map(str, reasons)) for name, reasons in self.state.session.round.reasons.items()}
        tasks = list(self.state.stored.tasks)
        return "\n".join([*self.messages, f"{self.state.stored.result} {tasks} {json.dumps(pending, indent=1)}"])
