"""Log in to DC/OS as a service account, and read the secret store with its token.

POST <login_endpoint> {"uid", "token"}  ->  200 {"token"}; then `Authorization: token=<token>`
GET /secrets/v1/secret/default/PATH
PyJWT and cryptography, the extra `dcos`, are imported only when a credential is configured.
"""

from __future__ import annotations

import base64
import binascii
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import requests

from mesos_client.credentials import Credentials, TokenCredentials
from tf_scheduler.errors import SchedulerError, SecretError, SourceUnavailableError
from tf_scheduler.model.secrets import SecretSource

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey

#: Variable with the credential, or with the path of its file (as in the DC/OS SDK).
VARIABLE = "DCOS_SERVICE_ACCOUNT_CREDENTIAL"
#: Validity in seconds of the signed token, which is used immediately (DC/OS SDK: 120, dcos command: 300).
LOGIN_TOKEN_SECONDS = 120
#: A token is renewed this many seconds before it expires, but not before half of its life.
RENEWAL_SECONDS = 1800.0
#: Timeout of one request in seconds.
TIMEOUT = 10.0
_ALGORITHM = "RS256"
_SCHEME = "token="
_MAX_TEXT = 300


class AccountError(SchedulerError):
    """Invalid credential; the text does not quote it."""


class MissingExtraError(AccountError):
    """PyJWT or cryptography is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "login as a service account needs the extra `dcos`, which the scheduler image contains: "
            "pip install 'dcos-tensorflow[dcos]'"
        )


class LoginError(SchedulerError, OSError):
    """DC/OS returned no token. The driver logs it and retries later."""

    kind = "login_failed"
    http_status = 503


@dataclass(frozen=True, slots=True)
class Account:
    """Credential of a service account."""

    uid: str
    key: RSAPrivateKey = field(repr=False)
    login_endpoint: str

    @property
    def cluster(self) -> str:
        """Base URL of the cluster's services."""
        parts = urlsplit(self.login_endpoint)
        return f"{parts.scheme}://{parts.netloc}"


def account_of(environment: Mapping[str, str]) -> Account | None:
    """Return the account of the environment, or None. Raise AccountError."""
    value = environment.get(VARIABLE, "").strip()
    if not value:
        return None
    try:
        text = value if value.startswith("{") else Path(value).read_text()
    except (OSError, ValueError) as error:
        raise AccountError(f"{VARIABLE}: the file that it names cannot be read: {type(error).__name__}") from None
    return parse_account(text)


def parse_account(text: str) -> Account:
    """Parse the JSON of `dcos security secrets create-sa-secret`. Raise AccountError."""
    try:
        document: dict[str, Any] = json.loads(text)
        uid, pem, endpoint = (str(document[name]) for name in ("uid", "private_key", "login_endpoint"))
    except (ValueError, KeyError, TypeError, RecursionError):
        what = "must be a JSON object with uid, private_key, login_endpoint and scheme"
        raise AccountError(f"{VARIABLE}: {what}; create it with `dcos security secrets create-sa-secret`") from None
    if document.get("scheme", _ALGORITHM) != _ALGORITHM:
        raise AccountError(f"{VARIABLE}: the scheme must be {_ALGORITHM}")
    if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).netloc:
        example = "https://leader.mesos/acs/api/v1/auth/login"
        raise AccountError(f"{VARIABLE}: login_endpoint must be a URL such as {example}")
    return Account(uid, _load_private_key(pem), endpoint)


def _load_private_key(pem: str) -> RSAPrivateKey:
    """Load PKCS#8 (`BEGIN PRIVATE KEY`, as in DC/OS) or PKCS#1. Raise AccountError."""
    try:
        import jwt  # noqa: F401 - reported here, not at the first login
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise MissingExtraError from None
    try:
        key = load_pem_private_key(pem.replace("\\n", "\n").encode(), None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPrivateKey):
        raise AccountError(f"{VARIABLE}: private_key must be an RSA key in PEM, undamaged and without a password")
    return key


def claims_of(token: str) -> Mapping[str, Any]:
    """Return the claims of a token without verifying it; empty for an invalid token."""
    import jwt

    try:
        return jwt.decode(token, options={"verify_signature": False})
    except jwt.InvalidTokenError:
        return {}


@dataclass(frozen=True, slots=True)
class ServiceLogin:
    """Request tokens. `verify`: file or folder of trusted CAs; True: those of certifi."""

    account: Account
    verify: bool | str = True
    clock: Callable[[], float] = time.time

    def token(self) -> str:
        """Return a new token. Raise LoginError."""
        import jwt

        claims = {"uid": self.account.uid, "exp": int(self.clock()) + LOGIN_TOKEN_SECONDS}
        answer = self._ask({"uid": self.account.uid, "token": jwt.encode(claims, self.account.key, _ALGORITHM)})
        try:
            return str(answer.json()["token"])
        except (ValueError, KeyError, TypeError):
            raise LoginError(f"{self.account.login_endpoint} did not answer with a token") from None

    def is_stale(self, token: str) -> bool:
        """Whether the token expires soon. A token without expiry is never stale."""
        claims = claims_of(token)
        end, begin = _number(claims.get("exp")), _number(claims.get("iat"))
        if end is None:
            return False
        life = RENEWAL_SECONDS * 2 if begin is None else end - begin
        return self.clock() >= end - min(RENEWAL_SECONDS, life / 2)

    def credentials(self) -> TokenCredentials:
        """Credentials for the drivers, renewed before they expire and after a 401."""
        return TokenCredentials(self.token, _SCHEME, self.is_stale)

    def _ask(self, body: dict[str, str]) -> requests.Response:
        endpoint = self.account.login_endpoint
        with requests.Session() as session:
            session.trust_env = False
            try:
                answer = session.post(endpoint, json=body, timeout=TIMEOUT, verify=self.verify, allow_redirects=False)
            except requests.RequestException as error:
                raise LoginError(f"{endpoint} does not answer: {type(error).__name__}") from error
        if answer.status_code != requests.codes.ok:
            reason = f"HTTP {answer.status_code}: {answer.text[:_MAX_TEXT]}"
            raise LoginError(f"DC/OS refused the login of {self.account.uid}: {reason}")
        return answer


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


#: Prefix of names of secrets that hold base64 (DC/OS documentation, Kerberos).
BASE64_PREFIX = "__dcos_base64__"
_BINARY = "application/octet-stream"


@dataclass(frozen=True, slots=True)
class SecretStore:
    """Client of the secret store. `verify`: file of trusted CAs; True: certifi's."""

    cluster: str
    credentials: Credentials
    verify: bool | str = True

    def read(self, source: SecretSource) -> bytes:
        """Return a secret's value. Raise SecretError, SourceUnavailableError."""
        answer = self._get(source)
        if answer.status_code == requests.codes.ok:
            if answer.headers.get("Content-Type", "").startswith(_BINARY):
                return answer.content
            try:
                value: bytes = answer.json()["value"].encode()
                is_base64 = source.path.rpartition("/")[2].startswith(BASE64_PREFIX)
                return base64.b64decode(value, validate=True) if is_base64 else value
            except (ValueError, KeyError, TypeError, AttributeError, binascii.Error):
                raise SecretError(f"{source}: the DC/OS secret store did not return a secret") from None
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
