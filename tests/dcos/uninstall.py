"""Uninstall a service as DC/OS does (dcos/cosmos, ServiceUninstaller).

    app gets SDK_UNINSTALL=true ──▶ its scheduler ends the tasks ──▶ /v1/plans/deploy is 200 ──▶ app is deleted

An app without the label DCOS_COMMONS_UNINSTALL is deleted at once.
"""

from __future__ import annotations

import http.client
import json
import logging
import threading
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from .app import App, Json
from .connecting import HTTP, connection_to, scheme_of
from .errors import MarathonError
from .marathon import Marathon
from .supervisor import Snapshot
from .task import HOST

log = logging.getLogger(__name__)

_LABEL, _VARIABLE = "DCOS_COMMONS_UNINSTALL", "SDK_UNINSTALL"
_AGAIN = 1.0  # seconds between two questions; Cosmos waits 10
#: Answers in a row that nothing is left: so long the scheduler can be asked for its last words, as with Cosmos' 10 s.
_ENOUGH = 3
_TIMEOUT = 10.0


class Uninstaller:
    """Watches uninstalls, each in a thread; `stop` stops watching, `resume` continues.

    What their schedulers say at last, of what is left behind, is kept in `log`: a line for each.
    """

    def __init__(self, marathon: Marathon, log: Path) -> None:
        self._marathon, self._log = marathon, log
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, app: App) -> None:
        """Start an uninstall in the background; a running one continues."""
        if _LABEL not in app.definition["labels"]:
            self._marathon.delete(app.id)
            return
        if not is_uninstalling(app):
            self._marathon.replace(app.id, uninstalling(app))
            self._watch(app.id)

    def resume(self) -> None:
        """Continue the uninstalls of the previous process."""
        for name, shown in self._marathon.snapshots().items():
            if is_uninstalling(shown.app):
                self._watch(name)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _watch(self, app_id: str) -> None:
        thread = threading.Thread(target=self._wait, args=(app_id,), name=f"uninstall {app_id}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _wait(self, app_id: str) -> None:
        complete = 0
        while complete < _ENOUGH and not self._stopped.wait(_AGAIN):
            try:
                shown = self._marathon.snapshot(app_id)
            except MarathonError:
                return
            complete = complete + 1 if plan_is_complete(shown) else 0
        if complete == _ENOUGH:
            self._keep(shown)
            with suppress(MarathonError):
                self._marathon.delete(app_id)

    def _keep(self, shown: Snapshot) -> None:
        line = f"{datetime.now().astimezone().isoformat(timespec='seconds')} {shown.app.id}: {last_words(shown)}\n"
        try:
            with self._log.open("a") as file:
                file.write(line)
        except OSError as error:
            log.warning("cannot be kept: %s (%s)", line.strip(), error)


def uninstalling(app: App) -> dict[str, Json]:
    """The app with the variables and labels of an uninstall."""
    return {**app.definition, "env": {**app.definition["env"], _VARIABLE: "true"}}


def is_uninstalling(app: App) -> bool:
    """Whether the app is being uninstalled."""
    return bool(app.definition["env"].get(_VARIABLE) == "true")


def plan_is_complete(shown: Snapshot) -> bool:
    """Whether the uninstall plan is complete."""
    # The previous scheduler may still be running. Its health does not matter, because it is stopped.
    return shown.task is not None and is_uninstalling(shown.task.app) and _plan(shown)[0] == http.client.OK


def last_words(shown: Snapshot) -> str:
    """The last message of the plan, if any."""
    try:
        phases = json.loads(_plan(shown)[1])["phases"]
        found = [step.get("message") for phase in phases for step in phase["steps"]]
    except (ValueError, LookupError, TypeError, AttributeError):
        found = []
    return found[-1] if found and found[-1] else "the uninstall plan is complete"


def _plan(shown: Snapshot) -> tuple[int | None, bytes]:
    """Status and body of the plan, or None without an answer."""
    if shown.task is None or not shown.task.place.ports:
        return None, b""
    version = shown.app.definition["labels"].get("DCOS_COMMONS_API_VERSION", "v1")
    address, path = f"{HOST}:{shown.task.place.ports[0]}", f"/{version}/plans/deploy"
    found = _answer(scheme_of(shown.app), address, path)
    # Whose certificate is gone cannot encrypt its last words.
    return found if found[0] is not None or scheme_of(shown.app) == HTTP else _answer(HTTP, address, path)


def _answer(scheme: str, address: str, path: str) -> tuple[int | None, bytes]:
    connection = connection_to(scheme, address, _TIMEOUT)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        return None, b""
    finally:
        connection.close()
