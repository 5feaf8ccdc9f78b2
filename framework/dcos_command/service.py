"""The scheduler's API, through the cluster's admin router: `<cluster>/service/<name>/v1/...`."""

from __future__ import annotations

import json
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from .cluster import Cluster
from .errors import CommandError

_TIMEOUT = 30.0  # seconds for one answer
#: What the API may answer to a question about a plan: complete, under way, in error.
PLAN_CODES = (200, 202, 417)
#: A 404 of the scheduler's own, such as `Plan backup not found`; any other is the admin router's.
_OURS = re.compile(r"\w+ \S+ not found")


@dataclass(frozen=True)
class Service:
    """One installed service of a cluster."""

    cluster: Cluster
    name: str

    def get(self, path: str, codes: tuple[int, ...] = (200,)) -> Any:
        """The JSON at `v1/PATH`. Raise CommandError for any other code than `codes`."""
        url = f"{self.cluster.url}/service/{quote(self.name.strip('/'))}/v1/{path}"
        headers = {"Accept": "application/json"}
        if self.cluster.token:
            headers["Authorization"] = f"token={self.cluster.token}"
        code, body = self._fetch(urllib.request.Request(url, headers=headers))  # noqa: S310 - http(s): see cluster.find
        if code not in codes:
            raise CommandError(self._refusal(code, body))
        try:
            return json.loads(body)
        except ValueError as error:
            raise CommandError(f"{url} answers no JSON: {body[:200]!r}") from error

    def _fetch(self, request: urllib.request.Request) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT, context=self.cluster.tls()) as answer:  # noqa: S310
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode(errors="replace")
        except OSError as error:
            reason = getattr(error, "reason", error)
            raise CommandError(f"{request.full_url} does not answer: {reason}") from error

    def _refusal(self, code: int, body: str) -> str:
        if code == 401:
            return "the cluster wants to know who you are; run: dcos auth login"
        if code in (502, 503) or (code == 404 and not _OURS.match(body)):
            return f"there is no service {self.name!r} at {self.cluster.url}, or it does not answer (HTTP {code})"
        return body.strip() or f"the service answers HTTP {code}"
