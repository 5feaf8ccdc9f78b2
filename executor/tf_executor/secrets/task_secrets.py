"""Fetch, install, reload, redact and remove the task's secrets."""

from __future__ import annotations

import base64
import binascii
import json
import logging
import os
import random
import signal
import ssl
import threading
import time
import uuid
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Callable, Mapping, Sequence

from tf_executor.contract.http import HttpClient, NoReplyError
from tf_executor.contract.payload import Payload
from tf_executor.lifecycle.events import Stage
from tf_executor.process.temporary import MemoryFiles, Owner
from tf_executor.process.tree import descendants, has_signal_handler, signal_descendants
from tf_executor.secrets.encodings import encodings_of

# Secrets and the request for them.


class SecretFetchError(Exception):
    """Fetching secrets failed; the message never contains a secret."""


@dataclass(frozen=True)
class Secret:
    """One secret, delivered as a variable, a file, or a file that a variable names."""

    env: str
    file: str
    value: bytes = field(repr=False)
    #: Whether the executor updates the file while the program runs.
    reload: bool = False


@dataclass(frozen=True)
class SecretRequest:
    """Request for a task's secrets; the executor may repeat it with its `nonce`."""

    url: str
    task_id: str
    token: str = field(repr=False)
    nonce: str = field(repr=False)
    #: PEM certificates of the authorities; empty: the system's.
    authorities: str = ""


# The task's secrets.

#: Stages that run the user's code or packages; no other process gets a secret.
STAGES = (Stage.STORAGE, Stage.FETCH, Stage.PRE, Stage.PROGRAM, Stage.POST)
_MAX_ERROR = 200
#: Jitter factors of the reload interval, so that tasks that start together do not ask together.
_MIN_JITTER, _MAX_JITTER = 0.75, 1.25

log = logging.getLogger(__name__)


class TaskSecrets:
    """The task's secrets, empty before `fetch` and after `forget`. Thread-safe."""

    def __init__(
        self,
        payload: Payload,
        task_id: str,
        environ: Mapping[str, str],
        sandbox: str,
        watch_folder: Callable[[str], None],
        get: Callable[..., Sequence[Secret]] | None = None,
    ) -> None:
        """`environ`: the executor's environment. `watch_folder`: see MemoryFiles.

        `get`: test double of `fetch_secrets`.
        """
        self._request = SecretRequest(
            payload.secrets_url, task_id, payload.secrets_token, uuid.uuid4().hex, payload.secrets_ca
        )
        # The agent resolves Mesos' own secret references into the executor's environment.
        self._known = [payload.environment.get(name) or environ.get(name, "") for name in payload.secrets]
        self._sandbox, self._get = sandbox, get or fetch_secrets
        self._interval = payload.secrets_reload
        self._lock = threading.Lock()
        self._files = MemoryFiles(watch_folder=watch_folder)
        self._secrets: Sequence[Secret] = ()
        #: Replaced secrets: the program's output may still contain them.
        self._former: list[Secret] = []
        self._over = threading.Event()
        #: Set to reload before the next interval.
        self._wake = threading.Event()

    def fetch(self, owner: Owner) -> str:
        """Fetch secrets, write files for `owner`; return an error or an empty string."""
        try:
            secrets = self._get(self._request)
            for item in secrets:
                if item.env and not item.file and b"\0" in item.value:
                    raise SecretFetchError(f"variable {item.env}: the value contains a NUL character; use a file")
            with self._lock:
                if self._over.is_set():
                    return "the task has ended"
                self._files.write(self._sandbox, {item.file: item.value for item in secrets if item.file}, owner)
                self._secrets = secrets
        except SecretFetchError as error:
            return f"cannot fetch secrets: {error}"
        except (OSError, ValueError) as error:
            return f"cannot write secret files: {str(error)[:_MAX_ERROR]}"
        log.info("secrets: %s", ", ".join(item.env or item.file for item in secrets))
        if self._interval:
            threading.Thread(target=self._reload_periodically, args=(owner,), name="reload", daemon=True).start()
        return ""

    def environment(self, stage: Stage | None) -> dict[str, str]:
        """Return the secret variables of a stage; empty for internal stages and None."""
        if stage not in STAGES:
            return {}
        return {
            item.env: f"{self._sandbox}/{item.file}" if item.file else os.fsdecode(item.value)
            for item in self._secrets
            if item.env
        }

    def values(self) -> list[str]:
        """Return all values to redact, also in the encodings that programs print."""
        values = [os.fsencode(text) for text in self._known]
        values += [item.value for item in (*self._secrets, *self._former)]
        return [text for value in values for text in encodings_of(value)]

    def forget(self) -> None:
        """Remove the files after the task's end."""
        with self._lock:
            self._over.set()
            self._wake.set()
            self._files.remove()

    def reload(self) -> None:
        self._wake.set()

    def _reload_periodically(self, owner: Owner) -> None:
        """Reload periodically. A repeated error is logged once; the old values stay valid."""
        logged = ""
        while True:
            self._wake.wait(self._interval * random.uniform(_MIN_JITTER, _MAX_JITTER))  # noqa: S311 - no secret
            self._wake.clear()
            if self._over.is_set():
                return
            error = self._reload_once(owner)
            if error and error != logged:
                log.warning("cannot reload secrets: %s", error)
            logged = error

    def _reload_once(self, owner: Owner) -> str:
        """Fetch new values; return an error message, or an empty string."""
        try:
            changed = self._changed(self._get(self._request, 0.0))
            with self._lock:
                if self._over.is_set() or not changed:
                    return ""
                self._files.replace({item.file: item.value for item in changed}, owner)
                replaced = {item.file: item for item in changed}
                self._former += [item for item in self._secrets if item.file in replaced]
                self._secrets = [replaced.get(item.file, item) for item in self._secrets]
        except (SecretFetchError, OSError) as error:
            return str(error)[:_MAX_ERROR]
        log.info("new secrets: %s; sent SIGHUP to processes %s", ", ".join(sorted(replaced)), _send_hangup())
        return ""

    def _changed(self, secrets: Sequence[Secret]) -> list[Secret]:
        """Return reloadable files whose content has changed."""
        current = {item.file: item.value for item in self._secrets if item.file}
        return [item for item in secrets if item.reload and item.value != current.get(item.file, item.value)]


