"""Access control of the API: authentication, permissions, CSRF checks, audit log."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tf_scheduler.api.views.base import ApiProblem
from tf_scheduler.rate_limit import RateLimiter, client_key

from .endpoint import SECURITY_HEADERS, Principal, respond, wants_json
from .server import BODY_LIMIT, SEND_TIMEOUT, TOO_MANY, is_loopback, limit_body

#: Values of `Sec-Fetch-Site` for requests of the API's own page and of the address bar.
_SAME_SITE = ("same-origin", "none")
_READ_METHODS = ("GET", "HEAD", "OPTIONS")
#: Header of the API's own token: behind Admin Router, `Authorization` has the login to DC/OS.
TOKEN_HEADER = "x-tensorflow-token"  # noqa: S105 - a name


@dataclass(frozen=True, slots=True)
class Policy:
    """Access rules. The default gives all permissions to every client.

    Operators are the clients with the write token, with a certificate named in `writers` or, without `writers` and
    `users`, with any certificate; and without credentials, all clients, as far as their address may write.
    """

    read_token: str = ""
    write_token: str = ""
    #: User -> token; empty: the user has a client certificate of this common name.
    users: Mapping[str, str] = field(default_factory=dict)
    #: Only this user and operators may write, and other users may not read; empty: no owner.
    owner: str = ""
    #: The server requests client certificates and verifies them.
    client_certificates: bool = False
    #: Common names of the certificates with write access, in addition to `users`; empty: all.
    writers: frozenset[str] = frozenset()
    #: The server listens on loopback only: reject other names in `Host` (DNS rebinding).
    loopback_only: bool = False
    #: Without tokens and certificates: returns the addresses of the clients that may write; None: all clients.
    find_writers: Callable[[], frozenset[str]] | None = field(default=None, compare=False)

    @property
    def is_restricted(self) -> bool:
        """Whether clients have to authenticate."""
        return bool(self._has_tokens or self.users or self.client_certificates)

    @property
    def _has_tokens(self) -> bool:
        return any((self.read_token, self.write_token, *self.users.values()))

    def authenticate(self, headers: Mapping[str, str], peer: str | None, *, is_writer: bool = False) -> Principal:
        """Return the client with the permissions of both its token and its certificate.

        A wrong token removes all permissions.

        Args:
            headers: Header fields, names in lower case.
            peer: Common name of the verified client certificate.
            is_writer: The connection is from one of the addresses of `find_writers`.
        """
        if not self.is_restricted:
            writes = self.find_writers is None or is_writer
            # Addresses are looked up for writes only, so a reader is not known to be a writer.
            return Principal("anyone", can_read=True, can_write=writes, is_operator=True)
        name, token = _credentials(headers)
        # Compare with all tokens, so that the time does not depend on the match.
        reads, writes = _token_matches(token or "", self.read_token), _token_matches(token or "", self.write_token)
        users = [user for user, own in self.users.items() if _token_matches(token or "", own)]
        can_write = writes or bool(users)
        bearer = Principal(users[0] if users else name, reads or can_write, can_write, is_operator=writes)
        invalid = token is not None and not bearer.can_read and self._has_tokens
        if peer is None or not self.client_certificates or invalid:
            return bearer
        is_operator = peer in self.writers or not (self.writers or self.users)
        can_write = is_operator or not self.writers or peer in self.users
        certified = Principal(peer, can_read=True, can_write=can_write, is_operator=is_operator)
        return max(certified, bearer, key=lambda client: (client.is_operator, client.can_write))

    def check_host(self, headers: Mapping[str, str]) -> ApiProblem | None:
        """Return the reason for refusal, also of requests that need no authentication."""
        host = headers.get("host", "")
        if self.loopback_only and not is_loopback(_hostname(host)):
            return ApiProblem(403, f"invalid Host header {host[:80]!r}: expected localhost")
        return None

    def authorize(self, method: str, headers: Mapping[str, str], principal: Principal) -> ApiProblem | None:
        """Return the reason for refusal, or None if the request is allowed."""
        reading = method in _READ_METHODS
        if not reading and _is_cross_site(headers):
            return ApiProblem(403, "cross-site requests cannot write")
        if not principal.can_read:
            return ApiProblem(401, self._missing(_has_credentials(headers)))
        if self.owner and principal.can_write and not principal.owns(self.owner):
            return ApiProblem(403, f"job belongs to {self.owner}")
        if not reading and not principal.can_write and not self.is_restricted:
            return ApiProblem(401, _ONLY_MASTERS)
        if not reading and not principal.can_write:
            return ApiProblem(403, f"{principal.name} has read access only")
        return None

    def _missing(self, has_token: bool) -> str:
        """Return the message of a 401 answer."""
        if not self._has_tokens:
            return "client certificate required"
        if has_token:
            return "invalid token"
        certificate = "; or use a client certificate" if self.client_certificates else ""
        return f"token required: send 'X-TensorFlow-Token: TOKEN' or 'Authorization: Bearer TOKEN'{certificate}"


#: Answer to a write that neither has a token nor comes from a master.
_ONLY_MASTERS = (
    "token required: without one the scheduler accepts commands only through DC/OS, from the addresses of the Mesos "
    "masters; use https://CLUSTER/service/NAME/, or set api.write_token and send the token as X-TensorFlow-Token"
)


def _has_credentials(headers: Mapping[str, str]) -> bool:
    return "authorization" in headers or TOKEN_HEADER in headers


def _credentials(headers: Mapping[str, str]) -> tuple[str, str | None]:
    """Return name and token: of X-TensorFlow-Token, else of a bearer or basic login.

    The token is None for other forms of authentication.
    """
    if TOKEN_HEADER in headers:
        return "a bearer", headers[TOKEN_HEADER].strip()
    scheme, _, rest = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return "a bearer", rest.strip()
    if scheme.lower() == "basic":
        try:
            name, _, token = base64.b64decode(rest.strip(), validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return "nobody", ""
        return "".join(char for char in name[:80] if char.isprintable()) or "nobody", token
    return "nobody", None


def _token_matches(candidate: str, token: str) -> bool:
    """Compare in constant time, for any lengths. An empty `token` never matches."""
    left, right = (hashlib.sha256(text.encode()).digest() for text in (candidate, token))
    return hmac.compare_digest(left, right) and bool(token)


def _is_cross_site(headers: Mapping[str, str]) -> bool:
    """Whether a browser sends a cross-site request (Fetch Metadata, RFC 6454)."""
    site = headers.get("sec-fetch-site")
    if site is not None:
        return site not in _SAME_SITE
    origin = headers.get("origin")
    if origin is None:
        return False
    # Other sites cannot send X-Forwarded-Host: browsers need a CORS preflight for it, which the API does not answer.
    hosts = (headers.get("host", ""), headers.get("x-forwarded-host", ""))
    try:
        place = urlsplit(origin).netloc
    except ValueError:
        return True
    # The origin `null` of files and sandboxes has no host.
    return not place or place not in hosts


def _hostname(host: str) -> str:
    """Return the host name without the port."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


