"""Which service is meant: by the options, the environment, what runs on this machine, or the attached DC/OS cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from dcos_command import cluster as dcos
from dcos_command.cluster import Cluster
from dcos_command.errors import CommandError, UnreachableError, UsageError
from dcos_command.service import Service

from .here import Note, notes

PROGRAM = "dcos-tensorflow"
#: The name of a service that is installed without options.
_DEFAULT = "tensorflow"
_BEHIND_DCOS = re.compile(r"(https?://[^/]+(?:/.*?)?)/service/(.+?)/?")
_LABEL = "DCOS_SERVICE_NAME"
_CA_FILE = "DCOS_TENSORFLOW_CA_FILE"
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
    found = _find(wanted, name.strip("/"), environment)
    token = wanted.token or environment.get("DCOS_TENSORFLOW_TOKEN") or found.cluster.token
    return replace(found, cluster=replace(found.cluster, token=token))


def _find(wanted: Wanted, name: str, environment: Mapping[str, str]) -> Service:
    url = wanted.url or environment.get("DCOS_TENSORFLOW_URL", "")
    if url:
        return at(url, wanted.name.strip("/"), environment)
    if environment.get("DCOS_URL") or environment.get("DCOS_DCOS_URL"):
        return _on_dcos(name, dcos.find(environment))
    here = list(_here())
    chosen = [service for service in here if name in ("", service.name)]
    if len(chosen) > 1:
        names = ", ".join(service.name for service in chosen)
        raise UsageError(f"several services run on this machine: {names}; choose one with --name, or --url")
    return chosen[0] if chosen else _attached(name, here, environment)


def at(url: str, name: str, environment: Mapping[str, str]) -> Service:
    """The service at the URL of its scheduler, or of DC/OS with /service/NAME, or, where a name is given, without."""
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url}: must begin with http:// or https://")
    if not url.split("://", 1)[1].strip("/"):
        raise UsageError(f"--url {url}: no host is given")
    given = environment.get(_CA_FILE)
    verify, said_by = (given, _CA_FILE) if given else dcos.verification(environment, {})
    said_by = _CA_FILE if verify == "true" else said_by  # where nothing is said, that is the way to say it
    certificate = environment.get("DCOS_TENSORFLOW_CERTIFICATE", "")
    behind = _BEHIND_DCOS.fullmatch(url)
    if behind is not None:
        url, name = behind[1], behind[2]
    where = Cluster(url.rstrip("/"), verify=verify, verified_by=said_by, certificate=certificate)
    return Service(where, name, direct=not name, program=PROGRAM)


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
