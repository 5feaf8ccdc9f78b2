"""The scheduler's API, asked directly or through DC/OS, and what installed the service."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace
from typing import Any, Iterator, Mapping, Optional, Protocol
from urllib.parse import quote, urlencode

from . import transport
from .errors import CommandError, RefusedError, UnreachableError, UsageError
from .transport import ClusterConnection, tls_verification


@dataclass(frozen=True)
class ErrorBody:
    """`message`: the sentence, and a line for each thing that is wrong; None: the body is not an error of theirs.

    `code`: the scheduler's `code`, Cosmos' `type`, or empty.
    """

    message: str | None = None
    code: str = ""
    lists_names: bool = False


def parse_error_body(text: str) -> ErrorBody:
    """Parse the body of an HTTP error."""
    try:
        body = json.loads(text)
    except ValueError:
        return ErrorBody()
    if not isinstance(body, dict):
        return ErrorBody()
    error = body.get("error", body)
    detail = error if isinstance(error, dict) else {}
    message = detail.get("message")
    code = detail.get("code") if "error" in body else body.get("type")
    return ErrorBody(
        "\n".join([message, *_reasons(body.get("data"))]) if isinstance(message, str) else None,
        code if isinstance(code, str) else "",
        bool(detail.get("names")),
    )


def _reasons(data: Any) -> Iterator[str]:
    """Cosmos', of options that do not fit, or of an app that Marathon refuses (dcos/cosmos, rpc/v1/model)."""
    errors = data.get("errors") if isinstance(data, dict) else None
    for error in errors if isinstance(errors, list) else ():
        if isinstance(error, dict):
            yield _reason(error)


def _reason(error: Mapping[str, Any]) -> str:
    if "instance" in error:
        return f"{error['instance']['pointer'].strip('/').replace('/', '.')}: {error['message']}"
    return f"{error.get('path', '')}: {'; '.join(error.get('errors', ()))}"


PACKAGE = "tensorflow"
_NOT_FOUND = 404


class Installation(Protocol):
    """What installed a service. All methods raise CommandError."""

    def describe(self) -> Any:
        """Return package and options of the service, in the form of Cosmos' `service.describe`."""

    def preview(self, options: Mapping[str, Any], version: str | None) -> Mapping[str, Any]:
        """Return what the scheduler's update preview needs to know of exactly these options."""

    def update(self, options: Mapping[str, Any], version: str | None, *, replace_all: bool) -> Any:
        """Restart the scheduler with `options`, merged into the present ones unless `replace_all`."""

    def uninstall(self) -> Any:
        """Start the removal of the service; return without waiting for its end."""

    def last_failure(self, *, finished: bool) -> str | None:
        """Return why the scheduler last failed, empty if it did not; None if the service is gone.

        `finished`: the scheduler has reported the end of the removal.
        """


@dataclass(frozen=True)
class CosmosInstallation:
    """A service that Cosmos installed as an app of Marathon."""

    service: ServiceClient

    def describe(self) -> Any:
        return self.service.cosmos("service.describe", "cosmos/service/describe", self._app())

    def preview(self, options: Mapping[str, Any], version: str | None) -> Mapping[str, Any]:
        package = self.describe()["package"]
        body = {"packageName": package["name"], "packageVersion": version or package["version"], "options": options}
        rendered = self.service.cosmos("package.render", "package/render", {**body, **self._app()})
        return {"environment": rendered["marathonJson"].get("env", {})}

    def update(self, options: Mapping[str, Any], version: str | None, *, replace_all: bool) -> Any:
        body = {"options": options, "replace": replace_all, **({"packageVersion": version} if version else {})}
        return self.service.cosmos("service.update", "cosmos/service/update", {**self._app(), **body})

    def uninstall(self) -> Any:
        body = {"packageName": PACKAGE, **self._app()}
        return self.service.cosmos("package.uninstall", "package/uninstall", body)

    def last_failure(self, *, finished: bool) -> str | None:
        marathon = replace(self.service, name="marathon")
        try:
            found = marathon.get(f"v2/apps/{self.service.name.strip('/')}").get("app") or {}
        except RefusedError as error:
            # A user without access to Marathon relies on what the scheduler reported.
            return None if error.http_status == _NOT_FOUND or finished else ""
        return last_failure_message(found)

    def _app(self) -> Mapping[str, str]:
        return {"appId": app_id(self.service)}


def app_id(service: ServiceClient) -> str:
    """Id of the service's app, as Cosmos and Marathon write it."""
    return "/" + service.name.strip("/")


def installation_of(service: ServiceClient) -> Installation:
    """The service's own installation, else Cosmos."""
    return service.installation or CosmosInstallation(service)


def last_failure_message(app: Mapping[str, Any]) -> str:
    """Return Marathon's message about the last failed scheduler of this version of the app, or an empty string."""
    last = app.get("lastTaskFailure") or {}
    message = str(last.get("message") or "")
    if not message or last.get("version") != app.get("version"):
        return ""
    # Marathon itself knows no more than a number.
    return message if "\n" in message else f"{message} (its log: dcos task log --completed {last.get('taskId')} stderr)"


