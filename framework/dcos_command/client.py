"""HTTP client of the scheduler's API; clients of the programs that install it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Callable, Iterator, Mapping, Optional, Protocol, Sequence
from urllib.parse import quote, unquote, urlencode, urlsplit

from . import __version__, transport
from .answers import MismatchBody, RejectionBody, check_answer, has_type, parse_answer, parse_json
from .documents import merge_options
from .errors import CommandError, NotStartedError, RefusedError, UnreachableError, UsageError
from .transport import ClusterConnection, attached_cluster, tls_verification


@dataclass(frozen=True)
class HttpErrorBody:
    """Parsed body of an HTTP error.

    `message`: a sentence, then a line for each problem; None if the body has another form. `code`: the scheduler's
    `code` or Cosmos' `type`; empty if the body has neither.
    """

    message: str | None = None
    code: str = ""
    lists_names: bool = False


def parse_error_body(text: str) -> HttpErrorBody:
    """Parse the body of an HTTP error."""
    try:
        body = parse_json(text)
    except ValueError:
        return HttpErrorBody()
    if not isinstance(body, dict):
        return HttpErrorBody()
    error = body.get("error", body)
    detail = error if isinstance(error, dict) else {}
    message = detail.get("message")
    code = detail.get("code") if "error" in body else body.get("type")
    return HttpErrorBody(
        "\n".join([message, *_problems(body.get("data"))]) if isinstance(message, str) else None,
        code if isinstance(code, str) else "",
        bool(detail.get("names")),
    )


def _problems(data: Any) -> Iterator[str]:
    """Yield the problems that Cosmos lists in an error (dcos/cosmos, rpc/v1/model)."""
    errors = data.get("errors") if isinstance(data, dict) else None
    for error in errors if isinstance(errors, list) else ():
        if has_type(error, MismatchBody):
            yield f"{error['instance']['pointer'].strip('/').replace('/', '.')}: {error['message']}"
        elif has_type(error, RejectionBody):
            yield f"{error.get('path', '')}: {'; '.join(error.get('errors', ()))}"


PACKAGE = "tensorflow"
#: Default name of a service.
DEFAULT_SERVICE = "tensorflow"
_NOT_FOUND = 404


class Installation(Protocol):
    """The program that installed a service. All methods raise CommandError."""

    def describe(self) -> Any:
        """Return the service's package and options, as Cosmos' `service.describe` does."""

    def localize(self, options: Mapping[str, Any], folder: Path, *, replace_all: bool) -> Mapping[str, Any]:
        """Validate a local service's options; resolve their relative paths in `folder`."""

    def preview(self, options: Mapping[str, Any], version: str | None) -> Mapping[str, Any]:
        """Return the input of the scheduler's update preview for exactly these options."""

    def update(self, options: Mapping[str, Any], version: str | None, *, replace_all: bool) -> Any:
        """Restart the scheduler with `options`; unless `replace_all`, keep all others."""

    def uninstall(self) -> Any:
        """Start the removal of the service; return without waiting for its end."""

    def last_failure(self, *, finished: bool) -> str | None:
        """Return the scheduler's last failure, or an empty text.

        None: the service is gone. `finished`: the scheduler has reported the end of the removal.
        """


class RunProcess(Protocol):
    """A process on this machine that runs one job and its scheduler."""

    def result(self) -> Mapping[str, Any] | None:
        """Return `verdict` and `reason` of the ended run; None while it continues."""

    def cancel(self) -> None:
        """Stop the job as Ctrl-C does; return without waiting for its end."""


@dataclass(frozen=True)
class CosmosInstallation:
    """A service that Cosmos installed as an app of Marathon."""

    service: ServiceClient

    def describe(self) -> Any:
        return self.service.cosmos("service.describe", "cosmos/service/describe", self._app())

    def localize(self, options: Mapping[str, Any], folder: Path, *, replace_all: bool) -> Mapping[str, Any]:
        del folder, replace_all  # the service runs on other machines
        return options

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
        marathon = replace(self.service, name="marathon", token="")
        try:
            app = marathon.get(f"v2/apps/{self.service.name.strip('/')}").get("app") or {}
        except RefusedError as error:
            # A user without access to Marathon relies on what the scheduler reported.
            return None if error.http_status == _NOT_FOUND or finished else ""
        return last_failure_message(app)

    def _app(self) -> Mapping[str, str]:
        return {"appId": app_id(self.service)}