log = logging.getLogger("tf_scheduler.audit")

_CHALLENGE = {"www-authenticate": 'Basic realm="tensorflow", charset="UTF-8"'}
#: For requests of scripts, which ask for the token themselves: browsers show no dialog for Bearer.
_SCRIPT_CHALLENGE = {"www-authenticate": 'Bearer realm="tensorflow"'}
#: Always answered: Marathon restarts a scheduler whose health check is refused.
HEALTH_PATH = "/v1/health"


class WriterAddresses:
    """Cache of the addresses of clients that may write; `find` returns the addresses.

    `find` runs in one thread. A failed lookup keeps the last addresses. Use the cache from one event loop.
    """

    #: Seconds until the addresses are looked up again, also before an unknown address is refused; of one request.
    MAX_AGE, MIN_AGE, PATIENCE = 30.0, 2.0, 10.0

    def __init__(self, find: Callable[[], frozenset[str]], now: Callable[[], float] = time.monotonic) -> None:
        self._find, self._now = find, now
        self._addresses: frozenset[str] = frozenset()
        self._found_at = float("-inf")
        self._lookup: asyncio.Task[None] | None = None
        self._problem = ""

    async def includes(self, address: str) -> bool:
        """Whether a client at the address may write; first await a lookup that is due."""
        # A failed lookup may have taken as long as a request waits.
        unknown_age = self.PATIENCE if self._problem else self.MIN_AGE
        if self._now() - self._found_at > (self.MAX_AGE if address in self._addresses else unknown_age):
            self._lookup = self._lookup or asyncio.create_task(self._look_up())
            await asyncio.wait((self._lookup,), timeout=self.PATIENCE)
        return address in self._addresses

    async def _look_up(self) -> None:
        try:
            self._addresses, problem = await asyncio.to_thread(self._find), ""
        except Exception as error:  # of any library: otherwise no later request would look them up again
            why = str(error) or type(error).__name__
            problem = f"the addresses of the Mesos masters, whose clients may write, cannot be looked up: {why}"
        if problem and problem != self._problem:
            log.warning("%s", problem)
        self._problem, self._found_at, self._lookup = problem, self._now(), None


