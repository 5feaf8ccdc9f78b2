"""The loop: one thread, one queue. What the agent and the processes say comes in, `lifecycle` decides, we perform.

Driver callbacks, the reaper and signal handlers only put into the queue. `run` must be called in the main thread:
`Supervisor.spawn` says why.
"""

from __future__ import annotations

import logging
import signal
import time
from dataclasses import dataclass, replace
from queue import Empty, SimpleQueue
from typing import Any, Callable, ClassVar, Mapping, Union

from tf_executor import commands, events, wire
from tf_executor.lifecycle import step
from tf_executor.payload import RENEW_SECRETS, Payload, PayloadError
from tf_executor.task import Task
from tf_executor.task_state import State
from tf_executor.temporary import TemporaryFolder

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class AgentEvent:
    """An event of the v1 executor API, as the driver hands it on: {"type": "KILL", "kill": {...}}."""

    event: Mapping[str, Any]


@dataclass(frozen=True)
class AgentGone:
    """The driver has given up: nobody will hear us again."""

    reason: str


@dataclass(frozen=True)
class Signalled:
    """Somebody asked the executor process itself to end."""

    name: str


#: What the threads that watch the task say.
OfTask = Union[events.Exited, events.TreeGone, events.Prepared, events.Ready, events.Unhealthy]
Incoming = Union[AgentEvent, AgentGone, Signalled, events.Disconnected, OfTask]
#: Sends a status update until it is acknowledged; returns its uuid as in an ACKNOWLEDGED event (base64).
SendUpdate = Callable[[Mapping[str, Any]], str]
#: Sends a message to the scheduler, best effort; returns whether it has left. Called in a thread that may wait.
SendMessage = Callable[[bytes], bool]


