"""A Marathon app: supported fields, and its task's environment. Pure.

Facts: mesosphere/marathon, docs/docs/rest-api (defaults), TaskBuilder.scala and EnvironmentHelper (environment).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tf_scheduler.errors import Problem
from tf_scheduler.package.validate import app_problems

Json = Any

#: What Marathon fills in.
DEFAULTS: Mapping[str, Json] = {
    "cmd": None,
    "args": None,
    "container": None,
    "cpus": 1,
    "mem": 128,
    "disk": 0,
    "gpus": 0,
    "instances": 1,
    "env": {},
    "labels": {},
    "fetch": [],
    "constraints": [],
    "healthChecks": [],
    "portDefinitions": [],
    "backoffSeconds": 1,
    "backoffFactor": 1.15,
    "maxLaunchDelaySeconds": 300,
    "taskKillGracePeriodSeconds": 3,
    "upgradeStrategy": {"minimumHealthCapacity": 1, "maximumOverCapacity": 1},
}
_HEALTH_DEFAULTS = {
    "protocol": "HTTP",
    "path": "/",
    "portIndex": 0,
    "gracePeriodSeconds": 300,
    "intervalSeconds": 60,
    "timeoutSeconds": 20,
    "maxConsecutiveFailures": 3,
    "delaySeconds": 15,
}
#: Marathon tells a task those labels only that are not longer.
_LONGEST_LABEL = 512
_PROTOCOLS = ("HTTP", "HTTPS", "MESOS_HTTP", "MESOS_HTTPS", "TCP", "MESOS_TCP")


@dataclass(frozen=True, slots=True)
class HealthCheck:
    """Durations in seconds; maximum consecutive failures, 0: unlimited."""

    protocol: str
    path: str
    port_index: int
    grace_period: float
    interval: float
    timeout: float
    max_failures: int
    delay: float


@dataclass(frozen=True, slots=True)
class Backoff:
    """Delay before the restart of a failed task."""

    first: float
    factor: float
    longest: float

    def after(self, delay: float) -> float:
        """The delay after `delay`; 0: the first one."""
        return min(self.longest, delay * self.factor if delay else self.first)


@dataclass(frozen=True, slots=True)
class App:
    """One version of an app."""

    id: str
    #: Its definition with Marathon's defaults, as it is shown.
    definition: Mapping[str, Json]
    #: When it was given, ISO 8601; Marathon names versions so.
    version: str

    @classmethod
    def of(cls, definition: Mapping[str, Json], version: str) -> App:
        """Parse a valid definition."""
        name = "/" + definition["id"].strip("/")
        return cls(name, {**DEFAULTS, **definition, "id": name, "version": version}, version)

    @property
    def command(self) -> str:
        return str(self.definition["cmd"])

    @property
    def user(self) -> str | None:
        return self.definition.get("user") or None

    @property
    def backoff(self) -> Backoff:
        names = ("backoffSeconds", "backoffFactor", "maxLaunchDelaySeconds")
        return Backoff(*(float(self.definition[name]) for name in names))

    @property
    def kill_grace(self) -> float:
        return float(self.definition["taskKillGracePeriodSeconds"])

    @property
    def health_checks(self) -> tuple[HealthCheck, ...]:
        filled = ({**_HEALTH_DEFAULTS, **check} for check in self.definition["healthChecks"])
        return tuple(HealthCheck(*(check[name] for name in _HEALTH_DEFAULTS)) for check in filled)

    @property
    def ports(self) -> int:
        """Number of ports."""
        return len(self.definition["portDefinitions"])


def problems_of(definition: Mapping[str, Json]) -> list[Problem]:
    """Problems for which Marathon would refuse the app, and unsupported features."""
    found = app_problems(definition)
    if found:
        return found
    container = definition.get("container") or {}
    if container.keys() & {"docker", "volumes"}:
        found.append(Problem("/container", "this machine has neither images nor volumes for apps; leave them out"))
    if definition.get("secrets"):
        found.append(Problem("/secrets", "no secret store in the local DC/OS"))
    if not definition.get("cmd"):
        found.append(Problem("/cmd", "is needed here"))
    for index, check in enumerate(definition.get("healthChecks", ())):
        if check.get("protocol", "HTTP") not in _PROTOCOLS:
            found.append(Problem(f"/healthChecks/{index}/protocol", f"must be one of {', '.join(_PROTOCOLS)} here"))
    return found


def task_environment(app: App, task_id: str, host: str, ports: Sequence[int], sandbox: str) -> dict[str, str]:
    """The app's variables, overridden by those of Marathon and the Mesos agent."""
    own = {name: value for name, value in app.definition["env"].items() if isinstance(value, str)}
    return {
        **own,
        **_port_variables(app, ports),
        **_marathon_variables(app),
        "HOST": host,
        "LIBPROCESS_IP": host,
        "MESOS_TASK_ID": task_id,
        "MESOS_SANDBOX": sandbox,
    }


def _port_variables(app: App, ports: Sequence[int]) -> dict[str, str]:
    if not ports:
        return {}
    named = {
        f"PORT_{definition['name'].upper()}": str(port)
        for definition, port in zip(app.definition["portDefinitions"], ports, strict=True)
        if definition.get("name")
    }
    numbered = {f"PORT{index}": str(port) for index, port in enumerate(ports)}
    return {"PORT": str(ports[0]), "PORTS": ",".join(map(str, ports)), **numbered, **named}


def _marathon_variables(app: App) -> dict[str, str]:
    labels = {name: text for name, text in app.definition["labels"].items() if len(text) <= _LONGEST_LABEL}
    shown = {name: _variable(name) for name in labels}
    resources = {name: app.definition[name] for name in ("cpus", "mem", "disk", "gpus")}
    return {
        "MARATHON_APP_ID": app.id,
        "MARATHON_APP_VERSION": app.version,
        "MARATHON_APP_LABELS": " ".join(sorted(shown.values())),
        **{f"MARATHON_APP_LABEL_{shown[name]}": text for name, text in labels.items()},
        **{f"MARATHON_APP_RESOURCE_{name.upper()}": str(float(amount)) for name, amount in resources.items()},
    }


def _variable(name: str) -> str:
    return re.sub(r"[^A-Z0-9_]", "_", name.upper())
