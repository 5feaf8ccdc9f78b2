"""Which service is meant: by the options, the environment, what runs on this machine, or the attached DC/OS cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from dcos_command.client import URL_VARIABLE, ServiceClient, ServiceOptions, client_at, with_token
from dcos_command.errors import CommandError, UnreachableError, UsageError
from dcos_command.main import DEFAULT_SERVICE
from dcos_command.transport import ClusterConnection, attached_cluster
from tf_scheduler.cli.local_run.installed import InstalledService, LocalInstallation
from tf_scheduler.cli.local_run.process import advertisements

PROGRAM = "dcos-tensorflow"
_NOBODY = """\
no service is known: none runs on this machine, and no DC/OS cluster is attached.
Start one:             dcos-tensorflow local run OPTIONS.json
Or say where one is:   dcos-tensorflow --url URL ..., or DCOS_TENSORFLOW_URL
On a DC/OS cluster:    dcos cluster setup URL"""


def resolve_service(options: ServiceOptions, environment: Mapping[str, str]) -> ServiceClient:
    """Raise UsageError when several come into question, UnreachableError when none does."""
    name = options.name or environment.get("DCOS_TENSORFLOW_SERVICE_NAME", "")
    return with_token(_find(options, name.strip("/"), environment), options.token, environment)


def _find(options: ServiceOptions, name: str, environment: Mapping[str, str]) -> ServiceClient:
    url = options.url or environment.get(URL_VARIABLE, "")
    if url:
        return client_at(url, options.name.strip("/"), environment, PROGRAM)
    if environment.get("DCOS_URL") or environment.get("DCOS_DCOS_URL"):
        return _on_dcos(name, attached_cluster(environment))
    here = list(_here(environment))
    chosen = [service for service in here if name in ("", service.name)]
    if len(chosen) > 1:
        names = ", ".join(service.name for service in chosen)
        raise UsageError(f"several services run on this machine: {names}; choose one with --name, or --url")
    return chosen[0] if chosen else _attached(name, here, environment)


def _on_dcos(name: str, cluster: ClusterConnection) -> ServiceClient:
    return ServiceClient(cluster, name or cluster.service or DEFAULT_SERVICE, program=PROGRAM)


def _attached(name: str, here: list[ServiceClient], environment: Mapping[str, str]) -> ServiceClient:
    try:
        return _on_dcos(name, attached_cluster(environment))
    except CommandError:
        if not here:
            raise UnreachableError(_NOBODY) from None
    names = ", ".join(service.name for service in here)
    raise UnreachableError(f"no service {name} runs on this machine; there are: {names}")


def _here(environment: Mapping[str, str]) -> Iterator[ServiceClient]:
    for note in advertisements():
        service = replace(client_at(note.url, "", environment, PROGRAM), name=note.name)
        if note.folder:
            service = replace(service, installation=LocalInstallation(InstalledService.at(Path(note.folder))))
        yield service