class Runner:
    """One executor's life: `put` from any thread, `run` once."""

    def __init__(
        self,
        send_update: SendUpdate,
        send_message: SendMessage,
        environ: Mapping[str, str],
        sandbox: str,
        guard: Callable[[str], None],
    ) -> None:
        """`guard`: what `guardian.start_guardian` returned."""
        self._send_update, self._send_message = send_update, send_message
        self._environ = environ
        self._sandbox = sandbox
        self._temporary = TemporaryFolder(guard)
        # Not Queue: its put may not interrupt its own get, which is what a signal handler does.
        self._inbox: SimpleQueue[Incoming] = SimpleQueue()
        self._state = State()
        self._task_id = ""
        self._task: Task | None = None
        self._grace = 0.0
        self._awaits_server = False
        self._last_update = ""
        self._exit_code: int | None = None

    def put(self, item: Incoming) -> None:
        """Hand over what happened. Never blocks."""
        self._inbox.put(item)

    def stop_on_signals(self) -> None:
        """From now on SIGTERM and SIGINT to this process end the task in good order."""

        def handle(number: int, frame: Any) -> None:  # noqa: ARG001
            self.put(Signalled(signal.Signals(number).name))

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handle)

    def run(self) -> int:
        """Return the executor's exit code once the task has ended and the agent knows, or no agent is left to tell."""
        while self._exit_code is None:
            item = self._next()
            if item is None:
                self._step(events.Overdue())
            else:
                self._receive(item)
        return self._exit_code

    def kill(self) -> None:
        """Last resort when `run` has raised: SIGKILL to whatever the task has running."""
        if self._task is not None:
            self._task.kill()

    def _next(self) -> Incoming | None:
        """None: the deadline has passed first."""
        deadline = self._state.deadline
        if deadline is None:
            return self._inbox.get()
        try:
            return self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return None

    def _receive(self, item: Incoming) -> None:
        if isinstance(item, AgentEvent):
            self._hear(item.event)
        elif isinstance(item, AgentGone):
            log.error("the agent is gone: %s", item.reason)
            self._step(events.Aborted(f"lost the agent: {item.reason}", self._grace))
        elif isinstance(item, Signalled):
            self._step(events.Stop(f"the executor got {item.name}", self._grace))
        elif isinstance(item, events.Exited) and self._task is not None:
            self._step(self._task.judged(item))
        else:
            self._step(item)

    # What the agent says.

    def _hear(self, event: Mapping[str, Any]) -> None:
        kind = event["type"]
        handler = self._HANDLERS.get(kind)
        if handler is not None:
            handler(self, event.get(kind.lower(), {}))

    def _subscribed(self, body: Mapping[str, Any]) -> None:
        self._step(events.Connected(wire.knows_killing(body)))

    def _launch(self, body: Mapping[str, Any]) -> None:
        task = wire.task_of(body["task"])
        if task.id == self._task_id:
            log.info("task %s came again: it is running or has run", task.id)
        elif self._task_id:
            refusal = events.Report("TASK_FAILED", f"this executor runs one task and has {self._task_id} already")
            self._send_update(wire.status(task.id, refusal))
        else:
            self._accept(task)

    def _accept(self, task: wire.Task) -> None:
        self._task_id = task.id
        try:
            payload = Payload.decode(task.data)
        except PayloadError as error:
            self._step(events.Refused(str(error)))
            return
        self._awaits_server = bool(payload.readiness)
        self._grace = payload.kill_grace if task.kill_grace is None else task.kill_grace
        self._task = Task(payload, task.id, self._environ, self._sandbox, self._temporary, self.put, self._send_message)
        stages = commands.stages(payload)
        self._step(events.Launch(stages, task.max_completion_time, payload.hook_timeout, self._grace))

    def _kill(self, body: Mapping[str, Any]) -> None:
        if body["task_id"]["value"] != self._task_id:
            log.warning("asked to kill a task that is not here: %s", body["task_id"]["value"])
            return
        grace = wire.kill_grace(body)
        self._step(events.Stop("killed on request", self._grace if grace is None else grace))

    def _shutdown(self, body: Mapping[str, Any]) -> None:  # noqa: ARG002
        self._step(events.Stop("the executor was shut down", wire.shutdown_grace(self._environ)))

    def _acknowledged(self, body: Mapping[str, Any]) -> None:
        if body["uuid"] == self._last_update:
            self._step(events.Acknowledged())

    def _message(self, body: Mapping[str, Any]) -> None:
        if self._task is not None and wire.message(body) == RENEW_SECRETS:
            self._task.secrets.renew()

    def _error(self, body: Mapping[str, Any]) -> None:
        log.error("the agent reports: %s", body.get("message", ""))

    _HANDLERS: ClassVar[Mapping[str, Callable[[Runner, Mapping[str, Any]], None]]] = {
        "SUBSCRIBED": _subscribed,
        "LAUNCH": _launch,
        "KILL": _kill,
        "SHUTDOWN": _shutdown,
        "ACKNOWLEDGED": _acknowledged,
        "MESSAGE": _message,
        "ERROR": _error,
    }

    # What we do.

    def _step(self, event: events.Event) -> None:
        before = self._state.phase
        self._state, actions = step(self._state, event, time.monotonic())
        log.info("%s: %s -> %s", event, before.value, self._state.phase.value)
        for action in actions:
            self._perform(action)

    def _perform(self, action: events.Action) -> None:
        if isinstance(action, events.Report):
            self._report(action)
        elif isinstance(action, events.Leave):
            self._exit_code = action.exit_code
        else:
            self._act(action)

    def _act(self, action: events.Spawn | events.Terminate | events.Kill) -> None:
        assert self._task is not None
        if isinstance(action, events.Spawn):
            self._step(self._task.spawn(action.stage, self._state.ending))
        elif isinstance(action, events.Terminate):
            self._task.terminate()
        else:
            self._task.kill()

    def _report(self, report: events.Report) -> None:
        words = self._task.settle() if report.is_final and self._task is not None else ""
        # Who is ended before it has joined the others is most likely ended because of that.
        late = self._awaits_server and self._state.healthy is None
        if report.state == "TASK_FAILED" or (report.state == "TASK_KILLED" and late):
            report = replace(report, message=report.message + words)
        log.info("%s %s", report.state, report.message)
        uuid = self._send_update(wire.status(self._task_id, report))
        self._last_update = uuid if report.is_final else ""
