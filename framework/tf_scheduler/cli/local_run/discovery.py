"""Find a command's service: by URL, on this machine, or on the attached DC/OS."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from dcos_command.client import URL_VARIABLE, ServiceClient, ServiceOptions, client_at, with_token
from dcos_command.errors import CommandError, UnreachableError, UsageError
from dcos_command.main import DEFAULT_SERVICE, CliProgram
from dcos_command.transport import ClusterConnection, attached_cluster
from tf_scheduler.cli.common.output import screen

from .installed import InstalledService, LocalInstallation
from .process import advertisements

PROGRAM = "dcos-tensorflow"
_NO_SERVICE = """\
no service is known: none runs on this machine, and no DC/OS cluster is attached.
Start one:             dcos-tensorflow local run OPTIONS.json, or: local install --options OPTIONS.json
Or give its address:   dcos-tensorflow --url URL ..., or DCOS_TENSORFLOW_URL
On a DC/OS cluster:    dcos cluster setup URL"""


def resolve_service(options: ServiceOptions, environment: Mapping[str, str]) -> ServiceClient:
    """Return the service. Raises UsageError if ambiguous, UnreachableError if none."""
    name = options.name or environment.get("DCOS_TENSORFLOW_SERVICE_NAME", "")
    return with_token(_find(options, name.strip("/"), environment), options.token, environment)


def _find(options: ServiceOptions, name: str, environment: Mapping[str, str]) -> ServiceClient:
    url = options.url or environment.get(URL_VARIABLE, "")
    if url:
        service = client_at(url, options.name.strip("/"), environment, PROGRAM)
        # A run of this machine, by its address.
        return replace(service, token=next((note.token for note in advertisements() if note.url == service.url), ""))
    if environment.get("DCOS_URL") or environment.get("DCOS_DCOS_URL"):
        return _on_dcos(name, attached_cluster(environment))
    local = list(_local_services(environment))
    matches = [service for service in local if name in ("", service.name)]
    if len(matches) > 1:
        names = ", ".join(service.name for service in matches)
        raise UsageError(f"several services run on this machine: {names}; choose one with --name, or --url")
    return matches[0] if matches else _attached(name, local, environment)


def _on_dcos(name: str, cluster: ClusterConnection) -> ServiceClient:
    return ServiceClient(cluster, name or cluster.service or DEFAULT_SERVICE, program=PROGRAM)


def _attached(name: str, local: list[ServiceClient], environment: Mapping[str, str]) -> ServiceClient:
    try:
        return _on_dcos(name, attached_cluster(environment))
    except CommandError:
        if not local:
            raise UnreachableError(_NO_SERVICE) from None
    names = ", ".join(service.name for service in local)
    raise UnreachableError(f"no service {name} runs on this machine; running: {names}")


def _local_services(environment: Mapping[str, str]) -> Iterator[ServiceClient]:
    for note in advertisements():
        service = replace(client_at(note.url, "", environment, PROGRAM), name=note.name, token=note.token)
        if note.folder:
            service = replace(service, installation=LocalInstallation(InstalledService.at(Path(note.folder))))
        yield service


#: How the commands that ask a service find it and print.
SERVICE_PROGRAM = CliProgram(resolve_service, screen, os.environ)
