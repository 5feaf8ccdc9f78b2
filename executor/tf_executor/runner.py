"""Run the executor's loop: agent and process events in, `lifecycle` actions out.

One thread and one queue: driver callbacks, the reaper and signal handlers only put events into the queue. Call `run`
in the main thread (see `Supervisor.spawn`).
"""

from __future__ import annotations

import logging
import signal
import time
import uuid
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, Callable, ClassVar, Mapping, Union

from mesos_client.http import encode_data
from mesos_client.results import DriverAborted, DriverDisconnected, DriverState
from tf_executor import wire
from tf_executor.contract.payload import EXEC, MEMBERS, RENEW_SECRETS, Payload, PayloadError
from tf_executor.contract.reports import NO_END
from tf_executor.launch import environment
from tf_executor.lifecycle import events
from tf_executor.lifecycle.events import LifecycleState
from tf_executor.lifecycle.steps import step
from tf_executor.process.last_output import HINT, ProgramError
from tf_executor.process.temporary import TemporaryFolder
from tf_executor.task import TaskProcess

log = logging.getLogger(__name__)


#: An event of the v1 executor API, a state of the driver, a signal to the executor, or an event of a watching thread.
Incoming = Union[Mapping[str, Any], DriverState, signal.Signals, events.Event]
#: Send a status update until it is acknowledged; return its uuid.
SendUpdate = Callable[[Mapping[str, Any]], uuid.UUID]
#: Send a best-effort message to the scheduler; return whether it was sent. May block the calling thread.
SendMessage = Callable[[bytes], bool]


