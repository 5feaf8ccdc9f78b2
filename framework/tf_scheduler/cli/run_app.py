"""The scheduler of one local run: its Marathon app, kept running as Marathon does it, and what it says of itself."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from dcos_local.marathon import Marathon
from dcos_local.task import HOST
from dcos_local.uninstall import uninstalling
from mesos_local import MesosLocalError
from mesos_local.guard import start_guard
from mesos_local.operator_api import teardown
from mesos_local.process import ProcessId
from tf_scheduler.api.glance import Overview, from_json

from .operate.here import noted
from .scheduler_log import SchedulerLog

_PATH = "/v1/tf/overview"
_TIMEOUT = 5.0  # seconds for one answer
_ENDED = b'"ended":true'  # of a line of the recording (tf_scheduler.history.lines)


class RunApp:
    """The app, rendered of our package, runs from its construction on. Look at it again and again: that tells its log.

    `note` is told where its API is."""

    def __init__(
        self,
        marathon: Marathon,
        definition: Mapping[str, Any],
        master: str,
        log: SchedulerLog,
        note: Callable[[str], None] = lambda _url: None,
    ) -> None:
        self._marathon, self._master, self._log, self._note = marathon, master, log, note
        self._recording, self._read = Path(definition["env"]["RECORDING_FILE"]), 0
        #: Whether any task has ended, as far as was looked.
        self._ended = False
        self._app, _ = marathon.create(definition, checked=True)
        self.seen: Overview | None = None

    def look(self, *, ask: bool = True) -> Overview | None:
        """What it says now, or said last; None before its first answer. Without `ask` only when a task has ended."""
        self._log.read(self._sandbox())
        if self._recording.exists() and self.address:  # it listens, for it has launched something
            self._note(f"http://{self.address}")
        if ask or self._has_ended():
            self.seen = self._ask() or self.seen
        return self.seen

    @property
    def last_exit(self) -> int | None:
        """Exit code of the last scheduler that has ended by itself; negative: by that signal. None: none has."""
        return self._marathon.snapshot(self._app.id).last_exit

    @property
    def trouble(self) -> str:
        """Why its scheduler ended with an error, which would be the same the next time; empty when it did not.

        One that a signal ended is started again, as on DC/OS.
        """
        code = self.last_exit
        return f"the scheduler ended with exit code {code}: {self._log.last_line}" if code and code > 0 else ""

    @property
    def process(self) -> ProcessId | None:
        """Of the scheduler that runs now, the head of its session."""
        task = self._marathon.snapshot(self._app.id).task
        return None if task is None else task.process

    @property
    def address(self) -> str:
        """Where its API is, or will be: HOST:PORT; empty while it is not started."""
        task = self._marathon.snapshot(self._app.id).task
        return "" if task is None else f"{HOST}:{task.place.ports[0]}"

    def stop(self) -> None:
        """Take the service down as DC/OS does: its scheduler, started anew, ends the tasks. Returns at once."""
        self._app, _ = self._marathon.replace(self._app.id, uninstalling(self._app))

    def leave(self) -> None:
        """End the scheduler, and have Mesos end the tasks; nobody waits for them."""
        self.seen = self.seen or self._ask()
        self._marathon.delete(self._app.id)
        if self.seen is not None and self.seen.framework_id and not self.seen.over:
            try:
                teardown(self._master, self.seen.framework_id)
            except MesosLocalError:
                return  # then there is nobody who runs tasks

    def _sandbox(self) -> Path | None:
        task = self._marathon.snapshot(self._app.id).task
        return None if task is None else task.place.sandbox

    def _has_ended(self) -> bool:
        """Told by what its scheduler records: to answer, it would have to load its web server."""
        if not self._ended:
            with suppress(FileNotFoundError), self._recording.open("rb") as file:
                file.seek(self._read)
                new = file.read()
                self._read += new.rfind(b"\n") + 1
                self._ended = _ENDED in new
        return self._ended

    def _ask(self) -> Overview | None:
        """None when it does not answer: it starts, or has ended."""
        task = self._marathon.snapshot(self._app.id).task
        if task is None:
            return None
        connection = http.client.HTTPConnection(HOST, task.place.ports[0], timeout=_TIMEOUT)
        try:
            connection.request("GET", _PATH)
            answer = connection.getresponse()
            self._note(f"http://{HOST}:{task.place.ports[0]}")
            return from_json(json.loads(answer.read())) if answer.status == http.client.OK else None
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()


@contextmanager
def run_app(
    definition: Mapping[str, Any], folder: Path, master: str, log: SchedulerLog, given: Mapping[str, str]
) -> Iterator[RunApp]:
    """Inside the app runs; afterwards nothing of it does, however we end: what is ours has `folder` for its mark.

    `given`: variables that its scheduler gets besides.
    """
    (folder / "logs").mkdir(parents=True)
    guard = start_guard(folder, temporary=False)
    try:
        with noted(definition["labels"]["DCOS_SERVICE_NAME"]) as note, Marathon(folder, folder, given) as marathon:
            app = RunApp(marathon, definition, master, log, note)
            try:
                yield app
            except BaseException:
                app.leave()
                raise
        log.read(None)
    finally:
        guard.end(0)