@dataclass(frozen=True)
class QueuedJob:
    """A job of a queue service: its installation and its process."""

    #: Client of the job.
    service: ServiceClient

    def body(self) -> Any:
        """Return the job's place in the queue, its state and its result."""
        return self.service.queue.get(self._path())

    def result(self) -> Mapping[str, Any] | None:
        """Return `verdict` and `reason` of the ended job; None while it continues."""
        try:
            body = self.body()
        except UnreachableError:  # the service restarts
            return None
        return {"verdict": body["verdict"], "reason": body["reason"]} if body["verdict"] else None

    def cancel(self) -> None:
        self.service.queue.post(self._path("cancel"))

    def describe(self) -> Any:
        options = self._options()
        package = {"name": PACKAGE, "version": __version__}
        same = {"resolvedOptions": options, "userProvidedOptions": options}
        return {"package": package, "upgradesTo": [], "downgradesTo": [], **same}

    def localize(self, options: Mapping[str, Any], folder: Path, *, replace_all: bool) -> Mapping[str, Any]:
        del folder, replace_all  # the job runs on other machines
        return options

    def preview(self, options: Mapping[str, Any], version: str | None) -> Mapping[str, Any]:
        _check_version(version)
        return {"options": options}

    def update(self, options: Mapping[str, Any], version: str | None, *, replace_all: bool) -> Any:
        _check_version(version)
        new = options if replace_all else merge_options(self._options(), options)
        self.service.queue.post(self._path("options"), new)  # which restores masked secrets
        return {"resolvedOptions": new}

    def uninstall(self) -> Any:
        self.cancel()
        return {"results": [{"packageName": PACKAGE, "packageVersion": __version__, "appId": app_id(self.service)}]}

    def last_failure(self, *, finished: bool) -> str | None:
        try:
            body = self.body()
        except UnreachableError:  # the service restarts
            return ""
        return None if finished or body["verdict"] else str(body["reason"])

    def _options(self) -> Mapping[str, Any]:
        options: Mapping[str, Any] = self.service.queue.get(self._path("options"))
        return options

    def _path(self, *parts: str) -> str:
        return api_path("jobs", self.service.job, *parts)


def _check_version(version: str | None) -> None:
    if version not in (None, __version__):
        raise CommandError(f"package version {version}: a job has the version of its queue service")


def app_id(service: ServiceClient) -> str:
    """Return the id of the service's app in the form of Cosmos and Marathon."""
    return "/" + service.name.strip("/")


def installation_of(service: ServiceClient) -> Installation:
    """Return the program that installed the service, by default Cosmos."""
    return service.installation or (QueuedJob(service) if service.job else CosmosInstallation(service))


def run_of(service: ServiceClient) -> RunProcess | None:
    """Return what runs the job of the service, if it can end without its scheduler."""
    return service.run or (QueuedJob(service) if service.job else None)


def last_failure_message(app: Mapping[str, Any]) -> str:
    """Return the last failure of the app's present version, or an empty string."""
    last = app.get("lastTaskFailure") or {}
    message = str(last.get("message") or "")
    if not message or last.get("version") != app.get("version"):
        return ""
    # Marathon reports an exit code only; messages of several lines are the scheduler's.
    return message if "\n" in message else f"{message} (see: dcos task log --completed {last.get('taskId')})"


def installed_names(service: ServiceClient) -> list[str]:
    """Ask Marathon for the names of this package's services in the DC/OS of `service`."""
    marathon = replace(service, name="marathon", token="")
    apps = marathon.get("v2/apps", label=f"DCOS_PACKAGE_NAME=={PACKAGE}")["apps"]
    return sorted(app["id"].strip("/") for app in apps if app.get("labels", {}).get("DCOS_PACKAGE_NAME") == PACKAGE)