def _send_hangup() -> list[int]:
    """Send SIGHUP only to processes with a handler; it would kill the others."""

    def has_handler(pid: int) -> bool:
        return has_signal_handler(pid, signal.SIGHUP)

    pids = [pid for pid in descendants(os.getpid()) if has_handler(pid)]
    signal_descendants(os.getpid(), pids, signal.SIGHUP, has_handler)
    return pids


# Fetching. POST <url> {"task_id", "token", "nonce"} -> 200 {"secrets": [{"env", "file", "value" (base64), "reload"}]}


#: Seconds to retry while the scheduler is unavailable, for example during failover.
RETRY_SECONDS = 120.0
#: Seconds for one response: the scheduler asks the secret sources in turn.
TIMEOUT = 30.0
#: Seconds between two attempts: the first and the maximum.
FIRST_DELAY, MAX_DELAY = 0.25, 5.0
#: Status codes that are not retried: invalid token, or unknown secret.
FINAL = (403, 424)
_MAX_BYTES = 16 << 20


def fetch_secrets(
    request: SecretRequest,
    retry_seconds: float = RETRY_SECONDS,
    clock: Callable[[], float] = time.monotonic,
    wait: Callable[[float], Any] = time.sleep,
) -> list[Secret]:
    """Fetch the secrets, with retries for `retry_seconds`. Raises SecretFetchError.

    Agents and masters have seen the token, so the scheduler accepts the token only once. Later requests (retries and
    reloads) are valid only because of the nonce, which the executor does not share.
    """
    end, delay = clock() + retry_seconds, FIRST_DELAY
    client = _client(request)
    body = json.dumps({"task_id": request.task_id, "token": request.token, "nonce": request.nonce}).encode()
    while True:
        try:
            reply = client.fetch(request.url, {"Content-Type": "application/json"}, body)
            if reply.status == HTTPStatus.OK:
                return decode(reply.body)
            failure = f"the scheduler returned {reply.status}: {reply.text}"
            if reply.status in FINAL:
                raise SecretFetchError(failure)
        except (NoReplyError, ValueError) as error:
            if isinstance(getattr(error, "cause", None), ssl.SSLCertVerificationError):
                raise SecretFetchError(f"{request.url}: untrusted certificate: {error}") from None
            failure = f"{request.url}: request failed: {error}"
        if clock() + delay > end:
            raise SecretFetchError(f"{failure} (retried for {retry_seconds:g} s)")
        wait(delay)
        delay = min(2 * delay, MAX_DELAY)


def _client(request: SecretRequest) -> HttpClient:
    if not request.url.startswith(("http://", "https://")):
        raise SecretFetchError(f"invalid URL of the scheduler: `{request.url}`: expected http or https")
    try:
        context = ssl.create_default_context(cadata=request.authorities or None)
    except ValueError as error:  # includes ssl.SSLError
        raise SecretFetchError(f"invalid certificate authorities for {request.url}: {error}") from None
    return HttpClient(2 * TIMEOUT, TIMEOUT, context, max_bytes=_MAX_BYTES)


def decode(body: bytes) -> list[Secret]:
    """Decode a response. Raises ValueError, which quotes no part of the response."""
    try:
        return [
            Secret(
                str(item["env"]),
                str(item["file"]),
                base64.b64decode(item["value"], validate=True),
                bool(item.get("reload")),
            )
            for item in json.loads(body)["secrets"]
        ]
    except (AttributeError, KeyError, TypeError, binascii.Error, ValueError):
        raise ValueError("invalid response") from None
