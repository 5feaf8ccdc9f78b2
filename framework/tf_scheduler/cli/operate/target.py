"""Which service is meant: by the options, the environment, what runs on this machine, or the attached DC/OS cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dcos_command import cluster as dcos
from dcos_command.address import URL, at, with_token
from dcos_command.cluster import Cluster
from dcos_command.errors import CommandError, UnreachableError, UsageError
from dcos_command.service import Service

from .here import Note, notes

PROGRAM = "dcos-tensorflow"
#: The name of a service that is installed without options.
_DEFAULT = "tensorflow"
_LABEL = "DCOS_SERVICE_NAME"
_QUICK = 5.0  # seconds for an answer of this machine
_NOBODY = """\
no service is known: none runs on this machine, and no DC/OS cluster is attached.
Start one:             dcos-tensorflow local run OPTIONS.json
Or say where one is:   dcos-tensorflow --url URL ..., or DCOS_TENSORFLOW_URL
On a DC/OS cluster:    dcos cluster setup URL"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the person said; empty: nothing."""

    name: str = ""
    url: str = ""
    token: str = ""


def find(wanted: Wanted, environment: Mapping[str, str]) -> Service:
    """Raise UsageError when several come into question, UnreachableError when none does."""
    name = wanted.name or environment.get("DCOS_TENSORFLOW_SERVICE_NAME", "")
    return with_token(_find(wanted, name.strip("/"), environment), wanted.token, environment)


def _find(wanted: Wanted, name: str, environment: Mapping[str, str]) -> Service:
    url = wanted.url or environment.get(URL, "")
    if url:
        return at(url, wanted.name.strip("/"), environment, PROGRAM)
    if environment.get("DCOS_URL") or environment.get("DCOS_DCOS_URL"):
        return _on_dcos(name, dcos.find(environment))
    here = list(_here())
    chosen = [service for service in here if name in ("", service.name)]
    if len(chosen) > 1:
        names = ", ".join(service.name for service in chosen)
        raise UsageError(f"several services run on this machine: {names}; choose one with --name, or --url")
    return chosen[0] if chosen else _attached(name, here, environment)


def _on_dcos(name: str, cluster: Cluster) -> Service:
    return Service(cluster, name or cluster.service or _DEFAULT, program=PROGRAM)


def _attached(name: str, here: list[Service], environment: Mapping[str, str]) -> Service:
    try:
        return _on_dcos(name, dcos.find(environment))
    except CommandError:
        if not here:
            raise UnreachableError(_NOBODY) from None
    names = ", ".join(service.name for service in here)
    raise UnreachableError(f"no service {name} runs on this machine; there are: {names}")


def _here() -> Iterator[Service]:
    for note in notes():
        if note.name:
            yield Service(Cluster(note.url), note.name, direct=True, program=PROGRAM)
        else:
            yield from _installed(note)


def _installed(note: Note) -> Iterator[Service]:
    """What `local install` has installed."""
    marathon = Service(Cluster(note.url), "marathon", program=PROGRAM, timeout=_QUICK)
    try:
        apps = marathon.get("v2/apps")["apps"]
    except CommandError:
        return  # it ends just now
    for app in apps:
        if _LABEL in app["labels"]:
            yield Service(Cluster(note.url), app["labels"][_LABEL].strip("/"), program=PROGRAM)