#: The DC/OS SDK's status of a command that was executed before.
ALREADY_REPORTED = 208
#: Statuses of the API that are not errors.
SUCCESS_CODES = (200, 201, 202, 204, ALREADY_REPORTED)
#: A 404 of the scheduler with a text, such as `Plan backup not found`; any other is the admin router's.
_SCHEDULER_NOT_FOUND = re.compile(r"\w+ \S+ not found")
#: Header and error code of the scheduler's API (docs/reference/api.md).
_TOKEN_HEADER, _UNAUTHORIZED = "X-TensorFlow-Token", "unauthorized"
_COSMOS = "application/vnd.dcos.{}-{}+json;charset=utf-8;version={}"

Query = Mapping[str, Optional[str]]


def api_path(*parts: str) -> str:
    """Return `v1/PART/PART`; quote each part, also its slashes."""
    return "v1/" + "/".join(quote(part, safe="") for part in parts)


@dataclass(frozen=True)
class ServiceClient:
    """Client of one service; `direct`: without DC/OS. Requests raise CommandError."""

    cluster: ClusterConnection
    name: str
    direct: bool = False
    #: Name of the running program, for hints.
    program: str = "dcos tensorflow"
    #: Timeout of one request in seconds.
    timeout: float = 30.0
    #: The program that installed it, if not Cosmos.
    installation: Installation | None = None
    #: The process of a local run; None: another service.
    run: RunProcess | None = None
    #: Folder of a local service whose token belongs to this user; None: another service.
    home: Path | None = None
    #: Token of the scheduler's API; empty: none. The login to DC/OS is the cluster's.
    token: str = field(default="", repr=False)
    #: Stores the run of the service outside of the cluster; None: nothing does.
    keep: Callable[[ServiceClient], None] | None = None
    #: Id of a job, whose queue service is the rest of `name`; empty: the service itself.
    job: str = ""

    @property
    def url(self) -> str:
        """Base URL of the API, without `/v1`."""
        if self.job:
            return f"{self.queue.url}/{api_path('jobs', self.job)}"
        base = self.cluster.url.rstrip("/")
        return base if self.direct else f"{base}/service/{quote(self.name.strip('/'))}"

    @property
    def queue(self) -> ServiceClient:
        """The queue service of a job; another service itself."""
        return replace(self, name=self.name.rpartition("/")[0], job="", installation=None) if self.job else self

    def of_job(self, name: str) -> ServiceClient:
        """Return the client of a job of this queue service."""
        whole = f"{self.name.strip('/')}/{name}".lstrip("/")
        return replace(self, name=whole, job=name, run=None, installation=None, keep=None)

    def get(self, path: str, codes: tuple[int, ...] = (), **query: str | None) -> Any:
        """Return the JSON at PATH. `codes`: statuses that are accepted although not 2xx."""
        return self.get_with_status(path, codes, **query)[1]

    def get_with_status(self, path: str, codes: tuple[int, ...] = (), **query: str | None) -> tuple[int, Any]:
        """Return status and JSON at PATH; the JSON is `{}` for an answer without a body."""
        return self._json("GET", self.url, path, codes, query)

    def post(self, path: str, body: Any = None, **query: str | None) -> Any:
        """POST a command; return its JSON answer. `body` None: send an empty body."""
        return self._json("POST", self.url, path, (), query, body)[1]

    def cosmos(self, name: str, path: str, body: Any, version: str = "v1") -> Any:
        """Send a request to Cosmos, the package service of DC/OS; return its answer."""
        if self.direct:
            raise CommandError(
                f"`{self.url}` is the address of a scheduler, but this command needs DC/OS; "
                "pass the URL of DC/OS plus /service/NAME (to stop a local run: dcos-tensorflow cancel)"
            )
        media = {
            "Content-Type": _COSMOS.format(name, "request", "v1"),
            "Accept": _COSMOS.format(name, "response", version),
        }
        return self._json("POST", self.cluster.url, path, (), {}, body, media)[1]

    def event_content(self, path: str, event: transport.ServerSentEvent) -> Any:
        """Parse the JSON in an event of the stream at PATH."""
        return parse_answer(f"event {event.name} {path}", f"{self.url}/{path}", event.data)

    def events(self, path: str, last: str = "", **query: str | None) -> Iterator[transport.ServerSentEvent]:
        """Yield server-sent events after id `last`; stop when the connection breaks."""
        headers = {"Accept": "text/event-stream", **({"Last-Event-ID": last} if last else {})}
        request = transport.ServiceRequest("GET", _with_query(f"{self.url}/{path}", query), self._headers(headers))
        with transport.open_stream(request, self.cluster) as (status, lines):
            if status != 200:
                raise self._error(status, b"".join(lines).decode(errors="replace"))
            yield from transport.parse_events(lines)

    def _json(
        self,
        method: str,
        base: str,
        path: str,
        codes: tuple[int, ...],
        query: Query,
        body: Any = None,
        media: Mapping[str, str] | None = None,
    ) -> tuple[int, Any]:
        content_type = {} if body is None else {"Content-Type": "application/json"}
        # Cosmos must not see the token of the scheduler.
        client = self if media is None else replace(self, token="")
        headers = client._headers({"Accept": "application/json", **content_type, **(media or {})})
        content = None if method == "GET" else b"" if body is None else json.dumps(body).encode()
        request = transport.ServiceRequest(method, _with_query(f"{base}/{path}", query), headers, content)
        try:
            status, text = transport.send(request, self.cluster, self.timeout)
        except UnreachableError as error:
            failure = self.installation.last_failure(finished=False) if self.installation else ""
            if not failure:
                raise
            raise UnreachableError(f"{error}\nLast failure of the scheduler: {failure}") from error
        if status not in (*SUCCESS_CODES, *codes):
            raise self._error(status, text)
        if status == ALREADY_REPORTED and method != "GET":
            answer = {"message": parse_error_body(text).message or text.strip()}
            return status, check_answer(f"{method} {path}", f"{base}/{path}", answer)
        return status, parse_answer(f"{method} {path}", f"{base}/{path}", text)

    def _headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        # A token file ends with a line end.
        login, token = self.cluster.token.strip(), self.token.strip()
        for each in (login, token):
            if each and not (each.isascii() and each.isprintable()):
                raise CommandError("invalid token: contains a newline, a control character or a non-ASCII character")
        if self.direct:
            own = {"Authorization": f"Bearer {token}"} if token else {}
        else:
            # Behind DC/OS, Authorization has the login to DC/OS.
            own = {
                **({"Authorization": f"token={login}"} if login else {}),
                **({_TOKEN_HEADER: token} if token else {}),
            }
        return {**headers, **own}

    def _error(self, status: int, text: str) -> CommandError:
        if status == 401:
            return RefusedError(self._login_hint(parse_error_body(text)), status)
        body = parse_error_body(text)
        is_unrouted = status == 404 and not _SCHEDULER_NOT_FOUND.match(text)
        if body.message is None and (is_unrouted or status in (502, 503, 504)):
            return UnreachableError(self._no_service(status))
        if body.code == NotStartedError.kind and body.message:
            return NotStartedError(body.message)
        message = body.message or text.strip() or f"the service returned HTTP {status}"
        return RefusedError(message, status, body.code, lists_names=body.lists_names)

    def _login_hint(self, body: HttpErrorBody) -> str:
        if not self.direct and body.code != _UNAUTHORIZED:
            return "the cluster requires a login; run: dcos auth login"
        why = "rejected the token" if self.token else "requires a token"
        config = "" if self.direct else ", or store it for the attached cluster: dcos config set tensorflow.token TOKEN"
        hint = f"`{self.url}` {why}; pass an API token with --token or DCOS_TENSORFLOW_TOKEN{config}"
        return f"{hint}\n{body.message}" if body.message and not self.token else hint

    def _no_service(self, status: int) -> str:
        if self.direct:
            return f"no scheduler answers at `{self.url}` (HTTP {status})"
        if status != 404:
            return (
                f"service `{self.name}` at {self.cluster.url} does not answer (HTTP {status}): "
                "the scheduler is starting or restarting; try again in a few seconds"
            )
        hint = "" if self.program != "dcos tensorflow" else "; to list all services, run: dcos service"
        return f"service `{self.name}` does not exist at {self.cluster.url} (HTTP {status}){hint}"


