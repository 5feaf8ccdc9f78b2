"""Watch other frameworks: tasks that run as the service's user, demand for offers.

Tasks without an image that run as the same user can read each other's secrets in /dev/shm and /proc of the agent.
A framework that does not suppress offers wants resources. A job with `worker.elastic.grow` leaves those resources free.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from mesos_client.http import MALFORMED
from mesos_client.results import SendResult, Sent
from tf_scheduler.model.events import Event, FrameworksWait, SharedUserFound
from tf_scheduler.model.secrets import RunningTask, find_neighbours
from tf_scheduler.model.spec import ServiceSpec

log = logging.getLogger(__name__)

#: Seconds between two checks, and the minimum after a launch: the master lists the tasks of all frameworks.
INTERVAL, PAUSE = 600.0, 60.0
#: Seconds until the master lists the tasks of a launch.
SETTLE = 3.0
#: Containers of Docker have their own /proc and /dev/shm.
_ISOLATED = "DOCKER"
_RUNNING = ("TASK_STAGING", "TASK_STARTING", "TASK_RUNNING", "TASK_KILLING", "TASK_UNREACHABLE")


def shares_secrets(spec: ServiceSpec) -> bool:
    """Whether a task without an image gets secrets."""
    return any(item.is_for(job.group) for item in spec.secrets for job in spec.jobs if not job.image and job.count)


def find_running(tasks: Mapping[str, Any], users: Mapping[str, str]) -> Iterator[RunningTask]:
    """Yield the tasks that may be running, except those in Docker containers.

    `tasks`: content of GET_TASKS. `users`: framework -> user of the tasks for which Mesos lists no user.
    """
    for item in (*tasks.get("tasks", ()), *tasks.get("unreachable_tasks", ())):
        if item.get("state") in _RUNNING and item.get("container", {}).get("type") != _ISOLATED:
            framework = item["framework_id"]["value"]
            yield RunningTask(framework, item["agent_id"]["value"], item.get("user") or users.get(framework, ""))


class MasterWatch:
    """Thread that queries the master regularly, and soon after launches.

    `ask` sends a call of the operator API, `own` returns the id of the framework, and `put` enqueues events.
    """

    interval, settle, pause = INTERVAL, SETTLE, PAUSE

    def __init__(
        self,
        ask: Callable[[str], SendResult],
        own: Callable[[], str | None],
        put: Callable[[Callable[[], Event | None]], None],
    ) -> None:
        self._ask, self._own, self._put = ask, own, put
        self._wake, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=type(self).__name__, daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop without waiting for an answer of the master."""
        self._stopped.set()
        self._wake.set()

    def notice(self) -> None:
        """Make the next check soon; called after launches."""
        self._wake.set()

    def _run(self) -> None:
        while True:
            self._wake.wait(self.interval)
            if self._stopped.wait(self.settle):
                return
            self._wake.clear()
            try:
                self.check()
            except MALFORMED:
                log.warning("the master did not list tasks, frameworks and agents as expected", exc_info=True)
            if self._stopped.wait(self.pause):
                return

    def check(self) -> None:
        """Query the master once, and enqueue an event if the result has changed."""
        raise NotImplementedError


class NeighbourWatch(MasterWatch):
    """Reports other frameworks' tasks that run as `user` on the service's agents."""

    def __init__(self, user: str, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._user = user
        self._reported: frozenset[tuple[str, str]] = frozenset()

    def check(self) -> None:
        frameworks, reply = self._infos("FRAMEWORK"), self._ask("GET_TASKS")
        if not isinstance(reply, Sent):
            return
        users = {key: info.get("user", "") for key, info in frameworks.items()}
        running = set(find_running(reply.answer.get("get_tasks", {}), users))
        neighbours = find_neighbours(running, self._own() or "", self._user)
        if added := neighbours - self._reported:
            agents = self._infos("AGENT")
            named = (
                (frameworks.get(framework, {}).get("name", framework), agents.get(agent, {}).get("hostname", agent))
                for framework, agent in added
            )
            places = tuple(f"{framework} on {agent}" for framework, agent in sorted(set(named)))
            self._put(partial(SharedUserFound, self._user, places))
        self._reported = neighbours

    def _infos(self, kind: str) -> dict[str, Mapping[str, Any]]:
        """Return id -> FrameworkInfo or AgentInfo, from GET_FRAMEWORKS or GET_AGENTS."""
        reply, lower = self._ask(f"GET_{kind}S"), kind.lower()
        listed = reply.answer.get(f"get_{lower}s", {}).get(f"{lower}s", ()) if isinstance(reply, Sent) else ()
        return {item[f"{lower}_info"]["id"]["value"]: item[f"{lower}_info"] for item in listed}


#: Metrics of the master (documentation, Monitoring, "Frameworks"): 1 if the framework suppresses offers of a role.
_SUPPRESSED = re.compile(r"master/frameworks/(?P<name>[^/]+)/(?P<id>[^/]+)/roles/.+/suppressed")


def waiting_frameworks(metrics: Mapping[str, float], own: str) -> frozenset[str]:
    """Return the names of other subscribed frameworks that want offers."""
    roles = ((match, value) for name, value in metrics.items() if (match := _SUPPRESSED.fullmatch(name)))
    return frozenset(
        match["name"]
        for match, value in roles
        if not value and match["id"] != own and metrics.get(match.string.partition("/roles/")[0] + "/subscribed")
    )


class DemandWatch(MasterWatch):
    """Reports the other frameworks that want offers at two checks in a row."""

    interval, settle, pause = 10.0, 0.0, 5.0

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._seen: frozenset[str] | None = None
        self._reported: frozenset[str] | None = None

    def check(self) -> None:
        reply = self._ask("GET_METRICS")
        if not isinstance(reply, Sent):
            return
        metrics = {item["name"]: item.get("value", 0.0) for item in reply.answer["get_metrics"]["metrics"]}
        waiting = waiting_frameworks(metrics, self._own() or "")
        before, self._seen = self._seen, waiting
        lasting = None if before is None else waiting & before
        if lasting is not None and lasting != self._reported:
            self._reported = lasting
            self._put(partial(FrameworksWait, tuple(sorted(lasting))))
