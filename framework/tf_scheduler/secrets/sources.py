"""All sources behind one question: what is the value of `scheme:path#key` now?"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import hvac
from hvac import exceptions

from tf_scheduler.errors import SecretError, SourceUnavailableError
from tf_scheduler.model.secrets import INLINE_SCHEME, HiddenText, SecretSource, parse_source

#: The value of a source of one scheme. Raises SecretError.
Reader = Callable[[SecretSource], bytes]


class SecretSources:
    """Asked anew for each launch: a value that has changed is delivered at the next start. Safe for threads."""

    def __init__(self, readers: Mapping[str, Reader]) -> None:
        self._readers = readers

    def value(self, text: str) -> bytes:
        """Raise SecretError, or SourceUnavailableError when it may be had later."""
        scheme, _, rest = text.partition(":")
        try:
            source = SecretSource(INLINE_SCHEME, rest) if scheme == INLINE_SCHEME else parse_source(text)
        except ValueError as error:
            raise SecretError(f"the source {text} {error}") from None
        reader = self._readers.get(source.scheme)
        if reader is None:
            raise SecretError(f"{source}: this scheduler has no access to such a source")
        return reader(source)


def environment_reader(environment: Mapping[str, str]) -> Reader:
    """Variables of the scheduler."""

    def read(source: SecretSource) -> bytes:
        if source.path not in environment:
            raise SecretError(f"{source}: the scheduler has no such variable")
        return os.fsencode(environment[source.path])

    return read


def directory_reader(folder: Path) -> Reader:
    """Files below a folder, as Docker and Kubernetes mount them: one value each; links may lead nowhere else."""

    def read(source: SecretSource) -> bytes:
        try:
            # Kubernetes renews a secret by moving a link, so the file is looked up each time.
            root, path = folder.resolve(strict=True), (folder / source.path).resolve(strict=True)
            if not path.is_relative_to(root):
                raise SecretError(f"{source}: it leads out of {folder}")
            return path.read_bytes()
        except OSError as error:
            raise SecretError(f"{source}: {folder / source.path}: {error.strerror}") from error

    return read


def options_reader(options: Mapping[str, HiddenText]) -> Reader:
    """Values that stand in the options themselves, by the option's path."""

    def read(source: SecretSource) -> bytes:
        return options[source.path].reveal().encode()

    return read


# --- vault
# HashiCorp Vault, or a server that speaks its API: key-value engines 1 and 2, with a token or an AppRole.


#: Seconds for one request.
TIMEOUT = 10
#: Questions that wait for the server at one time.
_MAX_REQUESTS = 16


@dataclass(frozen=True, slots=True)
class VaultLogin:
    """How we get in: with a token, or with role and secret id. Each is asked for anew at each login."""

    token: Callable[[], bytes] | None = None
    role_id: str = ""
    secret_id: Callable[[], bytes] | None = None


class Vault:
    """One server. Safe for threads."""

    def __init__(self, address: str, login: VaultLogin, ca_file: str = "", namespace: str = "") -> None:
        self._login = login
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_MAX_REQUESTS)
        self._address = address
        self._client = hvac.Client(
            address, token="", verify=ca_file or True, namespace=namespace or None, timeout=TIMEOUT
        )

    def read(self, source: SecretSource) -> bytes:
        """The value of one key. Raise SecretError, SourceUnavailableError."""
        # Who waits here is one of those who could answer other questions meanwhile.
        if not self._places.acquire(blocking=False):
            raise SourceUnavailableError(
                f"{source}: Vault at {self._address} is slow: {_MAX_REQUESTS} questions wait for it"
            )
        try:
            return self._asked(source)
        finally:
            self._places.release()

    def _asked(self, source: SecretSource) -> bytes:
        with self._lock:
            try:
                return self._read(source)
            except exceptions.InvalidPath:
                raise SecretError(f"{source}: Vault has nothing there") from None
            except exceptions.Forbidden:
                raise SecretError(f"{source}: Vault does not permit it: {self._policy(source)}") from None
            except exceptions.VaultDown as error:
                raise SourceUnavailableError(
                    f"{source}: Vault at {self._address} is sealed or away: {_server_message(error)}"
                ) from None
            except (exceptions.InternalServerError, exceptions.BadGateway, exceptions.RateLimitExceeded) as error:
                raise SourceUnavailableError(
                    f"{source}: Vault at {self._address} is in trouble: {_server_message(error)}"
                ) from None
            except exceptions.VaultError as error:
                raise SecretError(f"{source}: Vault refuses it: {_server_message(error)}") from None
            except OSError as error:  # what the HTTP client raises
                raise SourceUnavailableError(
                    f"{source}: Vault at {self._address} does not answer: {type(error).__name__}"
                ) from None

    def _read(self, source: SecretSource) -> bytes:
        fresh = not self._client.token
        if fresh:
            self._enter()
        try:
            return self._value(source)
        except exceptions.Forbidden:
            # A token that has expired looks like one that may not.
            if fresh:
                raise
            self._enter()
            return self._value(source)

    def _enter(self) -> None:
        self._client.token = ""
        if self._login.role_id:
            secret = None if self._login.secret_id is None else _text(self._login.secret_id())
            self._client.auth.approle.login(self._login.role_id, secret)
        elif self._login.token is not None:
            self._client.token = _text(self._login.token())

    def _value(self, source: SecretSource) -> bytes:
        mount, version = self._mount(source.path)
        inside = source.path[len(mount) :].strip("/")
        engine = self._client.secrets.kv
        if version == 2:
            answer = engine.v2.read_secret_version(inside, mount_point=mount, raise_on_deleted_version=True)
            values = answer["data"]["data"]
        else:
            values = engine.v1.read_secret(inside, mount_point=mount)["data"]
        if source.key not in values:
            raise SecretError(f"{source}: there is no such key; there are {', '.join(sorted(values))}")
        value = values[source.key]
        return (value if isinstance(value, str) else json.dumps(value)).encode()

    def _mount(self, path: str) -> tuple[str, int]:
        """Where the engine is mounted that holds the path, and its version; any token that may read it may ask."""
        answer: Any = self._client.adapter.get(f"/v1/sys/internal/ui/mounts/{path}")
        about = answer["data"]
        return about["path"].strip("/"), int((about.get("options") or {}).get("version") or 1)

    def _policy(self, source: SecretSource) -> str:
        mount, _, inside = source.path.partition("/")
        return f"the policy needs read on {mount}/data/{inside} (version 2) or {source.path} (version 1)"


def _text(value: bytes) -> str:
    return value.decode().strip()


def _server_message(error: Exception) -> str:
    """The server's words, without the address that the client adds."""
    return "; ".join(map(str, getattr(error, "errors", None) or [error]))[:300]
