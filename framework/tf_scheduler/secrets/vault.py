"""Read secrets of HashiCorp Vault, or of a server with its API.

Supports versions 1 and 2 of the key-value engine, and login by token or AppRole. The extra `vault` contains hvac.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hvac
from hvac import exceptions

from tf_scheduler.errors import SecretError, SourceUnavailableError
from tf_scheduler.model.secrets import SecretSource

#: Timeout of one request in seconds.
TIMEOUT = 10
#: Maximum number of concurrent requests; others are refused, so that a slow server cannot block all API threads.
_MAX_REQUESTS = 16


@dataclass(frozen=True, slots=True)
class VaultLogin:
    """Login with a token, or with role id and secret id; each login reads these again."""

    token: Callable[[], bytes] = bytes
    role_id: str = ""
    secret_id: Callable[[], bytes] = bytes


class Vault:
    """Reader of one Vault server. Thread-safe."""

    def __init__(self, address: str, login: VaultLogin, ca_file: str = "", namespace: str = "") -> None:
        self._login = login
        self._lock = threading.Lock()
        self._requests = threading.BoundedSemaphore(_MAX_REQUESTS)
        self._address = address
        verify = ca_file or True
        self._client = hvac.Client(address, token="", verify=verify, namespace=namespace or None, timeout=TIMEOUT)

    def read(self, source: SecretSource) -> bytes:
        """Return the value of one key. Raise SecretError, SourceUnavailableError."""
        if not self._requests.acquire(blocking=False):
            raise self._unavailable(source, f"is slow: {_MAX_REQUESTS} requests are waiting")
        try:
            with self._lock:
                return self._read(source)
        except exceptions.InvalidPath:
            raise SecretError(f"{source}: does not exist in Vault") from None
        except exceptions.Forbidden:
            raise SecretError(f"{source}: not permitted by Vault: {self._policy(source)}") from None
        except exceptions.VaultDown as error:
            raise self._unavailable(source, f"is sealed or unavailable: {_server_message(error)}") from None
        except (exceptions.InternalServerError, exceptions.BadGateway, exceptions.RateLimitExceeded) as error:
            raise self._unavailable(source, f"has failed: {_server_message(error)}") from None
        except exceptions.VaultError as error:
            raise SecretError(f"{source}: refused by Vault: {_server_message(error)}") from None
        except OSError as error:  # from the HTTP client
            raise self._unavailable(source, f"does not answer: {type(error).__name__}") from None
        finally:
            self._requests.release()

    def _unavailable(self, source: SecretSource, why: str) -> SourceUnavailableError:
        return SourceUnavailableError(f"{source}: Vault at {self._address} {why}")

    def _read(self, source: SecretSource) -> bytes:
        fresh = not self._client.token
        if fresh:
            self._log_in()
        try:
            return self._value(source)
        except exceptions.Forbidden:
            # An expired token has the same answer as a missing permission.
            if fresh:
                raise
            self._log_in()
            return self._value(source)

    def _log_in(self) -> None:
        self._client.token = ""
        if self._login.role_id:
            self._client.auth.approle.login(self._login.role_id, self._login.secret_id().decode().strip())
        else:
            self._client.token = self._login.token().decode().strip()

    def _value(self, source: SecretSource) -> bytes:
        # Mount point and version of the path's engine; read access suffices.
        answer: Any = self._client.adapter.get(f"/v1/sys/internal/ui/mounts/{source.path}")
        about = answer["data"]
        mount, version = about["path"].strip("/"), int((about.get("options") or {}).get("version") or 1)
        inside = source.path[len(mount) :].strip("/")
        engine = self._client.secrets.kv
        if version == 2:
            answer = engine.v2.read_secret_version(inside, mount_point=mount, raise_on_deleted_version=True)
            values = answer["data"]["data"]
        else:
            values = engine.v1.read_secret(inside, mount_point=mount)["data"]
        if source.key not in values:
            raise SecretError(f"{source}: unknown key; valid keys: {', '.join(sorted(values))}")
        value = values[source.key]
        return (value if isinstance(value, str) else json.dumps(value)).encode()

    def _policy(self, source: SecretSource) -> str:
        mount, _, inside = source.path.partition("/")
        return f"the policy must allow `read` on {mount}/data/{inside} (KV version 2) or {source.path} (KV version 1)"


def _server_message(error: Exception) -> str:
    """Return the server's message without the URL that hvac adds."""
    return "; ".join(map(str, getattr(error, "errors", None) or [error]))[:300]
