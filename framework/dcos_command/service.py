"""The scheduler's API: asked directly, or through a cluster's admin router at `<cluster>/service/<name>/v1/...`."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Iterator, Mapping, Optional
from urllib.parse import quote, urlencode

from . import sse, wire
from .cluster import Cluster
from .errors import CommandError, RefusedError, UnreachableError
from .refusals import code_of, message_of

#: The DC/OS SDK's "it has been done before".
ALREADY = 208
#: What an API may answer that is no error.
FINE = (200, 201, 202, 204, ALREADY)
#: A 404 of a scheduler that answers texts, such as `Plan backup not found`; any other is the admin router's.
_OURS = re.compile(r"\w+ \S+ not found")
_COSMOS = "application/vnd.dcos.{}-{}+json;charset=utf-8;version={}"

Query = Mapping[str, Optional[str]]


def path(*parts: str) -> str:
    """`path("plans", name)`: each part quoted, slashes too."""
    return "v1/" + "/".join(quote(part, safe="") for part in parts)


@dataclass(frozen=True)
class Service:
    """One installed service. `direct`: the cluster's URL is the scheduler's own."""

    cluster: Cluster
    name: str
    direct: bool = False
    #: How the person calls us: for hints.
    program: str = "dcos tensorflow"
    #: Seconds for one answer.
    timeout: float = 30.0

    @property
    def url(self) -> str:
        """Of the API, without `/v1`."""
        base = self.cluster.url.rstrip("/")
        return base if self.direct else f"{base}/service/{quote(self.name.strip('/'))}"

    def within(self, seconds: float) -> Service:
        """The same, for somebody who does not wait any longer."""
        return replace(self, timeout=seconds)

    def get(self, path: str, codes: tuple[int, ...] = (), **query: str | None) -> Any:
        """The JSON at PATH. `codes`: statuses that are fine, too. Raise CommandError."""
        return self._json(f"{self.url}/{path}", "GET", codes, query)[1]

    def look(self, path: str, codes: tuple[int, ...] = (), **query: str | None) -> tuple[int, Any]:
        """The same, with the status: some answers have no body."""
        return self._json(f"{self.url}/{path}", "GET", codes, query)

    def post(self, path: str, body: Any = None, **query: str | None) -> Any:
        """The JSON that is answered to a command; `body` None: it has none."""
        return self._json(f"{self.url}/{path}", "POST", (), query, body)[1]

    def put(self, path: str) -> Any:
        """The same for PUT without a body."""
        return self._json(f"{self.url}/{path}", "PUT", (), {})[1]

    def cosmos(self, name: str, path: str, body: Any, version: str = "v1") -> Any:
        """What DC/OS' package service answers, in this version. Raise CommandError, also when there is none."""
        if self.direct:
            raise CommandError(
                f"{self.url} is the scheduler's own address. DC/OS does this: give its URL, with /service/NAME. "
                "(A local run is ended by Ctrl-C where it was started.)"
            )
        media = {
            "Content-Type": _COSMOS.format(name, "request", "v1"),
            "Accept": _COSMOS.format(name, "response", version),
        }
        return self._json(f"{self.cluster.url}/{path}", "POST", (), {}, body, media)[1]

    def events(self, path: str, last: str = "", **query: str | None) -> Iterator[sse.Event]:
        """A stream of server-sent events, from the one after `last` on; ends when it is interrupted."""
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        url = f"{self.url}/{path}"
        asked = wire.request("GET", _with(url, query), self._headers(headers))
        with wire.lines(asked, self.cluster) as (status, lines):
            if status != 200:
                raise self._refusal(status, b"".join(lines).decode(errors="replace"))
            yield from sse.events(lines)

    def _json(
        self,
        url: str,
        method: str,
        codes: tuple[int, ...],
        query: Query,
        body: Any = None,
        media: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        headers = {"Accept": "application/json"}
        if body is not None:
            headers["Content-Type"] = "application/json"
        content = None if method == "GET" else b"" if body is None else json.dumps(body).encode()
        asked = wire.request(method, _with(url, query), self._headers({**headers, **(media or {})}), content)
        status, text = wire.answer(asked, self.cluster, self.timeout)
        if status not in FINE and status not in codes:
            raise self._refusal(status, text)
        if status == ALREADY and method != "GET":
            return status, {"message": message_of(text) or text.strip()}
        try:
            return status, json.loads(text) if text else {}
        except ValueError as error:
            raise CommandError(f"{url} answers no JSON: {text[:200]!r}") from error

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        token = self.cluster.token.strip()  # a file of it ends with a line end, of Windows maybe
        if not token:
            return dict(headers)
        if not (token.isascii() and token.isprintable()):
            raise CommandError("the token has characters that no token has, such as an end of line in its middle")
        return {**headers, "Authorization": f"Bearer {token}" if self.direct else f"token={token}"}

    def _refusal(self, status: int, text: str) -> CommandError:
        if status == 401:
            return RefusedError(self._unknown_person(), status)
        told = message_of(text)
        if told is None and (status in (502, 503, 504) or (status == 404 and not _OURS.match(text))):
            return UnreachableError(self._nobody(status))
        return RefusedError(told or text.strip() or f"the service answers HTTP {status}", status, code_of(text))

    def _unknown_person(self) -> str:
        if not self.direct:
            return "the cluster wants to know who you are; run: dcos auth login"
        given = "does not take the token that was given" if self.cluster.token else "wants a token"
        return f"{self.url} {given}; give one with --token or DCOS_TENSORFLOW_TOKEN"

    def _nobody(self, status: int) -> str:
        if self.direct:
            return f"no scheduler answers at {self.url} (HTTP {status})"
        if status != 404:
            when = "it is being started, or started again; try again in some seconds"
            return f"the service {self.name!r} at {self.cluster.url} does not answer (HTTP {status}): {when}"
        hint = "" if self.program != "dcos tensorflow" else "; the names are in: dcos service"
        return f"there is no service {self.name!r} at {self.cluster.url} (HTTP {status}){hint}"


def _with(url: str, query: Query) -> str:
    given = urlencode({name: value for name, value in query.items() if value is not None})
    return f"{url}?{given}" if given else url