def _with_query(url: str, query: Query) -> str:
    encoded = urlencode({name: value for name, value in query.items() if value is not None})
    return f"{url}?{encoded}" if encoded else url


#: Variables that stand for --url and --token.
URL_VARIABLE, TOKEN_VARIABLE = "DCOS_TENSORFLOW_URL", "DCOS_TENSORFLOW_TOKEN"
_CA_FILE, _CERTIFICATE = "DCOS_TENSORFLOW_CA_FILE", "DCOS_TENSORFLOW_CERTIFICATE"
_BEHIND_DCOS = re.compile(r"(https?://[^/]+(?:/.*?)?)/service/(.+?)/?")
_OF_JOB = re.compile(r"(.+)/v1/jobs/([^/]+)/?")


@dataclass(frozen=True)
class ServiceOptions:
    """Values of --name, --url, --token and --run; empty: not given."""

    name: str = ""
    url: str = ""
    token: str = ""
    run: str = ""

    def of_queue(self, name: str, environment: Mapping[str, str]) -> ServiceOptions:
        """Return the options that find this queue service; a URL is its own address."""
        return replace(self, name="" if self.url or environment.get(URL_VARIABLE) else name)


def client_at(url: str, name: str, environment: Mapping[str, str], program: str) -> ServiceClient:
    """Return a client without token for the URL of a scheduler, a job or DC/OS.

    Raise UsageError if it is not a URL.
    """
    if not url.startswith(("http://", "https://")):
        raise UsageError(f"--url: `{url}`: must begin with http:// or https://")
    try:
        host, port = urlsplit(url).hostname, urlsplit(url).port
    except ValueError as error:
        raise UsageError(f"--url: `{url}`: invalid host or port; a port is a number from 1 to 65535") from error
    if not host or port == 0 or any(map(str.isspace, url)):
        raise UsageError(f"--url: `{url}`: {'missing host' if not host else 'port 0 and spaces are not allowed'}")
    ca_file = environment.get(_CA_FILE)
    verify, setting = (ca_file, _CA_FILE) if ca_file else tls_verification(environment, {})
    setting = _CA_FILE if verify == "true" else setting  # errors name the variable that a user can set
    of_job = _OF_JOB.fullmatch(url)
    url = of_job[1] if of_job is not None else url
    behind = _BEHIND_DCOS.fullmatch(url)
    if behind is not None:
        url, name = behind[1], behind[2]
    certificate = environment.get(_CERTIFICATE, "")
    login = environment.get("DCOS_ACS_TOKEN", "") if name else ""
    cluster = ClusterConnection(url.rstrip("/"), login, verify, verified_by=setting, certificate=certificate)
    service = ServiceClient(cluster, name, direct=not name, program=program)
    return service.of_job(unquote(of_job[2])) if of_job is not None else service