#: The DC/OS SDK's "it has been done before".
ALREADY_REPORTED = 208
#: What an API may answer that is no error.
SUCCESS_CODES = (200, 201, 202, 204, ALREADY_REPORTED)
#: A 404 of a scheduler that answers texts, such as `Plan backup not found`; any other is the admin router's.
_SCHEDULER_NOT_FOUND = re.compile(r"\w+ \S+ not found")
_COSMOS = "application/vnd.dcos.{}-{}+json;charset=utf-8;version={}"

Query = Mapping[str, Optional[str]]


def api_path(*parts: str) -> str:
    """`path("plans", name)`: each part quoted, slashes too."""
    return "v1/" + "/".join(quote(part, safe="") for part in parts)


@dataclass(frozen=True)
class ServiceClient:
    """One installed service. `direct`: the cluster's URL is the scheduler's own."""

    cluster: ClusterConnection
    name: str
    direct: bool = False
    #: How the person calls us: for hints.
    program: str = "dcos tensorflow"
    #: Seconds for one answer.
    timeout: float = 30.0
    #: What installed it, if not Cosmos.
    installation: Installation | None = None

    @property
    def url(self) -> str:
        """Of the API, without `/v1`."""
        base = self.cluster.url.rstrip("/")
        return base if self.direct else f"{base}/service/{quote(self.name.strip('/'))}"

    def with_timeout(self, seconds: float) -> ServiceClient:
        """The same, for somebody who does not wait any longer."""
        return replace(self, timeout=seconds)

    def get(self, path: str, codes: tuple[int, ...] = (), **query: str | None) -> Any:
        """The JSON at PATH. `codes`: statuses that are fine, too. Raise CommandError."""
        return self._json(f"{self.url}/{path}", "GET", codes, query)[1]

    def get_with_status(self, path: str, codes: tuple[int, ...] = (), **query: str | None) -> tuple[int, Any]:
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

    def events(self, path: str, last: str = "", **query: str | None) -> Iterator[transport.ServerSentEvent]:
        """A stream of server-sent events, from the one after `last` on; ends when it is interrupted."""
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        url = f"{self.url}/{path}"
        asked = transport.build_request("GET", _with_query(url, query), self._headers(headers))
        with transport.open_stream(asked, self.cluster) as (status, lines):
            if status != 200:
                raise self._refusal(status, b"".join(lines).decode(errors="replace"))
            yield from transport.parse_events(lines)

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
        asked = transport.build_request(
            method, _with_query(url, query), self._headers({**headers, **(media or {})}), content
        )
        status, text = transport.send(asked, self.cluster, self.timeout)
        if status not in SUCCESS_CODES and status not in codes:
            raise self._refusal(status, text)
        if status == ALREADY_REPORTED and method != "GET":
            return status, {"message": parse_error_body(text).message or text.strip()}
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
        refusal = parse_error_body(text)
        if refusal.message is None and (
            status in (502, 503, 504) or (status == 404 and not _SCHEDULER_NOT_FOUND.match(text))
        ):
            return UnreachableError(self._nobody(status))
        message = refusal.message or text.strip() or f"the service answers HTTP {status}"
        return RefusedError(message, status, refusal.code, lists_names=refusal.lists_names)

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


def _with_query(url: str, query: Query) -> str:
    given = urlencode({name: value for name, value in query.items() if value is not None})
    return f"{url}?{given}" if given else url


#: Variables that stand for --url and --token.
URL_VARIABLE, TOKEN_VARIABLE = "DCOS_TENSORFLOW_URL", "DCOS_TENSORFLOW_TOKEN"
_CA_FILE, _CERTIFICATE = "DCOS_TENSORFLOW_CA_FILE", "DCOS_TENSORFLOW_CERTIFICATE"
_BEHIND_DCOS = re.compile(r"(https?://[^/]+(?:/.*?)?)/service/(.+?)/?")


@dataclass(frozen=True)
class ServiceOptions:
    """Values of --name, --url and --token; empty: not given."""

    name: str = ""
    url: str = ""
    token: str = ""


def client_at(url: str, name: str, environment: Mapping[str, str], program: str) -> ServiceClient:
    """The service at the URL of its scheduler, or of DC/OS with /service/NAME, or, where a name is given, without.

    It has no token; see `with_token`. Raise UsageError.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url {url}: must begin with http:// or https://")
    if not url.split("://", 1)[1].strip("/"):
        raise UsageError(f"--url {url}: no host is given")
    given = environment.get(_CA_FILE)
    verify, said_by = (given, _CA_FILE) if given else tls_verification(environment, {})
    said_by = _CA_FILE if verify == "true" else said_by  # where nothing is said, that is the way to say it
    behind = _BEHIND_DCOS.fullmatch(url)
    if behind is not None:
        url, name = behind[1], behind[2]
    certificate = environment.get(_CERTIFICATE, "")
    where = ClusterConnection(url.rstrip("/"), verify=verify, verified_by=said_by, certificate=certificate)
    return ServiceClient(where, name, direct=not name, program=program)


def with_token(service: ServiceClient, said: str, environment: Mapping[str, str]) -> ServiceClient:
    """The same, with the token that was said, else that of the environment, else its own."""
    token = said or environment.get(TOKEN_VARIABLE) or service.cluster.token
    return replace(service, cluster=replace(service.cluster, token=token))
