"""The real API on a port, with a simulated service."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount

from simulation import send
from simulation.mesos import an_agent
from simulation.world import World, play
from tf_scheduler.api.app import create_app
from tf_scheduler.api.http.auth import Policy
from tf_scheduler.api.http.backend import Backend, RunReader
from tf_scheduler.api.http.server import ApiServer
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.errors import FileError
from tf_scheduler.interfaces import FileChunk, FileEntry
from tf_scheduler.model.events import Event
from tf_scheduler.model.spec import ServiceSpec
from tf_scheduler.model.state import JournalEntry, SchedulerState
from tf_scheduler.model.task import TaskRecord
from tf_scheduler.web.pages import pages


class Pages:
    """Journal whose entries the test adds."""

    def __init__(self) -> None:
        self.entries: list[JournalEntry] = []
        self.id = "the-first"
        self._listeners: list[Callable[[], None]] = []

    @property
    def first(self) -> int:
        return self.entries[0].number if self.entries else self.last + 1

    @property
    def last(self) -> int:
        return self.entries[-1].number if self.entries else 0

    def after(self, number: int) -> Sequence[JournalEntry]:
        return [entry for entry in self.entries if entry.number > number]

    def listen(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    def add(self, *entries: JournalEntry) -> None:
        self.entries += entries
        for listener in tuple(self._listeners):
            listener()


class Sandboxes:
    """Files of tasks: task -> file -> content."""

    def __init__(self) -> None:
        self.files: dict[str, dict[str, bytes]] = {}

    def read(self, _state: SchedulerState, record: TaskRecord, name: str, offset: int | None, length: int) -> FileChunk:
        content = self.files.get(record.name, {}).get(name)
        if content is None:
            raise FileError(404, f"{record.name} has no file {name}")
        first = max(0, len(content) - length) if offset is None else offset
        return FileChunk(first, content[first : first + length], len(content))

    def list(self, _state: SchedulerState, record: TaskRecord, folder: str) -> Sequence[FileEntry]:
        start = f"{folder}/" if folder else ""
        below = {name[len(start) :]: data for name, data in self.files[record.name].items() if name.startswith(start)}
        if not below:
            raise FileError(404, f"{record.name} has no folder {folder}")
        files = [FileEntry(name, "-rw-r--r--", len(data)) for name, data in below.items() if "/" not in name]
        folders = sorted({name.partition("/")[0] for name in below if "/" in name})
        return [*files, *(FileEntry(name, "drwxr-xr-x", 4096) for name in folders)]


class LiveApi:
    """Context manager that serves the API at `url` and, like DC/OS, at /service/NAME/.

    `world` is the simulated service that handles the commands; `after`: further routes of the server.
    """

    #: Notes of a test.
    seen: list[str]

    def __init__(
        self,
        spec: ServiceSpec,
        policy: Policy | None = None,
        after: Sequence[BaseRoute] = (),
        runs: RunReader | None = None,
    ) -> None:
        self.world = World(spec, *(an_agent(f"agent-{number}") for number in range(3)))
        self.pages, self.sandboxes = Pages(), Sandboxes()
        parts = {"journal": self.pages, "files": self.sandboxes, "runs": runs}
        self.backend = Backend(lambda: Snapshot(self.world.state, now=self.world.now), self._put, **parts)
        self._app = create_app(self.backend, policy, pages=pages())
        routes = [Mount(f"/service/{spec.name}", self._app), *after, Mount("/", self._app)]
        self._server = ApiServer(Starlette(routes=routes), "127.0.0.1", 0)

    @property
    def url(self) -> str:
        """Base URL of the scheduler, and of DC/OS."""
        return f"http://127.0.0.1:{self._server.port}"

    def register(self) -> None:
        play(self.world, send.register())

    def deploy(self) -> None:
        """Register, and launch all tasks."""
        play(self.world, send.register(), send.offers(), send.running())

    def _put(self, thunk: Callable[[], Event | None]) -> None:
        event = thunk()
        if event is not None:
            self.backend.observe(event, self.world.step(event))
            self.world.settle()

    def __enter__(self) -> LiveApi:
        self._server.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._server.__exit__(*error)
