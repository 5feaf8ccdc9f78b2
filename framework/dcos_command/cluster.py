"""Which cluster to talk to: as the DC/OS SDK's commands find it.

The environment (the dcos command written in Go sets it), else the attached cluster's dcos.toml in `$DCOS_DIR` (default
`~/.dcos`): `clusters/<id>/dcos.toml` of the one that has a file `attached`, else `dcos.toml`.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Mapping

from .errors import CommandError

_SECTION = re.compile(r"\s*\[([\w.-]+)\]\s*(?:#.*)?")
_SETTING = re.compile(r"""\s*([\w-]+)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s#]+))\s*(?:#.*)?""")
#: Values of core.ssl_verify that are no file name.
_SWITCH = ("true", "false")


@dataclass(frozen=True)
class Cluster:
    """`url` without a slash at the end; `token` empty: none; `verify`: "true", "false" or a file of certificates."""

    url: str
    token: str = ""
    verify: str = "true"
    #: Name of the service where none is given.
    service: str = ""
    #: File of the certificate, with its key, that says who we are; empty: none.
    certificate: str = ""
    #: What says `verify`.
    verified_by: str = "core.ssl_verify"

    def tls(self) -> ssl.SSLContext | None:
        """None for http. Raise CommandError when the certificates cannot be read."""
        if not self.url.startswith("https:"):
            return None
        checked = self.verify.lower() != "false"
        try:
            context = ssl.create_default_context(cafile=self.verify if self.verify.lower() not in _SWITCH else None)
        except OSError as error:
            why = error.strerror if error.filename or not isinstance(error, ssl.SSLError) else "it holds no certificate"
            raise CommandError(f"{self.verified_by}: cannot read {self.verify}: {why}") from error
        if self.certificate:
            self._identify(context)
        if not checked:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        return context

    def _identify(self, context: ssl.SSLContext) -> None:
        try:
            context.load_cert_chain(self.certificate)
        except OSError as error:
            raise CommandError(f"the certificate {self.certificate} cannot be read: {error}") from error


def find(environment: Mapping[str, str]) -> Cluster:
    """Raise CommandError when no cluster is set up."""
    settings = _settings(Path(environment.get("DCOS_DIR") or Path.home() / ".dcos"))
    url = environment.get("DCOS_URL") or environment.get("DCOS_DCOS_URL") or settings.get("core.dcos_url", "")
    if not url.startswith(("http://", "https://")):
        raise CommandError("no cluster is set up; run: dcos cluster setup <url>, or give --url")
    token = environment.get("DCOS_ACS_TOKEN") or settings.get("core.dcos_acs_token", "")
    service = environment.get("DCOS_TENSORFLOW_SERVICE_NAME") or settings.get("tensorflow.service_name", "")
    verify, said_by = verification(environment, settings)
    return Cluster(url.rstrip("/"), token, verify, service, verified_by=said_by)


def verification(environment: Mapping[str, str], settings: Mapping[str, str]) -> tuple[str, str]:
    """`Cluster.verify`, and what says it."""
    if environment.get("DCOS_TLS_INSECURE") in ("1", "true"):
        return "false", "DCOS_TLS_INSECURE"
    for name in ("DCOS_TLS_CA_PATH", "DCOS_SSL_VERIFY"):
        if environment.get(name):
            return environment[name], name
    return settings.get("core.ssl_verify", "true"), "core.ssl_verify"


def _settings(home: Path) -> dict[str, str]:
    attached = [path.parent / "dcos.toml" for path in home.glob("clusters/*/attached")]
    clusters = list(home.glob("clusters/*/dcos.toml"))
    # The only cluster is the attached one: so the dcos command sees it, too.
    chosen = attached or (clusters if len(clusters) == 1 else [])
    for path in [*chosen, home / "dcos.toml"]:
        if path.is_file():
            return parse_toml(path.read_text(encoding="utf-8"))
    return {}


def parse_toml(text: str) -> dict[str, str]:
    """`section.name` -> value, of the little of TOML that dcos.toml uses: Python has a reader from 3.11 on only."""
    settings, section = {}, ""
    for line in text.splitlines():
        if head := _SECTION.fullmatch(line):
            section = head[1] + "."
        elif found := _SETTING.fullmatch(line):
            settings[section + found[1]] = next(value for value in found.groups()[1:] if value is not None)
    return settings
