"""Read the DC/OS Enterprise secret store with the token of a service account.

Request: GET /secrets/v1/secret/default/PATH.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from urllib.parse import quote

import requests

from mesos_client.credentials import Credentials
from tf_scheduler.errors import SecretError, SourceUnavailableError
from tf_scheduler.model.secrets import SecretSource

#: Timeout of one request in seconds.
TIMEOUT = 10.0
#: Prefix of names of secrets that hold base64 (DC/OS documentation, Kerberos).
BASE64_PREFIX = "__dcos_base64__"
_BINARY = "application/octet-stream"
_MAX_TEXT = 300


@dataclass(frozen=True, slots=True)
class SecretStore:
    """Client of the secret store. `verify`: file of trusted CAs, True: the machine's."""

    cluster: str
    credentials: Credentials
    verify: bool | str = True

    def read(self, source: SecretSource) -> bytes:
        """Return the value. Raise SecretError, SourceUnavailableError."""
        answer = self._get(source)
        if answer.status_code == requests.codes.ok:
            return _value(source, answer)
        message = f"{source}: the DC/OS secret store returned HTTP {answer.status_code}: {answer.text[:_MAX_TEXT]}"
        if answer.status_code >= requests.codes.server_error or answer.status_code == requests.codes.too_many_requests:
            raise SourceUnavailableError(message)
        if answer.status_code == requests.codes.forbidden:
            message += f"; the service account needs the permission `dcos:secrets:default:/{source.path} read`"
        raise SecretError(message)

    def _get(self, source: SecretSource) -> requests.Response:
        answer = self._once(source)
        sent = answer.request.headers.get("Authorization")
        if answer.status_code == requests.codes.unauthorized and self.credentials.renew(sent):
            return self._once(source)
        return answer

    def _once(self, source: SecretSource) -> requests.Response:
        url = f"{self.cluster}/secrets/v1/secret/default/{quote(source.path)}"
        with requests.Session() as session:
            session.trust_env = False
            try:
                headers = {"Authorization": self.credentials.header() or "", "Accept": f"application/json, {_BINARY}"}
                return session.get(url, headers=headers, timeout=TIMEOUT, verify=self.verify, allow_redirects=False)
            except OSError as error:  # from requests or the login
                message = f"{source}: the DC/OS secret store does not answer: {str(error)[:_MAX_TEXT]}"
                raise SourceUnavailableError(message) from error


def _value(source: SecretSource, answer: requests.Response) -> bytes:
    if answer.headers.get("Content-Type", "").startswith(_BINARY):
        return answer.content
    try:
        value: bytes = answer.json()["value"].encode()
        is_base64 = source.path.rpartition("/")[2].startswith(BASE64_PREFIX)
        return base64.b64decode(value, validate=True) if is_base64 else value
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
        raise SecretError(f"{source}: the DC/OS secret store did not return a secret") from None
