"""Takes a service down as DC/OS does (dcos/cosmos, ServiceUninstaller).

    app gets SDK_UNINSTALL=true ──▶ its scheduler ends the tasks ──▶ /v1/plans/deploy is 200 ──▶ app is deleted

An app without the label DCOS_COMMONS_UNINSTALL is deleted at once.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from contextlib import suppress

from .app import App, Json
from .errors import MarathonError
from .marathon import Marathon
from .supervisor import Snapshot
from .task import HOST

_LABEL, _VARIABLE = "DCOS_COMMONS_UNINSTALL", "SDK_UNINSTALL"
_AGAIN = 1.0  # seconds between two questions; Cosmos waits 10
#: Answers in a row that nothing is left: so long the scheduler can be asked for its last words, as with Cosmos' 10 s.
_ENOUGH = 3
_TIMEOUT = 10.0


class Uninstaller:
    """Watches uninstallations, each in a thread of its own. `stop` ends the watching; `resume` takes it up again."""

    def __init__(self, marathon: Marathon) -> None:
        self._marathon = marathon
        self._stopped = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, app: App) -> None:
        """Returns at once. An uninstallation that is under way goes on."""
        if _LABEL not in app.definition["labels"]:
            self._marathon.delete(app.id)
            return
        if not is_uninstalling(app):
            self._marathon.replace(app.id, uninstalling(app))
            self._watch(app.id)

    def resume(self) -> None:
        """Go on with what was under way when the process before us ended."""
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
            settled = app_id not in self._marathon.deployments()
            complete = complete + 1 if settled and plan_is_complete(shown) else 0
        if complete == _ENOUGH:
            with suppress(MarathonError):
                self._marathon.delete(app_id)


def uninstalling(app: App) -> dict[str, Json]:
    """The app whose scheduler takes its service down."""
    return {**app.definition, "env": {**app.definition["env"], _VARIABLE: "true"}}


def is_uninstalling(app: App) -> bool:
    """Whether its scheduler takes its service down."""
    return bool(app.definition["env"].get(_VARIABLE) == "true")


def plan_is_complete(shown: Snapshot, ask: Callable[[int, str], int | None] | None = None) -> bool:
    """Whether the scheduler of SDK_UNINSTALL says that nothing is left."""
    version = shown.app.definition["labels"].get("DCOS_COMMONS_API_VERSION", "v1")
    if shown.task is None or not shown.task.place.ports or not is_uninstalling(shown.app):
        return False
    return (ask or _status)(shown.task.place.ports[0], f"/{version}/plans/deploy") == http.client.OK


def _status(port: int, path: str) -> int | None:
    """None: it does not answer."""
    connection = http.client.HTTPConnection(HOST, port, timeout=_TIMEOUT)
    try:
        connection.request("GET", path)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
