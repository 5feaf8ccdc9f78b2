"""A service at a URL that is given: of its scheduler, or of DC/OS, with what proves who asks, and who answers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Mapping

from .cluster import Cluster, verification
from .errors import UsageError
from .service import Service

#: Variables that stand for --url and --token.
URL, TOKEN = "DCOS_TENSORFLOW_URL", "DCOS_TENSORFLOW_TOKEN"
_CA_FILE, _CERTIFICATE = "DCOS_TENSORFLOW_CA_FILE", "DCOS_TENSORFLOW_CERTIFICATE"
_BEHIND_DCOS = re.compile(r"(https?://[^/]+(?:/.*?)?)/service/(.+?)/?")


def at(url: str, name: str, environment: Mapping[str, str], program: str) -> Service:
    """The service at the URL of its scheduler, or of DC/OS with /service/NAME, or, where a name is given, without.

    It has no token; see `with_token`. Raise UsageError.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url}: must begin with http:// or https://")
    if not url.split("://", 1)[1].strip("/"):
        raise UsageError(f"--url {url}: no host is given")
    given = environment.get(_CA_FILE)
    verify, said_by = (given, _CA_FILE) if given else verification(environment, {})
    said_by = _CA_FILE if verify == "true" else said_by  # where nothing is said, that is the way to say it
    behind = _BEHIND_DCOS.fullmatch(url)
    if behind is not None:
        url, name = behind[1], behind[2]
    certificate = environment.get(_CERTIFICATE, "")
    where = Cluster(url.rstrip("/"), verify=verify, verified_by=said_by, certificate=certificate)
    return Service(where, name, direct=not name, program=program)


def with_token(service: Service, said: str, environment: Mapping[str, str]) -> Service:
    """The same, with the token that was said, else that of the environment, else its own."""
    token = said or environment.get(TOKEN) or service.cluster.token
    return replace(service, cluster=replace(service.cluster, token=token))