class TaskRunner:
    """The executor of one task. `put` is thread-safe; call `run` once."""

    def __init__(
        self,
        send_update: SendUpdate,
        send_message: SendMessage,
        environ: Mapping[str, str],
        sandbox: str,
        watch: Callable[[str], None],
    ) -> None:
        """`watch`: the result of `start_watchdog`."""
        self._send_update, self._send_message = send_update, send_message
        self._environ = environ
        self._sandbox = sandbox
        self._watch, self._temporary = watch, TemporaryFolder(watch)
        # Signal handlers call `put`; Queue.put would deadlock when it interrupts Queue.get.
        self._inbox: SimpleQueue[Incoming] = SimpleQueue()
        self._state = LifecycleState()
        self._task_id = ""
        self._task: TaskProcess | None = None
        self._grace = 0.0
        self._awaits_server = False
        self._last_update: uuid.UUID | None = None
        self._exit_code: int | None = None

    def put(self, item: Incoming) -> None:
        """Queue an event. Never blocks."""
        self._inbox.put(item)

    def stop_on_signals(self) -> None:
        """Stop the task gracefully on SIGTERM and SIGINT."""

        def handle(number: int, frame: Any) -> None:  # noqa: ARG001
            self.put(signal.Signals(number))

        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, handle)

    def run(self) -> int:
        """Run until the agent acknowledges the end or is lost; return the exit code."""
        while self._exit_code is None:
            self._receive(self._next())
        return self._exit_code

    def kill(self) -> None:
        """Send SIGKILL to all processes of the task, after `run` has raised."""
        if self._task is not None:
            self._task.kill()

    def _next(self) -> Incoming:
        """Return the next event, or Overdue if the deadline passes first."""
        deadline = self._state.deadline
        if deadline is None:
            return self._inbox.get()
        try:
            return self._inbox.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            return events.Overdue("" if self._task is None else self._task.written_file())

    def _receive(self, item: Incoming) -> None:
        if isinstance(item, DriverAborted):
            log.error("agent lost: %s", item.reason)
            self._step(events.AgentLost(f"the executor lost its agent: {item.reason}", self._grace))
        elif isinstance(item, DriverDisconnected):
            self._step(events.AgentDisconnected())
        elif isinstance(item, signal.Signals):
            self._step(events.TaskStopRequested(f"the executor received {item.name}", self._grace))
        elif isinstance(item, events.Exited) and self._task is not None:
            self._step(self._task.with_evidence(item))
        elif isinstance(item, events.Event):
            self._step(item)
        else:
            self._on_agent_event(item)

    # Events from the agent.

    def _on_agent_event(self, event: Mapping[str, Any]) -> None:
        kind = str(event.get("type"))
        handler, body = self._HANDLERS.get(kind), event.get(kind.lower(), {})
        if handler is not None and not wire.is_valid(kind, body):
            log.error("invalid %s event of the agent ignored", kind)
        elif handler is not None:
            handler(self, body)

    def _subscribed(self, body: Mapping[str, Any]) -> None:
        self._step(events.AgentConnected(wire.supports_killing(body)))

    def _launch(self, body: Mapping[str, Any]) -> None:
        task = wire.task_launch(body["task"])
        if task.id == self._task_id:
            log.info("duplicate launch of %s ignored", task.id)
        elif self._task_id:
            refusal = events.SendReport("TASK_FAILED", f"executor already used by task {self._task_id}")
            self._send_update(wire.status(task.id, refusal))
        else:
            self._accept(task)

    def _accept(self, task: wire.TaskLaunch) -> None:
        self._task_id = task.id
        try:
            payload = Payload.decode(task.data)
        except PayloadError as error:
            self._step(events.LaunchRefused(str(error)))
            return
        self._awaits_server = bool(payload.readiness)
        self._grace = payload.settings.kill_grace if task.kill_grace is None else task.kill_grace
        self._task = TaskProcess(
            payload, task.id, self._environ, self._sandbox, self._temporary, self.put, self._send_message, self._watch
        )
        stages = environment.stages_of(payload)
        self._step(events.LaunchRequested(stages, task.max_completion_time, payload.settings.hook_timeout, self._grace))

    def _kill(self, body: Mapping[str, Any]) -> None:
        if body["task_id"]["value"] != self._task_id:
            log.warning("kill request for unknown task %s ignored", body["task_id"]["value"])
            return
        grace = wire.kill_grace(body)
        self._step(events.TaskStopRequested("stopped on request", self._grace if grace is None else grace))

    def _shutdown(self, body: Mapping[str, Any]) -> None:  # noqa: ARG002
        self._step(events.TaskStopRequested("the executor was shut down", wire.shutdown_grace(self._environ)))

    def _acknowledged(self, body: Mapping[str, Any]) -> None:
        if self._last_update is not None and body["uuid"] == encode_data(self._last_update.bytes):
            self._step(events.Acknowledged())

    def _message(self, body: Mapping[str, Any]) -> None:
        data = wire.message(body)
        if self._task is not None and data == RENEW_SECRETS:
            self._task.secrets.reload()
        elif self._task is not None and data.startswith(EXEC):
            self._task.commands.receive(data)
        elif self._task is not None and data.startswith(MEMBERS):
            self._task.change_members(data)

    def _error(self, body: Mapping[str, Any]) -> None:
        log.error("error from the agent: %s", body.get("message", ""))

    _HANDLERS: ClassVar[Mapping[str, Callable[[TaskRunner, Mapping[str, Any]], None]]] = {
        "SUBSCRIBED": _subscribed,
        "LAUNCH": _launch,
        "KILL": _kill,
        "SHUTDOWN": _shutdown,
        "ACKNOWLEDGED": _acknowledged,
        "MESSAGE": _message,
        "ERROR": _error,
    }

    # Actions.

    def _step(self, event: events.Event) -> None:
        before = self._state.phase
        self._state, actions = step(self._state, event, time.monotonic())
        log.info("%s: %s -> %s", event, before.value, self._state.phase.value)
        for action in actions:
            self._perform(action)

    def _perform(self, action: events.Action) -> None:
        if isinstance(action, events.SendReport):
            self._report(action)
        elif isinstance(action, events.Leave):
            self._exit_code = action.exit_code
        elif isinstance(action, events.Spawn):
            assert self._task is not None
            self._step(self._task.spawn(action.stage, self._state.ending))
        elif self._task is not None:
            (self._task.terminate if isinstance(action, events.Terminate) else self._task.kill)()

    def _report(self, report: events.SendReport) -> None:
        if report.is_final and self._task is not None:
            report = self._with_error(report, *self._task.settle(report.ending or NO_END))
        log.info("%s %s", report.state, report.message)
        identity = self._send_update(wire.status(self._task_id, report))
        self._last_update = identity if report.is_final else None

    def _with_error(self, report: events.SendReport, output: str, error: ProgramError) -> events.SendReport:
        """Add the program's error, or its last output, to the last update."""
        if report.ending is not None and report.ending.cannot_start and report.ending.exit_code is not None:
            return report
        if "(SIGKILL)" in report.message:
            output = ""  # no program writes why it is killed; the shell and TensorFlow write much
        if report.state == "TASK_FAILED" and report.ending is not None and report.ending.exit_code:
            ending = replace(
                report.ending, error=error.text, cannot_start=error.cannot_start, port_taken=error.port_taken
            )
            if error.signal is not None:
                ending = replace(ending, exit_code=None, signal=error.signal)
            # A stopped program may have any exception: why it was stopped says more.
            error = error if report.message.startswith("exit code") else replace(error, is_cause=False)
            return replace(report, message=error.message(report.message, output), ending=ending)
        # A task that is killed before its server is ready was probably killed because it did not become ready.
        unready = self._awaits_server and self._state.healthy is None
        if report.state == "TASK_FAILED" or (report.state == "TASK_KILLED" and unready):
            hint = f"{HINT}{error.hint}" if error.hint and report.state == "TASK_FAILED" else ""
            return replace(report, message=report.message + output + hint)
        return report
