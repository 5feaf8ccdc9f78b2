"""The secret store of DC/OS Enterprise: GET /secrets/v1/secret/default/<path> with the token of a service account."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from urllib.parse import quote

import requests

from mesos_client.credentials import Credentials
from tf_scheduler.errors import SchedulerError

#: Timeout of one request in seconds.
TIMEOUT = 10.0
#: Prefix of names of secrets that hold base64 (DC/OS documentation, Kerberos).
BASE64_PREFIX = "__dcos_base64__"
_BINARY = "application/octet-stream"
_MAX_TEXT = 300


class SecretStoreRefusedError(SchedulerError):
    """The secret does not exist, or the account may not read it."""

    kind = "secret_missing"
    http_status = 424


class SecretStoreUnavailableError(SchedulerError):
    """The store does not answer; a retry may help."""

    kind = "secret_source_unavailable"
    http_status = 503


@dataclass(frozen=True, slots=True)
class SecretStore:
    """`cluster`: base URL of DC/OS; `verify`: file of trusted authorities, True: the machine's."""

    cluster: str
    credentials: Credentials
    verify: bool | str = True

    def read(self, path: str) -> bytes:
        """Return the value. Raise SecretStoreRefusedError, SecretStoreUnavailableError."""
        answer = self._get(path)
        if answer.status_code == requests.codes.ok:
            return _value(path, answer)
        message = f"HTTP {answer.status_code}: {answer.text[:_MAX_TEXT]}"
        if answer.status_code >= requests.codes.server_error or answer.status_code == requests.codes.too_many_requests:
            raise SecretStoreUnavailableError(message)
        if answer.status_code == requests.codes.forbidden:
            raise SecretStoreRefusedError(f"{message}; the account needs dcos:secrets:default:/{path} read")
        raise SecretStoreRefusedError(message)

    def _get(self, path: str) -> requests.Response:
        answer = self._once(path)
        sent = answer.request.headers.get("Authorization")
        if answer.status_code == requests.codes.unauthorized and self.credentials.renew(sent):
            return self._once(path)
        return answer

    def _once(self, path: str) -> requests.Response:
        url = f"{self.cluster}/secrets/v1/secret/default/{quote(path)}"
        with requests.Session() as session:
            session.trust_env = False
            try:
                headers = {"Authorization": self.credentials.header() or "", "Accept": f"application/json, {_BINARY}"}
                return session.get(url, headers=headers, timeout=TIMEOUT, verify=self.verify, allow_redirects=False)
            except OSError as error:  # from requests or the login
                raise SecretStoreUnavailableError(str(error)[:_MAX_TEXT]) from error


def _value(path: str, answer: requests.Response) -> bytes:
    if answer.headers.get("Content-Type", "").startswith(_BINARY):
        return answer.content
    try:
        value: bytes = answer.json()["value"].encode()
        return base64.b64decode(value, validate=True) if path.rpartition("/")[2].startswith(BASE64_PREFIX) else value
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        raise SecretStoreRefusedError("the store did not return a secret") from None
