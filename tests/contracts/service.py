"""A scheduler on a stored state, driven by Mesos' JSON, for contract tests.

Only this module uses internals; the tests compare JSON.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, get_args
from urllib.parse import quote

from asgi_client import ask
from builders import LOGIN
from tf_scheduler.api.app import create_app
from tf_scheduler.api.views.base import Snapshot
from tf_scheduler.core.scheduler import restored_progress
from tf_scheduler.core.state import spec_index
from tf_scheduler.errors import JobError
from tf_scheduler.history.model import Run
from tf_scheduler.mesos import decode, encode
from tf_scheduler.mesos.agent_files import AgentFiles
from tf_scheduler.model import events, reasons
from tf_scheduler.model.effects import Teardown
from tf_scheduler.model.events import Tick
from tf_scheduler.model.state import SchedulerState
from tf_scheduler.options.configurations import with_stored_defaults
from tf_scheduler.options.load import resolve
from tf_scheduler.options.spec import to_spec
from tf_scheduler.runner import Runner
from tf_scheduler.service.api import ApiServices, RunArchive
from tf_scheduler.service.options import OptionsHistory
from tf_scheduler.store import records
from tf_scheduler.store.interface import StateStore
from tf_scheduler.store.journal import EventJournal
from tf_scheduler.store.retrying import SharedStore
from tf_scheduler.store.training_history import decode_progress

Json = Mapping[str, Any]


def _not_recorded() -> Run:
    raise JobError("not recorded")


class Service:
    """Scheduler without threads."""

    def __init__(self, options: Json, store: StateStore, clock: Callable[[], float]) -> None:
        numbers = count(1)
        shared = SharedStore(store)
        state = OptionsHistory(resolve(options), {}, to_spec, clock=clock).activate(shared)
        values = shared.load()
        journal = EventJournal(shared, clock, values)
        self.runner = Runner(
            restored_progress(state, decode_progress(values)),
            shared,
            clock=clock,
            new_id=lambda: f"new-{next(numbers)}",
            commit=journal.commit,
        )
        files = AgentFiles(lambda: None, None, None)
        runs = RunArchive("", _not_recorded, lambda: None, lambda _problem: None)
        snapshot = lambda: Snapshot(self.runner.state)  # noqa: E731
        services = ApiServices(shared, values, journal, files, self.runner, snapshot, None, runs)
        self.runner.attach(services.observe)
        self.app = create_app(services.backend)
        self._calls: list[Any] = []

    def hear(self, raw: Json | None) -> list[Any]:
        """Handle a Mesos event, or a tick without one; return the calls in Mesos' JSON."""
        event = Tick() if raw is None else decode.event(raw)
        if isinstance(event, events.OffersReceived):
            # Agents authenticate executors, which the driver finds out.
            event = replace(event, offers=tuple(replace(offer, login=LOGIN) for offer in event.offers))
        self._calls = []
        if event is not None:
            self.runner.step(self, event)
        return self._calls

    def perform(self, call: Any) -> None:
        """The driver's part."""
        framework = self.runner.state.stored.framework_id
        self._calls.append({"type": "TEARDOWN"} if isinstance(call, Teardown) else encode.call(call, framework))

    def start(self) -> None:
        """The driver's part."""

    def stop(self) -> None:
        """The driver's part."""

    def answers(self) -> dict[str, Any]:
        """Return status and body of each GET endpoint answered from the state, by path."""
        return {path: self._answer(path) for path in self._paths()}

    def _answer(self, path: str) -> dict[str, Any]:
        reply = ask(self.app, path)
        is_json = "json" in reply.headers.get("content-type", "")
        return {"code": reply.code, "body": reply.body if is_json and reply.content else reply.text}

    def _paths(self) -> Iterator[str]:
        """Yield each path of the OpenAPI document, with all values of its parameters."""
        lists = {"plan": "/v1/plans", "pod": "/v1/pod", "id": "/v1/configurations", "key": "/v1/state/properties"}
        values = {name: ask(self.app, path).body for name, path in lists.items()}
        values["task"] = [*values["pod"], "nobody"]
        endpoints, files = ask(self.app, "/v1/endpoints").body, ask(self.app, "/v1/state/files").body
        for path, methods in ask(self.app, "/v1/openapi.json").body["paths"].items():
            if "get" not in methods or path in NOT_FROM_STATE:
                continue
            name = re.search(r"{(\w+)}", path)
            if name is None:
                yield path
                continue
            by_path = {
                "/v1/endpoints/{name}": endpoints,
                "/v1/state/files/{name}": files,
                "/v1/tasks/{name}": values["pod"],
            }
            for value in by_path.get(path) or values.get(name[1], []):
                yield path.replace(name[0], quote(value, safe=""))
        yield from ("/v1/tf/progress?points=100", "/v1/health?verbose=true", "/v1/debug/plans?plan=deploy")
        yield "/v1/events?after=0&limit=1000"


#: Metrics, and endpoints that read from threads or agents.
NOT_FROM_STATE = frozenset(
    {
        "/v1/debug/threads",
        "/v1/metrics",
        "/v1/metrics/prometheus",
        "/v1/openapi.json",
        "/v1/state/zone/{job}/{ip}",
        "/v1/tasks/{name}/logs",
    }
)


def stored_again(options: Json, values: Mapping[str, bytes]) -> dict[str, bytes]:
    """Return every stored value, decoded and encoded again."""
    state = SchedulerState(to_spec(resolve(options)))
    return {
        write.key: write.value
        for change in records.changes(values)
        for write in records.writes(change, state)
        if hasattr(write, "value")
    }


def digests(options: Json, complete: Callable[[Json], Json] = with_stored_defaults) -> dict[str, str]:
    """Return the launch digest of each task, and of the service under the empty name."""
    spec = to_spec(resolve(complete(options)))
    return {
        "": spec_index.index_of(spec).target,
        **{task.name: spec_index.config_digest(spec, task.name) for task in spec.tasks()},
    }


def names() -> dict[str, list[str]]:
    """Return the kinds of reasons and events, which leave the process as texts."""
    kinds = (*get_args(reasons.Reason), *get_args(reasons.AgentReason))
    return {
        "reasons": sorted(kind.kind for kind in kinds),
        "events": sorted(kind.kind for kind in get_args(events.Event)),
    }


def readable(calls: list[Any]) -> list[Any]:
    """Return the calls with the payloads of launches as JSON."""
    decoded: list[Any] = json.loads(json.dumps(calls))
    for call in decoded:
        for operation in call.get("accept", {}).get("operations", ()):
            for task in operation.get("launch", {}).get("task_infos", ()):
                task["data"] = json.loads(base64.b64decode(task["data"]))
    return decoded