class Guard:
    """ASGI middleware: authentication, limits, security headers and audit log.

    Sets two entries in the ASGI scope. `api.json_errors`: whether errors of this request are JSON, in all parts of the
    API. `api.principal`: the client, which may be unknown at open paths.

    Args:
        app: The API.
        policy: Access rules.
        is_open: Whether a method and a path need no authentication.
        has_text_errors: Whether errors at a path are plain text to clients that do not accept JSON.
    """

    def __init__(
        self,
        app: ASGIApp,
        policy: Policy,
        is_open: Callable[[str, str], bool],
        has_text_errors: Callable[[str], bool] = lambda _path: False,
    ) -> None:
        self._app, self._policy, self._is_open = app, policy, is_open
        self._has_text_errors = has_text_errors
        find = None if policy.is_restricted else policy.find_writers
        self._writers = None if find is None else WriterAddresses(find)
        #: Wrong tokens by client address.
        self._guesses = RateLimiter()
        #: Audit lines of refused requests by client address: each client could fill the disk.
        self._refusals = RateLimiter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}
        # Only the connection counts: any client could set X-Forwarded-For.
        is_writer = (
            self._writers is not None
            and scope["method"] not in _READ_METHODS
            and await self._writers.includes(_client_host(scope))
        )
        principal = self._policy.authenticate(headers, scope.get("state", {}).get("peer"), is_writer=is_writer)
        scope["api.principal"] = principal
        answer = ResponseRecorder(send)
        scope["api.json_errors"] = wants_json(headers) or not self._has_text_errors(_path(scope))
        problem = self._problem(scope, headers, principal)
        try:
            if problem is None:
                await self._app(scope, limit_body(receive), answer)
            else:
                more = _extra_headers(problem, headers)
                response = respond(problem, as_json=scope["api.json_errors"], headers=more)
                await response(scope, receive, answer)
        finally:
            is_known = problem is None or (self._policy.is_restricted and principal.can_read)
            is_audited = scope["method"] not in _READ_METHODS and not scope.get("api.quiet")
            if is_audited and (is_known or self._refusals.acquire(client_key(_client_host(scope)))):
                _audit(scope, principal, answer.code)

    def _problem(self, scope: Scope, headers: dict[str, str], principal: Principal) -> ApiProblem | None:
        if scope.get("state", {}).get("overloaded") and _path(scope) != HEALTH_PATH:
            return TOO_MANY
        declared = headers.get("content-length", "0")
        if declared.isdecimal() and int(declared) > BODY_LIMIT:
            return ApiProblem(413, f"request body too large: the limit is {BODY_LIMIT} bytes")
        if (invalid_host := self._policy.check_host(headers)) or self._is_open(scope["method"], _path(scope)):
            return invalid_host
        refusal = self._policy.authorize(scope["method"], headers, principal)
        # Count wrong tokens only: a request with a valid token from the same address still works.
        guesses = refusal is not None and refusal.code == 401 and _has_credentials(headers)
        if guesses and not self._guesses.acquire(client_key(_client_host(scope))):
            return ApiProblem(429, "too many wrong tokens from this address; try again later")
        return refusal


class ResponseRecorder:
    """ASGI send function that adds security headers and records the status in `code`."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.code = 0

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.code = message["status"]
            headers: list[Any] = list(message.get("headers", ()))
            names = {name.lower() for name, _ in headers}
            more = [(name, value) for name, value in SECURITY_HEADERS.items() if name not in names]
            message = {**message, "headers": [*headers, *more]}
        # Drop the connection of a client that stops reading.
        await asyncio.wait_for(self._send(message), SEND_TIMEOUT)


def _extra_headers(problem: ApiProblem, headers: dict[str, str]) -> dict[str, str]:
    if problem.code != 401:
        # Close the connection: a new connection may be served.
        return {"connection": "close"} if problem.code == 503 else {}
    return _SCRIPT_CHALLENGE if headers.get("x-requested-with") == "XMLHttpRequest" else _CHALLENGE


def _client_host(scope: Scope) -> str:
    """Return the address of the client, or "" if it is unknown."""
    return (scope.get("client") or ("",))[0]


def _path(scope: Scope) -> str:
    """Return the path below the mount point of the app."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def _audit(scope: Scope, principal: Principal, code: int) -> None:
    query = scope.get("query_string", b"").decode("latin-1")
    names = f" with {', '.join(scope['api.names'])}" if scope.get("api.names") else ""
    what = f"{scope['method']} {scope.get('api.prefix', '')}{scope['path']}{f'?{query}' if query else ''}{names}"
    place = _client_host(scope) or "an unknown address"
    # The path names an existing pod, so a task has the same name.
    pod = scope.get("path_params", {}).get("pod") if code not in (404, 0) else None
    facts = {} if pod is None else {"task": _one_line(pod)}
    log.info("audit: %s by %s from %s: %s", _one_line(what), principal.name, place, code or "no answer", extra=facts)


def _one_line(text: str) -> str:
    return "".join(char if char.isprintable() else "?" for char in text[:500])