def with_token(service: ServiceClient, option: str, environment: Mapping[str, str]) -> ServiceClient:
    """Set the token: from --token, the client, the variable, or `dcos config`."""
    default = environment.get(TOKEN_VARIABLE) or service.cluster.api_token
    return replace(service, token=option or service.token or default)


def find_service(options: ServiceOptions, environment: Mapping[str, str]) -> ServiceClient:
    """Find the service at --url or in the attached cluster. Raise CommandError."""
    if options.run:
        raise UsageError("--run: only dcos-tensorflow has local runs")
    url = options.url or environment.get(URL_VARIABLE)
    if url:
        service = client_at(url, options.name.strip("/"), environment, ServiceClient.program)
    else:
        attached = attached_cluster(environment)
        service = ServiceClient(attached, options.name or attached.service or DEFAULT_SERVICE)
    return find_job(with_token(service, options.token, environment))


def find_job(service: ServiceClient) -> ServiceClient:
    """Return the client of the job if the name of a service on DC/OS is that of a job.

    A name with a slash may also be that of a service in a folder; then the service is returned.
    """
    name, _, job = service.name.strip("/").rpartition("/")
    if service.direct or service.job or not name:
        return service
    queue = replace(service, name=name)
    try:
        queue.get(api_path("jobs", job))
    except RefusedError as error:
        return queue.of_job(job) if error.http_status in (401, 403) else service
    except CommandError:
        return service
    return queue.of_job(job)


def find_services(options: ServiceOptions, environment: Mapping[str, str]) -> Sequence[ServiceClient]:
    """Find the service at --url or all in the attached cluster. Raise CommandError."""
    service = find_service(options, environment)
    if options.url or environment.get(URL_VARIABLE):
        return [service]
    return [replace(service, name=name) for name in installed_names(service) if options.name.strip("/") in ("", name)]
