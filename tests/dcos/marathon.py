"""Marathon with one instance of each app on this machine; apps survive a restart.

FOLDER/apps.json               every app, so that the next start goes on with them
FOLDER/tasks/<task id>/        sandboxes
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from mesos_local.host import PROC, find_orphans, free_ports

from .app import App, Json, problems_of
from .errors import MarathonError
from .folder import make_passage
from .supervisor import Snapshot, Supervisor
from .task import Place

_GRACE = 3.0  # seconds between SIGTERM and SIGKILL for tasks of a Marathon before us


class Marathon:
    """Context manager that runs FOLDER's apps. `mark`, `given`: see task.Place.

    Safe to use from several threads.
    """

    def __init__(self, folder: Path, mark: Path, given: Mapping[str, str] | None = None) -> None:
        self._folder, self._mark, self._given = folder, mark, given or {}
        self._lock = threading.RLock()
        self._supervisors: dict[str, Supervisor] = {}
        #: App id -> id and version of its last deployment.
        self._deployments: dict[str, tuple[str, str]] = {}
        #: App id -> its versions since this process has started, the newest first.
        self._versions: dict[str, list[App]] = {}

    def __enter__(self) -> Marathon:
        if (self._folder / "tasks").is_dir():  # else there was no Marathon before us
            self._end_strays()
        for path in (self._folder, self._folder / "tasks"):
            make_passage(path)
        for entry in self._stored():
            self._supervise(App.of(entry, entry["version"]))
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            supervisors = list(self._supervisors.values())
        for supervisor in supervisors:
            supervisor.stop()

    def snapshots(self) -> dict[str, Snapshot]:
        """Snapshots by app id, in the order of their creation."""
        with self._lock:
            return {name: supervisor.snapshot for name, supervisor in self._supervisors.items()}

    def snapshot(self, app_id: str) -> Snapshot:
        """The snapshot of an app. Raise MarathonError 404."""
        return self._find(app_id).snapshot

    def versions(self, app_id: str) -> list[App]:
        """Versions of an app since this process started, newest first.

        Raise MarathonError 404.
        """
        return list(self._versions[self._find(app_id).snapshot.app.id])

    def kill(self, app_id: str) -> None:
        """Kill the app's task; another one starts. Raise MarathonError 404."""
        self._find(app_id).kill()

    def deployments(self) -> dict[str, str]:
        """App id -> id of its unfinished deployment, whose new task is not healthy yet."""
        with self._lock:
            shown = self.snapshots()
            return {
                name: key for name, (key, version) in self._deployments.items() if not _settled(shown[name], version)
            }

    def create(self, definition: Mapping[str, Json], *, checked: bool = False) -> tuple[App, str]:
        """Create an app; return it and its deployment id. Raises MarathonError 409, 422.

        `checked`: the definition is known to be valid; the check is slow.
        """
        app = _app(definition, checked=checked)
        with self._lock:
            if app.id in self._supervisors:
                raise MarathonError(409, f"An app with id [{app.id}] already exists.")
            self._supervise(app)
            return app, self._deployed(app)

    def replace(self, app_id: str, definition: Mapping[str, Json], *, instead_of: App | None = None) -> tuple[App, str]:
        """The app in a new version; its task is restarted. Raise MarathonError 404, 422.

        `instead_of`: what the definition was made from; MarathonError 409 when the app has another version by now.
        """
        with self._lock:
            supervisor = self._find(app_id)
            if instead_of is not None and supervisor.snapshot.app is not instead_of:
                raise MarathonError(409, f"App '{instead_of.id}' was changed meanwhile by somebody else: try again")
            app = _app({**definition, "id": app_id})
            supervisor.put(app)
            self._versions[app.id].insert(0, app)
            self._store({app.id: app})
            return app, self._deployed(app)

    def restart(self, app_id: str) -> tuple[App, str]:
        """Restart the app. Raise MarathonError 404."""
        return self.replace(app_id, self._find(app_id).snapshot.app.definition)

    def delete(self, app_id: str) -> str:
        """Stop the task, delete the app, return a deployment id. Raises MarathonError."""
        with self._lock:
            supervisor = self._find(app_id)
            del self._supervisors[supervisor.snapshot.app.id]
            self._deployments.pop(supervisor.snapshot.app.id, None)
            self._store({})
        supervisor.stop()
        return str(uuid.uuid4())

    def _supervise(self, app: App) -> None:
        self._supervisors[app.id] = Supervisor(app, self._place)
        self._versions[app.id] = [app]
        self._store({app.id: app})

    def _find(self, app_id: str) -> Supervisor:
        name = "/" + app_id.strip("/")
        with self._lock:
            if name not in self._supervisors:
                raise MarathonError(404, f"App '{name}' does not exist")
            return self._supervisors[name]

    def _deployed(self, app: App) -> str:
        found = str(uuid.uuid4())
        self._deployments[app.id] = found, app.version
        return found

    def _place(self, app: App) -> Place:
        task_id = f"{app.id.strip('/').replace('/', '_')}.{uuid.uuid4()}"
        return Place(task_id, self._folder / "tasks" / task_id, tuple(free_ports(app.ports)), self._mark, self._given)

    def _store(self, newer: Mapping[str, App]) -> None:
        """Store the apps; `newer`: those whose supervisor has not accepted them yet."""
        apps = {**{name: supervisor.snapshot.app for name, supervisor in self._supervisors.items()}, **newer}
        draft = self._folder / ".apps.json.new"
        draft.unlink(missing_ok=True)
        draft.touch(0o600, exist_ok=False)  # options may hold passwords
        draft.write_text(json.dumps([app.definition for app in apps.values()], indent=1))
        draft.replace(self._folder / "apps.json")

    def _stored(self) -> list[dict[str, Any]]:
        try:
            found: list[dict[str, Any]] = json.loads((self._folder / "apps.json").read_text())
        except FileNotFoundError:
            return []
        return found

    def _end_strays(self) -> None:
        """Stop orphans of a killed Marathon: two schedulers of a service must not run."""
        for process in find_orphans(self._mark):
            if _sandbox(process.pid).startswith(f"{self._folder / 'tasks'}/"):
                process.end(_GRACE)


def _app(definition: Mapping[str, Json], *, checked: bool = False) -> App:
    problems = [] if checked else problems_of(definition)
    if problems:
        raise MarathonError(422, "Object is not valid", problems)
    now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
    return App.of(definition, now.replace("+00:00", "Z"))


def _settled(shown: Snapshot, version: str) -> bool:
    if not shown.app.definition["instances"]:
        return shown.task is None
    return shown.task is not None and shown.task.app.version == version and shown.healthy is True


def _sandbox(pid: int) -> str:
    with suppress(OSError):
        for entry in (PROC / str(pid) / "environ").read_bytes().split(b"\0"):
            name, _, value = entry.partition(b"=")
            if name == b"MESOS_SANDBOX":
                return value.decode(errors="replace")
    return ""
